// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/ending.h"

#include <signal.h>
#include <string.h>

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::execute::slurm {
namespace {

constexpr int kCheckpointed = 75;
constexpr std::string_view kErrorLine = "srun: error: ", kToldLine = "told";

int signal_called(std::string_view name) {
  constexpr int kSignals = 64;
  for (int number = 1; number <= kSignals; ++number)
    if (const char* text = ::sigdescr_np(number); text && name == text) return number;
  return 0;
}

std::optional<Failure> failure_called(std::string_view how) {
  constexpr std::string_view kExited = "Exited with exit code ", kDumped = " (core dumped)";
  Failure out;
  if (how.starts_with(kExited)) {
    const auto code = parse_int(how.substr(kExited.size()));
    if (!code) return std::nullopt;
    out.exit_code = static_cast<int>(*code);
    return out;
  }
  if (how == "Out Of Memory") {
    out.out_of_memory = true;
    return out;
  }
  if (how.ends_with(kDumped)) how.remove_suffix(kDumped.size());
  out.signal = signal_called(how);
  if (out.signal == 0) return std::nullopt;
  return out;
}

// "0", "1-3,5": the first of them stands for all, which ended alike.
std::optional<int> first_rank(std::string_view ranks) {
  const auto digits = ranks.substr(0, std::min(ranks.find_first_not_of("0123456789"), ranks.size()));
  const auto rank = parse_int(digits);
  if (!rank) return std::nullopt;
  return static_cast<int>(*rank);
}

std::optional<std::pair<std::int64_t, std::int64_t>> two_numbers(std::string_view text, char between) {
  if (!text.ends_with('\n')) return std::nullopt;  // still being written
  const auto parts = split(text.substr(0, text.size() - 1), between);
  if (parts.size() != 2) return std::nullopt;
  const auto first = parse_int(parts[0]), second = parse_int(parts[1]);
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

std::string last_line(std::string_view text) {
  const auto lines = split(trim(text), '\n');
  return std::string(lines.back().substr(0, 300));
}

bool node_failed(std::string_view state) { return state == "NODE_FAIL" || state == "BOOT_FAIL"; }

// Rather than by its own tasks, or by us.
bool ended_by_slurm(std::string_view state) {
  return state == "TIMEOUT" || state == "DEADLINE" || state == "PREEMPTED" || state == "CANCELLED" ||
         state == "OUT_OF_MEMORY" || node_failed(state);
}

// What Slurm's own state says when no task says more.
Ending by_state(std::string_view state, bool began) {
  Ending out;
  const auto say = [&](Reason reason, std::string message) {
    out.reason = reason;
    out.message = std::move(message);
    return out;
  };
  if (node_failed(state)) return say(Reason::node_lost, "a node failed");
  if (state == "PREEMPTED") return say(Reason::node_lost, "Slurm gave its place to another job");
  if (state == "TIMEOUT") return say(Reason::time_limit, "Slurm's time limit");
  if (state == "DEADLINE") return say(Reason::time_limit, "its deadline could no longer be met");
  if (state == "OUT_OF_MEMORY") return say(Reason::out_of_memory, "");
  if (!began) {
    if (state == "CANCELLED") return say(Reason::not_started, "somebody cancelled it in Slurm before it began");
    return say(Reason::not_started, state.empty() ? "Slurm lost it before it began" : "Slurm could not start it");
  }
  if (state == "CANCELLED") return say(Reason::signalled, "somebody cancelled it in Slurm");
  return say(Reason::node_lost,
             state.empty() ? "Slurm has forgotten it, and it left no record" : "it left no record of its end");
}

Ending stopped(Stop stop, const Failure* how) {
  Ending out;
  out.reason = stop == Stop::time_limit ? Reason::time_limit : Reason::stopped;
  out.message = stop == Stop::time_limit ? "ran longer than it may" : "was told to stop";
  if (how) out.exit_code = how->exit_code, out.signal = how->signal, out.rank = how->rank;
  return out;
}

Ending by_itself(const Failure& failure) {
  Ending out;
  out.exit_code = failure.exit_code;
  out.signal = failure.out_of_memory ? SIGKILL : failure.signal;
  out.rank = failure.rank;
  if (failure.out_of_memory) {
    out.reason = Reason::out_of_memory;
    out.message = fmt::format("task {} took more memory than it may", failure.rank);
  } else if (failure.signal != 0) {
    out.reason = Reason::signalled;
    const char* name = ::sigabbrev_np(failure.signal);
    out.message =
        fmt::format("task {} was killed by SIG{}", failure.rank, name ? name : std::to_string(failure.signal));
  } else if (failure.exit_code == kCheckpointed) {
    out.reason = Reason::checkpointed;
  } else {
    out.message = fmt::format("task {} ended with status {}", failure.rank, failure.exit_code);
  }
  return out;
}

// It began and srun has returned: the tasks' own ends decide, unless Slurm ended them.
Ending by_tasks(const Evidence& e, std::string_view state) {
  const auto failures = failures_of(e.status);
  const auto saved = [](const Failure& f) { return f.exit_code == kCheckpointed; };
  const auto own = std::ranges::find_if(failures, [&](const Failure& f) { return !saved(f) && !f.told; });
  const auto checkpoint = std::ranges::find_if(failures, saved);
  const Failure* first = failures.empty() ? nullptr : &failures.front();
  const bool told = e.status.find("told\n") != e.status.npos;

  if (own != failures.end() && !ended_by_slurm(state)) return by_itself(*own);
  if (e.stop == Stop::time_limit && told) return stopped(e.stop, first);
  if (state == "TIMEOUT" || state == "DEADLINE" || node_failed(state)) return by_state(state, true);
  if (checkpoint != failures.end()) return by_itself(*checkpoint);
  if (e.stop != Stop::none && (told || state == "CANCELLED")) return stopped(e.stop, first);
  if (own != failures.end() || ended_by_slurm(state)) {
    auto out = by_state(state, true);
    if (first) out.exit_code = first->exit_code, out.signal = first->signal, out.rank = first->rank;
    return out;
  }
  Ending out;
  if (e.end->exit_code == 0) return out;
  // srun failed, and no task did.
  out.exit_code = e.end->exit_code;
  if (e.status.empty()) return out;
  out.reason = Reason::not_started;
  out.message = "Slurm could not start its tasks: " + last_line(e.status);
  return out;
}

Ending reason_of(const Evidence& e) {
  const std::string_view state = e.job ? std::string_view(e.job->state) : std::string_view();
  if (!e.refused.empty()) {
    Ending out;
    const auto space = e.refused.find(' ');
    out.reason = Reason::not_started;
    out.rank = first_rank(e.refused).value_or(0);
    out.message = space == e.refused.npos ? "" : std::string(trim(std::string_view(e.refused).substr(space)));
    return out;
  }
  if (!e.claimed) return e.stop != Stop::none ? stopped(e.stop, nullptr) : by_state(state, false);
  if (e.end) return by_tasks(e, state);
  // The batch script was killed before it could write its record.
  if (e.stop != Stop::none && !node_failed(state)) return stopped(e.stop, nullptr);
  return by_state(state, true);
}

}  // namespace

std::vector<Failure> failures_of(std::string_view status) {
  std::vector<Failure> out;
  bool told = false;
  for (auto line : split(status, '\n')) {
    told = told || line == kToldLine;
    // "srun: error: NODE: task 0: HOW" or "tasks 0-3,5".
    if (!line.starts_with(kErrorLine)) continue;
    const auto task = line.find(": task");
    if (task == line.npos) continue;
    auto rest = line.substr(task + 6);
    if (rest.starts_with('s')) rest.remove_prefix(1);
    const auto colon = rest.find(": ");
    if (colon == rest.npos) continue;
    const auto rank = first_rank(trim(rest.substr(0, colon)));
    auto failure = failure_called(rest.substr(colon + 2));
    if (!rank || !failure) continue;
    failure->rank = *rank;
    failure->told = told;
    out.push_back(*failure);
  }
  return out;
}

std::optional<Claim> parse_claim(std::string_view text) {
  const auto numbers = two_numbers(text, '.');
  if (!numbers) return std::nullopt;
  return Claim{numbers->first, Micros{numbers->second}};
}

std::optional<EndRecord> parse_end(std::string_view text) {
  const auto numbers = two_numbers(text, ' ');
  if (!numbers) return std::nullopt;
  return EndRecord{static_cast<int>(numbers->first), Micros{numbers->second}};
}

std::optional<Used> parse_used(std::string_view text) {
  const auto numbers = two_numbers(text, ' ');
  if (!numbers || numbers->first < 0 || numbers->second < 0) return std::nullopt;
  return Used{Micros{numbers->first}, numbers->second};
}

bool is_terminal(std::string_view state) {
  for (const auto* terminal : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
                               "DEADLINE", "OUT_OF_MEMORY"})
    if (state == terminal) return true;
  return false;
}

Ending judge(const Evidence& evidence) {
  Ending out = reason_of(evidence);
  out.used = evidence.used;
  if (evidence.end)
    out.at = evidence.end->at;
  else if (evidence.job && evidence.job->end_s > 0)
    out.at = std::chrono::seconds(evidence.job->end_s);
  return out;
}

}  // namespace falaj::execute::slurm
