// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/promotions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "lifecycle/models/testing.h"

namespace falaj::models {
namespace {

class PromotionsOf : public testing::TestWithParam<std::string>, public RegistryFixture {
 protected:
  PromotionsOf() : RegistryFixture(GetParam()) {
    const auto run_id = run_with(kFlights, {{"model/a", "x"}});
    for (int i = 0; i < 3; ++i) version_of(kFlights, "delay", run_id);
  }
  Promotion promote(std::variant<std::int64_t, std::string> from, const std::string& to,
                    const std::string& who = "user/ada") {
    return promotions->promote(kFlights, {"delay", std::move(from), to, "better", json::object{{"auc", 0.91}}},
                               act(who));
  }
  std::int64_t now_us() { return base.clock.wall().count(); }
};

TEST_P(PromotionsOf, MoveAnAliasWithItsReasons) {
  const auto first = promote(1, "champion");
  EXPECT_EQ(first.state, PromotionState::done);
  EXPECT_EQ(first.replaced, std::nullopt);
  promote(2, "challenger");
  base.clock.advance(std::chrono::seconds(5));
  const auto second = promote("challenger", "champion", "user/eve");
  EXPECT_EQ(second.version, 2);
  EXPECT_EQ(second.replaced, 1);
  EXPECT_EQ(registry->by_alias(kFlights, "delay", "champion").number, 2);

  const auto history = promotions->history(kFlights, "delay");
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[0].asked_by, "user/eve");
  EXPECT_EQ(history[0].why, "better");
  EXPECT_EQ(history[0].evidence.at("auc").as_double(), 0.91);
  EXPECT_EQ(history[0].asked_us, now_us());
  const auto changes = promotions->alias_changes(kFlights, "delay");
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].promotion, second.id);
  EXPECT_EQ(changes[0].by, "user/eve");

  EXPECT_ERROR(promote(9, "champion"), Code::not_found);
  EXPECT_ERROR(promote("absent", "champion"), Code::invalid);
  EXPECT_ERROR(promote(1, "latest"), Code::invalid);
  EXPECT_ERROR(promotions->promote(kFlights, {"delay", 1, "champion", " ", {}}, act()), Code::invalid);
  EXPECT_ERROR(promotions->promote(kCargo, {"delay", 1, "champion", "why", {}}, act()), Code::not_found);
  EXPECT_ERROR(promotions->get(kCargo, first.id), Code::not_found);
  const std::string long_text(kEvidenceBytesMax, 'a');
  EXPECT_ERROR(promotions->promote(kFlights, {"delay", 1, "champion", "why", json::string(long_text)}, act()),
               Code::invalid);
}

TEST_P(PromotionsOf, AreAuditedWithTheirReasons) {
  const auto before = base.log->head().head.size;
  promote(1, "champion");
  const auto page = base.log->log({}, std::nullopt, 10);
  EXPECT_EQ(base.log->head().head.size, before + 1) << "one write";
  EXPECT_EQ(page.records.at(0).actor, "user/ada");
  ASSERT_FALSE(page.records.at(0).effects.empty());
  EXPECT_EQ(page.records.at(0).effects[0].resource, "/t/acme/p/flights/model/delay");
}

TEST_P(PromotionsOf, WaitForASecondPersonWhereTheModelAsksForOne) {
  promotions->require_approval(kFlights, "delay", true, act());
  EXPECT_TRUE(registry->model(kFlights, "delay").needs_approval);
  EXPECT_ERROR(registry->set_alias(kFlights, "delay", "champion", 1, act()), Code::denied);
  EXPECT_ERROR(registry->set_stage(kFlights, "delay", 1, Stage::production, false, act()), Code::denied);

  const auto asked = promote(2, "champion");
  EXPECT_EQ(asked.state, PromotionState::pending);
  EXPECT_ERROR(registry->by_alias(kFlights, "delay", "champion"), Code::invalid);
  EXPECT_EQ(promotions->pending(kFlights).at(0).id, asked.id);
  EXPECT_THAT(promotions->pending(kCargo), testing::IsEmpty());
  EXPECT_ERROR(promotions->decide(kFlights, asked.id, true, "", act("user/ada")), Code::denied);
  EXPECT_ERROR(promotions->decide(kCargo, asked.id, true, "", act("user/eve")), Code::not_found);

  base.clock.advance(std::chrono::seconds(9));
  const auto done = promotions->decide(kFlights, asked.id, true, "looks good", act("user/eve"));
  EXPECT_EQ(done.state, PromotionState::done);
  EXPECT_EQ(done.decided_by, "user/eve");
  EXPECT_EQ(done.decided_us, now_us());
  EXPECT_EQ(promotions->get(kFlights, asked.id).state, PromotionState::done);
  EXPECT_EQ(registry->by_alias(kFlights, "delay", "champion").number, 2);
  EXPECT_ERROR(promotions->decide(kFlights, asked.id, true, "", act("user/eve")), Code::conflict);
  EXPECT_THAT(promotions->pending(kFlights), testing::IsEmpty());
  EXPECT_ERROR(registry->delete_alias(kFlights, "delay", "champion", act()), Code::denied);

  const auto refused = promote(3, "champion");
  EXPECT_ERROR(promotions->decide(kFlights, refused.id, false, "", act("user/eve")), Code::invalid);
  EXPECT_EQ(promotions->decide(kFlights, refused.id, false, "too slow", act("user/eve")).state,
            PromotionState::rejected);
  EXPECT_EQ(registry->by_alias(kFlights, "delay", "champion").number, 2);

  const auto gone = promote(3, "champion");
  registry->delete_version(kFlights, "delay", 3, act());
  EXPECT_ERROR(promotions->decide(kFlights, gone.id, true, "", act("user/eve")), Code::conflict);
  EXPECT_EQ(promotions->get(kFlights, gone.id).decision, "the version was deleted");
  const auto with_it = promote(2, "champion");
  registry->delete_model(kFlights, "delay", act());
  EXPECT_EQ(promotions->get(kFlights, with_it.id).state, PromotionState::rejected);
}

TEST_P(PromotionsOf, TellWhatAnAliasPointedAtWhenItsModelIsGone) {
  const auto begin = now_us();
  promote(1, "champion");
  base.clock.advance(std::chrono::seconds(10));
  registry->delete_version(kFlights, "delay", 1, act());
  base.clock.advance(std::chrono::seconds(10));
  registry->set_alias(kFlights, "delay", "champion", 3, act());
  base.clock.advance(std::chrono::seconds(10));
  registry->delete_model(kFlights, "delay", act());
  base.clock.advance(std::chrono::seconds(10));
  version_of(kFlights, "delay", run_with(kFlights, {}));
  promote(1, "champion");
  const auto at = [&](int seconds) {
    return promotions->alias_at(kFlights, "delay", "champion", begin + seconds * 1'000'000LL);
  };
  EXPECT_EQ(at(-1), std::nullopt);
  EXPECT_EQ(at(0), 1);
  EXPECT_EQ(at(9), 1);
  EXPECT_EQ(at(10), std::nullopt);
  EXPECT_EQ(at(20), 3);
  EXPECT_EQ(at(30), std::nullopt);
  EXPECT_EQ(at(40), 1);
  EXPECT_EQ(promotions->alias_at(kCargo, "delay", "champion", now_us()), std::nullopt);
}

// Any mix of changes against a list of them that is read from its end.
TEST_P(PromotionsOf, HistoryAgreesWithANaiveLog) {
  constexpr std::uint64_t kSeed = 20261116;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  sys::SimRandom random(kSeed);
  struct Entry {
    std::int64_t at_us;
    std::string alias;
    std::optional<std::int64_t> version;
  };
  std::vector<Entry> naive;
  std::map<std::string, std::int64_t> pointing;
  const std::string aliases[] = {"a", "b", "c"};
  const auto begin = now_us();
  for (int i = 0; i < 120; ++i) {
    base.clock.advance(sys::Micros(random.below(3)));  // often none: several changes at one time
    const auto& alias = aliases[random.below(3)];
    const auto version = static_cast<std::int64_t>(1 + random.below(3));
    switch (random.below(4)) {
      case 0:
        registry->set_alias(kFlights, "delay", alias, version, act());
        naive.push_back({now_us(), alias, version});
        pointing[alias] = version;
        break;
      case 1:
        promote(version, alias);
        naive.push_back({now_us(), alias, version});
        pointing[alias] = version;
        break;
      case 2:
        registry->delete_alias(kFlights, "delay", alias, act());
        naive.push_back({now_us(), alias, std::nullopt});
        pointing.erase(alias);
        break;
      default: {
        const auto& from = aliases[random.below(3)];
        if (!pointing.contains(from)) break;
        promote(from, alias);
        pointing[alias] = pointing[from];
        naive.push_back({now_us(), alias, pointing[alias]});
      }
    }
  }
  for (auto t = begin - 1; t <= now_us() + 1; ++t)
    for (const auto& alias : aliases) {
      std::optional<std::int64_t> wanted;
      for (const auto& entry : naive)
        if (entry.at_us <= t && entry.alias == alias) wanted = entry.version;
      ASSERT_EQ(promotions->alias_at(kFlights, "delay", alias, t), wanted) << alias << " at " << t - begin;
    }
}

INSTANTIATE_TEST_SUITE_P(Engines, PromotionsOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::models
