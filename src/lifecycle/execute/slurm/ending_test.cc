// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/ending.h"

#include <gtest/gtest.h>

namespace falaj::execute::slurm {
namespace {

// An attempt that began and left its record.
Evidence ended(const std::string& state, int code, const std::string& status, Stop stop = Stop::none) {
  Evidence e;
  e.job.emplace();
  e.job->state = state;
  e.claimed = true;
  e.end = EndRecord{code, Micros{7}};
  e.status = status;
  e.stop = stop;
  return e;
}
// One that left none.
Evidence vanished(const std::string& state, bool claimed, Stop stop = Stop::none) {
  auto e = ended(state, 0, "", stop);
  e.claimed = claimed;
  e.end.reset();
  if (state.empty()) e.job.reset();
  return e;
}
std::string reason(const Evidence& e) { return std::string(name_of(judge(e).reason)); }

TEST(SlurmFailures, ReadsWhatSrunSays) {
  const auto failures = failures_of(
      "srun: error: n1: task 0: Exited with exit code 3\n"
      "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n"
      "told\n"
      "srun: error: n2: tasks 4-7,9: Killed\n"
      "slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-16T08:56:48 ***\n"
      "srun: error: n3: task 12: Segmentation fault (core dumped)\n"
      "srun: error: n3: task 13: Out Of Memory\n"
      "srun: error: Unable to create step for job 5: Invalid\n"
      "srun: error: n3: task x: Killed\n"
      "srun: error: n3: task 1: Exited with exit code many\n"
      "srun: error: n3: task 1: Vanished");
  const std::vector<Failure> wanted = {
      {0, 3, 0, false, false}, {4, 0, 9, false, true}, {12, 0, 11, false, true}, {13, 0, 0, true, true}};
  EXPECT_EQ(failures, wanted);
}

TEST(SlurmEnding, TasksDecideWhenTheyEndByThemselves) {
  EXPECT_EQ(reason(ended("COMPLETED", 0, "")), "finished");
  const auto failed = judge(ended("FAILED", 75,
                                  "srun: error: n1: task 2: Exited with exit code 4\n"
                                  "srun: error: n2: task 1: Exited with exit code 75\n"));
  EXPECT_EQ(name_of(failed.reason), "finished");
  EXPECT_EQ(failed.exit_code, 4);
  EXPECT_EQ(failed.rank, 2);
  EXPECT_EQ(failed.at, Micros{7});
  const auto killed = judge(ended("FAILED", 139, "srun: error: n1: task 0: Segmentation fault\n"));
  EXPECT_EQ(name_of(killed.reason), "signalled");
  EXPECT_EQ(killed.signal, 11);
  EXPECT_EQ(reason(ended("FAILED", 1, "srun: error: n1: task 0: Out Of Memory\n")), "out_of_memory");
}

TEST(SlurmEnding, SavedWorkHoldsUnlessATaskFailedByItself) {
  const std::string saved = "srun: error: n1: task 0: Exited with exit code 75\n";
  const std::string killed = "srun: error: n1: task 1: Killed\n";
  EXPECT_EQ(reason(ended("FAILED", 75, saved)), "checkpointed");
  EXPECT_EQ(judge(ended("FAILED", 75, saved)).exit_code, 75);
  EXPECT_EQ(reason(ended("FAILED", 75, "told\n" + saved, Stop::asked)), "checkpointed");
  EXPECT_EQ(reason(ended("FAILED", 137, "told\n" + saved + killed, Stop::asked)), "checkpointed");
  EXPECT_EQ(reason(ended("FAILED", 137, killed + "told\n" + saved, Stop::asked)), "signalled");
  EXPECT_EQ(reason(ended("FAILED", 75, "told\n" + saved, Stop::time_limit)), "time_limit");
  EXPECT_EQ(reason(ended("PREEMPTED", 75, saved)), "checkpointed");
}

TEST(SlurmEnding, AStopCountsWhenTheTasksHeardOfIt) {
  EXPECT_EQ(reason(ended("COMPLETED", 0, "told\n", Stop::asked)), "stopped");
  EXPECT_EQ(reason(ended("COMPLETED", 0, "", Stop::asked)), "finished");
  EXPECT_EQ(reason(ended("FAILED", 143, "told\nsrun: error: n1: task 0: Terminated\n", Stop::asked)), "stopped");
  EXPECT_EQ(reason(ended("FAILED", 1, "srun: error: n1: task 0: Exited with exit code 1\n", Stop::asked)), "finished");
  EXPECT_EQ(reason(vanished("CANCELLED", true, Stop::asked)), "stopped");
  EXPECT_EQ(reason(vanished("CANCELLED", false, Stop::asked)), "stopped");
  EXPECT_EQ(reason(vanished("FAILED", true, Stop::time_limit)), "time_limit");
}

TEST(SlurmEnding, SlurmDecidesWhenItEndedThem) {
  const std::string terminated = "srun: error: n1: task 0: Terminated\n";
  EXPECT_EQ(reason(ended("TIMEOUT", 143, terminated)), "time_limit");
  EXPECT_EQ(reason(ended("CANCELLED", 143, terminated)), "signalled");
  EXPECT_EQ(judge(ended("CANCELLED", 143, terminated)).signal, 15);
  EXPECT_EQ(reason(ended("PREEMPTED", 143, terminated)), "node_lost");
  EXPECT_EQ(reason(ended("NODE_FAIL", 1, terminated)), "node_lost");
  EXPECT_EQ(reason(ended("OUT_OF_MEMORY", 1, terminated)), "out_of_memory");
  EXPECT_EQ(reason(vanished("NODE_FAIL", true)), "node_lost");
  EXPECT_EQ(reason(vanished("TIMEOUT", true)), "time_limit");
  EXPECT_EQ(reason(vanished("DEADLINE", false)), "time_limit");
  EXPECT_EQ(reason(vanished("BOOT_FAIL", false)), "node_lost");
}

TEST(SlurmEnding, SaysWhyItNeverBegan) {
  EXPECT_EQ(reason(vanished("CANCELLED", false)), "not_started");
  EXPECT_EQ(reason(vanished("FAILED", false)), "not_started");
  EXPECT_EQ(reason(vanished("", false)), "not_started");
  auto refused = ended("FAILED", 127, "srun: error: n1: task 3: Exited with exit code 127\n");
  refused.refused = "3 the command cannot be run: nosuch\n";
  const auto ending = judge(refused);
  EXPECT_EQ(name_of(ending.reason), "not_started");
  EXPECT_EQ(ending.rank, 3);
  EXPECT_EQ(ending.message, "the command cannot be run: nosuch");
  const auto no_step = judge(ended("FAILED", 1, "srun: error: Unable to create step for job 9: Invalid account\n"));
  EXPECT_EQ(name_of(no_step.reason), "not_started");
  EXPECT_NE(no_step.message.find("Invalid account"), std::string::npos);
}

TEST(SlurmEnding, ARecordIsEnoughWhenSlurmHasForgotten) {
  auto e = ended("", 3, "srun: error: n1: task 0: Exited with exit code 3\n");
  e.job.reset();
  EXPECT_EQ(reason(e), "finished");
  EXPECT_EQ(judge(e).exit_code, 3);
  EXPECT_EQ(reason(vanished("", true)), "node_lost");
}

TEST(SlurmRecords, ReadsOnlyWholeOnes) {
  EXPECT_EQ(parse_claim("12.1794819405643925\n")->job, 12);
  EXPECT_EQ(parse_claim("12.1794819405643925\n")->at, Micros{1794819405643925});
  EXPECT_EQ(parse_end("75 1794819405643925\n")->exit_code, 75);
  EXPECT_EQ(parse_end("75 1794819405643925\n")->at, Micros{1794819405643925});
  for (const auto* text : {"", "nobody\n", "12\n", "12.\n", ".5\n", "12.5.6\n", "a.b\n", "12.17"})
    EXPECT_FALSE(parse_claim(text)) << text;
  for (const auto* text : {"", "1\n", "1 \n", "x 5\n", "1 2 3\n", "75 179"}) EXPECT_FALSE(parse_end(text)) << text;
  EXPECT_EQ(parse_used("250000 1048576\n")->cpu, Micros{250000});
  EXPECT_EQ(parse_used("250000 1048576\n")->memory_peak_bytes, 1048576);
  for (const auto* text : {"", "5\n", "5 6", "-1 0\n", "0 -1\n", "x y\n"}) EXPECT_FALSE(parse_used(text)) << text;
}

}  // namespace
}  // namespace falaj::execute::slurm
