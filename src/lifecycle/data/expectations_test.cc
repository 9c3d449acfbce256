// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/testing.h"

namespace falaj::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Expectations : public ::testing::Test {
 protected:
  Expectations() {
    f_.declare("flights",
               "{columns: [{name: id, type: int64}, {name: at, type: timestamp}, {name: code, type: text}]}");
  }
  void expect(const std::string& rules, const std::string& action = "refuse") {
    f_.apply(
        fmt::format("apiVersion: falaj/v1\nkind: Expectation\nmetadata: {{tenant: acme, project: flights, name: "
                    "sane}}\nspec: {{dataset: flights, action: {}, rules: [{}]}}\n",
                    action, rules));
  }
  // What was said of the rows: "" when they came in.
  std::string refusal(const std::string& rows) {
    try {
      f_.ingest("flights", "id,at,code\n" + rows);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid);
      std::string out;
      for (const auto& fault : e.faults()) out += fault.where + ": " + fault.what + "\n";
      return out;
    }
  }
  Datasets& data() { return *f_.datasets; }

  DataFixture f_{"sqlite"};
};

TEST_F(Expectations, EachRuleRefusesWhatItShould) {
  const struct {
    std::string rule, good, bad, said;
  } kCases[] = {
      {"{check: type, column: code, type: int32}", "1,,12\n", "1,,x\n", "1 of 1 rows fail: code is of type int32"},
      {"{check: range, column: id, min: 1, max: 9}", "1,,\n9,,\n,,\n", "1,,\n10,,\n", "id: row 2: 10\n"},
      {"{check: range, column: at, min: '2001-01-01'}", "1,2001-01-01,\n", "1,2000-12-31,\n",
       "at is at least 2001-01-01"},
      {"{check: set, column: code, values: [a, b]}", "1,,a\n1,,b\n", "1,,a\n1,,c\n", "code: row 2: c\n"},
      {"{check: pattern, column: code, pattern: upper, shortest: 3, longest: 3}", "1,,SEA\n", "1,,SEAT\n",
       "row 1: SEAT"},
      {"{check: pattern, column: code, pattern: uuid}", "1,,6f1c9f3e-0d5b-4a53-9c0f-2f1d3c4b5a69\n", "1,,6f1c\n",
       "row 1"},
      {"{check: pattern, column: code, pattern: email}", "1,,ada@example.org\n", "1,,ada@\n", "row 1: ada@"},
      {"{check: pattern, column: code, pattern: iso-date}", "1,,\"'2001-02-28\"\n", "", ""},
      {"{check: nulls, column: code, share: 0.5}", "1,,a\n2,,\n", "1,,\n2,,\n3,,a\n", "2 of 3 rows fail"},
      {"{check: unique, columns: [id, code]}", "1,,a\n1,,b\n", "1,,a\n2,,a\n1,,a\n", "id, code: row 3: 1, a"},
      {"{check: rows, min: 2}", "1,,\n2,,\n", "1,,\n", "1 rows; expected at least 2"},
      {"{check: freshness, column: at, within: 1d}", "1,2100-01-01,\n", "1,1999-01-01,\n", "newest at is"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.rule);
    if (c.bad.empty()) continue;
    expect(c.rule);
    const auto before = data().dataset(DataFixture::kFlights, "flights").versions;
    EXPECT_THAT(refusal(c.bad), HasSubstr(c.said));
    EXPECT_EQ(data().dataset(DataFixture::kFlights, "flights").versions, before);
    EXPECT_EQ(refusal(c.good), "");
    data().remove(DataFixture::kFlights, "flights", std::nullopt, DataFixture::act());
  }
}

TEST_F(Expectations, UniqueLooksAtWhatIsStored) {
  expect("{check: unique, columns: [id]}");
  EXPECT_EQ(refusal("1,,\n2,,\n"), "");
  EXPECT_THAT(refusal("3,,\n2,,\n"), HasSubstr("id: row 2: 2\n"));
  f_.ingest("flights", "id,at,code\n2,,\n", Format::csv, Mode::overwrite);
}

TEST_F(Expectations, DistributionIsComparedWithAVersion) {
  std::string same, other;
  for (int i = 0; i < 1000; ++i) {
    same += fmt::format("{},,{}\n", (i * 37) % 1000, i % 3 ? "a" : "b");
    other += fmt::format("{},,{}\n", i % 100, i % 30 ? "a" : "b");
  }
  expect("{check: distribution, column: id, distance: 0.1}, {check: distribution, column: code, version: 1}");
  EXPECT_EQ(refusal(same), "");
  EXPECT_EQ(refusal(same), "");
  const auto said = refusal(other);
  EXPECT_THAT(said, HasSubstr("id is "));
  EXPECT_THAT(said, HasSubstr("code is "));
}

TEST_F(Expectations, WarningsComeWithTheVersionAndResultsAreKept) {
  expect("{check: range, column: id, max: 5}, {check: rows, min: 1}", "warn");
  const auto version = f_.ingest("flights", "id,at,code\n7,,\n");
  EXPECT_THAT(version.warnings, ElementsAre("sane: 1 of 1 rows fail: id is at most 5"));
  expect("{check: range, column: id, max: 5}");
  EXPECT_NE(refusal("8,,\n"), "");
  const auto all = data().checks(DataFixture::kFlights, "flights", std::nullopt, 10);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_FALSE(all[0].version);  // refused
  EXPECT_FALSE(all[0].held);
  EXPECT_THAT(all[0].examples, ElementsAre("row 1: 8"));
  const auto kept = data().checks(DataFixture::kFlights, "flights", 1, 10);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].version, 1);
  EXPECT_FALSE(kept[0].held);
  EXPECT_TRUE(kept[1].held);
}

TEST_F(Expectations, SpecsThatMakeNoSenseAreRefused) {
  for (const std::string rule :
       {"{check: range, column: nowhere, min: 1}", "{check: range, column: id}", "{check: set, column: code}",
        "{check: pattern, column: code, pattern: nice}", "{check: unique}", "{check: freshness, column: at}",
        "{check: freshness, column: id, within: 1d}", "{check: type, column: code, type: number}",
        "{check: nulls, column: id, share: 2}", "{check: rows, min: many}", "{check: range, column: id, min: [1]}"}) {
    SCOPED_TRACE(rule);
    EXPECT_ERROR(expect(rule), Code::invalid);
  }
}

// What a file of an enemy, or of a broken program, may hold: refused, and nothing of it stays.
class Hostile : public ::testing::Test {
 protected:
  Hostile() : f_("sqlite", limits()) { f_.declare("d", "{columns: [{name: a, type: int64}, {name: b, type: text}]}"); }
  static DataLimits limits() {
    DataLimits out;
    out.room.memory_bytes = std::uint64_t{256} << 20;
    out.room.spill_bytes = std::uint64_t{64} << 20;
    return out;
  }
  void refused(const std::string& bytes, Format format) {
    try {
      f_.ingest("d", bytes, format);
      ADD_FAILURE() << "it came in";
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == Code::invalid || e.code() == Code::exhausted) << name(e.code()) << ": " << e.what();
      EXPECT_LT(std::string(e.what()).size(), 5000U);
      EXPECT_TRUE(is_utf8(e.what()));
    }
    EXPECT_EQ(f_.datasets->dataset(DataFixture::kFlights, "d").versions, 0);
    EXPECT_TRUE(f_.base.vault->list(DataFixture::kFlights, "@data/", "", 10).empty());
  }
  std::string parquet() {
    table::Workspace room({}, *f_.scratch);
    std::string out;
    room.put("out", table::sink_to([&](BytesView piece) { out += as_text(piece); }));
    room.run("COPY (SELECT i AS a, 'text ' || i AS b FROM range(1000) t(i)) TO 'out' (FORMAT parquet)");
    return out;
  }

  DataFixture f_;
};

TEST_F(Hostile, ParquetThatIsCutOrLies) {
  const auto good = parquet();
  for (const auto size : {std::size_t{4}, std::size_t{11}, good.size() / 2, good.size() - 1})
    refused(good.substr(0, size), Format::parquet);
  refused("PAR1PAR1", Format::parquet);
  auto lies = good;  // the footer's length points before the file
  lies[lies.size() - 6] = '\x7f';
  refused(lies, Format::parquet);
  for (std::size_t at = good.size() - 200; at < good.size() - 8; at += 7) {
    auto bent = good;
    bent[at] = static_cast<char>(bent[at] ^ 0x55);
    try {  // some bits mean nothing; none may end the process
      f_.ingest("d", bent, Format::parquet);
    } catch (const Error&) {
    }
  }
  EXPECT_NO_THROW(f_.ingest("d", good, Format::parquet, Mode::overwrite));
}

TEST_F(Hostile, CsvOfTooManyColumnsOrNoEnd) {
  std::string wide = "a,b", row = "1,x";
  for (int i = 0; i < 10'000; ++i) wide += fmt::format(",c{}", i), row += ",1";
  refused(wide + "\n" + row + "\n", Format::csv);
  refused("a,b\n1,\"never closed\n" + std::string(5 << 20, 'x'), Format::csv);
  refused("a,b\n1,x\nnot a number,y\n", Format::csv);
  refused("a,b\n1,\xff\xfe\n", Format::csv);
}

TEST_F(Hostile, GzipThatGrows) {
  table::Workspace room({}, *f_.scratch);
  std::string bomb;
  room.put("out", table::sink_to([&](BytesView piece) { bomb += as_text(piece); }));
  room.run("COPY (SELECT 1 AS a, repeat('x', 1000) AS b FROM range(500000)) TO 'out' (FORMAT csv, COMPRESSION gzip)");
  ASSERT_LT(bomb.size(), 5U << 20);  // of half a gigabyte
  refused(bomb, Format::csv);
}

TEST_F(Hostile, JsonThatIsDeepOrNone) {
  std::string deep = "{\"a\": 1, \"b\": ";
  refused(deep + std::string(100'000, '[') + std::string(100'000, ']') + "}\n", Format::jsonl);
  EXPECT_ERROR(f_.datasets->infer(DataFixture::kFlights, "d",
                                  f_.upload("d", deep + std::string(100'000, '[') + std::string(100'000, ']') + "}\n"),
                                  Format::jsonl),
               Code::invalid);
  refused("{\"a\": 1\n", Format::jsonl);
  refused("{\"a\": {\"x\": 1}}\n", Format::jsonl);
  refused(std::string("{\"a\": 1, \"b\": \"\xff\"}\n"), Format::jsonl);
}

}  // namespace
}  // namespace falaj::data
