// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

namespace falaj::cli {
namespace {

using std::chrono::seconds;
constexpr std::uint64_t kMiB = 1 << 20;

// What the work writes to standard error, which is no terminal in a test.
std::string reported(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(Progress, SaysNothingOfWorkThatIsQuicklyDone) {
  sys::SimClock clock;
  EXPECT_EQ(reported([&] {
              Progress progress("storing x", 10 * kMiB, Progress::Unit::bytes, clock, false);
              progress.add(10 * kMiB);
              clock.advance(seconds(4));
            }),
            "");
}

TEST(Progress, WritesPlainLinesNowAndThenWhereThereIsNoTerminal) {
  sys::SimClock clock;
  EXPECT_EQ(reported([&] {
              Progress progress("storing x", 40 * kMiB, Progress::Unit::bytes, clock, false);
              for (int i = 0; i < 4; ++i) {
                clock.advance(seconds(3));
                progress.add(10 * kMiB);
              }
            }),
            "storing x: 50%, 20 MiB of 40 MiB, 3.3 MiB/s, 6.0 s left\n"
            "storing x: 100%, 40 MiB of 40 MiB\n");
}

TEST(Progress, KnowsNoShareWithoutATotal) {
  sys::SimClock clock;
  EXPECT_EQ(reported([&] {
              Progress progress("exporting", 0, Progress::Unit::items, clock, false);
              clock.advance(seconds(5));
              progress.add(100);
              clock.advance(seconds(5));
              progress.add(50);
              progress.add(10);
              progress.finish();
              progress.finish();  // once is enough
            }),
            "exporting: 100, 20/s\n"
            "exporting: 150, 15/s\n"
            "exporting: 160, 16/s\n");
}

TEST(Progress, IsSilentWhenAskedToBe) {
  sys::SimClock clock;
  EXPECT_EQ(reported([&] {
              Progress progress("storing x", 10, Progress::Unit::items, clock, true);
              clock.advance(seconds(60));
              progress.add(10);
            }),
            "");
}

}  // namespace
}  // namespace falaj::cli
