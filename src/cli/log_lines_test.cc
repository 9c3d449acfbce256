// SPDX-License-Identifier: Apache-2.0
#include "cli/log_lines.h"

#include <gtest/gtest.h>

namespace falaj::cli {
namespace {

TEST(LogLines, WithoutAWishAllIsShownAtOnce) {
  LogLines lines("", 0);
  EXPECT_EQ(lines.take("half"), "half");
  EXPECT_EQ(lines.take(" a line\n"), " a line\n");
  EXPECT_EQ(lines.caught_up() + lines.end(), "");
}

TEST(LogLines, OnlyLinesThatHoldTheTextWhereverTheyAreCut) {
  LogLines lines("loss", 0);
  EXPECT_EQ(lines.take("epoch 1\nlo"), "");
  EXPECT_EQ(lines.take("ss 3\nepoch 2\nloss 2"), "loss 3\n");
  EXPECT_EQ(lines.caught_up(), "");
  EXPECT_EQ(lines.end(), "loss 2");
}

TEST(LogLines, TheLastOfWhatIsThereAndThenWhatComes) {
  LogLines lines("", 2);
  EXPECT_EQ(lines.take("a\nb\nc\nd"), "");
  EXPECT_EQ(lines.caught_up(), "b\nc\n");
  EXPECT_EQ(lines.take("\ne\n"), "d\ne\n");
  EXPECT_EQ(lines.caught_up(), "");
  LogLines few("b", 2);
  EXPECT_EQ(few.take("b1\nx\nb2\nb3\nb4"), "");
  EXPECT_EQ(few.end(), "b3\nb4");
}

TEST(LogLines, ALineWithoutEndIsNotKeptWhole) {
  LogLines lines("", 1);
  for (int i = 0; i < 100; ++i) lines.take(std::string(10'000, 'x'));
  EXPECT_LT(lines.end().size(), 200'000u);
}

}  // namespace
}  // namespace falaj::cli
