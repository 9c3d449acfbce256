// SPDX-License-Identifier: Apache-2.0
#include "cli/batch_predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::cli {
namespace {

json::value fruit(std::uint64_t rows = 100, std::uint64_t bytes = 1000) {
  return {{"dataset", "fruit"},
          {"number", 3},
          {"rows", rows},
          {"bytes", bytes},
          {"columns",
           {{{"name", "id"}, {"type", "int64"}},
            {{"name", "taken"}, {"type", "timestamp"}},
            {{"name", "x\"y"}, {"type", "float64"}},
            {{"name", "colour"}, {"type", "text"}}}}};
}
const json::value kKeyed{{"key", json::array{"id"}}, {"time", "taken"}};
const std::vector<PortShape> kInputs = {
    {"x\"y", "FP32", {-1, 1}}, {"taken", "FP64", {-1, 1}}, {"colour", "BYTES", {-1, 1}}};
const std::vector<PortShape> kOutputs = {{"label", "BYTES", {-1}}, {"probability", "FP32", {-1, 2}}};

TEST(BatchPlan, KeepsKeyAndTimeAndReadsWhatTheModelNeeds) {
  const auto plan = plan_batch(fruit(), kKeyed, {}, kInputs, kOutputs);
  EXPECT_EQ(plan.select("fruit@3", 2),
            "SELECT \"id\", CAST(\"taken\" AS VARCHAR), \"x\"\"y\", epoch_us(CAST(\"taken\" AS TIMESTAMP)), \"colour\""
            " FROM \"fruit@3\" LIMIT 20000 OFFSET 40000");
  EXPECT_EQ(json::serialize(plan.columns()),
            R"([{"name":"id","type":"int64"},{"name":"taken","type":"timestamp"},{"name":"label","type":"text"},)"
            R"({"name":"probability_0","type":"float32"},{"name":"probability_1","type":"float32"},)"
            R"({"name":"model_version","type":"text"}])");
  const auto row = parse_json(R"([7,"2026-01-01 00:00:00.000001","NaN",1767225600000001,null])").as_array();
  EXPECT_EQ(json::serialize(plan.ask(row)), R"({"x\"y":null,"taken":1767225600000001,"colour":null})");
  const auto said = parse_json(R"({"probability":[0.25,0.75],"label":"ripe"})").as_object();
  EXPECT_EQ(json::serialize(plan.answer(row, said, "ripe/1")),
            R"({"id":7,"taken":"2026-01-01 00:00:00.000001","label":"ripe","probability_0":2.5E-1,)"
            R"("probability_1":7.5E-1,"model_version":"ripe/1"})");
  EXPECT_ERROR(plan.answer(row, parse_json(R"({"probability":[1],"label":"a"})").as_object(), "r"), Code::internal);
}

TEST(BatchPlan, KeepsWhatIsChosenOrAllWithoutAKey) {
  EXPECT_EQ(plan_batch(fruit(), kKeyed, {"colour"}, kInputs, kOutputs).carried.size(), 1U);
  EXPECT_EQ(plan_batch(fruit(), json::object{}, {}, kInputs, kOutputs).carried.size(), 4U);
}

TEST(BatchPlan, RefusesWhatCannotBe) {
  EXPECT_ERROR(plan_batch(fruit(), kKeyed, {"weight"}, kInputs, kOutputs), Code::invalid);
  const std::vector<PortShape> other = {{"weight", "FP32", {-1, 1}}}, wide = {{"id", "FP32", {-1, 3}}};
  EXPECT_ERROR(plan_batch(fruit(), kKeyed, {}, other, kOutputs), Code::invalid);
  EXPECT_ERROR(plan_batch(fruit(), kKeyed, {}, wide, kOutputs), Code::invalid);
  const std::vector<PortShape> same = {{"colour", "BYTES", {-1}}};
  EXPECT_ERROR(plan_batch(fruit(), kKeyed, {"colour"}, kInputs, same), Code::invalid);  // a column twice
}

TEST(BatchPlan, CutsPartsByHowLongRowsAre) {
  const auto rows_of = [](std::uint64_t rows, std::uint64_t bytes) {
    return plan_batch(fruit(rows, bytes), kKeyed, {}, kInputs, kOutputs).part_rows;
  };
  EXPECT_EQ(rows_of(1'000'000, 10'000'000), 20'000U);
  EXPECT_EQ(rows_of(1'000, 1'000'000'000), 100U);
  EXPECT_GT(rows_of(1'000'000'000, 10'000'000'000), 100'000U);  // an upload has so many parts and no more
  EXPECT_EQ(rows_of(0, 0), 20'000U);
}

}  // namespace
}  // namespace falaj::cli
