// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "foundation/base/mutex.h"

namespace falaj::iam {

// How long an account waits after that many failed logins in a row: nothing for the first four, then one second,
// doubling up to fifteen minutes. Never for good: that would let anybody lock anybody out.
std::int64_t delay_after_us(std::size_t failures);

// Failed logins by account, whether it exists or not. Thread-safe. Holds at most `accounts_max`; when full the one that
// may try again soonest is forgotten.
class Throttle {
 public:
  explicit Throttle(std::size_t accounts_max = 10'000) : accounts_max_(accounts_max) {}

  // How long the account must still wait; 0 when it may try. A try that may go on counts as a failure until
  // succeeded() is called, so that many tries at once get no more than one after another would.
  std::int64_t begin(const std::string& account, std::int64_t now_us);
  void succeeded(const std::string& account);

 private:
  struct Entry {
    std::size_t failures = 0;
    std::int64_t next_us = 0;
  };
  void forget_one() REQUIRES(mu_);

  const std::size_t accounts_max_;
  Mutex mu_;  // guards everything below
  std::unordered_map<std::string, Entry> entries_ GUARDED_BY(mu_);
};

}  // namespace falaj::iam
