// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/life.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "foundation/base/testing.h"

namespace falaj::jobs {
namespace {

constexpr std::int64_t kNow = 1'000'000'000'000;

// A life and what happens to it, one after the other.
class OneLife {
 public:
  JobSpec spec;
  Life life;
  std::vector<Effect> effects;
  std::optional<Spent> spent;
  std::int64_t now = kNow;

  OneLife& happens(const Event& event) {
    auto made = next(spec, life, event, now);
    if (!made.changed) {
      EXPECT_EQ(json::serialize(encode(life)), json::serialize(encode(made.life))) << "changed without saying so";
    }
    life = std::move(made.life);
    effects = std::move(made.effects);
    spent = std::move(made.spent);
    return *this;
  }
  OneLife& runs() {
    happens(Released{}).happens(Placed{"local", {{"n1", 1, {}}}, false});
    return reports(execute::Phase::running);
  }
  OneLife& reports(execute::Phase phase, std::optional<execute::Ending> ending = std::nullopt) {
    execute::Report report;
    report.phase = phase;
    report.started = schedule::Micros(now);
    report.isolation = execute::Isolation::isolated;
    report.ending = std::move(ending);
    return happens(Reported{report});
  }
  OneLife& ends(execute::Reason reason, int exit_code = 0) {
    execute::Ending ending;
    ending.reason = reason;
    ending.exit_code = exit_code;
    ending.at = schedule::Micros(now + 60 * kSecondUs);
    return reports(execute::Phase::ended, ending);
  }
  bool does(Effect effect) const { return std::find(effects.begin(), effects.end(), effect) != effects.end(); }
};

TEST(Life, AnAttemptThatIsThereHasItsRunThoughNobodyWroteItDown) {
  OneLife one;
  one.happens(Released{}).happens(Placed{"local", {{"n1", 1, {}}}, false});
  execute::Report report;
  report.phase = execute::Phase::ended;
  report.ending.emplace();
  report.ending->reason = execute::Reason::finished;
  one.happens(Reported{report, run_id_of(JobId{})});
  EXPECT_EQ(one.life.run_id, std::string(32, '0'));
  EXPECT_TRUE(one.does(Effect::keep)) << "what it left belongs to its run";
}

TEST(Life, GoesFromSubmissionToItsEnd) {
  OneLife one;
  EXPECT_EQ(one.happens(Released{}).life.phase, Phase::admitted);
  one.happens(Placed{"local", {{"n1", 2, {"gpu0"}}}, false});
  EXPECT_EQ(one.life.phase, Phase::starting);
  EXPECT_EQ(one.life.epoch, 1);
  EXPECT_TRUE(one.does(Effect::start));
  EXPECT_EQ(one.reports(execute::Phase::running).life.phase, Phase::running);
  EXPECT_EQ(one.life.isolation, "isolated");
  one.ends(execute::Reason::finished);
  EXPECT_EQ(one.life.phase, Phase::succeeded);
  EXPECT_TRUE(one.does(Effect::forget));
  EXPECT_TRUE(one.does(Effect::tidy));
  ASSERT_TRUE(one.spent);
  EXPECT_EQ(one.spent->ended_us - one.spent->started_us, 60 * kSecondUs);
  EXPECT_EQ(one.life.ended_us, kNow);
}

TEST(Life, KeepsWhatARunLeftBeforeItIsOver) {
  OneLife one;
  one.runs().happens(Acknowledged{"run7"});
  one.ends(execute::Reason::finished);
  EXPECT_EQ(one.life.phase, Phase::finishing);
  EXPECT_TRUE(one.does(Effect::keep));
  EXPECT_EQ(one.happens(CancelAsked{"ada"}).life.phase, Phase::finishing) << "it has ended already";
  EXPECT_EQ(one.happens(Kept{""}).life.phase, Phase::succeeded);
  OneLife full;
  full.runs().happens(Acknowledged{"run7"}).ends(execute::Reason::finished);
  full.happens(Kept{"no room"});
  EXPECT_EQ(full.life.phase, Phase::succeeded);
  EXPECT_NE(full.life.why.find("no room"), std::string::npos);
}

TEST(Life, TriesAgainWithALongerWaitEachTime) {
  OneLife one;
  one.spec.retries = {2, 10 * kSecondUs, 600 * kSecondUs};
  one.runs().ends(execute::Reason::finished, 3);
  EXPECT_EQ(one.life.phase, Phase::pending);
  EXPECT_EQ(one.life.not_before_us, kNow + 10 * kSecondUs);
  one.runs().ends(execute::Reason::signalled);
  EXPECT_EQ(one.life.not_before_us, kNow + 20 * kSecondUs);
  one.runs().ends(execute::Reason::out_of_memory);
  EXPECT_EQ(one.life.phase, Phase::failed);
  EXPECT_EQ(one.life.epoch, 3);
  EXPECT_EQ(backoff_us(one.spec.retries, 100), 600 * kSecondUs);
}

TEST(Life, DoesNotTryAgainWhatWouldFailAgain) {
  for (const auto reason : {execute::Reason::time_limit, execute::Reason::not_started}) {
    OneLife one;
    one.spec.retries.max = 5;
    EXPECT_EQ(one.runs().ends(reason).life.phase, Phase::failed) << execute::name_of(reason);
    EXPECT_EQ(one.life.end->reason, execute::name_of(reason));
  }
}

TEST(Life, DoesNotTryAgainAfterCodesThatSaySo) {
  OneLife one;
  one.spec.retries.max = 5;
  one.spec.retries.not_codes = {2, 7};
  one.runs().ends(execute::Reason::finished, 1);
  EXPECT_EQ(one.life.phase, Phase::pending);
  one.runs().ends(execute::Reason::signalled, 2);  // no code of its own
  EXPECT_EQ(one.life.phase, Phase::pending);
  one.runs().ends(execute::Reason::finished, 2);
  EXPECT_EQ(one.life.phase, Phase::failed);
  EXPECT_EQ(one.life.failures, 2);
}

TEST(Life, StartsAgainWhenANodeIsLostButNotForEver) {
  OneLife one;
  for (std::int64_t i = 0; i < kLossesMax; ++i)
    ASSERT_EQ(one.runs().ends(execute::Reason::node_lost).life.phase, Phase::pending);
  EXPECT_EQ(one.runs().ends(execute::Reason::node_lost).life.phase, Phase::failed);
}

TEST(Life, IsDisplacedAndComesBack) {
  OneLife one;
  one.runs().happens(Displaced{"job x"});
  EXPECT_EQ(one.life.phase, Phase::checkpointing);
  EXPECT_TRUE(one.does(Effect::stop));
  one.ends(execute::Reason::checkpointed, 75);
  EXPECT_EQ(one.life.phase, Phase::pending);
  EXPECT_EQ(one.life.preemptions, 1);
  EXPECT_EQ(one.life.not_before_us, 0);
  EXPECT_EQ(one.life.checkpointed_us, kNow + 60 * kSecondUs);
  EXPECT_EQ(one.life.failures, 0);
  // One that was only on trial there lost nothing it had been promised.
  OneLife trial;
  trial.happens(Released{}).happens(Placed{"local", {{"n1", 1, {}}}, true}).happens(Displaced{"job x"});
  trial.ends(execute::Reason::stopped);
  EXPECT_EQ(trial.life.preemptions, 0);
  EXPECT_EQ(trial.life.trials, 1);
}

TEST(Life, AskingAtOnceToBeStartedAgainTakesLongerEachTime) {
  OneLife one;
  execute::Ending hasty;
  hasty.reason = execute::Reason::checkpointed;
  hasty.at = schedule::Micros(kNow + kSecondUs);
  one.runs().reports(execute::Phase::ended, hasty);
  EXPECT_EQ(one.life.not_before_us, kNow + kSecondUs);
  one.runs().reports(execute::Phase::ended, hasty);
  EXPECT_EQ(one.life.not_before_us, kNow + 2 * kSecondUs);
  EXPECT_EQ(one.runs().ends(execute::Reason::checkpointed, 75).life.not_before_us, 0) << "it ran for a while";
}

TEST(Life, IsCancelledWhereverItIs) {
  OneLife waiting;
  EXPECT_EQ(waiting.happens(CancelAsked{"ada"}).life.phase, Phase::cancelled);
  OneLife running;
  running.runs().happens(CancelAsked{"ada"});
  EXPECT_TRUE(running.does(Effect::stop));
  EXPECT_EQ(running.life.phase, Phase::running);
  EXPECT_FALSE(running.happens(CancelAsked{"ada"}).does(Effect::stop)) << "once is enough";
  EXPECT_EQ(running.ends(execute::Reason::stopped).life.phase, Phase::cancelled);
  OneLife done;
  done.runs().happens(CancelAsked{"ada"});
  EXPECT_EQ(done.ends(execute::Reason::finished).life.phase, Phase::succeeded) << "it was done a moment earlier";
  OneLife early;  // the executor did not know of it yet
  early.happens(Released{}).happens(Placed{"local", {{"n1", 1, {}}}, false}).happens(CancelAsked{"ada"});
  EXPECT_TRUE(early.happens(Acknowledged{""}).does(Effect::stop));
}

TEST(Life, StopsAtItsDeadline) {
  OneLife waiting;
  EXPECT_EQ(waiting.happens(DeadlinePassed{}).life.phase, Phase::failed);
  EXPECT_EQ(waiting.life.end->reason, "deadline");
  OneLife running;
  EXPECT_TRUE(running.runs().happens(DeadlinePassed{}).does(Effect::stop));
  EXPECT_EQ(running.ends(execute::Reason::checkpointed, 75).life.phase, Phase::failed);
  EXPECT_EQ(running.life.end->reason, "deadline");
}

TEST(Life, BeginsAgainWhenAsked) {
  OneLife one;
  one.runs().ends(execute::Reason::finished, 1);
  ASSERT_EQ(one.life.phase, Phase::failed);
  one.happens(RequeueAsked{"ada"});
  EXPECT_EQ(one.life.phase, Phase::pending);
  EXPECT_EQ(one.life.ended_us, 0);
  one.runs();
  EXPECT_EQ(one.life.epoch, 2);
  one.happens(RequeueAsked{"ada"});
  EXPECT_EQ(one.life.phase, Phase::checkpointing);
  EXPECT_EQ(one.ends(execute::Reason::stopped).life.phase, Phase::pending);
  EXPECT_EQ(one.life.losses, 0);
}

TEST(Life, OneThatGrowsSavesAndStartsAgain) {
  OneLife one;
  one.runs().happens(Resized{4});
  EXPECT_EQ(one.life.phase, Phase::checkpointing);
  EXPECT_EQ(one.ends(execute::Reason::checkpointed, 75).life.phase, Phase::pending);
  EXPECT_EQ(one.life.resizes, 1);
  EXPECT_EQ(one.life.hasty, 0);
  EXPECT_EQ(one.life.not_before_us, 0);
}

TEST(Life, WhatDoesNotConcernItChangesNothing) {
  OneLife ended;
  ended.runs().ends(execute::Reason::finished);
  for (const Event& event :
       std::vector<Event>{Released{}, Doomed{"x"}, Placed{}, Acknowledged{"r"}, Refused{"x"}, Reported{},
                          CancelAsked{"x"}, Displaced{"x"}, Resized{2}, DeadlinePassed{}, Kept{}}) {
    const auto made = next(ended.spec, ended.life, event, kNow + 1);
    EXPECT_FALSE(made.changed) << event.index();
    EXPECT_TRUE(made.effects.empty()) << event.index();
  }
}

TEST(Life, SurvivesBeingStored) {
  OneLife one;
  one.spec.retries.max = 1;
  one.runs().happens(Acknowledged{"run7"}).ends(execute::Reason::finished, 7);
  const auto text = json::serialize(encode(one.life));
  EXPECT_EQ(json::serialize(encode(decode<Life>(parse_json(text), "life"))), text);
  EXPECT_ERROR(decode<Life>(parse_json(R"({"phase":"dreaming"})"), "life"), Code::invalid);
}

TEST(Attempt, IsNamedAfterJobAndEpoch) {
  const JobId job{{1, 2}};
  const auto parsed = parse_attempt(attempt_name(job, 12));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->job, job);
  EXPECT_EQ(parsed->epoch, 12);
  for (const auto* text : {"", "x", "x.1", ".1", "00000000000000000000000000.", "00000000000000000000000000.0",
                           "00000000000000000000000000.-1", "00000000000000000000000000.1x"})
    EXPECT_FALSE(parse_attempt(text)) << text;
}

}  // namespace
}  // namespace falaj::jobs
