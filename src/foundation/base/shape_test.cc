// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/shape.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj {
namespace {
struct Inner {
  std::string name;
  std::vector<std::string> tags;
};
struct Outer {
  std::int64_t wait_us = 5;
  std::int64_t size = 0;
  double share = 0.5;
  bool on = false;
  std::optional<std::int64_t> most;
  std::vector<Inner> inner;
  std::map<std::string, std::string> labels;
  std::string mode = "a";
};
constexpr std::string_view kModes[] = {"a", "b"};

struct First {
  std::int64_t one = 0;
};
struct Second {
  std::string two;
};
struct Both : First, Second {};
struct Wrong : First, Second {};
struct Tree {
  std::string name;
  std::vector<Tree> below;
};
}  // namespace

template <>
struct Shape<Inner> {
  static constexpr std::string_view name = "Inner";
  static Fields fields() {
    return {field("name", &Inner::name, "Its name.").required().text({is_name, kNameRule}),
            field("tags", &Inner::tags, "Words.").length(0, 2)};
  }
};
template <>
struct Shape<Outer> {
  static constexpr std::string_view name = "Outer";
  static Fields fields() {
    return {field("wait", &Outer::wait_us, "Wait.").duration().range(1, 60'000'000),
            field("size", &Outer::size, "Size.").bytes(),
            field("share", &Outer::share, "Share.").range(0, 1),
            field("on", &Outer::on, "On."),
            field("most", &Outer::most, "Most."),
            field("inner", &Outer::inner, "Parts."),
            field("labels", &Outer::labels, "Labels."),
            field("mode", &Outer::mode, "Mode.").one_of(kModes)};
  }
};
template <>
struct Shape<Both> {
  static constexpr std::string_view name = "Both";
  static Fields fields() { return {field<Both>("one", &Both::one, ""), field<Both>("two", &Both::two, "")}; }
};
template <>
struct Shape<Wrong> {
  static constexpr std::string_view name = "Wrong";
  static Fields fields() { return {field("two", &Wrong::two, "")}; }
};
template <>
struct Shape<Tree> {
  static constexpr std::string_view name = "Tree";
  static Fields fields() { return {field("name", &Tree::name, "").required(), field("below", &Tree::below, "")}; }
};

namespace {

TEST(Shape, MembersOfBasesAreWhereTheyAre) {
  const auto both = decode<Both>(parse_json(R"({"one":1,"two":"2"})"), "reading");
  EXPECT_EQ(both.one, 1);
  EXPECT_EQ(both.two, "2");
  EXPECT_EQ(canonical(encode(both)), R"({"one":1,"two":"2"})");
  EXPECT_DEATH(decode<Wrong>(json::object{}, "reading"), "a base's is told by field<T>");
}

TEST(Shape, AStructMayHoldItself) {
  const auto text = R"({"below":[{"below":[],"name":"b"},{"below":[{"below":[],"name":"d"}],"name":"c"}],"name":"a"})";
  EXPECT_EQ(canonical(encode(decode<Tree>(parse_json(text), "reading"))), text);
  json::object definitions;
  schema_of<Tree>(definitions);
  EXPECT_EQ(definitions.at("Tree").at("properties").at("below").at("items").at("$ref"), "#/components/schemas/Tree");
}

TEST(Shape, DecodesAndEncodesWhatItDescribes) {
  const auto v = parse_json(R"({"wait":"30s","size":"1KiB","share":1,"on":true,"inner":[{"name":"x","tags":["t"]}],
                               "labels":{"k":"v"},"mode":"b"})");
  const auto o = decode<Outer>(v, "reading");
  EXPECT_EQ(o.wait_us, 30'000'000);
  EXPECT_EQ(o.size, 1024);
  EXPECT_EQ(o.inner.at(0).tags.at(0), "t");
  EXPECT_FALSE(o.most);
  EXPECT_EQ(canonical(encode(decode<Outer>(encode(o), "again"))), canonical(encode(o)));
}

TEST(Shape, NamesEveryFaultAtOnce) {
  const auto v =
      parse_json(R"({"wait":"soon","share":2,"on":"yes","inner":[{"name":"Bad Name","tags":["1","2","3"]},{}],
                               "mode":"c","lables":{},"most":1.5})");
  try {
    decode<Outer>(v, "reading");
    FAIL();
  } catch (const Error& e) {
    std::map<std::string, std::string> by_path;
    for (const auto& f : e.faults()) by_path[f.where] = f.what;
    EXPECT_EQ(by_path.size(), 9U);
    EXPECT_EQ(by_path["lables"], "unknown field; did you mean 'labels'?");
    EXPECT_EQ(by_path["inner[1].name"], "required, but missing");
    EXPECT_EQ(by_path["mode"], "must be one of a, b, not 'c'");
    EXPECT_EQ(by_path["inner[0].tags"], "must have 0 to 2 entries, not 3");
    EXPECT_EQ(by_path["share"], "must be 0 to 1, not 2");
    EXPECT_TRUE(by_path.contains("most"));
    EXPECT_TRUE(by_path.contains("wait"));
    EXPECT_TRUE(by_path.contains("on"));
    EXPECT_TRUE(by_path.contains("inner[0].name"));
  }
}

TEST(Shape, GivesASchema) {
  json::object definitions;
  EXPECT_EQ(schema_of<Outer>(definitions).at("$ref"), "#/components/schemas/Outer");
  EXPECT_EQ(definitions.at("Inner").at("required").at(0), "name");
  EXPECT_EQ(definitions.at("Outer").at("properties").at("mode").at("enum").at(1), "b");
  EXPECT_EQ(definitions.at("Outer").at("properties").at("inner").at("items").at("$ref"), "#/components/schemas/Inner");
}

}  // namespace
}  // namespace falaj
