// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/kind.h"

namespace falaj::loop {

inline constexpr const char* kPolicy = "RetrainPolicy";
inline constexpr std::int64_t kSecondUs = 1'000'000, kHourUs = 3'600 * kSecondUs, kDayUs = 24 * kHourUs;
inline constexpr std::string_view kTroubles[] = {"", "keep", "rollback"}, kFailures[] = {"keep", "rollback", "page"};

struct BudgetSpec {
  std::int64_t runs = 3;
  std::int64_t per_us = 7 * kDayUs;
};

// What is done by itself when a model gets worse, and what is not.
struct PolicySpec {
  std::vector<std::string> on;          // alert rules that ask for a better model
  std::vector<std::string> blocked_by;  // alert rules that say that data are broken: nothing is learned from those
  std::string pipeline;
  std::map<std::string, std::string> parameters;
  std::string endpoint;
  std::int64_t settle_us = 60 * kSecondUs;
  std::int64_t cool_down_us = 6 * kHourUs;
  BudgetSpec budget;
  std::int64_t tries_max = 3;
  std::string when_blocked, when_failed = "keep";  // when_blocked "": rollback where there is an endpoint
  bool dry_run = false, suspended = false;
};

resource::Kind policy_kind();

}  // namespace falaj::loop

namespace falaj {

template <>
struct Shape<loop::BudgetSpec> {
  using T = loop::BudgetSpec;
  static constexpr std::string_view name = "RetrainBudget";
  static Fields fields() {
    return {field("runs", &T::runs, "At most so many runs of the pipeline").range(1, 1000),
            field("per", &T::per_us, "within so long.").duration().range(loop::kSecondUs, 366 * loop::kDayUs)};
  }
};
template <>
struct Shape<loop::PolicySpec> {
  using T = loop::PolicySpec;
  static constexpr std::string_view name = "RetrainPolicySpec";
  static Fields fields() {
    return {field("on", &T::on, "Alert rules: while one fires, a better model is wanted.")
                .required()
                .length(1, 32)
                .text({is_name, kNameRule}),
            field("blockedBy", &T::blocked_by,
                  "Alert rules: while one fires, data are broken and nothing is learned from them.")
                .length(0, 32)
                .text({is_name, kNameRule}),
            field("pipeline", &T::pipeline, "What makes a better model, tests it and puts it in place.")
                .required()
                .text({is_name, kNameRule}),
            field("parameters", &T::parameters, "Of its runs.").length(0, 100),
            field("endpoint", &T::endpoint, "Whose canary is taken back when data are broken or a run failed.")
                .length(0, 63),
            field("settle", &T::settle_us,
                  "An alert must have fired so long, so that a fault of the data shows itself first.")
                .duration()
                .range(0, 7 * loop::kDayUs),
            field("coolDown", &T::cool_down_us, "After a run, however it ended, nothing is begun for so long.")
                .duration()
                .range(0, 366 * loop::kDayUs),
            field("budget", &T::budget, "What it may spend; more needs a person."),
            field("triesMax", &T::tries_max, "After so many failures in a row it stops, until a person lets it go on.")
                .range(1, 100),
            field("whenBlocked", &T::when_blocked,
                  "What becomes of a canary that is under way; absent: rollback, of an endpoint.")
                .one_of(loop::kTroubles),
            field("whenFailed", &T::when_failed,
                  "The same, after a run that failed; page: it stays, and rules `on: loop` fire until a run succeeds.")
                .one_of(loop::kFailures),
            field("dryRun", &T::dry_run, "Only says what it would do."),
            field("suspended", &T::suspended, "Does nothing at all.")};
  }
};

}  // namespace falaj
