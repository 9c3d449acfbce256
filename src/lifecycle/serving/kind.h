// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/kind.h"
#include "lifecycle/traffic/canary.h"
#include "lifecycle/traffic/experiment.h"
#include "lifecycle/traffic/plan.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::serving {

// Which requests a variant takes whatever the weights.
struct MatchSpec {
  std::string header, value;
};

struct VariantSpec {
  std::string name, model;
  std::optional<std::int64_t> version;
  std::string alias;  // instead of a version; followed when it moves
  double weight = 1;
  bool shadow = false;
  std::optional<MatchSpec> match;
};

// Whose features are looked up when rows name entities.
struct FeaturesSpec {
  std::string service;
};

// Shares that hold from some time on.
struct ScheduledShift {
  std::string at;
  std::map<std::string, double> weights;
};

struct EndpointSpec {
  std::vector<VariantSpec> variants;
  std::optional<FeaturesSpec> features;
  std::string sticky;
  traffic::Batching batching;
  std::optional<traffic::CanaryRule> canary;
  bool stopped = false;
  std::optional<traffic::Logging> log;
  std::optional<traffic::ExperimentRule> experiment;
  std::int64_t sleep_after_us = 0;
  std::vector<ScheduledShift> schedule;
};

inline constexpr std::size_t kVariantsMax = 16;
inline constexpr std::size_t kLoggedNameMax = 63 - 12;  // of an endpoint with a log: "predictions-" goes before it

resource::Kind endpoint_kind();

}  // namespace falaj::serving

namespace falaj {

template <>
struct Shape<serving::MatchSpec> {
  using T = serving::MatchSpec;
  static constexpr std::string_view name = "MatchSpec";
  static Fields fields() {
    return {field("header", &T::header, "Of the request; for gRPC its metadata.").required().length(1, 64),
            field("value", &T::value, "It must have.").required().length(1, 256)};
  }
};
template <>
struct Shape<serving::VariantSpec> {
  using T = serving::VariantSpec;
  static constexpr std::string_view name = "VariantSpec";
  static Fields fields() {
    return {field("name", &T::name, "What it is called here, such as champion.").required().text({is_name, kNameRule}),
            field("model", &T::model, "A registered model of the project.").required().length(1, 256),
            field("version", &T::version, "Its version.").range(1, std::int64_t{1} << 53),
            field("alias", &T::alias, "Instead of a version: whichever this points at; followed when it moves.")
                .length(0, 255),
            field("weight", &T::weight, "Share of the requests, beside those of the others.").range(0, 1'000'000),
            field("shadow", &T::shadow, "Gets a copy of every request; its answers are dropped."),
            field("match", &T::match, "Takes every request that says so, whatever the weights.")};
  }
};
template <>
struct Shape<serving::FeaturesSpec> {
  using T = serving::FeaturesSpec;
  static constexpr std::string_view name = "EndpointFeaturesSpec";
  static Fields fields() {
    return {field("service", &T::service, "The FeatureService: rows name its entities, the rest of it is looked up.")
                .required()
                .text({is_name, kNameRule})};
  }
};
template <>
struct Shape<serving::ScheduledShift> {
  using T = serving::ScheduledShift;
  static constexpr std::string_view name = "ScheduledShift";
  static Fields fields() {
    return {field("at", &T::at, "When, such as 2026-12-01T08:00:00Z.").required().length(1, 64),
            field("weights", &T::weights, "New shares by variant; others keep theirs.").required().length(1, 16)};
  }
};
template <>
struct Shape<serving::EndpointSpec> {
  using T = serving::EndpointSpec;
  static constexpr std::string_view name = "EndpointSpec";
  static Fields fields() {
    return {field("variants", &T::variants, "Who answers.")
                .required()
                .length(1, static_cast<std::int64_t>(serving::kVariantsMax)),
            field("features", &T::features, "Features that are looked up by the keys that rows name."),
            field("sticky", &T::sticky,
                  "header:NAME or input:NAME: requests with equal values get the same variant; absent: each by itself.")
                .length(0, 256),
            field("batching", &T::batching, "How requests are put together."),
            field("canary", &T::canary, "Lets a variant take over step by step, or rolls it back, by itself."),
            field("stopped", &T::stopped, "Answers nothing, and its models are not held."),
            field("log", &T::log, "Writes what it answers down, as the dataset predictions-NAME; absent: it does not."),
            field("experiment", &T::experiment, "Compares the variants by what became of their predictions."),
            field("sleepAfter", &T::sleep_after_us,
                  "So long without a request, a model leaves memory until the next one; absent: it stays.")
                .duration()
                .range(0, 31'536'000'000'000),
            field("schedule", &T::schedule, "Shares that change at some time; each is gone from the list when it did.")
                .length(0, 100)};
  }
};

}  // namespace falaj
