// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/error.h"
#include "lifecycle/flow/references.h"

namespace falaj::flow {
namespace {

json::value stands_for(const Reference& reference) {
  if (reference.text() == "params.depth") return 7;
  if (reference.text() == "params.name") return "late";
  if (reference.text() == "steps.check.outputs.failed") return 0;
  throw Error(Code::invalid, "no " + reference.text());
}

TEST(References, AWholeTextBecomesTheValueWithItsType) {
  EXPECT_EQ(fill("${{params.depth}}", stands_for), json::value(7));
  EXPECT_EQ(fill("${{ params.depth }}", stands_for), json::value(7));
  EXPECT_EQ(fill("depth-${{params.depth}}", stands_for), json::value("depth-7"));
  EXPECT_EQ(fill("${{params.name}}@${{params.depth}}", stands_for), json::value("late@7"));
}

TEST(References, AreFoundInListsAndObjectsButNotInNames) {
  const json::value in{{"a", {"${{params.depth}}", 1, true}}, {"b", {{"c", "${{params.name}}"}}}};
  EXPECT_EQ(fill(in, stands_for), json::value({{"a", {7, 1, true}}, {"b", {{"c", "late"}}}}));
  std::vector<std::string> places;
  Faults faults;
  each_reference(
      in, "spec", [&](const Reference&, const std::string& path) { places.push_back(path); }, faults);
  EXPECT_THAT(places, testing::ElementsAre("spec.a[0]", "spec.b.c"));
  EXPECT_TRUE(faults.empty());
}

TEST(References, TwoDollarsAreTheTextItself) {
  EXPECT_EQ(fill("$${{params.depth}}", stands_for), json::value("${{params.depth}}"));
  EXPECT_EQ(fill("a $ b {{c}}", stands_for), json::value("a $ b {{c}}"));
}

TEST(References, WhatIsNoneIsAFaultAtItsPlace) {
  for (const auto* text : {"${{params.depth", "${{}}", "${{a..b}}", "${{a b}}", "${{params.x; rm -rf}}"}) {
    Faults faults;
    each_reference(
        json::value{{"q", text}}, "spec", [](const Reference&, const std::string&) {}, faults);
    ASSERT_EQ(faults.size(), 1u) << text;
    EXPECT_EQ(faults[0].where, "spec.q");
  }
}

TEST(References, ConditionsAreTypedExpressions) {
  const TypeOf type = [](const Reference& reference) {
    return reference.path.back() == "name" ? expr::Type::text : expr::Type::int64;
  };
  EXPECT_TRUE(holds("${{steps.check.outputs.failed}} = 0 and ${{params.depth}} > 5", type, stands_for));
  EXPECT_FALSE(holds("${{params.name}} = 'early'", type, stands_for));
  EXPECT_THROW(check_condition("${{params.depth}} + 1", type), Error);
  EXPECT_THROW(check_condition("${{params.name}} > 3", type), Error);
  EXPECT_THROW(check_condition("${{params.depth}} >", type), Error);
}

TEST(References, AValueOfAnotherTypeIsNotTrue) {
  const TypeOf type = [](const Reference&) { return expr::Type::boolean; };
  EXPECT_FALSE(holds("${{params.depth}}", type, stands_for));
}

}  // namespace
}  // namespace falaj::flow
