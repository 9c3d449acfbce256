// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/now.h"

#include <gtest/gtest.h>

#include <vector>

#include "foundation/sys/random.h"

namespace falaj::watch {
namespace {

traffic::Sketches window(std::uint64_t seed, double moved) {
  sys::SimRandom random(seed);
  traffic::Sketches out;
  for (int i = 0; i < 500; ++i) {
    const auto uniform = [&] { return static_cast<double>(random.below(1'000'000)) / 1e6; };
    out["distance"].add(uniform() + moved);
    out["hour"].add(uniform());
    out["origin"].add(random.below(3) == 0 ? "SEA" : "LAX");
    out["out_prediction"].add(uniform() + 5 * moved);
  }
  return out;
}

TEST(Now, TheInputThatMovedIsFarthestAndChanceIsNot) {
  std::vector<traffic::Sketches> before;
  for (std::uint64_t i = 1; i <= 20; ++i) before.push_back(window(i, 0));
  const auto reference = make_reference(before, "before");
  const auto same = farthest(reference, window(100, 0));
  EXPECT_FALSE(same.column.empty());
  EXPECT_LT(same.psi, same.noise);
  const auto moved = farthest(reference, window(101, 0.5));
  EXPECT_EQ(moved.column, "distance") << "what the model answers is not looked at";
  EXPECT_GT(moved.psi, moved.noise + 0.25);
  EXPECT_EQ(farthest(reference, {}).column, "");
}

}  // namespace
}  // namespace falaj::watch
