// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a model's version is good enough, by evidence with its uncertainty. Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lifecycle/flow/bodies.h"

namespace falaj::flow {

// A metric as it was measured; low and high are its 95 % interval where that is known, else the value itself.
struct Measured {
  double value = 0, low = 0, high = 0;
};
// `name` among the metrics of a run, with NAME_low and NAME_high beside it.
std::optional<Measured> measured(const std::map<std::string, double>& metrics, const std::string& name);
// Which of a metric's ends is the good one: by `better`, by its name, or by the end that it is held to. Nothing when
// none of them tells.
std::optional<bool> told_better(const ConditionBody& condition);
bool higher_is_better(const ConditionBody& condition);  // higher when nothing tells

// Which condition tells the best of several versions: the first with a metric.
std::optional<std::size_t> decided_by(const GateBody& gate);

struct Finding {
  bool held = false;
  std::string said;  // in words, with the numbers
};

// How a version answers at an endpoint, and how far what a monitor sees is from what it was tested on.
struct LatencySeen {
  double p99_us = 0;
  std::int64_t requests = 0;
};
struct DriftSeen {
  std::string column;  // that lies farthest from its reference; "" = nothing could be compared
  double psi = 0, noise = 0;
  std::int64_t rows = 0;
  std::string why_not;
};

// What is known of one version.
struct VersionSeen {
  std::int64_t version = 0;
  std::map<std::string, double> metrics;                            // of its own run
  std::map<std::string, std::map<std::string, double>> metrics_of;  // of other runs that conditions name
  std::int64_t bytes = 0;
  std::map<std::string, LatencySeen> latency;  // by endpoint
  std::map<std::string, DriftSeen> drift;      // by monitor
  std::optional<Finding> files;                // whether they are safe, where a condition asks
};

// One condition. `against`: what the version is compared with; none = there is nothing yet, and betterBy holds.
Finding judge(const ConditionBody& condition, const VersionSeen& version, const VersionSeen* against);

struct Verdict {
  bool passed = false;
  std::int64_t version = 0;           // that was chosen; of none that passed, the first
  std::vector<std::string> evidence;  // of that one
};
// Of several, the one that is best by the first condition with a metric among those that pass.
Verdict judge(const GateBody& gate, const std::vector<VersionSeen>& versions, const VersionSeen* against);

}  // namespace falaj::flow
