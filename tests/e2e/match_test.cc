// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/match.h"

#include <gtest/gtest.h>

namespace falaj::tests {
namespace {

TEST(Match, KnowsWildcardsAndCaptures) {
  Captures c;
  EXPECT_TRUE(matches_line("ready <*>", "ready http://x", c));
  EXPECT_FALSE(matches_line("ready", "ready now", c));
  EXPECT_TRUE(matches_line("token <$id> made", "token abc made", c));
  EXPECT_EQ(c["id"], "abc");
  EXPECT_TRUE(matches_line("gone <$id>", "gone abc", c));
  EXPECT_FALSE(matches_line("gone <$id>", "gone abd", c));
  EXPECT_TRUE(matches_line("a < b", "a < b", c));
  EXPECT_FALSE(matches_line("id <$other>", "id two words", c));
}

TEST(Match, DotsStandForAnyNumberOfLines) {
  Captures c;
  EXPECT_FALSE(difference({"a", "...", "z"}, {"a", "z"}, c));
  EXPECT_FALSE(difference({"a", "...", "z"}, {"a", "b", "c", "z"}, c));
  EXPECT_TRUE(difference({"a", "...", "z"}, {"a", "b"}, c));
  EXPECT_TRUE(difference({}, {"unexpected"}, c));
  EXPECT_FALSE(difference({"..."}, {}, c));
}

}  // namespace
}  // namespace falaj::tests
