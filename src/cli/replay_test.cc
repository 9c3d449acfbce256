// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::cli {
namespace {

TEST(Replay, ReadsRowsOfOneTimeInAnOrderThatDoesNotChange) {
  EXPECT_EQ(replay_query("SELECT 1 AS a", ""), "SELECT * FROM (SELECT 1 AS a)");
  EXPECT_EQ(replay_query("SELECT 1 AS a", "a"), "SELECT * FROM (SELECT 1 AS a) AS asked ORDER BY \"a\", hash(asked)");
  EXPECT_EQ(replay_query("x", "a\" b"), "SELECT * FROM (x) AS asked ORDER BY \"a\"\" b\", hash(asked)");
}

TEST(Replay, AsksTheModelNothingOfWhatBecameOfARow) {
  const json::array columns{{{"name", "date"}}, {{"name", "distance"}}, {{"name", "late"}}, {{"name", "landed"}}};
  const auto found = replay_columns(columns, "late", "landed", "date");
  EXPECT_EQ(json::serialize(found.ask({"2001-04-01T00:00:00Z", 954, true, "2001-04-01T03:00:00Z"})),
            R"({"date":"2001-04-01T00:00:00Z","distance":954})");
  EXPECT_EQ(json::serialize(replay_columns(columns, "", "", "").ask({"a", 1, true, "b"})),
            R"({"date":"a","distance":1,"late":true,"landed":"b"})");
  EXPECT_ERROR(replay_columns(columns, "delay", "", ""), Code::invalid);
  EXPECT_ERROR(replay_columns(columns, "late", "landed", ""), Code::invalid);
}

TEST(Replay, ALabelIsToldWhenItWasKnownAndNotBefore) {
  LabelsDue due;
  due.add("2001-04-01T05:00:00Z", prediction_of_row("x:a:1:1", 0), true);
  due.add("2001-04-01T03:00:00Z", prediction_of_row("x:a:1:1", 1), false);
  EXPECT_TRUE(due.take("2001-04-01T02:59:59Z").empty());
  EXPECT_EQ(json::serialize(due.take("2001-04-01T04:00:00Z")), R"([{"prediction_id":"x:a:1:1:1","value":false}])");
  EXPECT_EQ(json::serialize(due.take_all()), R"([{"prediction_id":"x:a:1:1","value":true}])");
  EXPECT_TRUE(due.take_all().empty());
}

}  // namespace
}  // namespace falaj::cli
