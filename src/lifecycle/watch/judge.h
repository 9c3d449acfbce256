// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to watch: when a finding begins, goes on and ends, the same for all tests.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "lifecycle/watch/look.h"

namespace falaj::watch {

inline constexpr double kOrdinary = 0.05;         // what chance does in one of twenty windows is nothing to stand by
inline constexpr std::int64_t kQuietWindows = 3;  // that must look so before a finding goes
inline constexpr std::int64_t kFirstWindows = 8;  // a longer block that begins with the first may have begun well
inline constexpr double kLeastChance = 1e-300;

// The state of no test, of which `clear_from` holds for all: where a monitor began to compare with something else.
inline constexpr const char* kEveryTest = "";

class Judge {
 public:
  // `level`: the chance of any false finding of `family` tests within `horizon` windows; `newest` is their number.
  Judge(double level, std::int64_t horizon, std::size_t family, std::int64_t newest,
        std::map<std::string, TestState>& tests)
      : level_(level), horizon_(horizon), family_(family), newest_(newest), tests_(tests) {}

  struct Block {
    std::int64_t number = 0, from_us = 0;  // of its first window
    std::uint64_t windows = 1;
  };
  struct Seen {
    double chance = 1;    // of p, with all that was looked at
    bool counts = false;  // false: it led to a finding that has ended
  };
  // Whatever this block says: a finding begins, goes on, or has one reason less to. `tell` says it in words.
  Seen see(const char* test, const std::string& name, const Block& block, double p, bool matters,
           const std::function<Finding()>& tell);

 private:
  const double level_;
  const std::int64_t horizon_;
  const std::size_t family_;
  const std::int64_t newest_;
  std::map<std::string, TestState>& tests_;
};

}  // namespace falaj::watch
