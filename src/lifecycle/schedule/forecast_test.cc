// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/forecast.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "foundation/base/testing.h"
#include "lifecycle/schedule/simulate.h"

namespace falaj::schedule {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

JobId waiter(std::uint64_t n) { return JobId{{7, n}}; }

// What logs of real clusters look like and no normal distribution does: run times without a mean worth the name, no
// limits, and users who send many jobs at once.
Trace heavy_tailed(std::uint64_t seed, double tail, double burst, double load) {
  Trace trace;
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  constexpr int kNodes = 8, kProcessors = 16;
  for (int i = 0; i < kNodes; ++i) {
    Node node;
    node.name = fmt::format("n{}", i);
    node.capacity.cpu_millis = kProcessors * 1000;
    trace.nodes.push_back(std::move(node));
  }
  double work = 0;
  for (int i = 0; i < 5000; ++i) {
    TraceJob job;
    job.ran = from_seconds(std::min(30 * std::pow(1 - uniform(), -1 / tail), 7 * 86400.0));
    job.tasks = uniform() < 0.7 ? 1 : 1 + static_cast<int>(std::exp(uniform() * std::log(32)));
    job.task.cpu_millis = 1000;
    job.user = fmt::format("u{}", static_cast<int>(20 * uniform() * uniform()));
    job.queue = "all";
    work += in_seconds(job.ran) * job.tasks;
    trace.jobs.push_back(std::move(job));
  }
  const double apart = work / (kNodes * kProcessors * load) / static_cast<double>(trace.jobs.size());
  double at = 0, left = 0;
  for (TraceJob& job : trace.jobs) {
    if (left-- < 1) {
      at += -std::log(1 - uniform()) * apart * (1 + burst);
      left = -std::log(1 - uniform()) * burst;
    }
    job.submitted = from_seconds(at);
  }
  trace.queues = {{"all", "", 1, {}, {}, true}};
  return trace;
}

TEST(StartForecast, NineOfTenStartByTheTimeGivenWhateverTheTraceIsLike) {
  struct Shape {
    double tail, burst, load;
  };
  const std::vector<Shape> shapes = {{1.1, 5, 1.1}, {1.3, 50, 0.9}, {1.5, 0, 1.0}, {2.5, 20, 0.95}};
  for (std::size_t i = 0; i < repeats(shapes.size()); ++i) {
    const Shape& shape = shapes[i];
    SCOPED_TRACE(fmt::format("tail {}, bursts of {}, load {}", shape.tail, shape.burst, shape.load));
    Simulated how = ours();
    how.forecasts = true;
    const Outcome outcome = simulate(heavy_tailed(i + 1, shape.tail, shape.burst, shape.load), how);
    ASSERT_GT(outcome.forecasts, 400u);
    EXPECT_GT(outcome.by_p90, 0.85);
    EXPECT_LT(outcome.by_p90, 0.95);
    EXPECT_GT(outcome.by_p50, 0.4);
    EXPECT_LT(outcome.by_p50, 0.6);
  }
}

TEST(StartForecast, HearsFromThoseThatStillWait) {
  StartForecast forecast;
  const Crowd crowd{100, 0.1, 60};
  Micros now = hours(1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    forecast.tell(waiter(i), crowd, now);
    now += seconds(10);
    forecast.started(waiter(i), now);
  }
  ASSERT_TRUE(forecast.knows_enough());
  const Guess before = forecast.tell(waiter(999), crowd, now);
  EXPECT_LT(before.p90, minutes(1));
  forecast.gone(waiter(999));
  for (std::uint64_t i = 1000; i < 1100; ++i) forecast.tell(waiter(i), crowd, now);
  // None of those has started for an hour. Nothing new has been learned of any start, and still:
  EXPECT_GT(forecast.tell(waiter(2000), crowd, now + hours(1)).p90, hours(1));
}

TEST(StartForecast, ForgetsThoseThatNeverWillStart) {
  StartForecast forecast;
  const Crowd crowd{100, 0.1, 60};
  Micros now = hours(1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    forecast.tell(waiter(i), crowd, now);
    forecast.tell(waiter(1000 + i), crowd, now);
    forecast.gone(waiter(1000 + i));
    now += seconds(10);
    forecast.started(waiter(i), now);
    forecast.started(waiter(i), now + hours(5));  // it is known no more
  }
  EXPECT_LT(forecast.tell(waiter(5000), crowd, now + hours(100)).p90, minutes(1));
}

TEST(StartForecast, LearnsFromItsOwnRecordWhenTheCrowdSaysNothing) {
  StartForecast forecast;
  std::mt19937_64 random(11);
  Micros now = hours(1);
  int in_time = 0, told = 0;
  // Each five hundred wait twice as long as those before, and nothing foretells it.
  for (std::uint64_t i = 0; i < repeats(std::uint64_t{5000}); ++i) {
    const double scale = std::exp2(static_cast<double>(i / 500));
    const Micros waits = from_seconds(scale * (1 + static_cast<double>(random() % 1000)));
    const Guess guess = forecast.tell(waiter(i), {1, 0.1, 1}, now);
    now += waits;
    forecast.started(waiter(i), now);
    if (i < 500) continue;
    ++told;
    in_time += waits <= guess.p90 ? 1 : 0;
  }
  EXPECT_GT(in_time, 0.85 * told);
  EXPECT_LT(in_time, 0.95 * told);
}

}  // namespace
}  // namespace falaj::schedule
