// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/plan.h"

#include <cmath>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace falaj::traffic {
namespace {

Variant variant(std::string name, double weight, bool shadow = false) {
  Variant out;
  out.name = std::move(name);
  out.weight = weight;
  out.shadow = shadow;
  return out;
}

TEST(Choose, SharesByWeightAndGivesShadowsNothing) {
  const std::vector<Variant> variants = {variant("a", 3), variant("b", 1), variant("mirror", 5, true), variant("c", 0)};
  std::map<int, int> got;
  constexpr int kKeys = 40'000;
  for (int i = 0; i < kKeys; ++i) ++got[choose(variants, place_of("demo", fmt::format("user-{}", i)))];
  EXPECT_EQ(got.size(), 2u);
  EXPECT_NEAR(got[0], 0.75 * kKeys, 5 * std::sqrt(kKeys * 0.75 * 0.25));
  EXPECT_EQ(got[0] + got[1], kKeys);
}

TEST(Choose, TakesTheOnlyOneAndNoneWhenThereIsNone) {
  EXPECT_EQ(choose({variant("a", 1)}, 0), 0);
  EXPECT_EQ(choose({variant("a", 1)}, std::nextafter(1.0, 0.0)), 0);
  EXPECT_EQ(choose({variant("a", 0), variant("b", 1, true)}, 0.5), -1);
  EXPECT_EQ(choose({}, 0.5), -1);
}

TEST(Choose, MovesOnlyTheShareThatAShiftGives) {
  const std::vector<Variant> before = {variant("a", 90), variant("b", 10)},
                             after = {variant("a", 80), variant("b", 20)};
  int moved = 0;
  constexpr int kKeys = 10'000;
  for (int i = 0; i < kKeys; ++i) {
    const auto place = place_of("demo", fmt::format("{}", i));
    const int was = choose(before, place), is = choose(after, place);
    moved += was != is;
    EXPECT_TRUE(was == 0 || is == 1) << "who has the new one keeps it";
  }
  EXPECT_NEAR(moved, 0.1 * kKeys, 5 * std::sqrt(kKeys * 0.1 * 0.9));
}

TEST(PlaceOf, IsIndependentBetweenEndpoints) {
  double product = 0;
  constexpr int kKeys = 20'000;
  for (int i = 0; i < kKeys; ++i) {
    const auto key = fmt::format("user-{}", i);
    product += (place_of("one", key) - 0.5) * (place_of("two", key) - 0.5);
  }
  EXPECT_NEAR(product / kKeys, 0, 5.0 / 12 / std::sqrt(kKeys));
}

TEST(Revoked, IsWhatCallersMayNoLongerDo) {
  const auto endpoint = [](std::string name) {
    Endpoint out;
    out.tenant = "acme";
    out.project = "flights";
    out.name = std::move(name);
    return out;
  };
  Plan before;
  before.endpoints = {endpoint("early"), endpoint("late")};
  before.callers = {{"gone", "h", 9, {0, 1}}, {"less", "h", 9, {0, 1}}, {"same", "h", 9, {1}}, {"other", "h", 9, {0}}};
  auto after = before;
  EXPECT_TRUE(revoked_between(before, after).empty());
  after.endpoints.insert(after.endpoints.begin(), endpoint("another"));  // places move
  after.callers = {{"less", "h", 9, {1}}, {"new", "h", 9, {0}}, {"other", "another", 9, {1}}, {"same", "h", 9, {0, 2}}};
  EXPECT_EQ(revoked_between(before, after),
            (std::vector<Revoked>{{"gone", ""}, {"less", "acme.flights.late"}, {"other", ""}}));
  after.callers = before.callers;
  after.callers[0].expires_us = 8;
  after.endpoints = before.endpoints;
  EXPECT_EQ(revoked_between(before, after), (std::vector<Revoked>{{"gone", ""}}));
}

TEST(Plan, IsReadBackAsItWasWritten) {
  Plan plan;
  Endpoint endpoint;
  endpoint.tenant = endpoint.project = "default";
  endpoint.name = "demo";
  endpoint.variants = {variant("a", 0.25)};
  endpoint.variants[0].model = "m";
  endpoint.variants[0].version = 3;
  endpoint.variants[0].sha256 = std::string(64, 'a');
  plan.endpoints = {endpoint};
  plan.callers = {{"id", "hash", 17, {0}}};
  const auto text = encode(plan);
  EXPECT_EQ(encode(decode<Plan>(text, "plan")), text);
  auto other = plan;
  other.callers.clear();
  EXPECT_NE(fingerprint(plan), fingerprint(other));
  EXPECT_EQ(fingerprint(plan), fingerprint(decode<Plan>(text, "plan")));
}

}  // namespace
}  // namespace falaj::traffic
