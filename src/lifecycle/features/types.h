// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a person declares about features.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "lifecycle/data/expectation.h"
#include "lifecycle/data/types.h"

namespace falaj::features {

// Something that features are about: an airport, a customer.
struct EntitySpec {
  std::vector<data::ColumnSpec> key;  // the columns that name one
};

// A column of the newest row.
struct RowFeatureSpec {
  std::string name, column, description;
};
struct FilterSpec {
  std::string column, is;
  json::value value;
};
struct AggregateSpec {
  std::string name, of, aggregate, description;
  std::int64_t window_us = 0;
  std::vector<FilterSpec> where;
};
// Computed when it is asked for.
struct ExpressionSpec {
  std::string name, is, description;
};
// What must hold of the rows that features are made of.
struct ViewExpectationSpec {
  std::string action = "refuse";
  std::vector<data::RuleSpec> rules;
};
struct FeatureViewSpec {
  std::string entity;  // "" when everything comes with the request
  std::string dataset;
  std::string sql;               // over the dataset; "" = its rows as they are
  std::vector<std::string> key;  // as the rows call the entity's key; empty = by the same names
  std::string time, available;
  std::optional<std::int64_t> ttl_us;
  std::int64_t tile_us = 0;
  std::vector<RowFeatureSpec> features;
  std::vector<AggregateSpec> aggregates;
  std::vector<data::ColumnSpec> request;
  std::vector<ExpressionSpec> expressions;
  std::vector<ViewExpectationSpec> expectations;
  std::string owner;
  std::optional<std::int64_t> materialize_us;  // how often new versions are brought online; only when asked if absent
};
// The features that one model takes.
struct FeatureServiceSpec {
  std::vector<std::string> features;  // "VIEW:FEATURE" or "VIEW:*"
};

// Where events are pushed to.
struct PushSourceSpec {
  std::string dataset;
};

inline constexpr std::string_view kAggregateNames[] = {"count", "sum",    "mean", "min",
                                                       "max",   "stddev", "last", "distinct_approx"};
inline constexpr std::string_view kComparisons[] = {"=", "!=", "<", "<=", ">", ">="};
inline constexpr std::int64_t kHundredYearsUs = std::int64_t{36'525} * 86'400 * 1'000'000;

// A feature's name is a column of training sets and a word in requests.
bool is_feature_name(std::string_view text);
inline constexpr std::string_view kFeatureNameRule = "1 to 63 of a-z, A-Z, 0-9 and '_', not beginning with a digit";

}  // namespace falaj::features

namespace falaj {

template <>
struct Shape<features::EntitySpec> {
  using S = features::EntitySpec;
  static constexpr std::string_view name = "EntitySpec";
  static Fields fields() {
    return {field("key", &S::key, "The columns that name one of them.").required().length(1, 8)};
  }
};
template <>
struct Shape<features::RowFeatureSpec> {
  using S = features::RowFeatureSpec;
  static constexpr std::string_view name = "RowFeatureSpec";
  static Fields fields() {
    return {field("name", &S::name, "What models call it.")
                .required()
                .text({features::is_feature_name, features::kFeatureNameRule}),
            field("column", &S::column, "The column it is read from; the one of its name when absent.").length(0, 255),
            field("description", &S::description, "For people.").length(0, 4000)};
  }
};
template <>
struct Shape<features::FilterSpec> {
  using S = features::FilterSpec;
  static constexpr std::string_view name = "FilterSpec";
  static Fields fields() {
    return {field("column", &S::column, "A column of the rows.").required().length(1, 255),
            field("is", &S::is, "How it compares.").required().one_of(features::kComparisons),
            field("value", &S::value, "With what: a number, text, true or false.").required()};
  }
};
template <>
struct Shape<features::AggregateSpec> {
  using S = features::AggregateSpec;
  static constexpr std::string_view name = "AggregateSpec";
  static Fields fields() {
    return {field("name", &S::name, "What models call it.")
                .required()
                .text({features::is_feature_name, features::kFeatureNameRule}),
            field("aggregate", &S::aggregate, "What is computed.").required().one_of(features::kAggregateNames),
            field("of", &S::of, "Of which column; count may do without.").length(0, 255),
            field("window", &S::window_us, "Over how long: a whole number of tiles.")
                .required()
                .duration()
                .range(1, features::kHundredYearsUs),
            field("where", &S::where, "Only rows for which all of these hold.").length(0, 16),
            field("description", &S::description, "For people.").length(0, 4000)};
  }
};
template <>
struct Shape<features::ExpressionSpec> {
  using S = features::ExpressionSpec;
  static constexpr std::string_view name = "ExpressionSpec";
  static Fields fields() {
    return {
        field("name", &S::name, "What models call it.")
            .required()
            .text({features::is_feature_name, features::kFeatureNameRule}),
        field("is", &S::is, "Of fields of the request and of the view's features: distance / 100 > origin_delay_3h.")
            .required()
            .length(1, 4000),
        field("description", &S::description, "For people.").length(0, 4000)};
  }
};
template <>
struct Shape<features::ViewExpectationSpec> {
  using S = features::ViewExpectationSpec;
  static constexpr std::string_view name = "ViewExpectationSpec";
  static Fields fields() {
    return {field("action", &S::action, "refuse: rows that fail do not come online, nor any with them; warn: they do.")
                .one_of(data::kActions),
            field("rules", &S::rules, "What must hold, as in an Expectation of a dataset.").required().length(1, 200)};
  }
};
template <>
struct Shape<features::FeatureViewSpec> {
  using S = features::FeatureViewSpec;
  static constexpr std::string_view name = "FeatureViewSpec";
  static Fields fields() {
    return {
        field("entity", &S::entity, "What the features are about; absent when all come of the request.").length(0, 63),
        field("dataset", &S::dataset, "The dataset they are made of.").length(0, 63),
        field("sql", &S::sql,
              "A SELECT over the dataset, by its name, that gives the rows; the dataset's own when absent.")
            .length(0, 20'000),
        field("key", &S::key, "What the rows call the entity's key; the same names when absent.").length(0, 8),
        field("time", &S::time, "The column that says when a row happened.").length(0, 255),
        field("available", &S::available, "The column that says when it could be known; when it happened, if absent.")
            .length(0, 255),
        field("ttl", &S::ttl_us, "How old the newest row may be to count.")
            .duration()
            .range(1, features::kHundredYearsUs),
        field("tile", &S::tile_us, "How finely windows are cut; needed for aggregates.")
            .duration()
            .range(0, features::kHundredYearsUs),
        field("features", &S::features, "Columns of the newest row.").length(0, 1000),
        field("aggregates", &S::aggregates, "Computed over windows of time.").length(0, 1000),
        field("request", &S::request, "Fields that come with a request, or are columns of the spine.").length(0, 200),
        field("expressions", &S::expressions, "Computed when they are asked for.").length(0, 1000),
        field("expectations", &S::expectations, "What must hold of the rows, when they are materialised and pushed.")
            .length(0, 16),
        field("owner", &S::owner, "Who answers for it.").length(0, 200),
        field("materialize", &S::materialize_us,
              "How often, at most, a new version of the dataset is brought online; only when asked if absent.")
            .duration()
            .range(1'000'000, features::kHundredYearsUs)};
  }
};
template <>
struct Shape<features::FeatureServiceSpec> {
  using S = features::FeatureServiceSpec;
  static constexpr std::string_view name = "FeatureServiceSpec";
  static Fields fields() {
    return {field("features", &S::features,
                  "VIEW:FEATURE, or VIEW:* for all of a view, in order; VIEW@REVISION pins what the view is.")
                .required()
                .length(1, 1000)};
  }
};

template <>
struct Shape<features::PushSourceSpec> {
  using S = features::PushSourceSpec;
  static constexpr std::string_view name = "PushSourceSpec";
  static Fields fields() {
    return {field("dataset", &S::dataset, "The dataset whose rows are pushed; all its views get them.")
                .required()
                .text({is_name, kNameRule})};
  }
};

}  // namespace falaj
