// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "lifecycle/jobs/pools.h"

namespace falaj::jobs {

// Asks for the nodes of an order, or gives them back, by its program in `directory` or by Slurm's scontrol. What the
// program wrote is kept in `directory`/POOL.log until the next time. Returns when it has ended well. Throws not_found
// (no such program), deadline (killed after the order's time limit), internal (it ended otherwise, with what it wrote
// last), cancelled (`stopping`).
void run_hook(const std::string& directory, const PoolOrder& order, const std::function<bool()>& stopping);

// Its words, program first.
std::vector<std::string> hook_command(const std::string& directory, const PoolOrder& order);

}  // namespace falaj::jobs
