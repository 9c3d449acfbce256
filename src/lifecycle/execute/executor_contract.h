// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/clock.h"
#include "lifecycle/execute/executor.h"

// What every Executor must do, written once. A new implementation adds one INSTANTIATE_TEST_SUITE_P.
namespace falaj::execute {

// An executor on which nothing else runs, and a way to open it anew as a program that was restarted does.
class ExecutorAtHand {
 public:
  virtual ~ExecutorAtHand() = default;
  virtual Executor& get() = 0;
  virtual void reopen() = 0;            // the object before is gone
  virtual std::string directory() = 0;  // where tests put work directories; tasks reach it by the same path
};

struct ExecutorMaker {
  std::string name;
  std::function<std::unique_ptr<ExecutorAtHand>()> make;  // null: what it needs is not on this machine, which it said
  Network network = Network::none;  // host, where tasks of a gang cannot have a network of their own
  friend std::ostream& operator<<(std::ostream& out, const ExecutorMaker& maker) { return out << maker.name; }
};

class ExecutorContract : public testing::TestWithParam<ExecutorMaker> {
 protected:
  void SetUp() override {
    at_hand_ = GetParam().make();
    if (!at_hand_) GTEST_SKIP() << GetParam().name << " is not on this machine";
  }
  Executor& executor() { return at_hand_->get(); }
  void reopen() { at_hand_->reopen(); }

  Launch launch(const std::string& attempt, const std::string& script, int tasks = 1) {
    Launch out;
    out.attempt = attempt;
    out.command = {"bash", "-c", script};
    out.environment = {{"PATH", "/usr/bin:/bin"}};
    out.work_directory = work(attempt);
    out.grace = std::chrono::seconds(5);
    out.network = GetParam().network;
    for (int rank = 0; rank < tasks; ++rank) out.tasks.push_back({.rank = rank, .node = {}, .cpus = {}, .gpus = {}});
    return out;
  }
  std::string work(const std::string& attempt) { return at_hand_->directory() + "/work-" + attempt; }

  // Asks until `wanted`; an executor that is away for a moment is asked again.
  template <class F>
  Report await(const std::string& attempt, F wanted) {
    const auto until = clock_.now() + std::chrono::seconds(60);
    for (std::uint64_t seen = 0; clock_.now() < until;) {
      try {
        for (const auto& report : executor().poll(seen, std::chrono::milliseconds(500)))
          if (report.attempt == attempt && wanted(report)) return report;
      } catch (const Error& error) {
        if (error.code() != Code::unavailable) throw;
      }
    }
    throw Error(Code::deadline, "waited a minute for " + attempt);
  }
  Ending await_end(const std::string& attempt) {
    return *await(attempt, [](const Report& report) { return report.phase == Phase::ended; }).ending;
  }
  Ending run(const Launch& launch) {
    executor().start(launch);
    return await_end(launch.attempt);
  }
  std::string log(const std::string& attempt, int rank = 0) { return executor().logs(attempt, rank, 0, 1 << 20).text; }
  // Until it runs and has written that.
  void await_log(const std::string& attempt, const std::string& text, int rank = 0) {
    await(attempt, [&](const Report& report) {
      return report.phase == Phase::ended ||
             (report.phase == Phase::running && log(attempt, rank).find(text) != std::string::npos);
    });
    EXPECT_NE(log(attempt, rank).find(text), std::string::npos);
  }
  bool is_known(const std::string& attempt) {
    std::uint64_t seen = 0;
    for (const auto& report : executor().poll(seen, sys::Micros(0)))
      if (report.attempt == attempt) return true;
    return false;
  }
  // What tasks wait for: `while [ ! -e go ]; do sleep 0.02; done`.
  void let_go(const std::string& attempt) { std::ofstream(work(attempt) + "/go").put('\n'); }
  static constexpr const char* kWait = "while [ ! -e go ]; do sleep 0.02; done; ";

 private:
  sys::RealClock clock_;
  std::unique_ptr<ExecutorAtHand> at_hand_;
};

TEST_P(ExecutorContract, RunsACommandToItsEnd) {
  executor().start(launch("plain.1", "echo hello; echo problem >&2; exit 3"));
  const auto report = await("plain.1", [](const Report& r) { return r.phase == Phase::ended; });
  EXPECT_EQ(name_of(report.ending->reason), "finished") << report.ending->message;
  EXPECT_EQ(report.ending->exit_code, 3);
  EXPECT_GT(report.started.count(), 0);
  EXPECT_GE(report.ending->at, report.started);
  EXPECT_EQ(log("plain.1"), "hello\nproblem\n");
  EXPECT_TRUE(executor().logs("plain.1", 0, 14, 10).ended);
}

TEST_P(ExecutorContract, PassesArgumentsAndEnvironmentAsTheyAre) {
  ::setenv("FALAJ_CONTRACT_CANARY", "seen", 1);
  auto odd = launch("odd.1", "");
  odd.command = {"bash",          "-c",         "printf '<%s>' \"$@\" \"$ODD\" \"${FALAJ_CONTRACT_CANARY-unset}\"",
                 "name",          "two words",  "",
                 "'\"$HOME`x`\\", "line\nline", "--x=*"};
  odd.environment["ODD"] = "a=b \"c\" 'd'\n$e;`f`\\";
  EXPECT_EQ(run(odd).exit_code, 0);
  ::unsetenv("FALAJ_CONTRACT_CANARY");
  EXPECT_EQ(log("odd.1"), "<two words><><'\"$HOME`x`\\><line\nline><--x=*><a=b \"c\" 'd'\n$e;`f`\\><unset>");
}

TEST_P(ExecutorContract, StartingAnAttemptAgainChangesNothing) {
  const auto once = launch("once.1", std::string("echo began >> runs; ") + kWait + "wc -l < runs");
  executor().start(once);
  EXPECT_TRUE(is_known("once.1"));
  executor().start(once);
  await("once.1", [](const Report& report) { return report.phase == Phase::running; });
  executor().start(once);
  let_go("once.1");
  EXPECT_EQ(await_end("once.1").exit_code, 0);
  executor().start(once);
  EXPECT_EQ(log("once.1"), "1\n");
}

TEST_P(ExecutorContract, GivesAGangItsRanks) {
  auto gang = launch("gang.1", "echo $RANK of $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT; [ -n \"$LOCAL_RANK\" ]", 3);
  const auto ending = run(gang);
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_EQ(ending.rank, 0) << "no task decided it, whichever was the last";
  const std::string first = log("gang.1", 0);
  const auto place = first.substr(first.find_last_of(' ') + 1);
  EXPECT_NE(place, ":\n");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(log("gang.1", rank), std::to_string(rank) + " of 3 " + place);
}

TEST_P(ExecutorContract, TheFirstTaskThatFailsEndsTheGang) {
  const auto ending = run(launch("fails.1", "[ $RANK = 1 ] && exit 7; sleep 600", 3));
  EXPECT_EQ(name_of(ending.reason), "finished") << ending.message;
  EXPECT_EQ(ending.exit_code, 7);
  EXPECT_EQ(ending.rank, 1);
}

TEST_P(ExecutorContract, SeventyFiveAsksToBeStartedAgain) {
  EXPECT_EQ(name_of(run(launch("saves.1", "exit 75")).reason), "checkpointed");
  EXPECT_EQ(name_of(run(launch("saves.2", "[ $RANK = 0 ] && exit 75; sleep 600", 2)).reason), "checkpointed");
}

TEST_P(ExecutorContract, TellsWhichSignalEndedIt) {
  const auto ending = run(launch("segv.1", "kill -SEGV $$"));
  EXPECT_EQ(name_of(ending.reason), "signalled") << ending.message;
  EXPECT_EQ(ending.signal, 11);
}

TEST_P(ExecutorContract, StoppingLetsTasksSaveFirst) {
  executor().start(launch("term.1", "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.02; done", 2));
  await_log("term.1", "ready", 0);
  await_log("term.1", "ready", 1);
  executor().stop("term.1", std::chrono::seconds(20));
  executor().stop("term.1", std::chrono::seconds(20));
  EXPECT_EQ(name_of(await_end("term.1").reason), "checkpointed");
  for (int rank = 0; rank < 2; ++rank) EXPECT_NE(log("term.1", rank).find("saved\n"), std::string::npos);
}

TEST_P(ExecutorContract, StoppingEndsWhatDoesNotListen) {
  executor().start(launch("deaf.1", "trap '' TERM; echo ready; while :; do sleep 0.02; done"));
  await_log("deaf.1", "ready");
  executor().stop("deaf.1", std::chrono::milliseconds(100));
  const auto ending = await_end("deaf.1");
  EXPECT_EQ(name_of(ending.reason), "stopped") << ending.message;
  executor().stop("deaf.1", sys::Micros(0));
  executor().stop("unknown.1", sys::Micros(0));
}

TEST_P(ExecutorContract, ACommandThatDoesNotExistIsNotStarted) {
  auto missing = launch("missing.1", "");
  missing.command = {"/no/such/program"};
  const auto ending = run(missing);
  EXPECT_EQ(name_of(ending.reason), "not_started");
  EXPECT_NE(ending.message, "");
}

TEST_P(ExecutorContract, DirectoriesAreMadeAndOutliveAnAttempt) {
  auto first = launch("keeps.1", "pwd; echo mine > file; echo state > $CHECKPOINT/state");
  first.checkpoint_directory = work("checkpoint");
  first.environment["CHECKPOINT"] = first.checkpoint_directory;
  EXPECT_EQ(run(first).exit_code, 0) << log("keeps.1");
  EXPECT_EQ(log("keeps.1"), first.work_directory + "\n");
  EXPECT_TRUE(std::filesystem::exists(first.work_directory + "/file"));
  auto second = launch("keeps.2", "cat $CHECKPOINT/state; echo more >> $CHECKPOINT/state");
  second.checkpoint_directory = first.checkpoint_directory;
  second.environment = first.environment;
  EXPECT_EQ(run(second).exit_code, 0);
  EXPECT_EQ(log("keeps.2"), "state\n");
}

TEST_P(ExecutorContract, LogsAreReadByOffset) {
  EXPECT_EQ(run(launch("pages.1", "for i in 1 2 3 4 5; do echo line $i; done")).exit_code, 0);
  std::string all;
  LogPage page;
  for (int pages = 0; pages < 100 && !page.ended; ++pages) {
    page = executor().logs("pages.1", 0, page.next_offset, 8);
    EXPECT_LE(page.text.size(), 8U);
    all += page.text;
    EXPECT_EQ(page.next_offset, static_cast<std::int64_t>(all.size()));
  }
  EXPECT_EQ(all, "line 1\nline 2\nline 3\nline 4\nline 5\n");
  EXPECT_ERROR(executor().logs("unknown.1", 0, 0, 10), Code::not_found);
}

TEST_P(ExecutorContract, WhatRunsGoesOnWithoutUs) {
  executor().start(launch("stays.1", std::string("echo began; ") + kWait + "echo done; exit 4"));
  executor().start(launch("passes.1", "exit 5"));
  await_log("stays.1", "began");
  reopen();
  EXPECT_EQ(name_of(await("stays.1", [](const Report&) { return true; }).phase), "running");
  EXPECT_EQ(await_end("passes.1").exit_code, 5);
  reopen();
  let_go("stays.1");
  EXPECT_EQ(await_end("stays.1").exit_code, 4);
  EXPECT_EQ(log("stays.1"), "began\ndone\n");
  reopen();
  EXPECT_EQ(await_end("stays.1").exit_code, 4);
}

TEST_P(ExecutorContract, ForgettingKeepsTheLogs) {
  EXPECT_EQ(run(launch("gone.1", "echo last words")).exit_code, 0);
  EXPECT_TRUE(is_known("gone.1"));
  executor().forget("gone.1");
  EXPECT_FALSE(is_known("gone.1"));
  EXPECT_EQ(log("gone.1"), "last words\n");
  EXPECT_TRUE(executor().logs("gone.1", 0, 11, 10).ended);
  reopen();
  EXPECT_FALSE(is_known("gone.1"));
  EXPECT_EQ(log("gone.1"), "last words\n");
  executor().drop_logs("gone.1");
  EXPECT_ERROR(log("gone.1"), Code::not_found);
}

TEST_P(ExecutorContract, RefusesWhatCanNeverRun) {
  const auto refused = [&](const char* what, const std::function<void(Launch&)>& spoil) {
    SCOPED_TRACE(what);
    auto bad = launch("bad.1", "true");
    spoil(bad);
    EXPECT_ERROR(executor().start(bad), Code::invalid);
  };
  refused("no command", [](Launch& l) { l.command.clear(); });
  refused("no program", [](Launch& l) { l.command = {""}; });
  refused("NUL in the command", [](Launch& l) { l.command.push_back(std::string("a\0b", 3)); });
  refused("NUL in the environment", [](Launch& l) { l.environment["A"] = std::string("a\0b", 3); });
  refused("a bad name of a variable", [](Launch& l) { l.environment["A=B"] = "c"; });
  refused("a huge environment", [](Launch& l) { l.environment["A"] = std::string(3 << 20, 'x'); });
  refused("no tasks", [](Launch& l) { l.tasks.clear(); });
  refused("a rank twice", [](Launch& l) { l.tasks = {Task{}, Task{}}; });
  refused("a relative work directory", [](Launch& l) { l.work_directory = "work"; });
  refused("a way out of a directory", [](Launch& l) { l.work_directory += "/../../x"; });
  for (const char* name : {"", "..", "../x", "a/b", ".hidden", "a b", "a\nb"})
    refused("a bad name", [&](Launch& l) { l.attempt = name; });
  EXPECT_FALSE(is_known("bad.1"));
}

}  // namespace falaj::execute
