// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/slurm/gateway.h"

namespace falaj::execute::slurm {

// Why we told an attempt to stop; none: we did not.
enum class Stop { none, asked, time_limit };

// A task that did not end with 0, as srun tells of it.
struct Failure {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;
  bool out_of_memory = false;
  bool told = false;  // the tasks had been told to end before
  friend bool operator==(const Failure&, const Failure&) = default;
};
// In the order in which srun learnt of them. Lines that are about something else are passed over.
std::vector<Failure> failures_of(std::string_view status);

struct Claim {
  SlurmId job = 0;
  Micros at{0};
};
std::optional<Claim> parse_claim(std::string_view text);  // "<job id>.<us>\n"

struct EndRecord {
  int exit_code = 0;
  Micros at{0};
};
std::optional<EndRecord> parse_end(std::string_view text);  // "<exit code> <us>\n"

std::optional<Used> parse_used(std::string_view text);  // "<us> <bytes>\n"

// What is known of an attempt that runs no more.
struct Evidence {
  std::optional<Job> job;  // nothing: Slurm has forgotten it
  bool claimed = false;    // it began
  std::optional<EndRecord> end;
  std::string status, refused;  // the files
  Stop stop = Stop::none;
  Used used;
};

bool is_terminal(std::string_view state);

// As every executor judges: the first task that failed by itself decides; how tasks end that were told to does not
// count against them; 75 holds for the attempt when no task failed otherwise by itself.
Ending judge(const Evidence& evidence);

}  // namespace falaj::execute::slurm
