// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "foundation/sys/random.h"

namespace falaj::alerts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kStart = 1'000'000'000;

Signal signal_of(const std::string& endpoint, double value) {
  return {"endpoint/" + endpoint, {{"endpoint", endpoint}}, value, fmt::format("{} is {}", endpoint, value), 0};
}

RuleSpec slow() {
  RuleSpec spec;
  spec.on = "latency";
  spec.threshold = 1;
  spec.repeat_us = 0;
  return spec;
}

// What happened, at a glance: "fired slow late" with '!' when somebody is told.
std::vector<std::string> words(const Stepped& stepped) {
  std::vector<std::string> out;
  for (const auto& e : stepped.events)
    out.push_back(fmt::format("{}{} {}", name(e.what), e.tell ? "!" : "", e.alert.about.subject));
  return out;
}

class Steps : public testing::Test {
 protected:
  Stepped at(std::int64_t seconds, std::vector<Signal> signals, bool known = true) {
    const std::vector<Look> looks{{"slow", spec, known, std::move(signals)}};
    auto out = step(looks, state, silences, kStart + seconds * kSecondUs);
    state = out.state;
    return out;
  }
  RuleSpec spec = slow();
  AlertState state;
  std::vector<Quiet> silences;
};

TEST_F(Steps, FireAtOnceAndResolveWithoutFor) {
  const auto fired = at(0, {signal_of("late", 2)});
  EXPECT_THAT(words(fired), ElementsAre("fired! endpoint/late"));
  EXPECT_EQ(fired.events[0].alert.about.labels.at("rule"), "slow");
  EXPECT_EQ(fired.events[0].alert.about.labels.at("endpoint"), "late");
  const auto same = at(1, {signal_of("late", 3)});
  EXPECT_TRUE(same.same()) << "a change of the value alone is not written";
  EXPECT_EQ(same.state.live.begin()->second.about.value, 3);
  EXPECT_THAT(words(at(2, {signal_of("late", 1)})), ElementsAre("resolved! endpoint/late")) << "not above, but equal";
  EXPECT_TRUE(state.live.empty());
}

TEST_F(Steps, WaitForAsLongAsTheRuleSays) {
  spec.for_us = 60 * kSecondUs;
  EXPECT_THAT(words(at(0, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(59, {signal_of("late", 2)})), IsEmpty());
  const auto over = at(60, {});
  EXPECT_THAT(words(over), IsEmpty()) << "nobody was told, so nobody is told that it is over";
  EXPECT_EQ(over.gone.size(), 1U);
  at(61, {signal_of("late", 2)});
  EXPECT_THAT(words(at(121, {signal_of("late", 2)})), ElementsAre("fired! endpoint/late"));
}

TEST_F(Steps, TakeASignalsWordForSinceWhen) {
  spec.for_us = 60 * kSecondUs;
  auto drift = signal_of("late", 2);
  drift.since_us = kStart - 60 * kSecondUs;
  EXPECT_THAT(words(at(0, {drift})), ElementsAre("fired! endpoint/late"));
}

TEST_F(Steps, LeaveWhatCannotBeSeenAsItIs) {
  at(0, {signal_of("late", 2)});
  EXPECT_TRUE(at(1, {}, false).same());
  EXPECT_EQ(state.live.size(), 1U);
}

TEST_F(Steps, ResolveWhatHasNoRuleAnyMore) {
  at(0, {signal_of("late", 2)});
  const auto out = step({}, state, silences, kStart + kSecondUs);
  EXPECT_THAT(words(out), ElementsAre("resolved! endpoint/late"));
}

TEST_F(Steps, CoolDownBeforeFiringAgain) {
  spec.cool_down_us = 100 * kSecondUs;
  at(0, {signal_of("late", 2)});
  at(1, {});
  EXPECT_THAT(words(at(2, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(3, {})), IsEmpty()) << "it waits in vain";
  EXPECT_THAT(words(at(100, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(101, {signal_of("late", 2)})), ElementsAre("fired! endpoint/late"));
}

TEST_F(Steps, RepeatAndBeSilenced) {
  spec.repeat_us = 10 * kSecondUs;
  silences.push_back({resource::Selector::parse("rule=slow"), kStart + 15 * kSecondUs});
  EXPECT_THAT(words(at(0, {signal_of("late", 2)})), ElementsAre("fired endpoint/late"));
  EXPECT_THAT(words(at(14, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(15, {signal_of("late", 2)})), ElementsAre("unsilenced! endpoint/late"));
  EXPECT_THAT(words(at(24, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(25, {signal_of("late", 2)})), ElementsAre("repeated! endpoint/late"));
  silences = {{resource::Selector::parse("endpoint=late"), kStart + 1000 * kSecondUs}};
  EXPECT_THAT(words(at(40, {signal_of("late", 2)})), IsEmpty());
  EXPECT_THAT(words(at(41, {})), ElementsAre("resolved! endpoint/late")) << "whoever was told is told the end";
}

TEST_F(Steps, NeverTellOfWhatWasSilencedAllTheTime) {
  silences.push_back({resource::Selector::parse("severity=warning"), kStart + 1000 * kSecondUs});
  at(0, {signal_of("late", 2)});
  EXPECT_THAT(words(at(1, {})), ElementsAre("resolved endpoint/late"));
}

TEST_F(Steps, SelectAndGroup) {
  spec.select = {{"endpoint", "l*"}};
  EXPECT_THAT(words(at(0, {signal_of("late", 2), signal_of("early", 9), signal_of("lost", 3)})),
              ElementsAre("fired! endpoint/late", "fired! endpoint/lost"));
  state = {};
  spec.group_by = {"rule"};
  const auto one = at(0, {signal_of("late", 2), signal_of("lost", 3), signal_of("left", 0)});
  EXPECT_THAT(words(one), ElementsAre("fired! endpoint/lost")) << "the worst stands for all";
  EXPECT_EQ(one.events[0].alert.about.signals, 2);
  EXPECT_TRUE(at(1, {signal_of("late", 2)}).same()) << "one of them is enough";
  EXPECT_THAT(words(at(2, {signal_of("early", 9)})), ElementsAre("resolved! endpoint/late"));
}

TEST_F(Steps, TakeBelowAndFindingsWithoutAThreshold) {
  spec.when = "below";
  EXPECT_THAT(words(at(0, {signal_of("low", 0.5), signal_of("high", 2)})), ElementsAre("fired! endpoint/low"));
  state = {};
  spec.threshold.reset();
  EXPECT_EQ(at(0, {signal_of("a", 0.5), signal_of("b", 2)}).events.size(), 2U);
  state = {};
  EXPECT_THAT(
      words(at(0, {signal_of("none", std::nan("")), signal_of("endless", std::numeric_limits<double>::infinity())})),
      IsEmpty());
}

TEST_F(Steps, HaveALimitOfAlertsForEachRule) {
  std::vector<Signal> many;
  for (std::size_t i = 0; i < kAlertsOfRuleMax; ++i) many.push_back(signal_of(fmt::format("e{:04}", i), 2));
  EXPECT_EQ(at(0, many).left_out, 0);
  many.push_back(signal_of("a-new-one", 2));
  const auto out = at(1, many);
  EXPECT_EQ(out.left_out, 1);
  EXPECT_TRUE(out.same()) << "those that were there stay";
}

// ---- the same told by definition, from the whole of what one signal did

struct Tick {
  std::int64_t at_us = 0;
  bool high = false, silenced = false, known = true;
};

std::vector<std::string> by_definition(const RuleSpec& spec, const std::vector<Tick>& ticks) {
  std::vector<Tick> seen;  // what could not be seen did not happen
  for (const auto& tick : ticks)
    if (tick.known) seen.push_back(tick);
  std::vector<std::string> out;
  std::int64_t cool_until = std::numeric_limits<std::int64_t>::min();
  for (std::size_t begin = 0; begin < seen.size(); ++begin) {
    if (!seen[begin].high) continue;
    auto end = begin;
    while (end < seen.size() && seen[end].high) ++end;
    auto fire = begin;
    while (fire < end && (seen[fire].at_us - seen[begin].at_us < spec.for_us || seen[fire].at_us < cool_until)) ++fire;
    if (fire < end) {
      std::int64_t told = 0;
      for (auto i = fire; i < end; ++i) {
        const auto now = seen[i].at_us;
        const bool first = told == 0;
        const bool due = first || (spec.repeat_us > 0 && now - told >= spec.repeat_us);
        const bool tells = due && !seen[i].silenced;
        if (i == fire) out.push_back(fmt::format("{} fired{}", now, tells ? "!" : ""));
        if (i > fire && tells) out.push_back(fmt::format("{} {}!", now, first ? "unsilenced" : "repeated"));
        if (tells) told = now;
      }
      if (end < seen.size()) {
        out.push_back(fmt::format("{} resolved{}", seen[end].at_us, told > 0 ? "!" : ""));
        cool_until = seen[end].at_us + spec.cool_down_us;
      }
    }
    begin = end;
  }
  return out;
}

TEST(StepsAtRandom, DoWhatTheDefinitionSays) {
  sys::SimRandom random(7);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(n)); };
  for (int round = 0; round < 3000; ++round) {
    auto spec = slow();
    spec.for_us = below(2) * below(30);
    spec.cool_down_us = below(2) * below(40);
    spec.repeat_us = below(2) * (1 + below(20));
    const auto stays = 2 + random.below(8);  // how often something changes
    std::vector<Tick> ticks;
    std::int64_t now = kStart;
    Tick tick;
    for (int i = 0; i < 40; ++i) {
      now += 1 + below(8);
      if (random.below(stays) == 0) tick.high = !tick.high;
      if (random.below(stays) == 0) tick.silenced = !tick.silenced;
      tick.known = random.below(6) > 0;
      tick.at_us = now;
      ticks.push_back(tick);
    }
    AlertState state;
    std::vector<std::string> got;
    std::int64_t last_number = 0;
    for (const auto& t : ticks) {
      std::vector<Quiet> silences;
      if (t.silenced) silences.push_back({resource::Selector::parse("rule=slow"), t.at_us + 1});
      const std::vector<Look> looks{{"slow", spec, t.known, {signal_of("late", t.high ? 2 : 0)}}};
      auto out = step(looks, std::move(state), silences, t.at_us);
      for (const auto& e : out.events) {
        got.push_back(fmt::format("{} {}{}", t.at_us, name(e.what), e.tell ? "!" : ""));
        EXPECT_TRUE(out.changed.contains(e.alert.number));
        if (e.what == What::fired) {
          EXPECT_GT(e.alert.number, last_number) << "an alert that fires anew is a new one";
          last_number = e.alert.number;
        }
      }
      state = std::move(out.state);
    }
    ASSERT_EQ(got, by_definition(spec, ticks)) << "round " << round << ": for " << spec.for_us << ", cool down "
                                               << spec.cool_down_us << ", repeat " << spec.repeat_us;
  }
}

}  // namespace
}  // namespace falaj::alerts
