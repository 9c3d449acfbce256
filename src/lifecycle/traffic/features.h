// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a serving program is told of features that it looks up by itself. Values only, as the plan that they are part
// of.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::traffic {

struct FeatureColumn {
  std::string name, type;
};
struct FeatureWindow {
  std::string name, aggregate;
  std::int64_t input = 0, window_us = 0;
};
struct FeatureExpression {
  std::string name, is;
};

// All that is needed to read a view but the keys of its rows, which are asked for by the name of the space.
struct FeatureView {
  std::string name;
  std::int64_t revision = 0;
  bool personal = false;    // about people: nobody is shown what was read
  std::string space;        // hex; "": everything comes of the request
  std::int64_t layout = 0;  // of the rows
  std::vector<FeatureColumn> key, rows, request;
  std::int64_t tile_us = 1;
  std::vector<FeatureWindow> windows;
  std::optional<std::int64_t> ttl_us;
  std::vector<FeatureExpression> expressions;
  std::vector<std::string> features;  // those that are wanted, in order
};

struct Features {
  std::string service;
  std::int64_t revision = 0;
  std::string prefix;  // of keys in Redis; "": rows are in files on the control plane's machine
  std::vector<FeatureView> views;
  std::string problem;  // why they cannot be read; "": they can
};

// The keys of one space. Told apart from the plan, and never written to a disk.
struct SpaceKey {
  std::int64_t number = 1;
  std::string key;  // hex
};
struct SpaceKeys {
  std::string space, address;  // hex
  std::vector<SpaceKey> keys;
};

}  // namespace falaj::traffic

namespace falaj {

template <>
struct Shape<traffic::FeatureColumn> {
  using T = traffic::FeatureColumn;
  static constexpr std::string_view name = "PlannedColumn";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required(), field("type", &T::type, "What it holds.").required()};
  }
};
template <>
struct Shape<traffic::FeatureWindow> {
  using T = traffic::FeatureWindow;
  static constexpr std::string_view name = "PlannedWindow";
  static Fields fields() {
    return {field("name", &T::name, "Of the feature.").required(),
            field("aggregate", &T::aggregate, "Its kind.").required(),
            field("input", &T::input, "Which number of an event.").required().range(0, 10'000),
            field("window_us", &T::window_us, "How long it is.").required()};
  }
};
template <>
struct Shape<traffic::FeatureExpression> {
  using T = traffic::FeatureExpression;
  static constexpr std::string_view name = "PlannedExpression";
  static Fields fields() {
    return {field("name", &T::name, "Of the feature.").required(), field("is", &T::is, "What is computed.").required()};
  }
};
template <>
struct Shape<traffic::FeatureView> {
  using T = traffic::FeatureView;
  static constexpr std::string_view name = "PlannedFeatureView";
  static Fields fields() {
    return {field("name", &T::name, "The view.").required(),
            field("revision", &T::revision, "Of the view.").required(),
            field("personal", &T::personal, "Whether its rows are about people."),
            field("space", &T::space, "Where its rows are; absent: everything comes of the request.").length(0, 32),
            field("layout", &T::layout, "Of its rows.").range(0, std::int64_t{1} << 32),
            field("key", &T::key, "What a row is found by.").length(0, 8),
            field("rows", &T::rows, "Columns of the newest row.").length(0, 4096),
            field("request", &T::request, "Fields of the request.").length(0, 200),
            field("tile_us", &T::tile_us, "How finely windows are cut.").range(1, std::int64_t{1} << 53),
            field("windows", &T::windows, "Aggregates.").length(0, 1000),
            field("ttl_us", &T::ttl_us, "How old the newest row may be."),
            field("expressions", &T::expressions, "Computed of the others.").length(0, 1000),
            field("features", &T::features, "Those that are wanted, in order.").length(0, 10'000)};
  }
};
template <>
struct Shape<traffic::Features> {
  using T = traffic::Features;
  static constexpr std::string_view name = "PlannedFeatures";
  static Fields fields() {
    return {field("service", &T::service, "The FeatureService.").required(), field("revision", &T::revision, "Of it."),
            field("prefix", &T::prefix, "Of keys in Redis; empty: rows are in files."),
            field("views", &T::views, "What is read.").length(0, 1000),
            field("problem", &T::problem, "Why they cannot be read; empty: they can.")};
  }
};
template <>
struct Shape<traffic::SpaceKey> {
  using T = traffic::SpaceKey;
  static constexpr std::string_view name = "SpaceKey";
  static Fields fields() {
    return {field("number", &T::number, "Of the key.").required().range(1, std::int64_t{1} << 31),
            field("key", &T::key, "That opens rows; hex.").required().secret().length(64, 64)};
  }
};
template <>
struct Shape<traffic::SpaceKeys> {
  using T = traffic::SpaceKeys;
  static constexpr std::string_view name = "SpaceKeys";
  static Fields fields() {
    return {field("space", &T::space, "Its name.").required().length(32, 32),
            field("address", &T::address, "By which rows are found; hex.").required().secret().length(64, 64),
            field("keys", &T::keys, "That open rows.").required().length(1, 64)};
  }
};

}  // namespace falaj
