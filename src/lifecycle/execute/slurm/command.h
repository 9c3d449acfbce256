// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/process.h"

namespace falaj::execute::slurm {

struct CommandResult {
  int status = 0;
  std::string output, errors;  // what it wrote
};

// Runs it to its end, at most a minute, with only what a Slurm command needs of our environment. Throws unavailable
// when it cannot be run, takes too long or dies; and, unless `any_status`, when it fails.
CommandResult run_command(sys::Processes& processes, const std::vector<std::string>& argv, std::string_view doing,
                          bool any_status = false);

}  // namespace falaj::execute::slurm
