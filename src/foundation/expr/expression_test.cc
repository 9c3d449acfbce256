// SPDX-License-Identifier: Apache-2.0
// What each piece of the language gives, what it gives for null, and what is said about each mistake.
#include "foundation/expr/expression.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <deque>
#include <limits>
#include <random>
#include <tuple>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::expr {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                       kMost = std::numeric_limits<std::int64_t>::max();

const std::vector<Input> kInputs = {
    {"b", Type::boolean},       {"i", Type::int64},       {"x", Type::float64}, {"s", Type::text},
    {"at", Type::timestamp},    {"nb", Type::boolean},    {"ni", Type::int64},  {"nx", Type::float64},
    {"ns", Type::text},         {"nat", Type::timestamp}, {"end", Type::int64}, {"airport:mean_3h", Type::float64},
    {"distance", Type::float64}};

std::vector<Value> values() {
  return {Value::boolean(true),
          Value::int64(7),
          Value::float64(2.5),
          Value::text("LHR"),
          Value::timestamp(*parse_time("2024-02-29T13:45:10.5Z")),
          Value(),
          Value(),
          Value(),
          Value(),
          Value(),
          Value::int64(12),
          Value::float64(0.5),
          Value::float64(1200)};
}

Value eval(std::string_view text) {
  const auto expression = Expression::compile(text, kInputs);
  const Value out = expression.evaluate(values());
  EXPECT_TRUE(out.is_null() || out.is(expression.type())) << text;
  if (!out.is(Type::text)) return out;
  // The expression is gone when the caller looks; a literal would be too.
  static std::deque<std::string> kept;
  return Value::text(kept.emplace_back(out.as_text()));
}

std::string message(std::string_view text, std::span<const Input> inputs = kInputs) {
  try {
    Expression::compile(text, inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "compiles";
}

const Value kNull{}, kTrue = Value::boolean(true), kFalse = Value::boolean(false);
Value I(std::int64_t v) { return Value::int64(v); }
Value R(double v) { return Value::float64(v); }
Value S(std::string_view v) { return Value::text(v); }

struct Case {
  std::string text;
  Value wanted;
};
void expect(std::initializer_list<Case> cases) {
  for (const auto& c : cases) EXPECT_EQ(eval(c.text), c.wanted) << c.text;
}

}  // namespace

void PrintTo(const Value& v, std::ostream* out) {
  if (v.is_null()) *out << "null";
  if (v.is(Type::boolean)) *out << (v.as_boolean() ? "true" : "false");
  if (v.is(Type::int64)) *out << "int64 " << v.as_int64();
  if (v.is(Type::float64)) *out << "float64 " << v.as_float64();
  if (v.is(Type::text)) *out << '\'' << v.as_text() << '\'';
  if (v.is(Type::timestamp)) *out << "timestamp " << v.as_timestamp();
}

namespace {

TEST(Value, HoldsNoInfinityAndNoNan) {
  EXPECT_EQ(sizeof(Value), 16U);
  EXPECT_TRUE(R(std::numeric_limits<double>::infinity()).is_null());
  EXPECT_TRUE(R(-std::numeric_limits<double>::infinity()).is_null());
  EXPECT_TRUE(R(std::nan("")).is_null());
  EXPECT_EQ(R(std::numeric_limits<double>::max()).as_float64(), std::numeric_limits<double>::max());
  EXPECT_NE(I(1), R(1));
  EXPECT_NE(I(1), Value::timestamp(1));
  EXPECT_NE(S("a"), S("b"));
  EXPECT_EQ(Value(), Value());
  EXPECT_DEATH((void)I(1).as_float64(), "read as what it is");
}

TEST(Expression, Literals) {
  expect({{"1", I(1)},
          {"1.5", R(1.5)},
          {"1e3", R(1000)},
          {"2.5E-1", R(0.25)},
          {"1e+2", R(100)},
          {"007", I(7)},
          {"'it''s'", S("it's")},
          {"''", S("")},
          {"''''", S("'")},
          {"'\xC3\xA9'", S("\xC3\xA9")},
          {"true", kTrue},
          {"FALSE", kFalse},
          {"-3", I(-3)},
          {"- 3", I(-3)},
          {"-1.5", R(-1.5)},
          {"9223372036854775807", I(kMost)},
          {"-9223372036854775808", I(kLeast)},
          {"9223372036854775808.0", R(9223372036854775808.0)}});
}

TEST(Expression, NamesAndSpaces) {
  expect({{"i", I(7)}, {"\ti\r\n", I(7)}, {"\"end\"", I(12)}, {"\"airport:mean_3h\" * 2", R(1)}, {"s", S("LHR")}});
  const Input odd[] = {{"a\"b", Type::int64}, {"I", Type::int64}, {"i", Type::int64}, {"year", Type::int64}};
  const Value v[] = {I(1), I(2), I(3), I(4)};
  EXPECT_EQ(Expression::compile("\"a\"\"b\"", odd).evaluate(v), I(1));
  EXPECT_EQ(Expression::compile("I - i", odd).evaluate(v), I(-1));  // names are told apart by case, keywords are not
  EXPECT_EQ(Expression::compile("year + year", odd).evaluate(v), I(8));  // a function is called
}

TEST(Expression, Arithmetic) {
  expect(
      {{"i + 1", I(8)},  {"i - 10", I(-3)},   {"i * 3", I(21)},          {"i / 2", R(3.5)},    {"6 / 3", R(2)},
       {"i % 4", I(3)},  {"-7 % 4", I(-3)},   {"7 % -4", I(3)},          {"7.5 % 2", R(1.5)},  {"-7.5 % 2", R(-1.5)},
       {"-i", I(-7)},    {"- -i", I(7)},      {"-x", R(-2.5)},           {"i + x", R(9.5)},    {"x - i", R(-4.5)},
       {"x * 2", R(5)},  {"1 + 2 * 3", I(7)}, {"(1 + 2) * 3", I(9)},     {"10 - 3 - 2", I(5)}, {"100 / 10 / 5", R(2)},
       {"2 - -3", I(5)}, {"-i * 2", I(-14)},  {"1 + 1 / 2 + 1", R(2.5)}, {"i-1", I(6)}});
}

TEST(Expression, WhatHasNoResultIsNull) {
  expect({{"9223372036854775807 + i", kNull},
          {"-9223372036854775807 - i", kNull},
          {"9223372036854775807 * i", kNull},
          {"-(-9223372036854775808)", kNull},
          {"abs(-9223372036854775808)", kNull},
          {"i / 0", kNull},
          {"0 / 0", kNull},
          {"x / 0.0", kNull},
          {"i % 0", kNull},
          {"x % 0", kNull},
          {"(-9223372036854775808) % -1", I(0)},
          {"(-9223372036854775807 - 1) % (i - 8)", I(0)},
          {"1e308 * 10", kNull},
          {"-1e308 - 1e308", kNull},
          {"ln(0)", kNull},
          {"ln(-x)", kNull},
          {"log10(-1)", kNull},
          {"sqrt(-1)", kNull},
          {"exp(1000)", kNull},
          {"pow(-1, 0.5)", kNull},
          {"pow(0, -1)", kNull},
          {"pow(10, 400)", kNull},
          {"coalesce(i / 0, -1)", R(-1)},
          {"i / 0 is null", kTrue}});
}

TEST(Expression, NullGoesThroughArithmeticAndFunctions) {
  for (const auto* text : {"ni + 1",
                           "1 - ni",
                           "nx * x",
                           "i / nx",
                           "ni % 2",
                           "-ni",
                           "-nx",
                           "abs(ni)",
                           "floor(nx)",
                           "sqrt(ni)",
                           "pow(x, nx)",
                           "pow(nx, 0)",
                           "clip(nx, 0, 1)",
                           "clip(x, nx, 1)",
                           "clip(x, 0, ni)",
                           "year(nat)",
                           "epoch(nat)",
                           "at - nat",
                           "nat - at",
                           "length(ns)",
                           "bucket(nx, 1, 2)",
                           "null + i",
                           "year(null)",
                           "length(null)",
                           "ni = 1",
                           "ns != 'a'",
                           "nx < 1",
                           "nat >= at",
                           "nb = true",
                           "not nb",
                           "ns in ('a')",
                           "least(ni, nx)",
                           "coalesce(ni, nx)",
                           "case when nb then 1 end",
                           "if(b, null, 1)",
                           "null * null + i"})
    EXPECT_EQ(eval(text), kNull) << text;
}

TEST(Expression, Comparison) {
  expect({{"i = 7", kTrue},       {"i != 7", kFalse},          {"i <> 8", kTrue},
          {"i < 7", kFalse},      {"i <= 7", kTrue},           {"i > 6", kTrue},
          {"i >= 8", kFalse},     {"x = 2.5", kTrue},          {"x != 2.5", kFalse},
          {"x < 3", kTrue},       {"x <= 2", kFalse},          {"2 < x", kTrue},
          {"x > i", kFalse},      {"x >= 2.5", kTrue},         {"1 = 1.0", kTrue},
          {"s = 'LHR'", kTrue},   {"s = 'lhr'", kFalse},       {"s <> 'LHR'", kFalse},
          {"s = 'LHRX'", kFalse}, {"b = true", kTrue},         {"b != true", kFalse},
          {"at = at", kTrue},     {"at < at", kFalse},         {"at <= at", kTrue},
          {"1 + 1 = 2", kTrue},   {"(1 < 2) = (3 < 4)", kTrue}});
}

TEST(Expression, ThreeValuedLogic) {
  const std::pair<const char*, Value> all[] = {{"b", kTrue}, {"(not b)", kFalse}, {"nb", kNull}};
  for (const auto& [l, lv] : all)
    for (const auto& [r, rv] : all) {
      const bool has_false = lv == kFalse || rv == kFalse, has_true = lv == kTrue || rv == kTrue;
      const bool has_null = lv == kNull || rv == kNull;
      EXPECT_EQ(eval(std::string(l) + " and " + r), has_false ? kFalse : has_null ? kNull : kTrue) << l << r;
      EXPECT_EQ(eval(std::string(l) + " or " + r), has_true ? kTrue : has_null ? kNull : kFalse) << l << r;
    }
  expect({{"not b", kFalse},
          {"not not b", kTrue},
          {"not nb", kNull},
          {"true or nb and false", kTrue},
          {"true OR true AND false", kTrue},
          {"(true or true) and false", kFalse},
          {"not false and false", kFalse},
          {"not (false and false)", kTrue},
          {"not i = 8", kTrue},
          {"null and false", kFalse},
          {"null or true", kTrue}});
}

TEST(Expression, IsNullAndIn) {
  expect({{"ni is null", kTrue},
          {"ni is not null", kFalse},
          {"i is null", kFalse},
          {"i IS NOT NULL", kTrue},
          {"null is null", kTrue},
          {"ns is null", kTrue},
          {"ni + 1 is null", kTrue},
          {"not ni is null", kFalse},
          {"ni is null and b", kTrue},
          {"i in (1, 7)", kTrue},
          {"i in (1, 2)", kFalse},
          {"i in (7)", kTrue},
          {"i in (1, ni)", kNull},
          {"i in (7, ni)", kTrue},
          {"i in (ni, 7)", kTrue},
          {"i not in (1, 2)", kTrue},
          {"i not in (1, 7)", kFalse},
          {"i not in (1, ni)", kNull},
          {"ni in (1)", kNull},
          {"s in ('JFK', 'LHR')", kTrue},
          {"s in ('JFK', 'lhr')", kFalse},
          {"i in (6.5, 7.0)", kTrue},
          {"x in (2, 2.5)", kTrue},
          {"b in (false, not b)", kFalse},
          {"at in (nat, at)", kTrue},
          {"i + 1 in (i + 2, i * 2 - 6)", kTrue},
          {"i in (1) or b", kTrue}});
}

TEST(Expression, Conditionals) {
  expect({{"case when i > 5 then 'big' else 'small' end", S("big")},
          {"case when i > 9 then 'big' else 'small' end", S("small")},
          {"case when nb then 1 else 2 end", I(2)},
          {"case when i = 1 then 1 when i = 7 then 7 else 0 end", I(7)},
          {"case when i = 1 then 1 end", kNull},
          {"case when b then 1 else 2.5 end", R(1)},
          {"case when b then i else x end", R(7)},
          {"case when b then null else 1 end", kNull},
          {"case when not b then null else i end", I(7)},
          {"if(b, 1, 2)", I(1)},
          {"if(nb, 1, 2)", I(2)},
          {"if(null, 1, 2)", I(2)},
          {"IF(i < 1, s, 'none')", S("none")},
          {"1 + if(b, if(not b, 10, 20), 30) * 2", I(41)},
          {"case when case when b then nb else b end then 1 else case when b then 2 else 3 end end", I(2)},
          {"case when distance > 1000 then x * 2 else coalesce(nx, 0) end", R(5)},
          {"case when distance > 2000 then x * 2 else coalesce(nx, 0) end", R(0)},
          {"coalesce(ni, nx, i, 1)", R(7)},
          {"coalesce(ni, 3)", I(3)},
          {"coalesce(ns, s)", S("LHR")},
          {"coalesce(null, ni, 4)", I(4)},
          {"coalesce(i, 1)", I(7)}});
}

TEST(Expression, Functions) {
  expect({{"abs(-3)", I(3)},
          {"abs(-x)", R(2.5)},
          {"floor(-x)", R(-3)},
          {"ceil(-x)", R(-2)},
          {"floor(i)", I(7)},
          {"ceil(i)", I(7)},
          {"round(i)", I(7)},
          {"round(2.5)", R(3)},
          {"round(-2.5)", R(-3)},
          {"round(2.4)", R(2)},
          {"sqrt(16)", R(4)},
          {"ln(1)", R(0)},
          {"log10(1000)", R(3)},
          {"exp(0)", R(1)},
          {"pow(2, 10)", R(1024)},
          {"ABS(-1)", I(1)},
          {"least(3, i, 5)", I(3)},
          {"greatest(3, i, 5)", I(7)},
          {"least(i, x)", R(2.5)},
          {"greatest(ni, 1)", I(1)},
          {"least(1, ni)", I(1)},
          {"greatest(at, nat) = at", kTrue},
          {"least(1.5, 2)", R(1.5)},
          {"greatest(x, 9)", R(9)},
          {"greatest(i, x)", R(7)},
          {"bucket(i, -5, -3, 9)", I(2)},
          {"bucket(-4, -5, -3)", I(1)},
          {"clip(i, 0, 5)", I(5)},
          {"clip(i, 8, 9)", I(8)},
          {"clip(i, 0, 9)", I(7)},
          {"clip(x, 0, 1)", R(1)},
          {"clip(i, 9, 1)", I(1)},
          {"clip(at, at, at) = at", kTrue},
          {"bucket(i, 1, 7, 9)", I(2)},
          {"bucket(i, 8)", I(0)},
          {"bucket(100, 1, 2, 3)", I(3)},
          {"bucket(x, 1, 2.5, 3)", I(2)},
          {"bucket(i, 6.5, 7.5)", I(1)},
          {"bucket(x, -1, 0)", I(2)},
          {"bucket(i, 9007199254740992, 9007199254740993)", I(0)},
          {"length(s)", I(3)},
          {"length('')", I(0)},
          {"length('\xC3\xA9t\xC3\xA9')", I(3)}});
}

TEST(Expression, TimestampsAndTheirDifference) {
  expect({{"year(at)", I(2024)},
          {"month(at)", I(2)},
          {"day(at)", I(29)},
          {"hour(at)", I(13)},
          {"minute(at)", I(45)},
          {"day_of_week(at)", I(4)},
          {"day_of_year(at)", I(60)},
          {"epoch(at)", R(1709214310.5)},
          {"at - at", R(0)},
          {"epoch(at) - epoch(at)", R(0)}});
  const Input two[] = {{"a", Type::timestamp}, {"b", Type::timestamp}};
  const auto difference = Expression::compile("a - b", two);
  EXPECT_EQ(difference.type(), Type::float64);
  const auto of = [&](std::int64_t a, std::int64_t b) {
    const Value v[] = {Value::timestamp(a), Value::timestamp(b)};
    return difference.evaluate(v);
  };
  EXPECT_EQ(of(1'500'000, -500'000), R(2));
  EXPECT_EQ(of(0, 1), R(-1e-6));
  EXPECT_EQ(of(kMost, -1), kNull);
}

struct Day {
  std::int64_t us, year, month, day, hour, minute, day_of_week, day_of_year;
};
// From another implementation of the calendar.
constexpr Day kDays[] = {
    {-62135596800000000, 1, 1, 1, 0, 0, 1, 1},
    {-62104060800000001, 1, 12, 31, 23, 59, 1, 365},
    {-62035848000000000, 4, 2, 29, 12, 0, 7, 60},
    {-59006448000000000, 100, 2, 28, 0, 0, 7, 59},
    {-59006361600000000, 100, 3, 1, 0, 0, 1, 60},
    {-49539340800000000, 400, 2, 29, 0, 0, 2, 60},
    {-12219701400000000, 1582, 10, 10, 6, 30, 7, 283},
    {-11670998400000000, 1600, 2, 29, 0, 0, 2, 60},
    {-6858000000000000, 1752, 9, 5, 0, 0, 2, 249},
    {-2203891260000000, 1900, 2, 28, 23, 59, 3, 59},
    {-2203891200000000, 1900, 3, 1, 0, 0, 4, 60},
    {-1, 1969, 12, 31, 23, 59, 3, 365},
    {-31535999999999, 1969, 1, 1, 0, 0, 3, 1},
    {-58057077000000, 1968, 2, 29, 1, 2, 4, 60},
    {0, 1970, 1, 1, 0, 0, 4, 1},
    {94694340000000, 1972, 12, 31, 23, 59, 7, 366},
    {951797100000000, 2000, 2, 29, 4, 5, 2, 60},
    {978220800000000, 2000, 12, 31, 0, 0, 7, 366},
    {978307200000000, 2001, 1, 1, 0, 0, 1, 1},
    {1577664000000000, 2019, 12, 30, 0, 0, 1, 364},
    {1677628799999999, 2023, 2, 28, 23, 59, 2, 59},
    {1709214300000000, 2024, 2, 29, 13, 45, 4, 60},
    {1735603200000000, 2024, 12, 31, 0, 0, 2, 366},
    {1794807120000000, 2026, 11, 16, 5, 32, 1, 320},
    {2147483648000000, 2038, 1, 19, 3, 14, 2, 19},
    {4107542400000000, 2100, 3, 1, 0, 0, 1, 60},
    {253402300799999999, 9999, 12, 31, 23, 59, 5, 365},
};

std::vector<std::int64_t> parts(std::int64_t us) {
  static const auto kParts = [] {
    const Input at[] = {{"at", Type::timestamp}};
    std::vector<Expression> out;
    for (const auto* part : {"year", "month", "day", "hour", "minute", "day_of_week", "day_of_year"})
      out.push_back(Expression::compile(std::string(part) + "(at)", at));
    return out;
  }();
  const Value v[] = {Value::timestamp(us)};
  std::vector<std::int64_t> out;
  for (const auto& part : kParts) out.push_back(part.evaluate(v).as_int64());
  return out;
}

TEST(Expression, DatePartsOfKnownDays) {
  for (const auto& d : kDays)
    EXPECT_EQ(parts(d.us), (std::vector{d.year, d.month, d.day, d.hour, d.minute, d.day_of_week, d.day_of_year}))
        << d.us;
}

TEST(Expression, DatePartsAgreeWithTheSystemOverAllOfTime) {
  std::mt19937_64 random(17);
  for (int n = 0; n < 5'000; ++n) {
    // From within a day of 1970 to 290,000 years off; and the two ends.
    const std::int64_t us = n == 0 ? kLeast : n == 1 ? kMost : static_cast<std::int64_t>(random()) >> random() % 28;
    const std::time_t seconds = us / 1'000'000 - (us % 1'000'000 < 0 ? 1 : 0);
    std::tm t{};
    ASSERT_NE(gmtime_r(&seconds, &t), nullptr);
    EXPECT_EQ(parts(us), (std::vector<std::int64_t>{t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min,
                                                    t.tm_wday == 0 ? 7 : t.tm_wday, t.tm_yday + 1}))
        << us;
  }
}

TEST(Expression, TypesAreKnownWhenCompiled) {
  const std::pair<const char*, Type> cases[] = {{"i + 1", Type::int64},
                                                {"i + 1.0", Type::float64},
                                                {"i / 1", Type::float64},
                                                {"i = 1", Type::boolean},
                                                {"coalesce(null, i)", Type::int64},
                                                {"if(b, null, x)", Type::float64},
                                                {"if(b, i, x)", Type::float64},
                                                {"least(at, nat)", Type::timestamp},
                                                {"bucket(x, 1)", Type::int64},
                                                {"epoch(at)", Type::float64},
                                                {"year(at)", Type::int64},
                                                {"length(s)", Type::int64},
                                                {"s", Type::text},
                                                {"null and b", Type::boolean},
                                                {"null / null", Type::float64},
                                                {"null + i", Type::int64},
                                                {"null - at", Type::float64},
                                                {"abs(i)", Type::int64},
                                                {"floor(x)", Type::float64}};
  for (const auto& [text, type] : cases) EXPECT_EQ(name(Expression::compile(text, kInputs).type()), name(type)) << text;
}

TEST(Expression, SaysWhatItUsesAndWhatItWas) {
  const auto e = Expression::compile("x + i + case when b then x else 1 end", kInputs);
  EXPECT_EQ(e.inputs_used(), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(e.text(), "x + i + case when b then x else 1 end");
  EXPECT_TRUE(Expression::compile("1", kInputs).inputs_used().empty());
}

TEST(Expression, TextsOfCopiesOutliveTheFirst) {
  auto first = std::make_unique<Expression>(Expression::compile("if(b, 'a', 'b')", kInputs));
  const Expression copy = *first;
  const Value out = first->evaluate(values());
  first.reset();
  EXPECT_EQ(out, S("a"));
  EXPECT_EQ(copy.evaluate(values()), S("a"));
  const std::string text = "somewhere";
  const Input in[] = {{"s", Type::text}};
  const Value v[] = {S(text)};
  EXPECT_EQ(Expression::compile("coalesce(s, 'x')", in).evaluate(v).as_text().data(), text.data());  // not copied
}

TEST(Expression, MistakesOfACallerStop) {
  const auto e = Expression::compile("x + 1", kInputs);
  EXPECT_DEATH((void)e.evaluate({}), "as many values as inputs");
  auto wrong = values();
  wrong[2] = S("2.5");
  EXPECT_DEATH((void)e.evaluate(wrong), "type of its input");
  wrong = values();
  wrong[3] = I(1);  // not used, not looked at
  EXPECT_EQ(e.evaluate(wrong), R(3.5));
}

TEST(Expression, MessagesOfSyntax) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "expression, column 1: found the end, expected a value"},
      {"1 +", "expression, column 4: found the end, expected a value"},
      {"(1 + 2", "expression, column 7: found the end, expected ')'"},
      {"1 2", "expression, column 3: found '2', expected an operator or the end"},
      {"1)", "expression, column 2: found ')', expected an operator or the end"},
      {"i == 7", "expression, column 3: found '==', expected '='"},
      {"i & 7", "expression, column 3: found '&', which means nothing here"},
      {"'\xC3\xA9' = \xC3\xA9", "expression, column 7: found '\xC3\xA9', which means nothing here"},
      {"i\x01", "expression, column 2: found the control character 1"},
      {"s = 'LHR", "expression, column 5: what begins here has no closing '"},
      {"\"end", "expression, column 1: what begins here has no closing \""},
      {"1.", "expression, column 3: expected a digit after '.'"},
      {"1e+", "expression, column 4: expected a digit after '+'"},
      {"1x", "expression, column 2: a number ends here, expected an operator before the name"},
      {"9223372036854775808",
       "expression, column 1: does not fit an int64, write it with '.0' for a float64: 9223372036854775808"},
      {"1e999", "expression, column 1: does not fit a float64: 1e999"},
      {"i < 1 < 2", "expression, column 7: found '<' after a comparison: use parentheses, or 'and'"},
      {"i is null is null", "expression, column 11: found 'is' after a comparison: use parentheses, or 'and'"},
      {"i is 1", "expression, column 6: found '1', expected 'null'"},
      {"i not 1", "expression, column 7: found '1', expected 'in'"},
      {"i in 1", "expression, column 6: found '1', expected '('"},
      {"i in ()", "expression, column 7: found ')', expected a value"},
      {"i in (1 2)", "expression, column 9: found '2', expected ',' or ')'"},
      {"end + 1", "expression, column 1: found 'end', expected a value; an input of that name is written \"end\""},
      {"1 + not b", "expression, column 5: found 'not', expected a value; an input of that name is written \"not\""},
      {"case i when 1 then 2 end", "expression, column 6: found 'i', expected 'when'"},
      {"case when b 1 end", "expression, column 13: found '1', expected 'then'"},
      {"case when b then 1", "expression, column 19: found the end, expected 'when', 'else' or 'end'"},
      {"case when b then 1 else 2", "expression, column 26: found the end, expected 'end'"},
      {"i +\n  'a' * + 2", "expression, line 2, column 9: found '+', expected a value"},
      {"'" + std::string(50, 'a') + "' 1 ", "expression, column 54: found '1', expected an operator or the end"},
      {"1 '" + std::string(38, 'a') + "\xC3\xA9'",
       "expression, column 3: found ''aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...', expected an operator or the end"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(message(text), wanted) << text;
  EXPECT_EQ(message("'\xFF'"), "expression: not UTF-8");
}

TEST(Expression, MessagesOfNames) {
  EXPECT_EQ(message("1 + distanc"), "expression, column 5: unknown name 'distanc'; the nearest is 'distance'");
  EXPECT_EQ(message("Distance"), "expression, column 1: unknown name 'Distance'; the nearest is 'distance'");
  EXPECT_EQ(message("absolute(i)"),
            "expression, column 1: unknown function 'absolute'; there are: if, coalesce, least, greatest, clip, "
            "bucket, abs, floor, "
            "ceil, round, sqrt, ln, log10, exp, pow, year, month, day, hour, minute, day_of_week, day_of_year, epoch, "
            "length");
  EXPECT_EQ(message("coalese(i, 1)"), "expression, column 1: unknown function 'coalese'; the nearest is 'coalesce'");
  EXPECT_EQ(message("Fooooooooooooooo"), "expression, column 1: unknown name 'Fooooooooooooooo'");
  EXPECT_EQ(message("x", {}), "expression, column 1: unknown name 'x'; there are no inputs");
  const Input few[] = {{"origin", Type::text}, {"carrier", Type::text}};
  EXPECT_EQ(message("zzzz", few), "expression, column 1: unknown name 'zzzz'; there are: origin, carrier");
  EXPECT_EQ(message("origin = \"LHR\"", few),
            "expression, column 10: unknown name 'LHR'; a text is written in single quotes");
  EXPECT_EQ(message("year = 1", few), "expression, column 1: unknown name 'year'; the function is written year(...)");
  EXPECT_EQ(message("clip(i, 1)"), "expression, column 1: clip takes 3 operands, found 2");
  EXPECT_EQ(message("abs(i, 1)"), "expression, column 1: abs takes 1 operand, found 2");
  EXPECT_EQ(message("coalesce(i)"), "expression, column 1: coalesce takes 2 operands or more, found 1");
  EXPECT_EQ(message("if(b, 1, 2, 3)"), "expression, column 1: if takes 3 operands, found 4");
  const Input twice[] = {{"a", Type::text}, {"a", Type::int64}};
  EXPECT_EQ(message("1", twice), "expression: two inputs have one name: 'a'");
}

TEST(Expression, MessagesOfTypes) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 + s", "expression, column 3: '+' takes numbers, found int64, text"},
      {"at + 1", "expression, column 4: '+' takes numbers, found timestamp, int64"},
      {"at - 1", "expression, column 4: '-' takes two numbers or two timestamps, found timestamp, int64"},
      {"s - s", "expression, column 3: '-' takes two numbers or two timestamps, found text, text"},
      {"-s", "expression, column 1: '-' takes numbers, found text"},
      {"b / 2", "expression, column 3: '/' takes numbers, found boolean, int64"},
      {"s = 1", "expression, column 3: '=' takes values of one type, found text, int64"},
      {"s < 'a'", "expression, column 3: '<' takes numbers or timestamps of one type, found text, text"},
      {"b >= b", "expression, column 3: '>=' takes numbers or timestamps of one type, found boolean, boolean"},
      {"at < 5", "expression, column 4: '<' takes numbers or timestamps of one type, found timestamp, int64"},
      {"i in (1, 'a')", "expression, column 3: in takes values of one type, found int64, int64, text"},
      {"i = null", "expression, column 3: comparing with null by '=' is never true, expected 'is null'"},
      {"i not in (1, null)", "expression, column 3: comparing with null by 'in' is never true, expected 'is null'"},
      {"null < 1", "expression, column 6: comparing with null by '<' is never true, expected 'is null'"},
      {"i and b", "expression, column 3: and takes booleans, found int64, boolean"},
      {"not s", "expression, column 1: not takes booleans, found text"},
      {"case when i then 1 end", "expression, column 11: the condition of case is a boolean, found int64"},
      {"if(b, 1, 'a')", "expression, column 7: the results of if are of one type, found int64 and text"},
      {"case when b then 1 when b then 's' end",
       "expression, column 32: the results of case are of one type, found text and int64"},
      {"coalesce(i, s)", "expression, column 1: coalesce takes values of one type, found int64, text"},
      {"least(s, 'a')", "expression, column 1: least takes numbers or timestamps of one type, found text, text"},
      {"clip(at, 1, 2)",
       "expression, column 1: clip takes numbers or timestamps of one type, found timestamp, int64, int64"},
      {"sqrt(s)", "expression, column 1: sqrt takes numbers, found text"},
      {"year(i)", "expression, column 1: year takes a timestamp, found int64"},
      {"epoch(s)", "expression, column 1: epoch takes a timestamp, found text"},
      {"length(i)", "expression, column 1: length takes a text, found int64"},
      {"bucket(s, 1)", "expression, column 1: bucket takes numbers, found text, int64"},
      {"bucket(i, x)", "expression, column 11: a bound of bucket is a number written out"},
      {"bucket(i, null)", "expression, column 11: a bound of bucket is a number written out"},
      {"bucket(i, 2, 2)",
       "expression, column 14: the bounds of bucket ascend, found one that is not above the one before"},
      {"bucket(x, 9007199254740992, 9007199254740993)",
       "expression, column 29: the bounds of bucket ascend, found one that is not above the one before"},
      {"coalesce(1,1,1,1,1,'a')",
       "expression, column 1: coalesce takes values of one type, found int64, int64, int64, int64, int64, ..."},
      {"null", "expression: is always null, so it has no type"},
      {"coalesce(null, -null)", "expression: is always null, so it has no type"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(message(text), wanted) << text;
}

std::string times(std::size_t n, std::string_view piece) {
  std::string out;
  while (n-- > 0) out += piece;
  return out;
}

TEST(Limits, LengthOfTheText) {
  EXPECT_EQ(eval("1" + std::string(kTextMax - 1, ' ')), I(1));
  EXPECT_EQ(message("1" + std::string(kTextMax, ' ')), "expression: 4001 bytes long, more than 4000");
}

TEST(Limits, Nesting) {
  constexpr auto n = kNestingMax;
  // Every way to go one deeper.
  const std::tuple<const char*, const char*, const char*> ways[] = {{"(", "i", ")"},
                                                                    {"abs(", "i", ")"},
                                                                    {"- ", "i", ""},
                                                                    {"not ", "b", ""},
                                                                    {"1 + (", "i", ")"},
                                                                    {"b in (", "b", ")"},
                                                                    {"1 * if(b,", "i", ",1)"},
                                                                    {"case when b then ", "i", " end"},
                                                                    {"case when ", "b", " then b end"}};
  for (const auto& [open, middle, close] : ways) {
    EXPECT_EQ(message(times(n, open) + middle + times(n, close)), "compiles") << open;
    const auto said = message(times(n + 1, open) + middle + times(n + 1, close));
    EXPECT_NE(said.find(": nested more than 64 deep"), std::string::npos) << open << said;
  }
  for (const auto* open : {"(", "- ", "not ", "abs(", "case when ", "i in ("})
    EXPECT_NE(message(times(kTextMax / std::strlen(open), open)).find("nested more than"), std::string::npos) << open;
  // As many waiting values as there can be, at every level.
  std::string text = "b";
  for (std::size_t level = 0; level < n; ++level) text = "not b or not b and -x=-x+-x*if(" + text + ",x,i)";
  EXPECT_EQ(eval(text), kFalse);
}

TEST(Limits, Operations) {
  EXPECT_EQ(eval("i" + times(kOperationsMax, "+i")), I(7 * (1 + static_cast<std::int64_t>(kOperationsMax))));
  EXPECT_EQ(message("i" + times(kOperationsMax + 1, "+i")), "expression: takes more than 1000 operations");
  EXPECT_EQ(eval("1" + times(kTextMax / 2 - 1, "+1")), I(kTextMax / 2));  // computed when compiled
}

TEST(Limits, Inputs) {
  std::vector<Input> inputs;
  std::vector<Value> v;
  for (std::size_t n = 0; n < kInputsMax; ++n) {
    inputs.push_back({"in" + std::to_string(n), Type::int64});
    v.push_back(I(static_cast<std::int64_t>(n)));
  }
  const auto last = Expression::compile("in4095 - in0", inputs);
  EXPECT_EQ(last.evaluate(v), I(4095));
  EXPECT_EQ(last.inputs_used(), (std::vector<std::size_t>{0, 4095}));
  inputs.push_back({"more", Type::int64});
  EXPECT_EQ(message("1", inputs), "expression: 4097 inputs, more than 4096");
}

}  // namespace
}  // namespace falaj::expr
