// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/told.h"

#include <gtest/gtest.h>

namespace falaj::jobs {
namespace {

TEST(Told, MetricsParamsAndTags) {
  const auto batches = parse_told(
      "{\"metrics\": {\"loss\": 0.5, \"rows\": 7}, \"step\": 3, \"time_ms\": 99}\n"
      "{\"params\": {\"depth\": 7, \"name\": \"x\"}}\n"
      "{\"tags\": {\"note\": \"ok\"}}",
      1000);
  ASSERT_EQ(batches.size(), 1U);
  ASSERT_EQ(batches[0].metrics.size(), 2U);
  EXPECT_EQ(batches[0].metrics[0].point.value, 0.5);
  EXPECT_EQ(batches[0].metrics[0].point.step, 3);
  EXPECT_EQ(batches[0].metrics[0].point.unix_ms, 99);
  ASSERT_EQ(batches[0].params.size(), 2U);
  EXPECT_EQ(batches[0].params[0].value, "7");
  EXPECT_EQ(batches[0].params[1].value, "x");
  EXPECT_EQ(batches[0].tags.size(), 1U);
}

TEST(Told, WhatIsNoneOfTheseIsLeftOut) {
  const std::string long_name(300, 'k');
  const auto batches = parse_told("nonsense\n\n[1]\n{\"metrics\": 1}\n{\"metrics\": {\"a\": \"text\", \"\": 1, \"" +
                                      long_name + "\": 1, \"b\": 2}}\n{\"metrics\": {\"c\"",
                                  1000);
  ASSERT_EQ(batches.size(), 1U);
  ASSERT_EQ(batches[0].metrics.size(), 1U);
  EXPECT_EQ(batches[0].metrics[0].key, "b");
  EXPECT_EQ(batches[0].metrics[0].point.unix_ms, 1000);
}

TEST(Told, NoBatchIsLargerThanACallMayBe) {
  std::string lines;
  for (int i = 0; i < 2500; ++i) lines += "{\"metrics\": {\"loss\": 1}, \"step\": " + std::to_string(i) + "}\n";
  const auto batches = parse_told(lines, 0);
  ASSERT_EQ(batches.size(), 3U);
  for (const auto& batch : batches) EXPECT_LE(batch.metrics.size(), track::kBatchItemsMax);
}

}  // namespace
}  // namespace falaj::jobs
