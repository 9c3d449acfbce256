// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace falaj::iam {

// How often something may happen: `per_second` on average, `burst` at once.
struct Rate {
  double per_second = 0;
  double burst = 0;
  friend bool operator==(const Rate&, const Rate&) = default;
};

// A token bucket as a value: what is left, and when that was true. A new one is full.
struct Bucket {
  double left = -1;  // negative = never used
  std::int64_t at_us = 0;
};

// Whether `cost` may pass now, and if not after how long to try again. Time that runs backwards refills nothing.
struct Admission {
  bool admitted = false;
  std::int64_t retry_after_us = 0;
};
// Ensures: over any time t a bucket admits at most burst + t * per_second in total; a cost above the burst never passes
// (retry_after_us is then -1).
Admission take(Bucket& bucket, const Rate& rate, std::int64_t now_us, double cost = 1);

}  // namespace falaj::iam
