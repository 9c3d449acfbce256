// SPDX-License-Identifier: Apache-2.0
// How fast decisions are made: a made-up year of a large cluster in simulation, one pass over many pending jobs, and
// how both grow. And how good they are, on traces given on the command line (*.swf, *.csv, also with .gz):
//   schedule_bench [--expect-fifo SLOWDOWN] [--expect-easy SLOWDOWN] TRACE...
// where the mean bounded slowdowns that others published for a trace are what ours of the same policy must be.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "lifecycle/schedule/predict.h"
#include "lifecycle/schedule/simulate.h"

namespace falaj::schedule {
namespace {

double peak_mib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1024;
}

void claim(const std::string& what, double ours, std::string_view unit, std::string_view against, double limit,
           double ratio, double goal, bool lower) {
  const json::object line{{"claim", what},  {"ours", ours},   {"unit", unit}, {"against", against},
                          {"limit", limit}, {"ratio", ratio}, {"goal", goal}, {"better", lower ? "lower" : "higher"}};
  std::puts(json::serialize(line).c_str());
}

// Of the processor, so that what else the machine does counts little: everything here is one thread.
double seconds_of(const auto& work) {
  const auto spent = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  };
  const double began = spent();
  work();
  return spent() - began;
}

void decide_a_million(std::size_t jobs, int nodes) {
  const Trace trace = make_trace(1, jobs, nodes, 32);
  Simulated how = ours();
  how.tick = std::chrono::seconds(5);
  Outcome outcome;
  const double took = seconds_of([&] { outcome = simulate(trace, how); });
  const double rate = static_cast<double>(outcome.decisions) / took;
  fmt::print("{} jobs, {} nodes: {} plans, {} decisions in {:.1f} s, {:.0f} a second, utilisation {:.2f}, ", jobs,
             nodes, outcome.plans, outcome.decisions, took, rate, outcome.utilisation);
  fmt::print("peak memory {:.0f} MiB\n", peak_mib());
  if (jobs < 1'000'000) return;
  claim(fmt::format("decisions a second, {} jobs on {} nodes, one core", jobs, nodes), rate, "decisions/s", "50,000",
        50'000, rate / 50'000, 1, false);
}

struct PassTime {
  std::size_t pending;
  double decided_ms;    // what starts
  double explained_ms;  // and of each other why not
};

// A full cluster on which one job of a hundred has just ended, and so many jobs waiting.
PassTime one_pass(int pending) {
  const Trace trace = make_trace(2, static_cast<std::size_t>(pending) + 60'000, 10'000, 32);
  State state;
  state.set_queues(trace.queues);
  for (const Node& node : trace.nodes) state.set_node(node);
  Policy policy;
  policy.explains = false;
  Predictor predictor;
  const auto add = [&](std::size_t i) {
    const TraceJob& traced = trace.jobs[i];
    Job job;
    job.id = JobId{{0, i + 1}};
    job.queue = traced.queue;
    job.submitted = Micros(static_cast<std::int64_t>(i));
    job.tasks_min = job.tasks_max = traced.tasks;
    job.task = traced.task;
    job.limit = traced.limit;
    job.restartable = true;
    job.run = predictor.guess({traced.user, traced.name, traced.tasks, traced.limit});
    state.add(std::move(job));
  };
  const Micros now = std::chrono::hours(1);
  for (std::size_t i = 0; i < 60'000; ++i) add(i);
  for (const Start& start : plan(state, policy, now).starts) state.start(start, now);
  std::size_t next = 60'000;
  const std::vector<JobId> waiting = state.pending_ids();
  for (std::size_t i = static_cast<std::size_t>(pending); i < waiting.size(); ++i) state.remove(waiting[i], now);
  while (state.pending_count() < static_cast<std::size_t>(pending) && next < trace.jobs.size()) add(next++);
  const std::vector<JobId> running = state.running_ids();
  for (std::size_t i = 0; i < running.size(); i += 100) state.remove(running[i], now);
  double best = 1e300;
  std::size_t starts = 0;
  for (int round = 0; round < 5; ++round) {
    best = std::min(best, seconds_of([&] { starts = plan(state, policy, now).starts.size(); }));
  }
  fmt::print("{} pending, {} running: one pass {:.2f} ms, {} starts, peak memory {:.0f} MiB\n", state.pending_count(),
             state.running_count(), best * 1e3, starts, peak_mib());
  policy.explains = true;  // which looks at every one of them
  double explained = 1e300;
  for (int round = 0; round < 5; ++round) {
    explained = std::min(explained, seconds_of([&] { plan(state, policy, now); }));
  }
  fmt::print("  and saying of each why it waits: {:.2f} ms\n", explained * 1e3);
  if (pending == 10'000)
    claim("one pass over 10,000 pending jobs, 10,000 nodes", explained * 1e3, "ms", "50 ms", 50, explained * 1e3 / 50,
          1, true);
  return {state.pending_count(), best * 1e3, explained * 1e3};
}

// Both scales are logarithmic: equal steps to the right are equal factors, and a step down is ten times the jobs.
void plot_growth(const std::vector<PassTime>& passes) {
  constexpr double kLeast = 0.1;  // ms
  constexpr double kStepsPerTenfold = 12;
  const auto bar = [&](double ms) {
    const double steps = std::log10(std::max(ms, kLeast) / kLeast) * kStepsPerTenfold;
    return std::string(static_cast<std::size_t>(std::lround(steps)), '=');
  };
  fmt::print("{:>9}  {:9}   {:<12}{:<12}{:<12}{}\n", "pending", "", "0.1 ms", "1 ms", "10 ms", "100 ms");
  for (const PassTime& pass : passes) {
    fmt::print("{:>9}  {:9}  |{}> {:.2f} ms\n", pass.pending, "decided", bar(pass.decided_ms), pass.decided_ms);
    fmt::print("{:>9}  {:9}  |{}> {:.2f} ms\n", "", "explained", bar(pass.explained_ms), pass.explained_ms);
  }
  const PassTime &first = passes.front(), &last = passes.back();
  fmt::print("{} times the jobs take {:.1f} times as long, explained {:.1f} times\n", last.pending / first.pending,
             last.decided_ms / first.decided_ms, last.explained_ms / first.explained_ms);
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Expected {
  double fifo = 0, easy = 0;  // mean bounded slowdowns; 0 = not known
};

void agree(const std::string& path, std::string_view policy, double ours, double published) {
  if (published <= 0) return;
  claim(fmt::format("mean bounded slowdown of {}, off by, {}", policy, path), ours, "", "published", published,
        std::abs(ours / published - 1) / 0.02, 1, true);
}

void replay(const std::string& path, const Expected& expected) {
  const bool gpus = path.find(".csv") != std::string::npos;
  const Trace trace = read_trace(path, contents(path), 0);
  fmt::print("{}: {} jobs, {} nodes\n", path, trace.jobs.size(), trace.nodes.size());
  const auto show = [](std::string_view name, const Outcome& o) {
    fmt::print(
        "  {:24} wait mean {:9.0f} s  p95 {:9.0f}  max {:9.0f}  completion {:9.0f}  slowdown {:8.1f}  lost {:.3f}  "
        "late {:.0f}, guesses {:.0f}\n",
        name, o.wait_mean, o.wait_p95, o.wait_max, o.completion_mean, o.slowdown_mean, o.lost_share, o.promise_late_max,
        o.guess_late_max);
    return o;
  };
  const Outcome first = show("fifo", simulate(trace, fifo()));
  const Outcome second = show("easy", simulate(trace, easy()));
  Simulated how = ours();
  how.forecasts = true;
  const Outcome mine = show("ours", simulate(trace, how));
  how.restartable = false;
  const Outcome unrestarted = show("ours, nothing restarts", simulate(trace, how));
  agree(path, "FIFO", first.slowdown_mean, expected.fifo);
  agree(path, "EASY", second.slowdown_mean, expected.easy);
  for (const auto& [name, outcome] :
       {std::pair("EASY", &second), {"ours", &mine}, {"ours, nothing restarts", &unrestarted}})
    claim(fmt::format("starts later than reserved, {}, {}", name, path), outcome->promise_late_max, "s",
          "the reservation", 0, outcome->promise_late_max, 0, true);
  fmt::print("  started by the time given: P50 {:.3f}, P90 {:.3f} of {} that waited\n", mine.by_p50, mine.by_p90,
             mine.forecasts);
  claim("starts by the time given for nine of ten, off by, " + path, std::abs(mine.by_p90 - 0.9), "of all", "0.05",
        0.05, std::abs(mine.by_p90 - 0.9) / 0.05, 1, true);
  if (gpus) {
    const Outcome las = show("least attained service", simulate_least_attained(trace, std::chrono::hours(1)));
    claim("mean completion, " + path, mine.completion_mean, "s", "fifo", first.completion_mean,
          mine.completion_mean / first.completion_mean, 1, true);
    claim("mean completion, " + path, mine.completion_mean, "s", "least attained service, free preemption",
          las.completion_mean, mine.completion_mean / las.completion_mean, 1, true);
  } else {
    claim("mean bounded slowdown, " + path, mine.slowdown_mean, "", "EASY", second.slowdown_mean,
          mine.slowdown_mean / second.slowdown_mean, 35 / 90.6, true);
    claim("largest wait, " + path, mine.wait_max, "s", "EASY", second.wait_max, mine.wait_max / second.wait_max, 1,
          true);
  }
}

}  // namespace
}  // namespace falaj::schedule

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    falaj::schedule::Expected expected;
    for (int i = 1; i < count; ++i) {
      const std::string word = arguments[i];
      auto* published = word == "--expect-fifo" ? &expected.fifo : word == "--expect-easy" ? &expected.easy : nullptr;
      if (published == nullptr)
        falaj::schedule::replay(word, expected);
      else
        *published = i + 1 < count ? std::atof(arguments[++i]) : 0;
    }
    if (count > 1) return 0;
    std::vector<falaj::schedule::PassTime> passes;
    for (const int pending : {1'000, 10'000, 100'000}) passes.push_back(falaj::schedule::one_pass(pending));
    falaj::schedule::plot_growth(passes);
    falaj::schedule::decide_a_million(100'000, 1'000);
    falaj::schedule::decide_a_million(1'000'000, 10'000);
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "schedule_bench: %s\n", error.what());
    return 2;
  }
}
