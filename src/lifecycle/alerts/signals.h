// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "governance/iam/scope.h"

namespace falaj::alerts {

// Whose rules and alerts: a project's, or the platform's (both names empty).
struct Where {
  std::string tenant, project;
  iam::Scope scope() const { return project.empty() ? iam::Scope() : iam::Scope::of_project(tenant, project); }
  friend auto operator<=>(const Where&, const Where&) = default;
};

// What a rule may watch.
inline constexpr std::string_view kSignals[] = {
    "drift",    // findings of monitors, with a label `monitor`, and `column` where it is one column's
    "quality",  //
    "performance", "skew",
    "latency",      // of endpoints, by variant: the 99th percentile in seconds
    "errors",       // of endpoints, by variant: the share of requests that failed
    "queueWait",    // of queues: how long the job that waits longest has waited, in seconds
    "jobFailures",  // of jobs by name: how many failed
    "budget",       // of the project: what its jobs cost
    "loop",         // policies that stopped and wait for a person, with a label `policy`
    "metric",       // of this server's own numbers: a gauge as it is, a counter by the second
};

// Something that was seen and has a size. A source gives all there are now, whatever rules make of them.
struct Signal {
  std::string subject;                        // "endpoint/late"
  std::map<std::string, std::string> labels;  // which of them: monitor, column, variant, queue, ...
  double value = 0;
  std::string text;           // in words, with the unit
  std::int64_t since_us = 0;  // known to be so since then; 0 = since now
};

struct Question {
  Where where;
  std::string on;              // one of kSignals
  std::string metric;          // with on = metric: its name
  std::int64_t window_us = 0;  // what happened within so long before now
  std::int64_t now_us = 0;
  friend auto operator<=>(const Question&, const Question&) = default;
};

// Where signals come from. Given by whoever knows them, one for each kind. Thread-safe. Throws when it cannot tell:
// what it told before then stays as it was.
class SignalSource {
 public:
  virtual ~SignalSource() = default;
  virtual std::vector<Signal> read(const Question& question) = 0;
};
using Sources = std::map<std::string, SignalSource*, std::less<>>;  // by kind of signal

}  // namespace falaj::alerts
