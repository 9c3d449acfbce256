// SPDX-License-Identifier: Apache-2.0
#include "compute/train/profile.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/json.h"

namespace falaj::train {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Profile, TellsWhereTheTimeOfAStepWent) {
  sys::SimClock clock;
  Profile profile(clock, true);
  EXPECT_EQ(profile.sentence(), "");
  clock.advance(milliseconds(100));  // before anything
  for (int i = 0; i < 4; ++i) {
    profile.enter("data");
    clock.advance(milliseconds(1));
    profile.enter("forward");
    clock.advance(milliseconds(2));
    profile.enter("backward");
    clock.advance(milliseconds(6));
    profile.step();
  }
  profile.enter("evaluate");
  clock.advance(milliseconds(50));
  EXPECT_THAT(profile.since_last(),
              ElementsAre(Pair("data_ms", 1), Pair("forward_ms", 2), Pair("backward_ms", 6), Pair("step_ms", 9)));
  EXPECT_TRUE(profile.since_last().empty());
  EXPECT_THAT(profile.sentence(), HasSubstr("9 ms, 67 % of it backward"));

  const auto trace = json::parse(profile.chrome());
  const auto& events = trace.at("traceEvents").as_array();
  ASSERT_EQ(events.size(), 14U);
  EXPECT_EQ(events[2].at("name").as_string(), "forward");
  EXPECT_EQ(events[2].at("ts").as_int64(), 101'000);
  EXPECT_EQ(events[2].at("dur").as_int64(), 2'000);
}

TEST(Profile, RowsThatComeTooSlowlyAreTheLimit) {
  sys::SimClock clock;
  Profile profile(clock);
  profile.enter("data");
  clock.advance(milliseconds(5));
  profile.enter("forward");
  clock.advance(milliseconds(1));
  profile.step();
  profile.since_last();
  EXPECT_THAT(profile.sentence(), HasSubstr("rows come too slowly"));
}

}  // namespace
}  // namespace falaj::train
