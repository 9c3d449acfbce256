// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/slurm_executor.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "foundation/base/testing.h"
#include "lifecycle/execute/slurm/testing.h"

namespace falaj::execute::slurm {
namespace {

// What only Slurm does; what every executor does is in executor_contract.h.
class OnCluster : public ClusterTest {
 protected:
  TestCluster& cluster() override { return TestCluster::shared(); }
};

TEST_P(OnCluster, GivesEveryTaskOfAGangItsPlace) {
  auto gang = launch("gang.1",
                     "echo $RANK of $WORLD_SIZE local $LOCAL_RANK at $MASTER_ADDR $MASTER_PORT on $SLURMD_NODENAME", 3);
  gang.tasks[0].node = "n2";
  gang.tasks[1].node = gang.tasks[2].node = "n1";
  executor_->start(gang);
  EXPECT_EQ(name_of(await_end("gang.1").reason), "finished");
  const auto port = std::to_string(10000 + std::stoll(report_of("gang.1").external_id) % 20000);
  EXPECT_EQ(log("gang.1", 0), "0 of 3 local 0 at 127.0.0.1 " + port + " on n2\n");
  EXPECT_EQ(log("gang.1", 1), "1 of 3 local 0 at 127.0.0.1 " + port + " on n1\n");
  EXPECT_EQ(log("gang.1", 2), "2 of 3 local 1 at 127.0.0.1 " + port + " on n1\n");
}

TEST_P(OnCluster, GivesEachTaskGpusOfItsOwn) {
  auto gang = launch("gpus.1", "echo $CUDA_VISIBLE_DEVICES", 2);
  gang.gpus_per_task = 2;
  gang.gpu_type = "a100";
  gang.environment["CUDA_VISIBLE_DEVICES"] = "7";
  for (auto& task : gang.tasks) task.node = "n3";
  executor_->start(gang);
  await_end("gpus.1");
  EXPECT_EQ(log("gpus.1", 0), "0,1\n");
  EXPECT_EQ(log("gpus.1", 1), "2,3\n");
}

TEST_P(OnCluster, InheritsNothingOfOurs) {
  ::setenv("FALAJ_TEST_LEAK", "1", 1);
  executor_->start(launch("env.1", "env"));
  await_end("env.1");
  for (const auto* name : {"FALAJ_TEST_LEAK", "\nHOME=", "\nUSER=", "SLURM_JWT", "SLURM_EXPORT_ENV", "SLURM_HOSTFILE"})
    EXPECT_EQ(log("env.1").find(name), std::string::npos) << name;
}

TEST_P(OnCluster, TellsTasksOnceToStopAndWaitsForThem) {
  // A second SIGTERM would interrupt the saving, and would be in the log.
  executor_->start(launch("save.1",
                          "trap 'echo told; [ $RANK = 0 ] || read -t 1 <>fifo; exit 75' TERM; mkfifo fifo 2>/dev/null; "
                          "echo ready; while :; do read -t 0.1 <>fifo; done",
                          2));
  await_log("save.1", "ready");
  await_log("save.1", "ready", 1);
  executor_->stop("save.1", std::chrono::seconds(30));
  const auto ending = await_end("save.1");
  EXPECT_EQ(name_of(ending.reason), "checkpointed") << ending.message;
  EXPECT_EQ(ending.exit_code, 75);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(log("save.1", rank), "ready\ntold\n");
}

TEST_P(OnCluster, StopsWhatWaitsInTheQueue) {
  auto large = launch("first.1", "echo ready; sleep 1000", 4);
  large.limits.cpu_millis = 8000;
  executor_->start(large);
  await_log("first.1", "ready");
  auto waiting = large;
  waiting.attempt = "second.1";
  executor_->start(waiting);
  executor_->stop("second.1", std::chrono::seconds(30));
  const auto second = await("second.1", [](const Report& r) { return r.phase == Phase::ended; });
  EXPECT_EQ(name_of(second.ending->reason), "stopped") << second.ending->message;
  EXPECT_EQ(second.started.count(), 0);
  executor_->stop("first.1", {});
  EXPECT_EQ(name_of(await_end("first.1").reason), "stopped");
}

TEST_P(OnCluster, TellsSignalsFromExitCodes) {
  executor_->start(launch("signal.1", "kill -SEGV $$"));
  executor_->start(launch("code.1", "exit 139"));
  const auto killed = await_end("signal.1");
  EXPECT_EQ(name_of(killed.reason), "signalled");
  EXPECT_EQ(killed.signal, 11);
  const auto code = await_end("code.1");
  EXPECT_EQ(name_of(code.reason), "finished");
  EXPECT_EQ(code.exit_code, 139);
}

TEST_P(OnCluster, EndsAtTheTimeLimit) {
  auto slow = launch("slow.1", "sleep 1000");
  slow.time_limit = std::chrono::milliseconds(500);
  slow.grace = std::chrono::milliseconds(100);
  executor_->start(slow);
  EXPECT_EQ(name_of(await_end("slow.1").reason), "time_limit");
}

TEST_P(OnCluster, RefusesWhatCanNeverRun) {
  auto many = launch("many.1", "true");
  many.limits.cpu_millis = 9000;  // no node has so many
  EXPECT_ERROR(executor_->start(many), Code::invalid);
  auto isolated = launch("isolated.1", "true");
  isolated.isolation_min = Isolation::isolated;
  EXPECT_ERROR(executor_->start(isolated), Code::invalid);
  std::uint64_t seen = 0;
  EXPECT_TRUE(executor_->poll(seen, {}).empty());
  EXPECT_ERROR(executor_->logs("many.1", 0, 0, 100), Code::not_found);
}

TEST_P(OnCluster, RunsNoAttemptTwice) {
  for (int i = 0; i < 2; ++i) executor_->start(launch("once.1", "echo ran >>ran; cat ran"));
  await_end("once.1");
  executor_->start(launch("once.1", "echo ran >>ran; cat ran"));
  open();
  executor_->start(launch("once.1", "echo ran >>ran; cat ran"));
  await_end("once.1");
  EXPECT_EQ(log("once.1"), "ran\n");
  EXPECT_EQ(jobs_of("once.1"), 1);
}

TEST_P(OnCluster, ShowsLogsWhileTheyAreWritten) {
  executor_->start(launch("talks.1", "mkfifo go; echo one; read <go; echo two"));
  await_log("talks.1", "one");
  auto page = executor_->logs("talks.1", 0, 0, 100);
  EXPECT_EQ(page.text, "one\n");
  EXPECT_FALSE(page.ended);
  std::ofstream(work("talks.1") + "/go") << "\n";
  await_end("talks.1");
  page = executor_->logs("talks.1", 0, page.next_offset, 100);
  EXPECT_EQ(page.text, "two\n");
  EXPECT_TRUE(page.ended);
}

TEST_P(OnCluster, SaysWhoEndedIt) {
  executor_->start(launch("taken.1", "echo ready; sleep 1000"));
  await_log("taken.1", "ready");
  cluster().run({"scancel", report_of("taken.1").external_id});
  EXPECT_EQ(name_of(await_end("taken.1").reason), "signalled");
}

// Slurm would remove at once what might take longer than there is time.
TEST_P(OnCluster, ADeadlineThatCanBeMetIsMet) {
  auto close = launch("close.1", "echo done");
  close.time_limit = std::chrono::hours(1);
  close.deadline = clock_.wall() + std::chrono::seconds(30);
  executor_->start(close);
  const auto ending = await_end("close.1");
  EXPECT_EQ(name_of(ending.reason), "finished") << ending.message;
  EXPECT_EQ(log("close.1"), "done\n");
}

TEST_P(OnCluster, SaysWhatItTook) {
  auto busy = launch("busy.1", "while read -ra f </proc/$$/stat; do [ ${f[13]} -lt 30 ] || exit 0; done", 2);
  busy.tasks[0].node = "n1";
  busy.tasks[1].node = "n2";
  executor_->start(busy);
  const auto used = await_end("busy.1").used;
  EXPECT_GE(used.cpu, std::chrono::milliseconds(600));
  EXPECT_LE(used.cpu, std::chrono::seconds(20));
  open();  // it is in the record
  EXPECT_EQ(await_end("busy.1").used.cpu, used.cpu);
}

TEST_P(OnCluster, KeepsTheEndOfWhatIsWritten) {
  settings_.log_bytes_max = 64 << 10;
  open();
  executor_->start(launch("talks.1", "for ((i = 0; i < 8192; i++)); do printf '%063d\\n' $i; done; echo last"));
  await_end("talks.1");
  auto page = executor_->logs("talks.1", 0, 0, 1 << 20);
  const std::int64_t written = 8192 * 64 + 5;
  EXPECT_EQ(page.next_offset, written);
  EXPECT_EQ(page.first_offset + static_cast<std::int64_t>(page.text.size()), written);
  EXPECT_LE(page.text.size(), 64U << 10);
  EXPECT_GE(page.text.size(), 56U << 10);
  EXPECT_TRUE(page.text.starts_with("0")) << "no hole is shown";
  EXPECT_TRUE(page.text.ends_with("8191\nlast\n"));
  struct ::stat file {};
  ASSERT_EQ(::stat((settings_.directory + "/talks.1/rank.0.log").c_str(), &file), 0);
  EXPECT_LE(file.st_blocks * 512, 80 << 10) << "what was dropped takes no room";
}

TEST_P(OnCluster, GivesItsPlaceToAnother) {
  auto large = launch("low.1", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.1; done", 4);
  large.limits.cpu_millis = 8000;
  executor_->start(large);
  for (int rank = 0; rank < 4; ++rank) await_log("low.1", "ready", rank);
  auto urgent = launch("high.1", "true", 4);
  urgent.limits.cpu_millis = 8000;
  urgent.queue = "urgent";
  executor_->start(urgent);
  EXPECT_EQ(name_of(await_end("low.1").reason), "checkpointed");
  EXPECT_EQ(name_of(await_end("high.1").reason), "finished");
}

TEST_P(OnCluster, KnowsTheNodes) {
  const auto nodes = executor_->nodes();
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].name, "n1");
  EXPECT_EQ(nodes[0].cpu_millis, 8000);
  EXPECT_EQ(nodes[0].memory_bytes, std::int64_t{4000} << 20);
  ASSERT_EQ(nodes[0].gpus.size(), 4U);
  EXPECT_EQ(nodes[0].gpus[3].type, "a100");
  EXPECT_EQ(nodes[0].labels.at("slurm.feature/fake"), "true");
  EXPECT_TRUE(nodes[0].up);
}

class InGroups : public ClusterTest {
 protected:
  void SetUp() override {
    if (TestCluster::is_installed() && !TestCluster::may_have_groups()) GTEST_SKIP() << "no control groups";
    ClusterTest::SetUp();
  }
  TestCluster& cluster() override {
    static TestCluster cluster(TestCluster::Groups::yes);
    return cluster;
  }
};

TEST_P(InGroups, SaysThatMemoryRanOut) {
  auto hungry = launch("hungry.1", "[ $RANK = 1 ] && exec python3 -c 'x = bytearray(300 << 20)'; sleep 1000", 2);
  hungry.limits.memory_bytes = 60 << 20;
  hungry.grace = std::chrono::milliseconds(100);
  executor_->start(hungry);
  const auto ending = await_end("hungry.1");
  EXPECT_EQ(name_of(ending.reason), "out_of_memory") << ending.message;
  EXPECT_EQ(ending.rank, 1);
}

TEST_P(InGroups, SaysHowMuchMemoryItTook) {
  auto large = launch("large.1", "exec python3 -c 'x = bytearray(40 << 20)'");
  large.limits.memory_bytes = 200 << 20;
  executor_->start(large);
  const auto used = await_end("large.1").used;
  EXPECT_GE(used.memory_peak_bytes, 40 << 20);
  EXPECT_LE(used.memory_peak_bytes, 200 << 20);
}

// Slurm signals one process there, and whole trees without groups: tasks must be told once either way.
TEST_P(InGroups, TellsTasksOnceToStop) {
  executor_->start(launch("save.1", "trap 'echo told; exit 75' TERM; echo ready; while :; do sleep 0.02; done", 2));
  await_log("save.1", "ready", 0);
  await_log("save.1", "ready", 1);
  executor_->stop("save.1", std::chrono::seconds(30));
  EXPECT_EQ(name_of(await_end("save.1").reason), "checkpointed");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(log("save.1", rank), "ready\ntold\n");
}

TEST_P(InGroups, KillsWhatDoesNotStop) {
  executor_->start(launch("deaf.1", "trap '' TERM; echo ready; setsid sleep 1000 & while :; do sleep 0.02; done"));
  await_log("deaf.1", "ready");
  executor_->stop("deaf.1", std::chrono::milliseconds(100));
  const auto ending = await_end("deaf.1");
  EXPECT_EQ(name_of(ending.reason), "stopped") << ending.message;
  EXPECT_EQ(ending.signal, 9);
}

INSTANTIATE_TEST_SUITE_P(, InGroups, testing::Values("rest"));
INSTANTIATE_TEST_SUITE_P(, OnCluster, testing::Values("rest", "sbatch"));

}  // namespace
}  // namespace falaj::execute::slurm
