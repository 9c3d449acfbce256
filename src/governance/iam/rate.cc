// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/rate.h"

#include <algorithm>
#include <cmath>

namespace falaj::iam {

Admission take(Bucket& bucket, const Rate& rate, std::int64_t now_us, double cost) {
  if (bucket.left < 0) {
    bucket = {rate.burst, now_us};
  } else if (now_us > bucket.at_us) {
    bucket.left =
        std::min(rate.burst, bucket.left + static_cast<double>(now_us - bucket.at_us) * 1e-6 * rate.per_second);
    bucket.at_us = now_us;
  }
  bucket.left = std::min(bucket.left, rate.burst);  // the limit may have been lowered meanwhile
  constexpr double kRounding = 1e-9;                // what many small refills may have lost
  if (cost <= bucket.left + kRounding) {
    bucket.left = std::max(0.0, bucket.left - cost);
    return {true, 0};
  }
  if (cost > rate.burst || rate.per_second <= 0) return {false, -1};
  return {false, static_cast<std::int64_t>(std::ceil((cost - bucket.left) / rate.per_second * 1e6))};
}

}  // namespace falaj::iam
