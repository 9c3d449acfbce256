// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/answer_cache.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compute/infer/testing.h"

namespace falaj::serve {
namespace {

TEST(AnswerCacheTest, HoldsNoMoreThanItMay) {
  AnswerCache cache(4096);
  const std::vector<float> values(64, 1);
  const auto output = infer::view_of(values, {64});
  for (int i = 0; i < 100; ++i) cache.keep("key" + std::to_string(i), std::span(&output, 1));
  EXPECT_EQ(cache.find("key0"), nullptr);
  ASSERT_NE(cache.find("key99"), nullptr);
  EXPECT_EQ(cache.find("key99")->at(0).values<float>()[63], 1);
  const std::vector<float> many(1024, 1);
  const auto large = infer::view_of(many, {1024});
  cache.keep("large", std::span(&large, 1));
  EXPECT_EQ(cache.find("large"), nullptr);
}

}  // namespace
}  // namespace falaj::serve
