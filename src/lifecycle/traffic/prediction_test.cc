// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/prediction.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::traffic {
namespace {

TEST(PredictionName, SaysWhoMadeItAndWhen) {
  const PredictionName made{{(std::uint64_t{1'700'000'000'123} << 16) | 77, 0x8000'0000'0000'0000}, "a.b-c", 4, 7, 0};
  const auto text = format_prediction(made);
  EXPECT_TRUE(text.ends_with(":a.b-c:4:7")) << text;
  const auto read = parse_prediction(text);
  EXPECT_EQ(read.id, made.id);
  EXPECT_EQ(read.variant, "a.b-c");
  EXPECT_EQ(read.version, 4);
  EXPECT_EQ(read.revision, 7);
  EXPECT_EQ(read.row, 0);
  EXPECT_EQ(read.at_us(), 1'700'000'000'123'000);
  EXPECT_EQ(place_of(read.id), 0.5);
  EXPECT_EQ(parse_prediction(text + ":12").row, 12);
}

TEST(PredictionName, HasOneSpelling) {
  const auto good = format_prediction({{1, 2}, "a", 1, 1, 0});
  const auto id = good.substr(0, 26);
  for (const auto& bad : {std::string(), std::string("x"), id, id + ":a:1", id + ":a:1:1:0", id + ":a:01:1",
                          id + ":a:1:-1", id + ":A b:1:1", id + "::1:1", id + ":a:1:1:1:1", id + ":a:1:1:x",
                          good + std::string(300, '1'), "\xff" + good}) {
    SCOPED_TRACE(bad);
    EXPECT_ERROR(parse_prediction(bad), Code::invalid);
  }
}

}  // namespace
}  // namespace falaj::traffic
