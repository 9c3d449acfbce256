// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/ending.h"

#include <string.h>

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::execute::slurm {
namespace {

constexpr int kCheckpointed = 75;
constexpr std::string_view kErrorLine = "srun: error: ";

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

std::string last_line(std::string_view text) {
  const auto lines = split(trim(text), '\n');
  return std::string(lines.back().substr(0, 300));
}

bool node_failed(std::string_view state) { return state == "NODE_FAIL" || state == "BOOT_FAIL"; }

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

Ending stopped(Stop stop) {
  Ending out;
  out.reason = stop == Stop::time_limit ? Reason::time_limit : Reason::stopped;
  return out;
}

// It began and srun has returned: the tasks' own ends decide, unless something ended them from outside.
Ending by_tasks(const Evidence& e, const std::vector<Failure>& failures, std::string_view state) {
  const auto bad = std::ranges::find_if(failures, [](const Failure& f) { return f.exit_code != kCheckpointed; });
  Ending out;
  if (bad == failures.end()) {
    if (!failures.empty()) {
      out.reason = Reason::checkpointed;
      out.exit_code = kCheckpointed;
      out.rank = failures.front().rank;
    } else if (e.end->exit_code != 0) {  // srun itself failed
      if (e.stop != Stop::none) return stopped(e.stop);
      out.reason = Reason::not_started;
      out.message = "Slurm could not start its tasks: " + last_line(e.status);
      if (node_failed(state)) out = by_state(state, true);
    }
    return out;
  }
  if (e.stop != Stop::none)
    out = stopped(e.stop);
  else if (bad->out_of_memory)
    out.reason = Reason::out_of_memory;
  else if (state == "TIMEOUT" || state == "DEADLINE" || state == "PREEMPTED" || state == "CANCELLED" ||
           state == "OUT_OF_MEMORY" || node_failed(state))
    out = by_state(state, true);
  else if (bad->signal != 0)
    out.reason = Reason::signalled;
  out.rank = bad->rank;
  out.exit_code = bad->exit_code;
  out.signal = bad->out_of_memory ? 9 : bad->signal;
  return out;
}

Ending reason_of(const Evidence& e) {
  const std::string_view state = e.job ? std::string_view(e.job->state) : std::string_view();
  if (!e.refused.empty()) {
    Ending out;
    const auto space = e.refused.find(' ');
    out.reason = Reason::not_started;
    out.exit_code = 127;
    out.rank = first_rank(e.refused).value_or(0);
    out.message = space == e.refused.npos ? "" : std::string(trim(std::string_view(e.refused).substr(space)));
    return out;
  }
  if (!e.claimed) return e.stop != Stop::none ? stopped(e.stop) : by_state(state, false);
  const auto failures = failures_of(e.status);
  if (e.end) return by_tasks(e, failures, state);
  // The batch script was killed before it could write its record: what it heard until then may tell more.
  if (e.stop != Stop::none) return stopped(e.stop);
  return by_state(state, true);
}

}  // namespace

std::vector<Failure> failures_of(std::string_view status) {
  std::vector<Failure> out;
  for (auto line : split(status, '\n')) {
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
    out.push_back(*failure);
  }
  return out;
}

std::optional<Claim> parse_claim(std::string_view text) {
  const auto parts = split(trim(text), '.');
  if (parts.size() != 2) return std::nullopt;
  const auto job = parse_int(parts[0]), ns = parse_int(parts[1]);
  if (!job || !ns) return std::nullopt;
  return Claim{*job, Micros{*ns / 1000}};
}

std::optional<EndRecord> parse_end(std::string_view text) {
  const auto parts = split(trim(text), ' ');
  if (parts.size() != 2) return std::nullopt;
  const auto code = parse_int(parts[0]), ns = parse_int(parts[1]);
  if (!code || !ns) return std::nullopt;
  return EndRecord{static_cast<int>(*code), Micros{*ns / 1000}};
}

bool is_terminal(std::string_view state) {
  for (const auto* terminal : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
                               "DEADLINE", "OUT_OF_MEMORY"})
    if (state == terminal) return true;
  return false;
}

Ending judge(const Evidence& evidence) {
  Ending out = reason_of(evidence);
  if (evidence.end)
    out.at = evidence.end->at;
  else if (evidence.job && evidence.job->end_s > 0)
    out.at = std::chrono::seconds(evidence.job->end_s);
  return out;
}

}  // namespace falaj::execute::slurm
