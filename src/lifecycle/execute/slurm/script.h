// SPDX-License-Identifier: Apache-2.0
#pragma once

// The two scripts of an attempt. The batch script runs once, on its first node: it starts the tasks by srun, tells them
// what it is told, and leaves a record. The task script runs once a rank and becomes the command; the script `after`
// is run by Slurm's daemon when a task has ended, and asks the kernel what that daemon's children took.
//
// Signals to the batch script, since slurmrestd reaches no other part of a job:
//   USR1  the tasks get SIGTERM        USR2  the tasks get SIGKILL
//   TERM  Slurm's own (time limit, preemption, scancel), which the tasks have got too: only waits for their end
//
// Files in the attempt's directory, besides the scripts:
//   claim         "<job id>.<start in us>": made by the one job that may run the attempt
//   status        what srun says of the tasks, one line for those of a node that failed alike; "told" when they are
//                 told
//   refused       "<rank> <why>": the command could not be started
//   end           "<exit code of srun> <end in us>": every task has ended
//   used.<node>   "<processor time in us> <most memory in bytes>" of the tasks on one of its nodes
//   rank.<N>.log  what a task wrote

#include <string>
#include <string_view>

#include "foundation/base/error.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/slurm/gateway.h"

namespace falaj::execute::slurm {

inline constexpr std::string_view kClaim = "claim", kStatus = "status", kRefused = "refused", kEnd = "end",
                                  kStopFile = "stop", kBatchScript = "batch", kTaskScript = "task", kHosts = "hosts",
                                  kAfterScript = "after", kUsed = "used.";
std::string log_name(int rank);

// One word of a shell command that stands for exactly this text.
std::string shell_quoted(std::string_view text);

// Everything about it that Slurm, or the scripts, cannot carry out.
std::vector<Fault> faults_of(const Launch& launch, const Settings& settings);

// Requires, of all below: faults_of found none; `directory` is the attempt's own.
std::string batch_script(const Launch& launch, const std::string& directory);
std::string task_script(const Launch& launch, const std::string& directory);
std::string after_script(const std::string& directory);
std::string hosts_file(const Launch& launch);  // one node a rank; "" = Slurm chooses
Submission submission_of(const Launch& launch, const Settings& settings, const std::string& directory, Micros now);
// By which its job is found again in Slurm.
std::string comment_of(std::string_view directory);

}  // namespace falaj::execute::slurm
