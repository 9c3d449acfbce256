// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <tuple>
#include <unordered_map>

#include "foundation/base/error.h"
#include "lifecycle/schedule/forecast.h"
#include "lifecycle/schedule/predict.h"

namespace falaj::schedule {
namespace {

constexpr double kBoundSeconds = 10;

JobId id_of(std::size_t index) { return JobId{{0, index + 1}}; }
std::size_t index_of(JobId id) { return id.bits.low - 1; }

double work_of(const TraceJob& job) {  // in task seconds
  return in_seconds(job.ran) * job.tasks;
}

struct Told {
  Micros at;
  Guess wait;
};

class Simulation {
 public:
  Simulation(const Trace& trace, const Simulated& how)
      : trace_(trace), how_(how), state_(how.rules), random_(how.faults.seed) {
    state_.set_queues(trace.queues);
    for (const Node& node : trace.nodes) state_.set_node(node);
    jobs_.resize(trace.jobs.size());
    if (how.faults.node_up_mean > Micros{0}) {
      for (std::size_t i = 0; i < trace.nodes.size(); ++i) later(after(how.faults.node_up_mean), Kind::node_lost, i);
    }
  }

  Outcome run(const std::function<void(double)>& progress) {
    while (next_ < trace_.jobs.size() || !events_.empty()) {
      Micros moment = kNever;
      if (next_ < trace_.jobs.size()) moment = trace_.jobs[next_].submitted;
      if (!events_.empty()) moment = std::min(moment, events_.top().at);
      if (moment == kNever) break;
      if (how_.tick > Micros{0} && moment < planned_ + how_.tick) moment = planned_ + how_.tick;
      now_ = moment;
      const bool alive = next_ < trace_.jobs.size() || state_.pending_count() + state_.running_count() > 0;
      if (!alive) break;
      happen();
      carry_out();
      planned_ = now_;
      if (progress && ++steps_ % 4096 == 0) progress(static_cast<double>(done_) / static_cast<double>(jobs_.size()));
    }
    return outcome();
  }

 private:
  enum class Kind { end, gone, wake, node_lost, node_back };
  struct Event {
    Micros at;
    std::uint64_t order;  // events of one moment happen in the order they were made
    Kind kind;
    std::size_t index;
    int attempt;
    bool operator<(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };
  struct Fate {
    int attempt = 0;
    Micros ended = kNever;
    int trials = 0;
    bool told = false;
  };

  void later(Micros at, Kind kind, std::size_t index, int attempt = 0) {
    events_.push({at, made_++, kind, index, attempt});
  }
  Micros after(Micros mean) {
    const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
    return now_ + Micros(static_cast<std::int64_t>(-std::log(1 - uniform) * static_cast<double>(mean.count())));
  }

  Job job_of(std::size_t index) const {
    const TraceJob& traced = trace_.jobs[index];
    Job job;
    job.id = id_of(index);
    job.queue = traced.queue;
    job.priority = traced.priority;
    job.submitted = traced.submitted;
    job.tasks_min = job.tasks_max = traced.tasks;
    job.task = traced.task;
    job.limit = traced.limit;
    job.deadline = traced.deadline;
    job.restartable = how_.restartable;
    job.trials = jobs_[index].trials;
    const JobFacts facts{traced.user, traced.name, traced.tasks, traced.limit};
    job.run = how_.predicts ? predictor_.guess(facts) : Guess{traced.limit, traced.limit, 0};
    return job;
  }

  void happen() {
    while (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case Kind::end:
          if (event.attempt == jobs_[event.index].attempt) end(event.index, event.at);
          break;
        case Kind::gone:
          if (event.attempt == jobs_[event.index].attempt) again(event.index);
          break;
        case Kind::node_lost:
          lose(event.index);
          break;
        case Kind::node_back:
          state_.set_up(static_cast<int>(event.index), true);
          later(after(how_.faults.node_up_mean), Kind::node_lost, event.index);
          break;
        case Kind::wake:
          break;
      }
    }
    for (; next_ < trace_.jobs.size() && trace_.jobs[next_].submitted <= now_; ++next_) {
      state_.add(job_of(next_));
      if (how_.forecasts) arrived_.push_back(next_);
    }
  }

  void end(std::size_t index, Micros at) {
    const TraceJob& traced = trace_.jobs[index];
    jobs_[index].ended = at;
    state_.remove(id_of(index), now_);
    if (how_.predicts) predictor_.learn({traced.user, traced.name, traced.tasks, traced.limit}, traced.ran);
    ++done_;
  }

  void again(std::size_t index) {
    const Running& running = *state_.running(id_of(index));
    outcome_.lost_share += in_seconds(now_ - running.started) * tasks_of(running.placement);
    ++jobs_[index].attempt;
    state_.requeue(job_of(index), now_);
  }

  void lose(std::size_t node) {
    ++outcome_.node_losses;
    for (const JobId id : state_.running_ids()) {
      const Running& running = *state_.running(id);
      const bool there =
          std::ranges::any_of(running.placement, [&](const Part& p) { return p.node == static_cast<int>(node); });
      if (there) again(index_of(id));
    }
    state_.set_up(static_cast<int>(node), false);
    firm_.clear();  // what was promised on it cannot be kept; what is promised from now on must be
    later(after(how_.faults.node_down_mean), Kind::node_back, node);
  }

  void carry_out() {
    const Plan made = plan(state_, how_.policy, now_);
    state_.note_promises(made);
    ++outcome_.plans;
    outcome_.decisions += made.starts.size() + made.preempts.size() + made.keeps.size();
    for (const JobId id : made.keeps) state_.keep(id);
    for (const Preempt& preempt : made.preempts) {
      const std::size_t index = index_of(preempt.job);
      ++outcome_.preemptions;
      const Running& running = *state_.running(preempt.job);
      if (running.trial || running.job.grace == Micros{0}) {
        again(index);
      } else {
        state_.stopping(preempt.job, now_ + running.job.grace);
        later(now_ + running.job.grace, Kind::gone, index, jobs_[index].attempt);
      }
    }
    for (const Start& start : made.starts) {
      const std::size_t index = index_of(start.job);
      if (start.trial) {
        Job job = *state_.pending(start.job);
        job.trials = ++jobs_[index].trials;
        state_.change(std::move(job));
        ++outcome_.trials;
      }
      state_.start(start, now_);
      later(now_ + trace_.jobs[index].ran, Kind::end, index, ++jobs_[index].attempt);
      note_start(start.job);
    }
    note_promises(made);
    if (made.look_again != kNever && (wakes_.empty() || made.look_again < *wakes_.begin())) {
      later(made.look_again, Kind::wake, 0);
      wakes_.insert(made.look_again);
    }
    while (!wakes_.empty() && *wakes_.begin() <= now_) wakes_.erase(wakes_.begin());
    tell();
  }

  void note_promises(const Plan& made) {
    for (const Promised& promised : made.promised) {
      if (!promised.firm) continue;
      const auto at = firm_.try_emplace(promised.job, promised).first;
      Promised& known = at->second;
      if (known.guessed && !promised.guessed) known = promised;  // from now on nothing excuses it
      note_late(known, promised.start);
      known.start = std::min(known.start, promised.start);
    }
  }

  void note_late(const Promised& promised, Micros starts) {
    double& most = promised.guessed ? outcome_.guess_late_max : outcome_.promise_late_max;
    most = std::max(most, in_seconds(starts - promised.start));
  }

  void note_start(JobId id) {
    if (firm_.empty() && !how_.forecasts) return;
    if (const auto firm = firm_.find(id); firm != firm_.end()) {
      note_late(firm->second, now_);
      firm_.erase(firm);
    }
    forecast_.started(id, now_);
    if (const auto told = told_.find(id); told != told_.end()) {
      const Micros waited = now_ - told->second.at;
      ++outcome_.forecasts;
      outcome_.by_p50 += waited <= told->second.wait.p50 ? 1 : 0;
      outcome_.by_p90 += waited <= told->second.wait.p90 ? 1 : 0;
      told_.erase(told);
    }
  }

  void tell() {
    for (const std::size_t index : arrived_) {
      const Job* job = state_.pending(id_of(index));
      if (job == nullptr) continue;
      const bool shown = forecast_.knows_enough();
      const Guess wait = forecast_.tell(job->id, crowd(state_, *job, now_), now_);
      if (shown) told_.emplace(job->id, Told{now_, wait});
    }
    arrived_.clear();
  }

  Outcome outcome() {
    Outcome& out = outcome_;
    out.jobs = jobs_.size();
    std::vector<double> waits;
    std::map<std::string, std::pair<double, double>> by_user;  // slowdowns, jobs
    double work = 0, completion = 0, slowdown = 0, first = 1e300, last = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const TraceJob& traced = trace_.jobs[i];
      if (jobs_[i].ended == kNever) {
        ++out.unfinished;
        continue;
      }
      const double wait = in_seconds(jobs_[i].ended - traced.ran - traced.submitted);
      const double bounded =
          std::max(1.0, (wait + in_seconds(traced.ran)) / std::max(in_seconds(traced.ran), kBoundSeconds));
      waits.push_back(wait);
      work += work_of(traced);
      completion += wait + in_seconds(traced.ran);
      slowdown += bounded;
      by_user[traced.user].first += bounded;
      by_user[traced.user].second += 1;
      first = std::min(first, in_seconds(traced.submitted));
      last = std::max(last, in_seconds(jobs_[i].ended));
      if (traced.deadline != kNever) {
        ++out.deadlines;
        out.deadlines_missed += jobs_[i].ended > traced.deadline ? 1 : 0;
      }
    }
    if (waits.empty()) return out;
    const double count = static_cast<double>(waits.size());
    std::ranges::sort(waits);
    for (const double wait : waits) out.wait_mean += wait / count;
    out.wait_p95 = waits[static_cast<std::size_t>(0.95 * (count - 1))];
    out.wait_max = waits.back();
    for (int i = 0; i <= 100; ++i) {
      out.wait_percentiles.push_back(waits[static_cast<std::size_t>(i / 100.0 * (count - 1))]);
    }
    out.completion_mean = completion / count;
    out.slowdown_mean = slowdown / count;
    out.makespan = last - first;
    const Amounts all = state_.capacity();
    const double places = static_cast<double>(std::max(all.cpu_millis, all.gpu_millis)) / 1000;
    double used = 0;
    for (const TraceJob& job : trace_.jobs) {
      used += work_of(job) * static_cast<double>(all.gpu_millis > 0 ? job.task.gpu_millis : job.task.cpu_millis) / 1000;
    }
    out.utilisation = used / places / std::max(1.0, out.makespan);
    out.lost_share /= std::max(1.0, work);
    double sum = 0, squares = 0;
    for (const auto& [user, total] : by_user) {
      const double mean = total.first / total.second;
      sum += mean;
      squares += mean * mean;
    }
    out.fairness = sum * sum / (static_cast<double>(by_user.size()) * squares);
    if (out.forecasts > 0) {
      out.by_p50 /= static_cast<double>(out.forecasts);
      out.by_p90 /= static_cast<double>(out.forecasts);
    }
    return out;
  }

  const Trace& trace_;
  const Simulated& how_;
  State state_;
  Predictor predictor_;
  StartForecast forecast_;
  std::mt19937_64 random_;
  std::priority_queue<Event> events_;
  std::set<Micros> wakes_;
  std::uint64_t made_ = 0;
  std::size_t next_ = 0, done_ = 0, steps_ = 0;
  Micros now_{0}, planned_ = Micros::min() / 2;
  std::vector<Fate> jobs_;
  std::vector<std::size_t> arrived_;
  std::unordered_map<JobId, Told> told_;  // those shown when they will start
  std::unordered_map<JobId, Promised> firm_;
  Outcome outcome_;
};

}  // namespace

Simulated fifo() {
  Simulated how;
  how.rules.order = Order::submitted;
  how.policy.backfill = false;
  how.policy.promises = 0;
  how.policy.trials_max = 0;
  how.policy.explains = false;
  how.predicts = false;
  return how;
}

Simulated easy() {
  Simulated how = fifo();
  how.rules.patience = Micros{0};
  how.policy.backfill = true;
  how.policy.promises = 1;
  return how;
}

Simulated ours() {
  Simulated how;
  how.policy.explains = false;
  how.restartable = true;
  return how;
}

Outcome simulate(const Trace& trace, const Simulated& how, const std::function<void(double)>& progress) {
  return Simulation(trace, how).run(progress);
}

}  // namespace falaj::schedule
