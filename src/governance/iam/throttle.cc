// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/throttle.h"

#include <algorithm>

namespace falaj::iam {

std::int64_t delay_after_us(std::size_t failures) {
  constexpr std::size_t kFree = 4;
  constexpr std::int64_t kSecond = 1'000'000, kMost = 15 * 60 * kSecond;
  if (failures <= kFree) return 0;
  const auto doublings = std::min<std::size_t>(failures - kFree - 1, 20);
  return std::min(kSecond << doublings, kMost);
}

std::int64_t Throttle::begin(const std::string& account, std::int64_t now_us) {
  Lock lock(mu_);
  auto found = entries_.find(account);
  if (found == entries_.end()) {
    if (entries_.size() >= accounts_max_) forget_one();
    found = entries_.try_emplace(account).first;
  }
  auto& entry = found->second;
  if (now_us < entry.next_us) return entry.next_us - now_us;
  ++entry.failures;
  entry.next_us = now_us + delay_after_us(entry.failures);
  return 0;
}

void Throttle::succeeded(const std::string& account) {
  Lock lock(mu_);
  entries_.erase(account);
}

void Throttle::forget_one() {
  const auto soonest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.second.next_us < b.second.next_us;
  });
  entries_.erase(soonest);
}

}  // namespace falaj::iam
