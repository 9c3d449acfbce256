// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compute/serve/crash_note.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "lifecycle/traffic/plan.h"

namespace falaj::serve {

// Models that ended the process that ran them, and are not loaded again. One that crashed it is taken out at once. When
// it was killed from outside, as for want of memory, whoever was at work may have had nothing to do with it: those that
// were so kStrikes times within kStrikeWindow are. Not thread-safe.
class Quarantine {
 public:
  static constexpr std::size_t kStrikes = 2;
  static constexpr sys::Micros kStrikeWindow = std::chrono::minutes(10);

  // `how` the process ended at `now`, and what it was doing by its note.
  void blame(const CrashNote& note, const std::string& how, sys::Micros now);
  // Models that no endpoint names any more begin anew when one does.
  void forget_all_but(const traffic::Plan& plan);

  json::object told() const;  // by digest: why

 private:
  void strike(const std::string& digest, const char* doing, const std::string& how, sys::Micros now);
  void take_out(const std::string& digest, const char* doing, const std::string& how);

  std::map<std::string, std::string> out_;  // by digest: why
  std::map<std::string, std::vector<sys::Micros>> strikes_;
};

}  // namespace falaj::serve
