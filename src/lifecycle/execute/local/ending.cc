// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/ending.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace falaj::execute::local {
namespace {

bool well(const TaskEnd& end) { return end.signal == 0 && end.exit_code == 0; }
bool saved(const TaskEnd& end) { return end.signal == 0 && end.exit_code == kCheckpointed; }

Ending by_itself(const TaskEnd& end) {
  Ending ending;
  ending.exit_code = end.exit_code, ending.signal = end.signal, ending.rank = end.rank;
  if (well(end)) return {};  // no task decided it
  if (end.out_of_memory) {
    ending.reason = Reason::out_of_memory;
    ending.message = fmt::format("task {} took more memory than it may", end.rank);
  } else if (saved(end)) {
    ending.reason = Reason::checkpointed;
  } else if (end.signal != 0) {
    ending.reason = Reason::signalled;
    const char* name = ::sigabbrev_np(end.signal);
    ending.message = fmt::format("task {} was killed by SIG{}", end.rank, name ? name : std::to_string(end.signal));
  } else {
    ending.message = fmt::format("task {} ended with status {}", end.rank, end.exit_code);
  }
  return ending;
}

Ending because(Reason reason, const TaskEnd* last, std::string message) {
  Ending ending;
  ending.reason = reason;
  ending.message = std::move(message);
  if (last) ending.exit_code = last->exit_code, ending.signal = last->signal, ending.rank = last->rank;
  return ending;
}

}  // namespace

Ending ending_of(std::span<const TaskEnd> all, Cause cause, int spares) {
  std::vector<TaskEnd> missed;
  for (const auto& end : all)
    if (!was_lost(end) || spares-- <= 0) missed.push_back(end);
  const std::span<const TaskEnd> ends = missed.empty() ? all : missed;  // nobody is left to go on
  const auto failed =
      std::find_if(ends.begin(), ends.end(), [](const TaskEnd& end) { return !well(end) && !saved(end) && !end.told; });
  const auto checkpoint = std::find_if(ends.begin(), ends.end(), saved);
  const auto bad = std::find_if(ends.begin(), ends.end(), [](const TaskEnd& end) { return !well(end); });
  const TaskEnd* last = bad != ends.end() ? &*bad : ends.empty() ? nullptr : &ends.back();
  if (failed != ends.end()) return by_itself(*failed);
  switch (cause) {
    case Cause::time_limit:
      return because(Reason::time_limit, last, "ran longer than it may");
    case Cause::disk:
      return because(Reason::out_of_disk, last, "wrote more into its work directory than it may");
    case Cause::keeper_ends:
      return because(Reason::node_lost, last, "the keeper of this node was told to end");
    case Cause::stop:
      if (checkpoint == ends.end()) return because(Reason::stopped, last, "was told to stop");
      break;
    case Cause::none:
    case Cause::a_task_failed:
      break;
  }
  if (checkpoint != ends.end()) return by_itself(*checkpoint);
  return last ? by_itself(*last) : Ending{};
}

Ending not_started(std::string message, int rank) {
  Ending ending;
  ending.reason = Reason::not_started;
  ending.message = std::move(message);
  ending.rank = rank;
  return ending;
}

}  // namespace falaj::execute::local
