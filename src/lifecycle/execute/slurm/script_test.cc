// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/script.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "foundation/sys/testing.h"
#include "lifecycle/execute/slurm/command.h"

namespace falaj::execute::slurm {
namespace {

using std::chrono::seconds;

Launch plain(int tasks = 1) {
  Launch out;
  out.attempt = "job.1";
  out.command = {"true"};
  out.work_directory = "/work";
  for (int rank = 0; rank < tasks; ++rank) out.tasks.push_back({.rank = rank, .node = {}, .cpus = {}, .gpus = {}});
  return out;
}

Submission submitted(const Launch& launch, const Settings& settings = {}) {
  return submission_of(launch, settings, "/shared/job.1", seconds(1000));
}

TEST(SlurmSubmission, CountsUpwards) {
  auto launch = plain(3);
  launch.limits.cpu_millis = 1500;
  launch.limits.memory_bytes = (std::int64_t{1} << 30) + 1;
  launch.time_limit = seconds(61);
  launch.grace = seconds(60);
  launch.deadline = seconds(1090);
  const auto s = submitted(launch);
  EXPECT_EQ(s.tasks, 3);
  EXPECT_EQ(s.cpus_per_task, 2);
  EXPECT_EQ(s.memory_mib_per_cpu, 513);
  EXPECT_EQ(s.time_limit_minutes, 4) << "ours first, with its grace";
  EXPECT_EQ(s.deadline_seconds, 90 + 60 * (s.time_limit_minutes + 1)) << "Slurm's own is for when we are away";
  EXPECT_EQ(submitted(plain()).time_limit_minutes, 0);
  EXPECT_EQ(submitted(plain()).cpus_per_task, 1);
}

TEST(SlurmSubmission, MapsQueuesAndPriorities) {
  Settings settings;
  settings.partition = "batch";
  settings.partitions = {{"urgent", "high"}};
  auto launch = plain();
  launch.queue = "urgent";
  launch.priority = 900;
  EXPECT_EQ(submitted(launch, settings).partition, "high");
  EXPECT_EQ(submitted(launch, settings).nice, 100);
  launch.queue = "other";
  launch.priority = 5000;
  EXPECT_EQ(submitted(launch, settings).partition, "batch");
  EXPECT_EQ(submitted(launch, settings).nice, 0) << "more is only for operators";
}

TEST(SlurmSubmission, NamesNodesAndGpus) {
  auto launch = plain(3);
  launch.tasks[0].node = "n2";
  launch.tasks[1].node = launch.tasks[2].node = "n1";
  launch.gpus_per_task = 2;
  const auto s = submitted(launch);
  EXPECT_EQ(s.nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(s.tasks_per_node, 2);
  EXPECT_EQ(s.gpus_per_task, "2");
  EXPECT_EQ(hosts_file(launch), "n2\nn1\nn1\n");
  launch.gpu_type = "a100";
  EXPECT_EQ(submitted(launch).gpus_per_task, "a100:2");
}

TEST(SlurmLaunch, EveryFaultIsNamed) {
  auto launch = plain();
  EXPECT_TRUE(faults_of(launch, {}).empty());
  launch.attempt = "../escape";
  launch.command = {};
  launch.image = "/image";
  launch.work_directory = "relative";
  launch.checkpoint_directory = "relative";
  launch.isolation_min = Isolation::contained;
  launch.environment = {{"a-b", ""}, {"UID", "0"}, {"NUL", std::string("a\0b", 3)}};
  launch.tasks[0].node = "n1; rm";
  launch.tasks.push_back({.rank = 5, .node = {}, .cpus = {}, .gpus = {}});
  std::set<std::string> where;
  for (const auto& fault : faults_of(launch, {})) where.insert(fault.where);
  EXPECT_EQ(where,
            (std::set<std::string>{"attempt", "command", "image", "work_directory", "checkpoint_directory",
                                   "isolation_min", "environment.a-b", "environment.UID", "environment.NUL", "tasks"}));
  launch = plain();
  launch.command = {"sh", std::string("a\0b", 3)};
  EXPECT_EQ(faults_of(launch, {}).size(), 1U);
  launch.command = {"sh", std::string(2 << 20, 'x')};
  EXPECT_EQ(faults_of(launch, {}).size(), 1U);
  launch = plain();
  launch.isolation_min = Isolation::contained;
  Settings settings;
  settings.isolation = "contained";
  EXPECT_TRUE(faults_of(launch, settings).empty());
}

TEST(SlurmSettings, EveryFaultIsNamed) {
  const auto faults_in = [](const char* text) {
    Settings settings;
    Faults faults;
    decode_into(settings, parse_json(text), faults);
    if (faults.empty()) Shape<Settings>::check(settings, faults);
    std::set<std::string> where;
    for (const auto& fault : faults) where.insert(fault.where);
    return where;
  };
  using Where = std::set<std::string>;
  EXPECT_EQ(faults_in("{}"), Where{}) << "no directory: Slurm is not used";
  EXPECT_EQ(faults_in(R"({"directory": "/shared", "submit": "sbatch"})"), Where{});
  EXPECT_EQ(faults_in(R"({"directory": "/shared", "user": "ml", "token_file": "/t", "poll": "2s"})"), Where{});
  EXPECT_EQ(faults_in(R"({"submit": "mail", "isolation": "isolated"})"), (Where{"submit", "isolation"}));
  EXPECT_EQ(faults_in(R"({"directory": "/shared%j", "submit": "sbatch"})"), Where{"directory"});
  EXPECT_EQ(faults_in(R"({"directory": "/shared"})"), (Where{"user", "token_file"}));
  EXPECT_EQ(faults_in(R"({"directory": "/shared", "user": "ml", "token_file": "/t", "token_command": ["x"]})"),
            Where{"token_file"});
}

// The task script is run by a real shell, as srun would.
class TaskScript : public testing::Test {
 protected:
  CommandResult run(Launch launch) {
    launch.work_directory = directory_.path();
    std::ofstream(directory_ / "task") << task_script(launch, directory_.path());
    return run_command(processes_,
                       {"env", "-i", "PATH=/usr/bin:/bin", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8",
                        "bash", directory_ / "task"},
                       "running a task script", true);
  }
  std::string refused() {
    std::ifstream in(directory_ / "refused");
    std::string line;
    std::getline(in, line);
    return line;
  }
  sys::TempDir directory_;
  sys::RealProcesses processes_;
};

TEST_F(TaskScript, PassesEveryByteOn) {
  auto launch = plain();
  const std::string nasty = "a'b \"c\" $HOME `id` \\ \n ! * ; &";
  launch.command = {"printf", "%s|%s|", nasty, ""};
  EXPECT_EQ(run(launch).output, nasty + "||");
  launch.environment = {{"NASTY", nasty}, {"EMPTY", ""}};
  launch.command = {"bash", "-c", "printf %s \"$NASTY\""};
  EXPECT_EQ(run(launch).output, nasty);
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
}

TEST_F(TaskScript, KnowsItsPlaceAndBecomesTheCommand) {
  auto launch = plain();
  launch.command = {"bash", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE; pwd; exit 75"};
  const auto result = run(launch);
  EXPECT_EQ(result.output, "3 1 8\n" + directory_.path() + "\n");
  EXPECT_EQ(result.status, 75);
}

TEST_F(TaskScript, SaysWhenTheCommandCannotBeRun) {
  auto launch = plain();
  launch.command = {"no-such-program", "x"};
  EXPECT_EQ(run(launch).status, 127);
  EXPECT_EQ(refused(), "3 the command cannot be run: no-such-program");
  launch.command = {directory_.path()};
  EXPECT_EQ(run(launch).status, 127);
}

TEST_F(TaskScript, DoesNotBeginOnceItsAttemptIsStopped) {
  std::ofstream(directory_ / "stop");
  auto launch = plain();
  launch.command = {"echo", "ran"};
  const auto result = run(launch);
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(result.output, "");
}

}  // namespace
}  // namespace falaj::execute::slurm
