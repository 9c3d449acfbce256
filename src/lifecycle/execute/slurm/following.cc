// SPDX-License-Identifier: Apache-2.0
// What the thread of a SlurmExecutor does.
#include <signal.h>

#include <algorithm>
#include <map>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "lifecycle/execute/slurm/script.h"
#include "lifecycle/execute/slurm/slurm_executor.h"

namespace falaj::execute::slurm {
namespace {

using std::chrono::seconds;

constexpr auto kFullListEvery = seconds(60);  // whatever changed, were the clocks far apart
constexpr std::int64_t kClocksApart_s = 10;
constexpr int kMissingMax = 3;             // lists in a row without a job: Slurm has forgotten it
constexpr auto kRecordWait = seconds(10);  // a shared file system may show a node's files late
constexpr auto kOrphanWait = seconds(60);
constexpr auto kRetry = seconds(1);
constexpr auto kCutLogsEvery = seconds(5);
constexpr auto kPauseMax = seconds(30);
constexpr auto kCancelAfter = seconds(5);  // the batch script was told to kill its tasks and still runs

bool waits(std::string_view state) {
  return state == "PENDING" || state == "CONFIGURING" || state.starts_with("REQUEUE");
}

}  // namespace

void SlurmExecutor::follow() {
  Micros next{0};
  while (true) {
    {
      Lock lock(mu_);
      while (!stopping_ && !woken_) {
        const auto now = clock_.now();
        const auto due = any_active() ? std::min(next, next_stop()) : Micros::max();
        if (due <= now) break;
        if (due == Micros::max())
          lock.wait(wake_);
        else
          lock.wait_for(wake_, due - now);
      }
      if (stopping_) return;
      woken_ = false;
    }
    push_stops();
    const auto began = clock_.now();
    if (began < next) continue;
    auto pause = Micros{settings_.poll_us};
    try {
      refresh();
      // A list that takes long is a burden on a large site's controller: not asked for all the time.
      pause = std::max(pause, std::min<Micros>(4 * (clock_.now() - began), kPauseMax));
      Lock lock(mu_);
      fault_.clear();
      if (!fresh_) changed_.notify_all();
      fresh_ = true;
    } catch (const Error& error) {
      Lock lock(mu_);
      if (fault_.empty()) log::warn("slurm_unavailable", {{"error", error.what()}});
      fault_ = error.what();
    }
    enforce_limits();
    cut_logs();
    next = clock_.now() + pause;
  }
}

// When the first of those that were told to stop wants attention.
Micros SlurmExecutor::next_stop() const {
  Micros out = Micros::max();
  for (const auto& [name, attempt] : attempts_)
    if (attempt.report.phase != Phase::ended && attempt.stored.stop != Stop::none && !attempt.cancelled)
      out = std::min(out, attempt.next_step);
  return out;
}

void SlurmExecutor::refresh() {
  const auto asked = clock_.now();
  const auto asked_s = std::chrono::floor<seconds>(clock_.wall()).count();
  std::vector<std::string> names;
  {
    Lock lock(mu_);
    for (const auto& [name, attempt] : attempts_)
      if (!attempt.submitting && attempt.report.phase != Phase::ended) names.push_back(name);
  }
  if (names.empty()) return;
  const bool full = asked >= full_list_at_;
  const auto jobs = gateway_->jobs(full ? 0 : since_s_);
  since_s_ = asked_s - kClocksApart_s;
  if (full) full_list_at_ = asked + kFullListEvery;
  if (!jobs) return;
  find_again(*jobs);
  std::map<SlurmId, const Job*> by_id;
  for (const auto& job : *jobs) by_id[job.id] = &job;
  for (const auto& name : names) {
    SlurmId id = 0;
    {
      Lock lock(mu_);
      const auto found = attempts_.find(name);
      if (found == attempts_.end() || !found->second.is_submitted() || found->second.submitted >= asked) continue;
      id = found->second.stored.job;
    }
    const auto job = by_id.find(id);
    take(name, job == by_id.end() ? std::nullopt : std::optional(*job->second));
  }
}

// Those whose record does not say whether they were submitted. One that Slurm does not know was not acknowledged
// either: `start` will be called for it again.
void SlurmExecutor::find_again(const std::vector<Job>& jobs) {
  Lock lock(mu_);
  for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
    if (attempt->second.submitting || attempt->second.is_submitted()) {
      ++attempt;
      continue;
    }
    const auto comment = comment_of(files_.directory(attempt->first));
    const auto job = std::ranges::find(jobs, comment, &Job::comment);
    if (job == jobs.end()) {
      attempt = attempts_.erase(attempt);
      continue;
    }
    attempt->second.stored.job = job->id;
    attempt->second.report.external_id = std::to_string(job->id);
    changed();
    ++attempt;
  }
}

void SlurmExecutor::take(const std::string& name, const std::optional<Job>& job) {
  const auto claim = files_.claim(name);
  Attempt seen;
  {
    Lock lock(mu_);
    auto& attempt = attempts_.at(name);
    if (claim && claim->job != attempt.stored.job) {  // submitted twice, and the other runs
      attempt.stored.job = claim->job;
      attempt.report.external_id = std::to_string(claim->job);
      full_list_at_ = Micros{0};
      changed();
      return;
    }
    if (job) attempt.missing = 0;
    if (!job && ++attempt.missing < kMissingMax) {
      full_list_at_ = Micros{0};
      return;
    }
    if (claim && attempt.report.phase == Phase::starting && (!job || !waits(job->state))) {
      attempt.report.phase = Phase::running;
      attempt.report.started = claim->at;
      changed();
    }
    if (job && !is_terminal(job->state)) return;
    if (attempt.ended_seen == Micros{0}) attempt.ended_seen = clock_.now();
    seen = attempt;
  }
  conclude(name, seen, job);
}

void SlurmExecutor::conclude(const std::string& name, const Attempt& seen, const std::optional<Job>& job) {
  auto evidence = files_.evidence(name);
  evidence.job = job;
  evidence.stop = seen.stored.stop;
  // The script ended by itself, so it has left its record, wherever that is on its way to us.
  const bool owes_record = job && (job->state == "COMPLETED" || job->state == "FAILED") && !evidence.end;
  if (owes_record && evidence.stop == Stop::none) {
    if (clock_.now() < seen.ended_seen + kRecordWait) {
      full_list_at_ = Micros{0};
      return;
    }
    if (evidence.claimed) evidence.end = EndRecord{job->exit_status >> 8, std::chrono::seconds(job->end_s)};
  }
  // A controller that lost its memory ends what it finds running on its nodes, but not at once. Before it has, another
  // attempt of the same job would run beside this one.
  if (!job && evidence.claimed && !evidence.end && clock_.now() < seen.ended_seen + kOrphanWait) {
    full_list_at_ = Micros{0};
    return;
  }
  if (!evidence.claimed && !files_.close(name)) return;  // it begins just now, after all
  auto ending = judge(evidence);
  if (ending.at == Micros{0}) ending.at = clock_.wall();
  ending.at = std::max(ending.at, seen.report.started);
  if (evidence.claimed) files_.cut_logs(name, settings_.log_bytes_max);
  files_.set_ending(name, ending);
  Lock lock(mu_);
  auto& attempt = attempts_.at(name);
  attempt.report.phase = Phase::ended;
  attempt.report.ending = std::move(ending);
  changed();
}

void SlurmExecutor::enforce_limits() {
  const auto wall = clock_.wall();
  std::vector<std::pair<std::string, Micros>> late;
  {
    Lock lock(mu_);
    for (const auto& [name, attempt] : attempts_) {
      const auto limit = attempt.stored.time_limit;
      if (attempt.report.phase == Phase::running && attempt.stored.stop == Stop::none && limit != Micros{0} &&
          wall - attempt.report.started >= limit)
        late.emplace_back(name, attempt.stored.grace);
    }
  }
  for (const auto& [name, grace] : late) record_stop(name, Stop::time_limit, grace);
}

void SlurmExecutor::cut_logs() {
  const auto now = clock_.now();
  if (now < cut_logs_at_) return;
  cut_logs_at_ = now + std::max<Micros>(Micros{settings_.poll_us}, kCutLogsEvery);
  std::vector<std::string> running;
  {
    Lock lock(mu_);
    for (const auto& [name, attempt] : attempts_)
      if (attempt.report.phase == Phase::running) running.push_back(name);
  }
  for (const auto& name : running) {
    try {
      files_.cut_logs(name, settings_.log_bytes_max);
    } catch (const Error& error) {
      log::warn("slurm_log_not_cut", {{"attempt", name}, {"why", error.what()}});
    }
  }
}

void SlurmExecutor::push_stops() {
  std::vector<std::pair<std::string, Attempt>> due;
  {
    const auto now = clock_.now();
    Lock lock(mu_);
    for (const auto& [name, attempt] : attempts_)
      if (attempt.report.phase != Phase::ended && attempt.stored.stop != Stop::none && attempt.stored.job != 0 &&
          !attempt.cancelled && attempt.next_step <= now)
        due.emplace_back(name, attempt);
  }
  for (auto& [name, attempt] : due) {
    try {
      push_stop(attempt);
    } catch (const Error& error) {
      log::warn("slurm_stop_failed", {{"attempt", name}, {"error", error.what()}});
      attempt.next_step = clock_.now() + kRetry;
    }
    Lock lock(mu_);
    const auto found = attempts_.find(name);
    if (found == attempts_.end()) continue;
    found->second.told = attempt.told;
    found->second.killed = attempt.killed;
    found->second.cancelled = attempt.cancelled;
    found->second.next_step = attempt.next_step;
  }
}

// One step further: tell its tasks, kill them, leave it to Slurm.
void SlurmExecutor::push_stop(Attempt& attempt) {
  const auto job = attempt.stored.job;
  if (attempt.killed) {
    gateway_->cancel(job);
    attempt.cancelled = true;
    return;
  }
  const bool kill = attempt.told || attempt.stop_grace == Micros{0};
  try {
    gateway_->signal(job, kill ? SIGUSR2 : SIGUSR1);
  } catch (const Error& error) {
    if (error.code() != Code::conflict) throw;
    gateway_->cancel(job);  // it waits in the queue: nobody has to be told
    attempt.cancelled = true;
    return;
  }
  attempt.told = true;
  attempt.killed = kill;
  attempt.next_step = clock_.now() + (kill ? Micros(kCancelAfter) : attempt.stop_grace);
}

}  // namespace falaj::execute::slurm
