// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/yaml.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj {
namespace {

json::value one(std::string_view text) {
  auto documents = parse_yaml(text);
  EXPECT_EQ(documents.size(), 1U) << text;
  return documents.empty() ? json::value() : documents[0].value;
}

std::string message(std::string_view text) {
  try {
    parse_yaml(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "accepted";
}

TEST(Yaml, ReadsScalarsByTheCoreRules) {
  const std::pair<std::string_view, json::value> kCases[] = {
      {"null", nullptr},
      {"~", nullptr},
      {"true", true},
      {"False", false},
      {"yes", "yes"},
      {"on", "on"},
      {"0", 0},
      {"-12", -12},
      {"+7", 7},
      {"0o17", 15},
      {"0xfF", 255},
      {"007", 7},
      {"1.5", 1.5},
      {".5", 0.5},
      {"1.", 1.0},
      {"1e3", 1000.0},
      {"+1.5E-1", 0.15},
      {"1_000", "1_000"},
      {"12h", "12h"},
      {"1.2.3", "1.2.3"},
      {".", "."},
      {"e5", "e5"},
      {"\"12\"", "12"},
      {"'true'", "true"},
      {"\"\"", ""},
      {"2001-07-01", "2001-07-01"},
      {"\"a\\tb\"", "a\tb"},
      {"<<", "<<"},
      {"18446744073709551615", std::uint64_t{18446744073709551615U}},
      {"-9223372036854775808", INT64_MIN},
  };
  for (const auto& [text, wanted] : kCases) {
    const auto value = one("v: " + std::string(text)).at("v");
    EXPECT_EQ(value, wanted) << text;
    EXPECT_EQ(value.kind(), wanted.kind()) << text;
  }
  EXPECT_EQ(one("v:").at("v"), nullptr);
  EXPECT_EQ(one("v: |\n  a\n  b\n").at("v"), "a\nb\n");
}

TEST(Yaml, ReadsSeveralDocumentsAndNone) {
  const auto documents = parse_yaml("a: 1\n---\n- x\n- {y: [2, 3]}\n...\n---\nz\n");
  ASSERT_EQ(documents.size(), 3U);
  EXPECT_EQ(documents[0].value, parse_json(R"({"a":1})"));
  EXPECT_EQ(documents[1].value, parse_json(R"(["x",{"y":[2,3]}])"));
  EXPECT_EQ(documents[2].value, "z");
  EXPECT_TRUE(parse_yaml("").empty());
  EXPECT_TRUE(parse_yaml("# only a comment\n").empty());
}

TEST(Yaml, KnowsWhereEachValueStands) {
  const auto document = parse_yaml("kind: Role\nspec:\n  rules:\n    - allow: read\n    - deny: {all: 1}\n")[0];
  EXPECT_EQ(document.position("kind"), (Position{1, 1}));
  EXPECT_EQ(document.position("spec.rules"), (Position{3, 3}));
  EXPECT_EQ(document.position("spec.rules[1]"), (Position{5, 7}));
  EXPECT_EQ(document.position("spec.rules[1].deny.all"), (Position{5, 14}));
  EXPECT_EQ(document.position("spec.rules[1].missing"), (Position{5, 7}));
  EXPECT_EQ(document.position("nowhere[3]"), (Position{1, 1}));
}

TEST(Yaml, RefusesWhatJsonCannotHoldAndWhatGrows) {
  EXPECT_EQ(message("a: 1\nb: &x 2\n"), "yaml: line 2, column 4: anchors are not allowed");
  EXPECT_EQ(message("a: 1\na: 2\n"), "yaml: line 2, column 1: key 'a' is there twice");
  EXPECT_EQ(message("{a: 1, \"a\": 2}"), "yaml: line 1, column 8: key 'a' is there twice");
  EXPECT_EQ(message("a:\n  - !!python/object:os.system x\n"), "yaml: line 2, column 5: tags are not allowed");
  for (const auto* text : {"!!str a",        "!foo {a: 1}", "!!seq [1]",  "! {a: 1}",
                           "a: *x",          "&a [1]",      "[&a 1, *a]", "{[1]: 2}",
                           "{{a: 1}: 2}",    "~: 1",        "? \n: 1",    "v: .inf",
                           "v: -.INF",       "v: .NaN",     "v: 1e999",   "v: 99999999999999999999",
                           "v: \"\\uD800\"", "v: [",        "v: }",       "\tv: 1\n x",
                           "a: b: c",        "v: \"x"})
    EXPECT_NE(message(text), "accepted") << text;
  EXPECT_EQ(message("\xFF\xFE"), "yaml: not UTF-8");
  EXPECT_EQ(message("a: 1\nb: \x04\n"), "yaml: line 2, column 4: a control character");
  EXPECT_EQ(message(std::string_view("a\0b", 3)), "yaml: line 1, column 2: a control character");
}

TEST(Yaml, KeepsItsLimits) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_yaml(nested(kJsonDepthMax)));
  EXPECT_ERROR(parse_yaml(nested(kJsonDepthMax + 1)), Code::invalid);
  EXPECT_ERROR(parse_yaml(nested(500'000)), Code::invalid);
  EXPECT_NO_THROW(parse_yaml("[a, b]", {.nodes = 3}));
  EXPECT_ERROR(parse_yaml("[a, b, c]", {.nodes = 3}), Code::invalid);
  EXPECT_NO_THROW(parse_yaml("abcd", {.bytes = 4}));
  EXPECT_ERROR(parse_yaml("abcde", {.bytes = 4}), Code::invalid);
  EXPECT_NO_THROW(parse_yaml("? " + std::string(1024, 'k') + "\n: 1"));
  EXPECT_ERROR(parse_yaml("? " + std::string(1025, 'k') + "\n: 1"), Code::invalid);
}

// Long keys above many values: the positions would repeat the keys for every value.
TEST(Yaml, BoundsTheMemoryOfPositions) {
  std::string text;
  std::string indent;
  for (int i = 0; i < 30; ++i) {
    text += indent + std::string(900, 'k') + ":\n";
    indent += ' ';
  }
  text += indent + "[";
  for (int i = 0; i < 90'000; ++i) text += "1,";
  text += "1]\n";
  const auto document = parse_yaml(text)[0];
  std::size_t bytes = 0;
  for (const auto& [path, at] : document.positions) bytes += path.size();
  EXPECT_LE(bytes, std::size_t{8} << 20);
}

class RandomJson {
 public:
  explicit RandomJson(std::uint64_t seed) : rng_(seed) {}
  json::value value(int depth) {
    switch (rng_() % (depth > 0 ? 9 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return rng_() % 2 == 0;
      case 2:
        return static_cast<std::int64_t>(rng_()) >> (rng_() % 64);
      case 3:
        return std::ldexp(static_cast<double>(static_cast<std::int64_t>(rng_())), static_cast<int>(rng_() % 200) - 130);
      case 4:
      case 5:
        return json::value(text());
      case 6: {
        json::array out;
        for (auto n = rng_() % 4; n > 0; --n) out.push_back(value(depth - 1));
        return out;
      }
      default: {
        json::object out;
        for (auto n = rng_() % 4; n > 0; --n) out[text()] = value(depth - 1);
        return out;
      }
    }
  }

 private:
  std::string text() {
    static const std::string_view kPieces[] = {"a",
                                               "true",
                                               "null",
                                               "1",
                                               ".5",
                                               "- ",
                                               ": ",
                                               " #",
                                               "\n",
                                               "\t",
                                               "\"",
                                               "'",
                                               "\\",
                                               "{",
                                               "[",
                                               "&x",
                                               "*y",
                                               "!t",
                                               "%",
                                               "---",
                                               "...",
                                               " ",
                                               "~",
                                               "\xC3\xA9",
                                               "\x7F",
                                               "\x01",
                                               "\r",
                                               "<<",
                                               "?",
                                               "|",
                                               ">",
                                               ",",
                                               "0x1f",
                                               "1e3",
                                               "=",
                                               "@",
                                               "\xE2\x80\xA8",
                                               "\xC2\x85",
                                               "\xEF\xBB\xBF",
                                               "word",
                                               "/p/q",
                                               std::string_view("\0", 1)};
    std::string out;
    for (auto n = rng_() % 5; n > 0; --n) out += kPieces[rng_() % std::size(kPieces)];
    if (rng_() % 50 == 0) out += std::string(700, '"');
    return out;
  }
  std::mt19937_64 rng_;
};

TEST(Yaml, ReadsBackWhatItWrote) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const auto value = RandomJson(seed).value(4);
    const std::string text = to_yaml(value);
    try {
      const auto documents = parse_yaml(text);
      ASSERT_EQ(documents.size(), 1U) << "seed " << seed << "\n" << text;
      ASSERT_EQ(canonical(documents[0].value), canonical(value)) << "seed " << seed << "\n" << text;
    } catch (const Error& error) {
      FAIL() << "seed " << seed << ": " << error.what() << "\n" << text;
    }
  }
}

TEST(Yaml, WritesForPeople) {
  EXPECT_EQ(
      to_yaml(parse_json(
          R"({"kind":"Role","spec":{"rules":[{"allow":["read","write"],"on":"project/*"},{}],"size":1.0},"t":"true"})")),
      "kind: Role\nspec:\n  rules:\n    - allow:\n        - read\n        - write\n      \"on\": project/*\n    - "
      "{}\n  size: 1.0\nt: \"true\"\n");
}

}  // namespace
}  // namespace falaj
