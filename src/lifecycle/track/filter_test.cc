// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/filter.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::track {
namespace {

// What is inside is doubled where it is the quote itself.
std::string in_quotes(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) out.append(c == quote ? 2 : 1, c);
  return out + quote;
}

// One spelling of a comparison, used both to show a parse and to write random filters. A value with a fraction or an
// exponent shows that it is a number, and no value in quotes is one.
std::string shown(const Comparison& c) {
  std::string value;
  if (c.op == Op::in || c.op == Op::not_in) {
    std::vector<std::string> items;
    for (const auto& item : c.list) items.push_back(in_quotes(item, '\''));
    value = "(" + join(items, ", ") + ")";
  } else if (c.op != Op::is_null && c.op != Op::is_not_null) {
    const bool number = c.entity == Entity::metric || c.key.ends_with("_time") || c.key.ends_with("_timestamp") ||
                        c.key.ends_with("_number");
    value = number && c.entity != Entity::tag && c.entity != Entity::param ? fmt::format("{}", c.number)
                                                                           : in_quotes(c.text, '\'');
  }
  return fmt::format("{}.{} {}{}{}", name(c.entity), in_quotes(c.key, '`'), name(c.op), value.empty() ? "" : " ",
                     value);
}

std::string shown(const std::vector<Comparison>& comparisons) {
  std::vector<std::string> parts;
  for (const auto& comparison : comparisons) parts.push_back(shown(comparison));
  return join(parts, " AND ");
}

struct Accepted {
  const char* text;
  const char* parse;
};
struct Refused {
  const char* text;
  const char* because;  // part of the message
};

void expect(const Grammar& grammar, std::span<const Accepted> cases) {
  for (const Accepted& c : cases) {
    try {
      EXPECT_EQ(shown(parse_filter(c.text, grammar)), c.parse) << c.text;
    } catch (const Error& error) {
      ADD_FAILURE() << c.text << "\n  refused: " << error.what();
    }
  }
}

void expect(const Grammar& grammar, std::span<const Refused> cases) {
  for (const Refused& c : cases) {
    try {
      ADD_FAILURE() << c.text << "\n  accepted: " << shown(parse_filter(c.text, grammar));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid) << c.text;
      EXPECT_NE(std::string(error.what()).find(c.because), std::string::npos) << c.text << "\n  " << error.what();
    }
  }
}

TEST(Filter, OfRuns) {
  const Accepted accepted[] = {
      {"", ""},
      {" \t\n", ""},
      // numbers
      {"metrics.a > 1", "metrics.`a` > 1"},
      {"metrics.a>1", "metrics.`a` > 1"},
      {"metrics.a>-1", "metrics.`a` > -1"},
      {"metrics.a >= 0.5", "metrics.`a` >= 0.5"},
      {"metrics.a < .5", "metrics.`a` < 0.5"},
      {"metrics.a <= 5.", "metrics.`a` <= 5"},
      {"metrics.a = 1e-5", "metrics.`a` = 1e-05"},
      {"metrics.a = -1.5E+3", "metrics.`a` = -1500"},
      {"metrics.a != 00012", "metrics.`a` != 12"},
      {"metrics.a > 99999999999999999999999999", "metrics.`a` > 1e+26"},
      {"\tmetric.a\t>\r\n1\n", "metrics.`a` > 1"},
      // keys
      {"metrics.`val loss` > 1", "metrics.`val loss` > 1"},
      {"metrics.\"val-loss\" > 1", "metrics.`val-loss` > 1"},
      {"metrics.'val/loss' > 1", "metrics.`val/loss` > 1"},
      {"metrics.`a.b-c` > 1", "metrics.`a.b-c` > 1"},
      {"metrics.`tick``ed` > 1", "metrics.`tick``ed` > 1"},
      {"`metrics`.a > 1", "metrics.`a` > 1"},
      {"metrics.a.b.c > 1", "metrics.`a.b.c` > 1"},
      {"metrics.1a > 1", "metrics.`1a` > 1"},
      {"metrics.5 > 1", "metrics.`5` > 1"},
      {"metrics._a > 1", "metrics.`_a` > 1"},
      {"metrics.é > 1", "metrics.`é` > 1"},
      {"metrics.from > 1 AND metrics.in > 2 AND metrics.and > 3 AND metrics.order > 4",
       "metrics.`from` > 1 AND metrics.`in` > 2 AND metrics.`and` > 3 AND metrics.`order` > 4"},
      {"tags.mlflow.runName = 'x'", "tags.`mlflow.runName` = 'x'"},
      {"tags.\"mlflow.runName\" = 'x'", "tags.`mlflow.runName` = 'x'"},
      // entities
      {"param.a = 'x'", "params.`a` = 'x'"},
      {"parameter.a = 'x'", "params.`a` = 'x'"},
      {"parameters.a = 'x'", "params.`a` = 'x'"},
      {"tag.a != 'x'", "tags.`a` != 'x'"},
      {"attribute.status = 'RUNNING'", "attributes.`status` = 'RUNNING'"},
      {"attributes.status = 'RUNNING'", "attributes.`status` = 'RUNNING'"},
      {"attr.status = 'RUNNING'", "attributes.`status` = 'RUNNING'"},
      {"run.status = 'RUNNING'", "attributes.`status` = 'RUNNING'"},
      {"status = 'RUNNING'", "attributes.`status` = 'RUNNING'"},
      {"dataset.name = 'x'", "datasets.`name` = 'x'"},
      {"datasets.digest IN ('x','y')", "datasets.`digest` IN ('x', 'y')"},
      {"dataset.context LIKE 'tr%'", "datasets.`context` LIKE 'tr%'"},
      // attributes
      {"user_id ILIKE 'x' AND artifact_uri != 's3://b'",
       "attributes.`user_id` ILIKE 'x' AND attributes.`artifact_uri` != 's3://b'"},
      {"created > 1", "attributes.`start_time` > 1"},
      {"`Created` > 1.5", "attributes.`start_time` > 1.5"},
      {"end_time<10", "attributes.`end_time` < 10"},
      {"run_name LIKE 'x%'", "attributes.`run_name` LIKE 'x%'"},
      {"`run name` = 'x'", "attributes.`run_name` = 'x'"},
      {"\"Run name\" = 'x'", "attributes.`run_name` = 'x'"},
      {"attributes.`Run Name` = 'x'", "attributes.`run_name` = 'x'"},
      // texts
      {"params.a=\"x\"", "params.`a` = 'x'"},
      {"params.a = ''", "params.`a` = ''"},
      {"params.a = \"it's\"", "params.`a` = 'it''s'"},
      {"params.a = 'it''s'", "params.`a` = 'it''s'"},
      {"params.a = 'say \"hi\"'", "params.`a` = 'say \"hi\"'"},
      {"params.a = 'C:\\'", "params.`a` = 'C:\\'"},
      {"params.a = 'metrics.a > 1 AND'", "params.`a` = 'metrics.a > 1 AND'"},
      {"params.a like'x'", "params.`a` LIKE 'x'"},
      {"params.a iLike '%x'", "params.`a` ILIKE '%x'"},
      // lists and null
      {"run_id IN ('a','b')", "attributes.`run_id` IN ('a', 'b')"},
      {"run_id in(\"a\" , 'B' )", "attributes.`run_id` IN ('a', 'B')"},
      {"run_id IN ('a',)", "attributes.`run_id` IN ('a')"},
      {"run_id not  in ('a')", "attributes.`run_id` NOT IN ('a')"},
      {"params.a is null", "params.`a` IS NULL"},
      {"tags.`a b` IS  NOT\tNULL AND params.a IS NULL", "tags.`a b` IS NOT NULL AND params.`a` IS NULL"},
      // several
      {"metrics.a > 1 and params.b = 'x'", "metrics.`a` > 1 AND params.`b` = 'x'"},
      {"params.b = 'x'AND metrics.a > 1", "params.`b` = 'x' AND metrics.`a` > 1"},
      {"metrics.a > 1 AND metrics.a > 1", "metrics.`a` > 1 AND metrics.`a` > 1"},
  };
  expect(kRunGrammar, accepted);
}

TEST(Filter, OfRunsRefuses) {
  const Refused refused[] = {
      // numbers
      {"metrics.a > - 1", "at byte 12: expected a number, found '-'"},
      {"metrics.a > +1", "expected a number, found '+1'"},
      {"metrics.a = 0x1F", "expected a number, found '0x1F'"},
      {"metrics.a = inf", "expected a number, found 'inf'"},
      {"metrics.a = -nan", "expected a number"},
      {"metrics.a = '1'", "expected a number, found ''1''"},
      {"metrics.a > 1_000", "expected a number"},
      {"metrics.a > 1d5", "expected a number"},
      {"metrics.a > 1..2", "expected a number"},
      {"metrics.a > .", "expected a number"},
      {"metrics.a > 1AND params.b = 'x'", "expected a number, found '1AND'"},
      {"metrics.a > 1e999", "a number of double precision"},
      {"metrics.a > metrics.b", "expected a number"},
      {"metrics.a > 1 + 1", "expected AND or the end (there is no OR and no grouping), found '+'"},
      {"start_time > '1'", "expected a number"},
      // operators
      {"metrics.a == 1", "at byte 10: expected after metrics.a one of = != < <= > >=, found '=='"},
      {"metrics.a <> 1", "one of = != < <= > >=, found '<>'"},
      {"metrics.a => 1", "found '=>'"},
      {"metrics.a ! = 1", "found '!'"},
      {"metrics.a LIKE '1'", "found 'LIKE'"},
      {"metrics.a between 1 and 2", "found 'between'"},
      {"metrics.a IS NULL", "found 'IS'"},
      {"metrics.a in (1,2)", "found 'in'"},
      {"metrics.a", "one of = != < <= > >=, found the end"},
      {"metrics.a >", "expected a number, found the end"},
      {"tags.a > 'x'", "after tags.a one of = != LIKE ILIKE IS NULL IS NOT NULL, found '>'"},
      {"params.a RLIKE 'x'", "found 'RLIKE'"},
      {"params.a LIKEx 'x'", "found 'LIKEx'"},
      {"params.a IN ('x')", "found 'IN'"},
      {"params.a IS 'x'", "found 'IS'"},
      {"params.a IS NOT 'x'", "found 'IS'"},
      {"params.a NOT LIKE 'x'", "found 'NOT'"},
      {"run_id IS NULL", "one of = != LIKE ILIKE IN NOT IN, found 'IS'"},
      {"status IN ('RUNNING')", "after attributes.status one of = != LIKE ILIKE, found 'IN'"},
      {"dataset.name > 'x'", "found '>'"},
      // keys
      {"metrics.val-loss > 1",
       "at byte 11: expected a key with other characters than letters, digits, _ and . in quotes"},
      {"metrics.val/loss > 1", "in quotes, as metrics.`val-loss`"},
      {"metrics.a:b > 1", "in quotes"},
      {"metrics.a*2 > 1", "in quotes"},
      {"metrics.a-1 > 1", "in quotes"},
      {"params.batch size = '1'", "found 'size'"},
      {"metrics.\"a.b\".c > 1", "found '.c'"},
      {"metrics. a > 1", "expected one of"},
      {"metrics . a > 1", "expected one of"},
      {"metrics. > 1", "expected one of"},
      {"metrics.`` > 1", "expected one of"},
      {"metrics.`a > 1", "at byte 8: expected a closing ` somewhere after"},
      // entities and attributes
      {"METRICS.a > 1",
       "expected one of run_id, run_name, user_id, status, artifact_uri, start_time, end_time, "
       "metrics.<key>, params.<key>, tags.<key>, datasets.name|digest|context, found 'METRICS.a'"},
      {"\"metrics\".a > 1", "expected one of"},
      {"\"metrics.a\" > 1", "expected one of"},
      {"`metrics.a` > 1", "expected one of"},
      {"'status' = 'RUNNING'", "expected one of"},
      {"Status = 'RUNNING'", "expected one of"},
      {"lifecycle_stage = 'active'", "expected one of"},
      {"experiment_id = '0'", "expected one of"},
      {"run name = 'x'", "expected one of"},
      {"dataset.source = 'x'", "expected one of"},
      {"foo.bar = 'x'", "found 'foo.bar'"},
      {"1 < metrics.a", "found '1'"},
      {"> 1", "found '>'"},
      // texts
      {"params.a = x", "at byte 11: expected a text in single or double quotes, found 'x'"},
      {"params.a = `x`", "expected a text"},
      {"params.a = 1", "expected a text"},
      {"params.a = params.b", "expected a text"},
      {"tags.a = N'x'", "expected a text"},
      {"params.a = 'unterminated", "at byte 11: expected a closing ' somewhere after"},
      {"params.a = 'it''", "expected a closing '"},
      {"params.a = 'a\\'b'", "found 'b''"},
      {"params.a = 'x' 'y'", "expected AND or the end"},
      // lists
      {"run_id IN ()", "expected a text"},
      {"run_id IN (,)", "expected a text"},
      {"run_id IN ('a' 'b')", "a comma or the closing parenthesis of a list, found ''b')'"},
      {"run_id IN ('a', 1)", "expected a text"},
      {"run_id IN ('a',,)", "expected a text"},
      {"run_id IN (('a'),'b')", "expected a text"},
      {"run_id IN (a)", "expected a text"},
      {"run_id IN 'a'", "expected a list of texts in parentheses"},
      {"run_id IN ('a','b'", "closing parenthesis"},
      {"run_id IN ('a',", "expected a text"},
      {"run_id = ('a')", "expected a text"},
      {"run_id NOT ('a')", "found 'NOT'"},
      // several
      {"metrics.a > 1 OR params.b = 'x'", "expected AND or the end (there is no OR and no grouping), found 'OR'"},
      {"metrics.a > 1 params.b = 'x'", "expected AND or the end"},
      {"metrics.a > 1 ANDY metrics.b > 1", "expected AND or the end"},
      {"metrics.a > 1 AND", "found the end"},
      {"AND metrics.a > 1", "found 'AND'"},
      {"metrics.a > 1 AND AND metrics.b > 1", "found 'AND'"},
      {"(metrics.a > 1)", "found '(metrics.a'"},
      {"metrics.a > 1 AND (params.b = 'x')", "found '(params.b'"},
      {"NOT metrics.a > 1", "found 'NOT'"},
      {"metrics.a > 1;", "found ';'"},
      {";", "found ';'"},
      {"metrics.a > 1 -- comment", "found '--'"},
      {"metrics.a > 1 /* c */ AND metrics.b > 1", "found '/*'"},
  };
  expect(kRunGrammar, refused);
}

TEST(Filter, OfExperiments) {
  const Accepted accepted[] = {
      {"name ILIKE '%x%'", "attributes.`name` ILIKE '%x%'"},
      {"attribute.name = 'x'", "attributes.`name` = 'x'"},
      {"creation_time > 5 AND last_update_time >= 1.5",
       "attributes.`creation_time` > 5 AND attributes.`last_update_time` >= 1.5"},
      {"tags.`a b` LIKE 'x' AND tag.c IS NULL", "tags.`a b` LIKE 'x' AND tags.`c` IS NULL"},
  };
  const Refused refused[] = {
      {"name IN ('a')", "one of = != LIKE ILIKE, found 'IN'"},
      {"experiment_id = '1'",
       "filter of experiments at byte 0: expected one of name, creation_time, last_update_time, tags.<key>"},
      {"params.a = 'x'", "found 'params.a'"},
      {"creation_time > 'x'", "expected a number"},
      {"name IS NULL", "found 'IS'"},
  };
  expect(kExperimentGrammar, accepted);
  expect(kExperimentGrammar, refused);
}

TEST(Filter, OfTheRegistry) {
  const Accepted models[] = {
      {"name = 'x'", "attributes.`name` = 'x'"},
      {"name LIKE 'A%' and tags.`mlflow.prompt.is_prompt` = 'true'",
       "attributes.`name` LIKE 'A%' AND tags.`mlflow.prompt.is_prompt` = 'true'"},
      {"name NOT IN ('a', 'b')", "attributes.`name` NOT IN ('a', 'b')"},
  };
  const Refused not_models[] = {
      {"tags.a IS NULL", "one of = != LIKE ILIKE, found 'IS'"},
      {"creation_timestamp > 1", "filter of registered models"},
      {"run_id = 'a'", "expected one of name, tags.<key>, found 'run_id'"},
  };
  const Accepted versions[] = {
      {"name='x' AND version_number > 3", "attributes.`name` = 'x' AND attributes.`version_number` > 3"},
      {"run_id IN ('a', 'b')", "attributes.`run_id` IN ('a', 'b')"},
      {"source_path != 's' AND tags.k ILIKE 'v'", "attributes.`source_path` != 's' AND tags.`k` ILIKE 'v'"},
  };
  const Refused not_versions[] = {
      {"source_path IN ('s')", "found 'IN'"},
      {"version_number = '3'", "expected a number"},
      {"version = 3", "found 'version'"},
      {"current_stage = 'x'", "expected one of name, run_id, source_path, version_number, tags.<key>"},
      {"tags.k IN ('x')", "found 'IN'"},
  };
  expect(kRegisteredModelGrammar, models);
  expect(kRegisteredModelGrammar, not_models);
  expect(kModelVersionGrammar, versions);
  expect(kModelVersionGrammar, not_versions);
}

TEST(Filter, OfLoggedModels) {
  const Accepted accepted[] = {
      {"creation_time > 5 AND last_updated_timestamp < 6",
       "attributes.`creation_timestamp` > 5 AND attributes.`last_updated_timestamp` < 6"},
      {"params.a IN ('x','y') AND tags.b like 'x'", "params.`a` IN ('x', 'y') AND tags.`b` LIKE 'x'"},
      {"metrics.acc > 0.5 AND attributes.model_type != 'x'", "metrics.`acc` > 0.5 AND attributes.`model_type` != 'x'"},
      {"status = 'LOGGED_MODEL_READY' AND source_run_id = 'r' AND model_id IN ('m-1')",
       "attributes.`status` = 'LOGGED_MODEL_READY' AND attributes.`source_run_id` = 'r' AND attributes.`model_id` IN "
       "('m-1')"},
  };
  const Refused refused[] = {
      {"foo = 'x'", "filter of logged models"},
      {"tags.a IS NULL", "found 'IS'"},
      {"dataset.name = 'x'", "found 'dataset.name'"},
  };
  expect(kLoggedModelGrammar, accepted);
  expect(kLoggedModelGrammar, refused);
}

TEST(Filter, IsBounded) {
  const auto comparisons = [](std::size_t count) {
    std::vector<std::string> parts(count, "metrics.a > 1");
    return join(parts, " AND ");
  };
  EXPECT_EQ(parse_filter(comparisons(kFilterComparisonsMax), kRunGrammar).size(), kFilterComparisonsMax);
  EXPECT_ERROR(parse_filter(comparisons(kFilterComparisonsMax + 1), kRunGrammar), Code::invalid);

  const auto list = [](std::size_t count) {
    std::vector<std::string> parts(count, "'a'");
    return "run_id IN (" + join(parts, ",") + ")";
  };
  EXPECT_EQ(parse_filter(list(kFilterListMax), kRunGrammar)[0].list.size(), kFilterListMax);
  EXPECT_ERROR(parse_filter(list(kFilterListMax + 1), kRunGrammar), Code::invalid);

  const auto text = [](std::size_t bytes) {
    const std::string head = "params.a = '";
    return head + std::string(bytes - head.size() - 1, 'x') + "'";
  };
  EXPECT_EQ(parse_filter(text(kFilterBytesMax), kRunGrammar).size(), 1U);
  EXPECT_ERROR(parse_filter(text(kFilterBytesMax + 1), kRunGrammar), Code::invalid);
}

TEST(Filter, ALongMistakeIsNotRepeatedWhole) {
  try {
    parse_filter(std::string(39, 'x') + "é" + std::string(1000, 'x'), kRunGrammar);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    const std::string_view message = error.what();
    EXPECT_LT(message.size(), 300U);
    EXPECT_TRUE(is_utf8(message)) << message;
  }
}

class RandomFilters {
 public:
  explicit RandomFilters(std::uint64_t seed) : random_(seed) {}

  std::vector<Comparison> next() {
    std::vector<Comparison> comparisons(1 + below(6));
    for (Comparison& comparison : comparisons) comparison = one();
    return comparisons;
  }
  // As `shown`, with other spaces, quotes and cases.
  std::string disguised(const std::string& text) {
    std::string out = spaces();
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quote != 0 ? c == quote : c == '\'' || c == '`') quote = quote != 0 ? 0 : c;
      const bool keyword = quote == 0 && c >= 'A' && c <= 'Z';
      out += keyword && below(2) == 0 ? static_cast<char>(c + 32) : c;
      if (quote == 0 && (c == ' ' || c == ',' || c == '(')) out += spaces();
    }
    return out + spaces();
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string spaces() { return std::string(below(3), " \t\n"[below(3)]); }
  std::string text(std::size_t least) {
    static constexpr std::string_view kPieces[] = {"a", "Z",  "_", "%",  "'", "\"",  "`", " ",
                                                   ".", "\\", "é", "漢", "-", "AND", "(", ","};
    std::string text;
    for (std::size_t n = least + below(6); n > 0; --n) text += kPieces[below(std::size(kPieces))];
    return text;
  }
  double number() {
    double number = std::bit_cast<double>(random_());
    while (!std::isnormal(number)) number = std::bit_cast<double>(random_());
    return below(2) == 0 ? number : static_cast<double>(below(1000)) / 8;
  }
  Comparison one() {
    static constexpr Op kNumber[] = {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge};
    static constexpr Op kText[] = {Op::eq, Op::ne, Op::like, Op::ilike};
    Comparison c;
    switch (below(5)) {
      case 0:
        c.entity = Entity::metric, c.key = text(1), c.op = kNumber[below(6)], c.number = number();
        break;
      case 1:
        c.key = "start_time", c.op = kNumber[below(6)], c.number = number();
        break;
      case 2:
        c.entity = below(2) == 0 ? Entity::tag : Entity::param, c.key = text(1), c.op = kText[below(4)],
        c.text = text(0);
        break;
      case 3:
        c.entity = below(2) == 0 ? Entity::tag : Entity::param, c.key = text(1);
        c.op = below(2) == 0 ? Op::is_null : Op::is_not_null;
        break;
      default:
        c.entity = Entity::dataset, c.key = "digest", c.op = below(2) == 0 ? Op::in : Op::not_in;
        for (std::size_t n = 1 + below(4); n > 0; --n) c.list.push_back(text(0));
    }
    return c;
  }
  std::mt19937_64 random_;
};

TEST(Filter, WhatIsWrittenIsReadBack) {
  constexpr std::uint64_t kSeed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  RandomFilters filters(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const auto filter = filters.next();
    const auto text = filters.disguised(shown(filter));
    try {
      ASSERT_EQ(parse_filter(text, kRunGrammar), filter) << "round " << round << ": " << text;
    } catch (const Error& error) {
      FAIL() << "round " << round << ": " << text << "\n  " << error.what();
    }
  }
}

std::vector<Order> orders(std::vector<std::string> items, const Grammar& grammar) {
  return parse_order_by(items, grammar);
}

TEST(OrderBy, NamesAKeyAndADirection) {
  const auto runs = [](const char* item) { return orders({item}, kRunGrammar).at(0); };
  EXPECT_TRUE(orders({}, kRunGrammar).empty());
  EXPECT_EQ(runs("metrics.a"), (Order{Entity::metric, "a", true}));
  EXPECT_EQ(runs("metrics.a ASC"), (Order{Entity::metric, "a", true}));
  EXPECT_EQ(runs(" metrics.`a b`\tdesc "), (Order{Entity::metric, "a b", false}));
  EXPECT_EQ(runs("`metrics`.a"), (Order{Entity::metric, "a", true}));
  EXPECT_EQ(runs("metrics.\"a-b\" DESC"), (Order{Entity::metric, "a-b", false}));
  EXPECT_EQ(runs("metrics.desc desc"), (Order{Entity::metric, "desc", false}));
  EXPECT_EQ(runs("params.a"), (Order{Entity::param, "a", true}));
  EXPECT_EQ(runs("tag.a desc"), (Order{Entity::tag, "a", false}));
  EXPECT_EQ(runs("Created DESC"), (Order{Entity::attribute, "start_time", false}));
  EXPECT_EQ(runs("attributes.status"), (Order{Entity::attribute, "status", true}));
  EXPECT_EQ(orders({"experiment_id desc"}, kExperimentGrammar).at(0),
            (Order{Entity::attribute, "experiment_id", false}));
  EXPECT_EQ(orders({"timestamp DESC"}, kRegisteredModelGrammar).at(0),
            (Order{Entity::attribute, "last_updated_timestamp", false}));
  EXPECT_EQ(orders({"name", "version_number DESC", "creation_timestamp"}, kModelVersionGrammar).size(), 3U);
}

TEST(OrderBy, RefusesWhatDoesNotOrder) {
  for (const char* item : {"", " ", "metrics.a ascending", "metrics.a DESC NULLS LAST", "metrics.a, metrics.b",
                           "metrics.a-b", "metrics.a desc;", "dataset.name", "experiment_id", "lifecycle_stage",
                           "`Run Name`", "run name", "metrics.", "desc", "metrics.a asc desc"})
    EXPECT_ERROR(orders({item}, kRunGrammar), Code::invalid);
  EXPECT_ERROR(orders({"tags.a"}, kExperimentGrammar), Code::invalid);
  EXPECT_ERROR(orders({"run_id"}, kModelVersionGrammar), Code::invalid);
  EXPECT_ERROR(orders({"timestamp"}, kModelVersionGrammar), Code::invalid);
  EXPECT_ERROR(orders({"params.a"}, kLoggedModelGrammar), Code::invalid);
  EXPECT_ERROR(orders({"metrics.a", "metrics.`a` DESC"}, kRunGrammar), Code::invalid);
  EXPECT_ERROR(orders({"start_time", "Created"}, kRunGrammar), Code::invalid);
  EXPECT_ERROR(orders(std::vector<std::string>(kOrdersMax + 1, "metrics.a"), kRunGrammar), Code::invalid);
}

TEST(OrderBy, AFieldNeedsNoQuotes) {
  EXPECT_EQ(order_by_field("metrics.val-loss.x", false, kLoggedModelGrammar),
            (Order{Entity::metric, "val-loss.x", false}));
  EXPECT_EQ(order_by_field("creation_time", true, kLoggedModelGrammar),
            (Order{Entity::attribute, "creation_timestamp", true}));
  EXPECT_ERROR(order_by_field("metrics.", true, kLoggedModelGrammar), Code::invalid);
  EXPECT_ERROR(order_by_field("params.a", true, kLoggedModelGrammar), Code::invalid);
  EXPECT_ERROR(order_by_field("foo", true, kLoggedModelGrammar), Code::invalid);
  EXPECT_ERROR(order_by_field("", true, kLoggedModelGrammar), Code::invalid);
}

// LIKE by its definition, for short texts. Characters of valid UTF-8.
bool naively_like(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  std::size_t character = text.empty() ? 0 : 1;
  while (character < text.size() && (static_cast<unsigned char>(text[character]) & 0xc0) == 0x80) ++character;
  if (pattern[0] == '%')
    return naively_like(pattern.substr(1), text) || (!text.empty() && naively_like(pattern, text.substr(character)));
  if (text.empty()) return false;
  if (pattern[0] == '_') return naively_like(pattern.substr(1), text.substr(character));
  return pattern[0] == text[0] && naively_like(pattern.substr(1), text.substr(1));
}

TEST(Like, IsWhatItsDefinitionSays) {
  constexpr std::uint64_t kSeed = 22;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const auto word = [&](std::span<const std::string_view> pieces) {
    std::string word;
    for (std::size_t n = random() % 9; n > 0; --n) word += pieces[random() % pieces.size()];
    return word;
  };
  static constexpr std::string_view kPattern[] = {"a", "b", "é", "è", "%", "%", "_"};
  static constexpr std::string_view kText[] = {"a", "b", "é", "è"};
  int matched = 0;
  for (int round = 0; round < 50'000; ++round) {
    const auto pattern = word(kPattern);
    const auto text = word(kText);
    const bool expected = naively_like(pattern, text);
    matched += expected ? 1 : 0;
    ASSERT_EQ(like(pattern, text, false), expected) << pattern << " / " << text;
  }
  EXPECT_GT(matched, 1000);
}

TEST(Like, FoldsTheCaseOfAsciiOnlyWhenAsked) {
  EXPECT_TRUE(like("MODEL_%", "model-7", true));
  EXPECT_FALSE(like("MODEL_%", "model-7", false));
  EXPECT_FALSE(like("É", "é", true));
  EXPECT_FALSE(like("[", "{", true));  // as far apart as a letter and its capital
  EXPECT_FALSE(like("@", "`", true));
  EXPECT_TRUE(like("_", "漢", false));
  EXPECT_FALSE(like("__", "漢", false));
  EXPECT_TRUE(like("a.c", "a.c", false));
  EXPECT_FALSE(like("a.c", "abc", false));
  EXPECT_TRUE(like(std::string_view("\0%", 2), std::string_view("\0x", 2), false));
  EXPECT_FALSE(like("", std::string_view("\0", 1), false));
}

TEST(Like, TakesNoMoreThanTheProductOfTheLengths) {
  // Backtracking into each % would take longer than the age of the universe.
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "%a";
  EXPECT_FALSE(like(pattern + "b", std::string(6000, 'a'), false));
  EXPECT_TRUE(like(pattern + "%", std::string(6000, 'a'), false));
}

TEST(Matches, ComparesValues) {
  const auto text = [](const char* filter, std::string_view value) {
    return matches(parse_filter(filter, kRunGrammar).at(0), value);
  };
  EXPECT_TRUE(text("params.a = 'x'", "x"));
  EXPECT_FALSE(text("params.a = 'x'", "X"));
  EXPECT_TRUE(text("params.a != 'x'", "X"));
  EXPECT_FALSE(text("params.a != 'x'", "x"));
  EXPECT_TRUE(text("params.a LIKE 'x%'", "xyz"));
  EXPECT_FALSE(text("params.a LIKE 'X%'", "xyz"));
  EXPECT_TRUE(text("params.a ILIKE 'X%'", "xyz"));
  EXPECT_TRUE(text("run_id IN ('a', 'b')", "b"));
  EXPECT_FALSE(text("run_id IN ('a', 'b')", "c"));
  EXPECT_FALSE(text("run_id NOT IN ('a', 'b')", "b"));
  EXPECT_TRUE(text("run_id NOT IN ('a', 'b')", "c"));
  EXPECT_FALSE(text("params.a IS NULL", ""));
  EXPECT_TRUE(text("params.a IS NOT NULL", ""));

  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct Row {
    const char* op;
    bool below, equal, above, of_nan;
  };
  const Row rows[] = {{"=", false, true, false, false}, {"!=", true, false, true, true},
                      {"<", true, false, false, false}, {"<=", true, true, false, false},
                      {">", false, false, true, false}, {">=", false, true, true, false}};
  for (const Row& row : rows) {
    const auto comparison = parse_filter(fmt::format("metrics.a {} 1", row.op), kRunGrammar).at(0);
    EXPECT_EQ(matches(comparison, 0.5), row.below) << row.op;
    EXPECT_EQ(matches(comparison, 1.0), row.equal) << row.op;
    EXPECT_EQ(matches(comparison, 1.5), row.above) << row.op;
    EXPECT_EQ(matches(comparison, nan), row.of_nan) << row.op;
  }
}

}  // namespace
}  // namespace falaj::track
