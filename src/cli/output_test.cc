// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>

#include <functional>

#include <gtest/gtest.h>

namespace falaj::cli {
namespace {

// What `print` writes.
std::string printed(Format format, const std::function<void(const Output&)>& print) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* out = open_memstream(&text, &bytes);
  print(Output(out, format));
  std::fclose(out);
  std::string result(text, bytes);
  free(text);
  return result;
}

std::string table(const json::array& items, const std::vector<Column>& columns) {
  return printed(Format::table, [&](const Output& output) { output.table(items, columns); });
}

TEST(Table, LinesUpAndLeavesNoBlankAtTheEndOfALine) {
  EXPECT_EQ(table({{{"name", "a"}, {"zone", "uae-north"}}, {{"name", "longer"}, {"zone", ""}}},
                  {{"name", "name"}, {"zone", "zone"}}),
            "name    zone\n"
            "a       uae-north\n"
            "longer  -\n");
}

TEST(Table, LinesUpNamesInAnyScript) {
  const auto text = table({{{"name", "\u0641\u0644\u062c"}, {"n", 1}},  // three Arabic letters, one column each
                           {{"name", "\u6c34\u8def"}, {"n", 2}},        // two ideographs, two columns each
                           {{"name", "e\u0301"}, {"n", 3}}},            // a letter and an accent over it
                          {{"name", "name"}, {"n", "n"}});
  EXPECT_EQ(text, "name  n\n\u0641\u0644\u062c   1\n\u6c34\u8def  2\ne\u0301     3\n");
}

TEST(Table, SaysWhenThereIsNothing) {
  EXPECT_EQ(table({}, {{"name", "name"}}), "none\n");
  EXPECT_EQ(printed(Format::json, [](const Output& o) { o.table({}, {{"name", "name"}}); }), "[]\n");
}

TEST(Table, ShowsEachKindOfValueForPeople) {
  using As = Column::As;
  const json::object item{{"whole", 7},
                          {"share", 1.0},
                          {"level", 0.01},
                          {"size", 1536},
                          {"at", 0},
                          {"took", 1'500'000},
                          {"digest", "0123456789abcdef"},
                          {"list", {"a", "b"}},
                          {"labels", {{"k", "v"}}},
                          {"yes", true},
                          {"nothing", nullptr},
                          {"deep", {{"er", "x"}}}};
  EXPECT_EQ(printed(Format::table,
                    [&](const Output& output) {
                      output.details(item, {{"whole", "whole"},
                                            {"share", "share"},
                                            {"level", "level"},
                                            {"size", "size", As::bytes},
                                            {"at", "at", As::time},
                                            {"took", "took", As::duration},
                                            {"digest", "digest", As::digest},
                                            {"list", "list"},
                                            {"labels", "labels"},
                                            {"yes", "yes"},
                                            {"nothing", "nothing"},
                                            {"deep", "deep.er"},
                                            {"absent", "deep.other"}});
                    }),
            "whole    7\n"
            "share    1.0\n"
            "level    0.01\n"
            "size     1.5 KiB\n"
            "at       never\n"
            "took     1.5 s\n"
            "digest   0123456789ab\n"
            "list     a, b\n"
            "labels   k=v\n"
            "yes      true\n"
            "nothing  -\n"
            "deep     x\n"
            "absent   -\n");
}

TEST(Table, CannotDriveTheTerminal) {
  const auto text = table({{{"name",
                             "\x1b[2Jgone\r\n\x7f\xc2\x9b"
                             "31m"}}},
                          {{"name", "name"}});
  EXPECT_EQ(text, "name\n?[2Jgone????31m\n");
}

TEST(Harmless, KeepsEverythingThatIsOnlyText) {
  EXPECT_EQ(harmless("caf\u00e9 \u00a0\u0641\u6c34 ~"), "caf\u00e9 \u00a0\u0641\u6c34 ~");
  EXPECT_EQ(harmless("\xc2"), "\xc2");  // cut in the middle of a character: nothing is read past the end
}

TEST(Output, GivesMachinesExactlyWhatTheServerSaid) {
  const json::object item{{"name", "\x1b[0m"}, {"bytes", 1536}};
  EXPECT_EQ(parse_json(printed(Format::json, [&](const Output& o) { o.details(item, {{"bytes", "bytes"}}); })), item);
  EXPECT_EQ(printed(Format::yaml, [&](const Output& o) { o.details({{"bytes", 1536}}, {}); }), "bytes: 1536\n");
  EXPECT_EQ(printed(Format::json, [](const Output& o) { o.line("only for people"); }), "");
}

TEST(ExitStatus, TellsEachKindOfFailureApart) {
  EXPECT_EQ(exit_status(Code::internal), 1);
  EXPECT_EQ(exit_status(Code::corrupt), 1);
  EXPECT_EQ(exit_status(Code::invalid), 2);
  EXPECT_EQ(exit_status(Code::not_found), 3);
  EXPECT_EQ(exit_status(Code::exists), 4);
  EXPECT_EQ(exit_status(Code::conflict), 4);
  EXPECT_EQ(exit_status(Code::denied), 5);
  EXPECT_EQ(exit_status(Code::unauthenticated), 6);
  EXPECT_EQ(exit_status(Code::exhausted), 7);
  EXPECT_EQ(exit_status(Code::unavailable), 7);
  EXPECT_EQ(exit_status(Code::deadline), 8);
  EXPECT_EQ(exit_status(Code::cancelled), 9);
}

}  // namespace
}  // namespace falaj::cli
