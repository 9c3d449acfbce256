// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/cron.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::jobs {
namespace {

std::string after(std::string_view cron, std::string_view time) {
  const auto next = Cron::parse(cron).next(*parse_time(time));
  return next ? format_time(*next) : "never";
}

TEST(Cron, SaysWhenItIsDueNext) {
  EXPECT_EQ(after("30 6 * * *", "2026-01-01T06:29:59Z"), "2026-01-01T06:30:00.000Z");
  EXPECT_EQ(after("30 6 * * *", "2026-01-01T06:30:00Z"), "2026-01-02T06:30:00.000Z");
  EXPECT_EQ(after("*/15 * * * *", "2026-01-01T23:46:00Z"), "2026-01-02T00:00:00.000Z");
  EXPECT_EQ(after("5/20 3 * * *", "2026-01-01T03:05:00Z"), "2026-01-01T03:25:00.000Z");
  EXPECT_EQ(after("0 0 29 feb *", "2026-01-01T00:00:00Z"), "2028-02-29T00:00:00.000Z");
  EXPECT_EQ(after("0 9-17/4 * * *", "2026-01-01T10:00:00Z"), "2026-01-01T13:00:00.000Z");
  EXPECT_EQ(after("@weekly", "2026-11-16T00:00:00Z"), "2026-11-22T00:00:00.000Z");
}

TEST(Cron, KnowsDaysOfTheWeek) {
  EXPECT_EQ(after("0 12 * * mon-fri", "2026-11-13T12:00:00Z"), "2026-11-16T12:00:00.000Z");  // a Friday
  EXPECT_EQ(after("0 0 * * 7", "2026-11-16T00:00:00Z"), after("0 0 * * sun", "2026-11-16T00:00:00Z"));
  // Both days given: either will do.
  EXPECT_EQ(after("0 0 20 * tue", "2026-11-16T00:00:00Z"), "2026-11-17T00:00:00.000Z");
  EXPECT_EQ(after("0 0 20 * tue", "2026-11-18T00:00:00Z"), "2026-11-20T00:00:00.000Z");
}

TEST(Cron, EverySoOften) {
  EXPECT_EQ(after("@every 90s", "2026-01-01T00:00:01Z"), "2026-01-01T00:01:30.000Z");
  EXPECT_EQ(after("@every 90s", "2026-01-01T00:01:30Z"), "2026-01-01T00:03:00.000Z");
  for (const auto* text : {"@every", "@every 0s", "@every 10ms", "@every x", "@every -5s"}) EXPECT_FALSE(is_cron(text));
}

TEST(Cron, SaysWhenItNeverIs) { EXPECT_EQ(after("0 0 30 2 *", "2026-01-01T00:00:00Z"), "never"); }

TEST(Cron, RefusesWhatItIsNot) {
  for (const auto* text :
       {"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *",
        "*/0 * * * *", "x * * * *", "1,,2 * * * *", "@never", "-1 * * * *", "1- * * * *", "*/ * * * *"}) {
    EXPECT_ERROR(Cron::parse(text), Code::invalid);
    EXPECT_FALSE(is_cron(text)) << text;
  }
}

}  // namespace
}  // namespace falaj::jobs
