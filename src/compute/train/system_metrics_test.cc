// SPDX-License-Identifier: Apache-2.0
#include "compute/train/system_metrics.h"

#include <chrono>
#include <map>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

TEST(SystemMetrics, TellsWhatThisProcessTakesNowAndThen) {
  sys::SimClock clock;
  SystemMetrics metrics(clock, 2, 1 << 30);
  EXPECT_TRUE(metrics.sample().empty());  // too soon
  volatile double work = 1;
  for (int i = 0; i < 20'000'000; ++i) work = work * 1.0000001;
  clock.advance(std::chrono::seconds(6));
  const auto told = metrics.sample();
  const std::map<std::string, double> by_name(told.begin(), told.end());
  EXPECT_GT(by_name.at("system/cpu_utilization_percentage"), 0);
  EXPECT_LT(by_name.at("system/cpu_utilization_percentage"), 100);
  EXPECT_GT(by_name.at("system/system_memory_usage_megabytes"), 1);
  EXPECT_GT(by_name.at("system/system_memory_usage_percentage"), 0);
  EXPECT_TRUE(metrics.sample().empty());
}

}  // namespace
}  // namespace falaj::train
