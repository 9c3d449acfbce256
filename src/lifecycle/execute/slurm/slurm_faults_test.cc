// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a real cluster, each time on one of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "foundation/base/testing.h"
#include "lifecycle/execute/slurm/testing.h"

namespace falaj::execute::slurm {
namespace {

class SlurmFaults : public ClusterTest {
 protected:
  TestCluster& cluster() override {
    if (!cluster_) cluster_ = std::make_unique<TestCluster>(TestCluster::Groups::no, TestCluster::kLittlePatience_s);
    return *cluster_;
  }
  // Until poll says that Slurm does not answer.
  void await_unavailable() {
    const auto until = clock_.now() + std::chrono::minutes(1);
    for (std::uint64_t seen = 0; clock_.now() < until;) {
      try {
        executor_->poll(seen, std::chrono::milliseconds(50));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::unavailable) << error.what();
        return;
      }
    }
    FAIL() << "it goes on answering";
  }

 private:
  std::unique_ptr<TestCluster> cluster_;
};

constexpr const char* kWaits = "echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 6";

TEST_P(SlurmFaults, TheControllerDiesAndComesBack) {
  executor_->start(launch("one.1", kWaits));
  executor_->start(launch("two.1", kWaits));
  await_log("one.1", "ready");
  await_log("two.1", "ready");
  cluster().await_saved();
  cluster().kill("slurmctld");
  await_unavailable();
  EXPECT_ERROR(executor_->start(launch("three.1", "exit 7")), Code::unavailable);
  std::ofstream(work("one.1") + "/go");  // ends while nobody listens
  cluster().start({"slurmctld"});
  EXPECT_EQ(await_end("one.1").exit_code, 6);
  EXPECT_EQ(report_of("two.1").phase, Phase::running);
  executor_->start(launch("three.1", "exit 7"));
  EXPECT_EQ(await_end("three.1").exit_code, 7);
  std::ofstream(work("two.1") + "/go");
  EXPECT_EQ(await_end("two.1").exit_code, 6);
  EXPECT_EQ(jobs_of("three.1"), 1);
}

// Each door tells in its own way that the controller is away. The wait is Slurm's, so sanitizers look at one of them.
#ifdef FALAJ_SANITIZED
INSTANTIATE_TEST_SUITE_P(, SlurmFaults, testing::Values("rest"));
#else
INSTANTIATE_TEST_SUITE_P(, SlurmFaults, testing::Values("rest", "sbatch"));
#endif

// What does not depend on the door.
class SlurmFaultsByRest : public SlurmFaults {};

TEST_P(SlurmFaultsByRest, ANodeDies) {
  auto gang = launch("gang.1", "echo ready; sleep 1000", 2);
  gang.tasks[0].node = "n1";
  gang.tasks[1].node = "n2";
  executor_->start(gang);
  await_log("gang.1", "ready");
  await_log("gang.1", "ready", 1);
  cluster().kill("n2");
  // Slurm notices by itself after half a minute; a site's health check, which this stands for, is faster.
  cluster().run({"scontrol", "update", "nodename=n2", "state=down", "reason=killed"});
  const auto ending = await_end("gang.1");
  EXPECT_EQ(name_of(ending.reason), "node_lost") << ending.message;
  for (const auto& node : executor_->nodes()) EXPECT_EQ(node.up, node.name != "n2") << node.name;
}

TEST_P(SlurmFaultsByRest, TheNodeOfTheFirstTaskDies) {
  auto single = launch("single.1", "echo ready; sleep 1000");
  single.tasks[0].node = "n3";
  executor_->start(single);
  await_log("single.1", "ready");
  cluster().kill("n3");
  cluster().run({"scontrol", "update", "nodename=n3", "state=down", "reason=killed"});
  EXPECT_EQ(name_of(await_end("single.1").reason), "node_lost");
}

TEST_P(SlurmFaultsByRest, SlurmForgetsAJobThatEnded) {
  executor_->start(launch("over.1", std::string(kWaits), 2));
  await_log("over.1", "ready", 0);
  await_log("over.1", "ready", 1);
  executor_.reset();
  const auto record = settings_.directory + "/over.1/end";
  std::ofstream(work("over.1") + "/go");
  while (!std::filesystem::exists(record)) cluster().run({"squeue"});
  cluster().kill("slurmctld");
  cluster().start({"slurmctld", "-c"});
  open();
  const auto ending = await_end("over.1");
  EXPECT_EQ(name_of(ending.reason), "finished") << ending.message;
  EXPECT_EQ(ending.exit_code, 6);
}

TEST_P(SlurmFaultsByRest, SlurmForgetsAJobThatWaits) {
  auto impossible = launch("waits.1", "true");
  impossible.tasks[0].node = "n1";
  cluster().run({"scontrol", "update", "nodename=n1", "state=drain", "reason=test"});
  executor_->start(impossible);
  cluster().kill("slurmctld");
  cluster().start({"slurmctld", "-c"});
  const auto ending = await_end("waits.1");
  EXPECT_EQ(name_of(ending.reason), "not_started") << ending.message;
}

// Passes everything on, but loses answers to `submit`, and may hide for a while what Slurm knows.
class LosesAnswers final : public Gateway {
 public:
  LosesAnswers(std::unique_ptr<Gateway> next, std::atomic<bool>& loses, std::atomic<bool>& hides)
      : next_(std::move(next)), loses_(loses), hides_(hides) {}
  SlurmId submit(const Submission& submission) override {
    const auto id = next_->submit(submission);
    if (loses_) throw Error(Code::unavailable, "the answer got lost");
    return id;
  }
  std::optional<std::vector<Job>> jobs(std::int64_t since_s) override {
    if (hides_) return std::vector<Job>();
    return next_->jobs(since_s);
  }
  void signal(SlurmId job, int signal) override { next_->signal(job, signal); }
  void cancel(SlurmId job) override { next_->cancel(job); }
  std::vector<Node> nodes() override { return next_->nodes(); }

 private:
  const std::unique_ptr<Gateway> next_;
  std::atomic<bool>&loses_, &hides_;
};

TEST_P(SlurmFaultsByRest, AnAnswerToSubmitGetsLost) {
  std::atomic<bool> loses{true}, hides{false};
  open(std::make_unique<LosesAnswers>(make_gateway(settings_, processes_), loses, hides));
  const auto once = launch("once.1", "echo ran >>runs; cat runs");
  EXPECT_ERROR(executor_->start(once), Code::unavailable);
  executor_->start(once);  // finds it
  EXPECT_EQ(await_end("once.1").exit_code, 0);
  EXPECT_EQ(log("once.1"), "ran\n");
  EXPECT_EQ(jobs_of("once.1"), 1);
}

TEST_P(SlurmFaultsByRest, OfTwoJobsOfOneAttemptOneRuns) {
  std::atomic<bool> loses{true}, hides{true};
  open(std::make_unique<LosesAnswers>(make_gateway(settings_, processes_), loses, hides));
  const auto once = launch("once.1", "echo ran >>runs; while [ ! -e go ]; do sleep 0.02; done; cat runs");
  EXPECT_ERROR(executor_->start(once), Code::unavailable);
  loses = false;
  executor_->start(once);
  hides = false;
  // Whichever came first is the one that is followed; the other ends at once.
  await("once.1", [](const Report& report) { return report.phase == Phase::running; });
  while (cluster().run({"squeue", "--noheader", "--states=completed"}).empty()) continue;
  const auto runs = cluster().run({"squeue", "--noheader", "--states=running", "--format=%i"});
  await("once.1", [&](const Report& report) { return report.external_id + "\n" == runs; });
  EXPECT_EQ(report_of("once.1").phase, Phase::running);
  std::ofstream(work("once.1") + "/go");
  EXPECT_EQ(await_end("once.1").exit_code, 0);
  EXPECT_EQ(log("once.1"), "ran\n");
  EXPECT_EQ(jobs_of("once.1"), 2);
}

TEST_P(SlurmFaultsByRest, WeDieBeforeWeLearnTheJobsNumber) {
  std::atomic<bool> loses{true}, hides{false};
  open(std::make_unique<LosesAnswers>(make_gateway(settings_, processes_), loses, hides));
  EXPECT_ERROR(executor_->start(launch("lost.1", kWaits)), Code::unavailable);
  open();
  executor_->stop("lost.1", {});  // nobody starts it again, but it must be found
  await("lost.1", [](const Report&) { return true; });
  executor_->stop("lost.1", {});
  EXPECT_EQ(name_of(await_end("lost.1").reason), "stopped");
}

TEST_P(SlurmFaultsByRest, SlurmrestdDiesAndComesBack) {
  executor_->start(launch("one.1", kWaits));
  await_log("one.1", "ready");
  cluster().kill("slurmrestd");
  await_unavailable();
  std::ofstream(work("one.1") + "/go");
  cluster().start({"slurmrestd"});
  EXPECT_EQ(await_end("one.1").exit_code, 6);
}

TEST_P(SlurmFaultsByRest, ATokenThatIsRefusedIsMadeAnew) {
  auto words = settings_.token_command;
  const auto marker = settings_.directory + "-token";
  settings_.token_command = {
      "bash", "-c", "[ -e " + marker + " ] && exec \"$@\"; touch " + marker + "; echo SLURM_JWT=x.y.z", "token"};
  settings_.token_command.insert(settings_.token_command.end(), words.begin(), words.end());
  open();
  EXPECT_EQ(executor_->nodes().size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(marker));
}

TEST_P(SlurmFaultsByRest, ATokenComesFromAFile) {
  std::ofstream(settings_.directory + "-token") << cluster().run({"scontrol", "token", "lifespan=600"});
  settings_.token_command.clear();
  settings_.token_file = settings_.directory + "-token";
  open();
  EXPECT_EQ(executor_->nodes().size(), 4U);
  settings_.token_file = "/no/such/file";
  open();
  EXPECT_ERROR(executor_->nodes(), Code::unavailable);
}

INSTANTIATE_TEST_SUITE_P(, SlurmFaultsByRest, testing::Values("rest"));

}  // namespace
}  // namespace falaj::execute::slurm
