// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/counts.h"

#include <gtest/gtest.h>

namespace falaj::serve {
namespace {

TEST(Latencies, AreRightToASixteenth) {
  Latencies latencies;
  for (std::int64_t us = 1; us <= 100'000; ++us) latencies.add(us);
  const auto snapshot = latencies.snapshot();
  EXPECT_NEAR(quantile_us(snapshot, 0.5), 50'000, 50'000.0 / 16);
  EXPECT_NEAR(quantile_us(snapshot, 0.99), 99'000, 99'000.0 / 16);
  for (std::int64_t us = 0; us < 5'000; ++us) {
    const auto bucket = Latencies::bucket(us);
    EXPECT_LT(us, Latencies::top_us(bucket));
    EXPECT_GE(us, bucket == 0 ? 0 : Latencies::top_us(bucket - 1));
  }
}

}  // namespace
}  // namespace falaj::serve
