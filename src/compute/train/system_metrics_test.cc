// SPDX-License-Identifier: Apache-2.0
#include "compute/train/system_metrics.h"

#include <chrono>
#include <map>

#include <gtest/gtest.h>

#include "foundation/sys/files.h"
#include "foundation/sys/testing.h"

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

TEST(SystemMetrics, CountsEnergyWhereTheKernelDoes) {
  const sys::TempDir directory;
  const auto files = sys::open_files(directory.path());
  const auto counted = [&](const char* package, const char* microjoules) {
    files->write_all(std::string(package) + "/energy_uj", as_bytes(microjoules));
  };
  for (const auto* package : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"}) {
    counted(package, "9000000\n");
    files->write_all(std::string(package) + "/max_energy_range_uj", as_bytes("10000000\n"));
  }
  sys::SimClock clock;
  SystemMetrics metrics(clock, 2, 1 << 30, directory.path());
  const auto joules = [&] {
    clock.advance(std::chrono::seconds(6));
    const auto told = metrics.sample();
    return std::map<std::string, double>(told.begin(), told.end()).at("system/energy_joules");
  };
  counted("intel-rapl:0", "9500000\n");
  counted("intel-rapl:0:0", "9999999\n");  // a part of the first: not counted twice
  EXPECT_DOUBLE_EQ(joules(), 0.5);
  counted("intel-rapl:0", "1000000\n");  // it began again
  counted("intel-rapl:1", "9250000\n");
  EXPECT_DOUBLE_EQ(joules(), 2.25);
}

}  // namespace
}  // namespace falaj::train
