// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/slurm_executor.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/execute/slurm/script.h"

namespace falaj::execute::slurm {
namespace {

void make_directory(const std::string& path) {
  if (path.empty()) return;
  std::error_code fault;
  std::filesystem::create_directories(path, fault);
  if (fault) throw Error(Code::unavailable, fmt::format("making a job's directory: {}", fault.message()));
}

Isolation isolation_of(const Settings& settings) {
  return settings.isolation == "contained" ? Isolation::contained : Isolation::none;
}

}  // namespace

std::unique_ptr<Gateway> make_gateway(const Settings& settings, sys::Processes& processes) {
  return settings.submit == "sbatch" ? make_command_gateway(settings, processes)
                                     : make_rest_gateway(settings, processes);
}

SlurmExecutor::SlurmExecutor(Settings settings, std::unique_ptr<Gateway> gateway, const sys::Clock& clock)
    : settings_(std::move(settings)), gateway_(std::move(gateway)), clock_(clock), files_(settings_.directory) {
  load();
  follower_ = std::thread([this] { follow(); });
}

SlurmExecutor::~SlurmExecutor() {
  {
    Lock lock(mu_);
    stopping_ = true;
    wake_.notify_all();
    changed_.notify_all();
  }
  follower_.join();
}

void SlurmExecutor::load() {
  Lock lock(mu_);
  for (const auto& name : files_.attempts()) {
    auto stored = files_.load(name);
    if (!stored) continue;
    auto& attempt = attempts_[name];
    attempt.report.attempt = name;
    attempt.report.isolation = isolation_of(settings_);
    attempt.report.external_id = std::to_string(stored->job);
    if (const auto claim = files_.claim(name)) {
      attempt.report.started = claim->at;
      attempt.report.phase = Phase::running;
    }
    if (stored->ending) {
      attempt.report.phase = Phase::ended;
      attempt.report.ending = stored->ending;
    }
    if (stored->stop != Stop::none) {
      attempt.told = true;  // its tasks were told; telling them again might interrupt them saving their work
      attempt.next_step = clock_.now() + stored->grace;
    }
    attempt.stored = std::move(*stored);
  }
  fresh_ = !any_active();
}

std::vector<Node> SlurmExecutor::nodes() { return gateway_->nodes(); }

void SlurmExecutor::start(const Launch& launch) {
  refuse_if_any("starting a job on Slurm", faults_of(launch, settings_));
  {
    Lock lock(mu_);
    while (true) {
      const auto found = attempts_.find(launch.attempt);
      if (found == attempts_.end()) break;
      if (found->second.submitting) {
        lock.wait(changed_);  // another thread is starting it: its fate is ours
        continue;
      }
      if (found->second.is_submitted()) return;
      break;
    }
    auto& attempt = attempts_[launch.attempt];
    attempt.submitting = true;
    attempt.report.attempt = launch.attempt;
    attempt.report.isolation = isolation_of(settings_);
    attempt.stored.tasks = static_cast<int>(launch.tasks.size());
    attempt.stored.grace = launch.grace;
    attempt.stored.time_limit = launch.time_limit;
  }
  try {
    submit(launch, !files_.create(launch));
  } catch (const Error& error) {
    {
      Lock lock(mu_);
      attempts_.erase(launch.attempt);
      changed_.notify_all();
    }
    // Slurm has refused it, so nothing of it is there. Otherwise its answer may have got lost: the directory stays, and
    // the next `start` looks for the job first.
    if (error.code() == Code::invalid) files_.remove(launch.attempt);
    throw;
  }
}

void SlurmExecutor::submit(const Launch& launch, bool may_be_there) {
  std::optional<SlurmId> job;
  if (may_be_there) job = find_in_slurm(launch.attempt);
  if (!job) {
    make_directory(launch.work_directory);
    make_directory(launch.checkpoint_directory);
    job = gateway_->submit(submission_of(launch, settings_, files_.directory(launch.attempt), clock_.wall()));
  }
  files_.set_job(launch.attempt, *job);
  Lock lock(mu_);
  auto& attempt = attempts_.at(launch.attempt);
  attempt.submitting = false;
  attempt.submitted = clock_.now();
  attempt.stored.job = *job;
  attempt.report.external_id = std::to_string(*job);
  changed();
}

std::optional<SlurmId> SlurmExecutor::find_in_slurm(const std::string& attempt) {
  if (const auto claim = files_.claim(attempt)) return claim->job;
  const auto jobs = gateway_->jobs(0);
  if (!jobs) throw Error(Code::unavailable, "Slurm did not list its jobs");
  const auto comment = comment_of(files_.directory(attempt));
  std::optional<SlurmId> out;
  for (const auto& job : *jobs)
    if (job.comment == comment) out = std::max(out.value_or(0), job.id);
  return out;
}

void SlurmExecutor::stop(std::string_view name, Micros grace) {
  {
    Lock lock(mu_);
    const auto found = attempts_.find(name);
    if (found == attempts_.end() || found->second.report.phase == Phase::ended) return;
  }
  record_stop(std::string(name), Stop::asked, grace);
}

// Remembered first, so that it holds also after a restart. The following thread does the rest.
void SlurmExecutor::record_stop(const std::string& name, Stop why, Micros grace) {
  files_.set_stop(name, why);
  Lock lock(mu_);
  const auto found = attempts_.find(name);
  if (found == attempts_.end()) return;
  auto& attempt = found->second;
  if (attempt.stored.stop == Stop::none) {
    attempt.stored.stop = why;
    attempt.stop_grace = grace;
    attempt.next_step = clock_.now();
  } else if (attempt.told && !attempt.killed) {
    attempt.next_step = std::min(attempt.next_step, clock_.now() + grace);
  } else {
    attempt.stop_grace = std::min(attempt.stop_grace, grace);
  }
  woken_ = true;
  wake_.notify_all();
}

std::vector<Report> SlurmExecutor::poll(std::uint64_t& seen, Micros at_most) {
  const auto until = clock_.now() + at_most;
  Lock lock(mu_);
  // What was loaded may have moved on while we were away: not told before Slurm has been asked.
  while (!stopping_ && (seen == version_ || (!fresh_ && any_active()))) {
    const auto now = clock_.now();
    if (now >= until) break;
    lock.wait_for(changed_, until - now);
  }
  if (any_active() && (!fresh_ || (seen == version_ && !fault_.empty())))
    throw Error(Code::unavailable, fault_.empty() ? "Slurm has not answered yet" : fault_);
  seen = version_;
  std::vector<Report> out;
  out.reserve(attempts_.size());
  for (const auto& [name, attempt] : attempts_)
    if (attempt.is_submitted()) out.push_back(attempt.report);
  return out;
}

LogPage SlurmExecutor::logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) {
  return files_.read_log(std::string(attempt), rank, offset, bytes_max);
}

void SlurmExecutor::forget(std::string_view name) {
  {
    Lock lock(mu_);
    const auto found = attempts_.find(name);
    if (found == attempts_.end()) return;
    if (found->second.report.phase != Phase::ended) throw Error(Code::conflict, "the attempt has not ended");
    attempts_.erase(found);
    changed();
  }
  files_.forget(std::string(name));
}

void SlurmExecutor::drop_logs(std::string_view attempt) { files_.drop_logs(std::string(attempt)); }

void SlurmExecutor::changed() {
  ++version_;
  changed_.notify_all();
  woken_ = true;
  wake_.notify_all();
}

bool SlurmExecutor::any_active() const {
  return std::ranges::any_of(
      attempts_, [](const auto& item) { return !item.second.submitting && item.second.report.phase != Phase::ended; });
}

}  // namespace falaj::execute::slurm
