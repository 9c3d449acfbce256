// SPDX-License-Identifier: Apache-2.0
// falaj simulate, falaj what-if: the live server's own decisions on jobs that ran once, here and now, without a server.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "cli/plot.h"
#include "cli/plot_png.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "lifecycle/schedule/simulate.h"

namespace falaj::cli {
namespace {

using schedule::Outcome;
using schedule::Simulated;
using schedule::Trace;

struct SimulateOptions {
  std::string trace, plot;
  int nodes = 0;
  int add_nodes = 0;
  std::vector<std::string> policies;
  double node_hours = 0;  // between losses of one node; 0 = none is lost
  double repair_hours = 1;
  std::uint64_t seed = 1;
};

Trace read_trace(const SimulateOptions& options) {
  if (options.trace == "synthetic") {
    return schedule::make_trace(options.seed, 5000, options.nodes > 0 ? options.nodes : 16, 32);
  }
  std::ifstream in(options.trace, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read the trace: {}", options.trace));
  std::ostringstream text;
  text << in.rdbuf();
  return options.trace.ends_with(".csv") ? schedule::read_gpu_csv(text.str(), options.nodes)
                                         : schedule::read_swf(text.str());
}

struct Named {
  std::string name;
  Outcome outcome;
};

json::object object_of(const Named& named) {
  const Outcome& o = named.outcome;
  return {{"policy", named.name},
          {"jobs", o.jobs},
          {"unfinished", o.unfinished},
          {"waitMeanSeconds", o.wait_mean},
          {"waitP95Seconds", o.wait_p95},
          {"waitMaxSeconds", o.wait_max},
          {"completionMeanSeconds", o.completion_mean},
          {"boundedSlowdownMean", o.slowdown_mean},
          {"utilisation", o.utilisation},
          {"makespanSeconds", o.makespan},
          {"fairness", o.fairness},
          {"deadlines", o.deadlines},
          {"deadlinesMissed", o.deadlines_missed},
          {"preemptions", o.preemptions},
          {"trials", o.trials},
          {"nodeLosses", o.node_losses},
          {"lostShare", o.lost_share},
          {"promiseLateMaxSeconds", o.promise_late_max},
          {"startedByP50", o.by_p50},
          {"startedByP90", o.by_p90},
          {"decisions", o.decisions}};
}

void print(Session& session, const Trace& trace, const std::vector<Named>& rows) {
  json::array items;
  for (const Named& row : rows) items.push_back(object_of(row));
  if (!session.output().for_people()) {
    session.output().value(
        {{"jobs", trace.jobs.size()}, {"skipped", trace.skipped}, {"nodes", trace.nodes.size()}, {"policies", items}});
    return;
  }
  const auto span = [](double seconds) {
    if (seconds < 600) return fmt::format("{:.0f} s", seconds);
    if (seconds < 86400) return fmt::format("{:.1f} h", seconds / 3600);
    return fmt::format("{:.1f} d", seconds / 86400);
  };
  session.output().line(
      fmt::format("{} jobs on {} nodes{}", trace.jobs.size(), trace.nodes.size(),
                  trace.skipped > 0 ? fmt::format(", {} lines left out: no run time or size", trace.skipped) : ""));
  json::array table;
  for (const Named& row : rows) {
    const Outcome& o = row.outcome;
    table.push_back({{"policy", row.name},
                     {"mean", span(o.wait_mean)},
                     {"p95", span(o.wait_p95)},
                     {"max", span(o.wait_max)},
                     {"completion", span(o.completion_mean)},
                     {"slowdown", fmt::format("{:.1f}", o.slowdown_mean)},
                     {"used", fmt::format("{:.0f} %", 100 * o.utilisation)},
                     {"fair", fmt::format("{:.2f}", o.fairness)},
                     {"missed", o.deadlines > 0 ? fmt::format("{} of {}", o.deadlines_missed, o.deadlines) : "-"},
                     {"lost", fmt::format("{:.1f} %", 100 * o.lost_share)}});
  }
  session.output().table(table, {{"POLICY", "policy"},
                                 {"WAIT", "mean"},
                                 {"P95", "p95"},
                                 {"LONGEST", "max"},
                                 {"COMPLETION", "completion"},
                                 {"SLOWDOWN", "slowdown"},
                                 {"USED", "used"},
                                 {"FAIR", "fair"},
                                 {"MISSED", "missed"},
                                 {"LOST", "lost"}});
  for (const Named& row : rows) {
    if (row.outcome.forecasts == 0) continue;
    session.output().line(
        fmt::format("{}: of {} jobs that waited {:.1f} % started by their P50 and {:.1f} % by their P90", row.name,
                    row.outcome.forecasts, 100 * row.outcome.by_p50, 100 * row.outcome.by_p90));
  }
}

// What part of the jobs waited for at most so long.
void draw(const std::string& path, const std::vector<Named>& rows) {
  Chart chart{"Jobs that waited at most so long", "hours", {}, false};
  for (const Named& row : rows) {
    Line line{row.name, {}, {}};
    for (std::size_t i = 0; i < row.outcome.wait_percentiles.size(); ++i) {
      line.x.push_back(row.outcome.wait_percentiles[i] / 3600);
      line.y.push_back(static_cast<double>(i) / static_cast<double>(row.outcome.wait_percentiles.size() - 1));
    }
    chart.lines.push_back(std::move(line));
  }
  const std::string svg = to_svg(chart);
  ResultFile file(path);
  file.write(as_bytes(path.ends_with(".png") ? svg_to_png(svg) : svg));
  file.keep();
}

Named run(Session& session, const Trace& trace, std::string name, Simulated how, const SimulateOptions& options) {
  constexpr std::uint64_t kSteps = 1000;
  Progress progress(fmt::format("simulating {}", name), kSteps, Progress::Unit::items, session.clock(), session.quiet);
  std::uint64_t told = 0;
  if (options.node_hours > 0) {
    how.faults = {schedule::from_seconds(options.node_hours * 3600),
                  schedule::from_seconds(options.repair_hours * 3600), options.seed};
  }
  Outcome outcome = schedule::simulate(trace, how, [&](double part) {
    const auto now = static_cast<std::uint64_t>(part * kSteps);
    if (now > told) progress.add(now - told);
    told = std::max(told, now);
  });
  if (told < kSteps) progress.add(kSteps - told);
  return {std::move(name), std::move(outcome)};
}

Simulated policy_of(const std::string& name) {
  if (name == "fifo") return schedule::fifo();
  if (name == "easy") return schedule::easy();
  Simulated how = schedule::ours();
  how.forecasts = true;
  how.restartable = name == "falaj";
  return how;
}

void simulate(Session& session, SimulateOptions options) {
  if (options.policies.empty()) options.policies = {"fifo", "easy", "falaj"};
  const Trace trace = read_trace(options);
  std::vector<Named> rows;
  for (const std::string& name : options.policies) {
    if (name == "least-attained") {
      rows.push_back({name, schedule::simulate_least_attained(trace, std::chrono::hours(1))});
    } else {
      rows.push_back(run(session, trace, name, policy_of(name), options));
    }
  }
  print(session, trace, rows);
  if (!options.plot.empty()) draw(options.plot, rows);
}

void what_if(Session& session, const SimulateOptions& options) {
  Trace trace = read_trace(options);
  std::vector<Named> rows;
  rows.push_back(run(session, trace, "as it is", policy_of("falaj"), options));
  if (trace.nodes.empty()) throw Error(Code::invalid, "the trace has no nodes");
  const std::size_t before = trace.nodes.size();
  for (int i = 0; i < options.add_nodes; ++i) {
    schedule::Node node = trace.nodes[static_cast<std::size_t>(i) % before];
    node.name = fmt::format("added{}", i + 1);
    trace.nodes.push_back(std::move(node));
  }
  rows.push_back(
      run(session, trace, fmt::format("with {} nodes more", options.add_nodes), policy_of("falaj"), options));
  print(session, trace, rows);
  if (!options.plot.empty()) draw(options.plot, rows);
}

void add_options(CLI::App& command, SimulateOptions& options) {
  command
      .add_option(
          "--trace", options.trace,
          "Jobs that ran once: a file in the Standard Workload Format, or .csv with timestamp, duration, num_gpus; "
          "'synthetic' makes one up")
      ->required();
  command
      .add_option("--nodes", options.nodes,
                  "How many nodes a .csv or synthetic trace runs on (0 = as many as its load asks for)")
      ->check(CLI::Range(0, 100'000));
  command.add_option("--plot", options.plot, "Draw how long jobs waited into this .svg or .png file");
  command.add_option("--node-hours", options.node_hours, "Lose each node once in so many hours on average (0 = never)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--repair-hours", options.repair_hours, "And have it back after so many")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", options.seed, "Of everything random");
}

}  // namespace

void add_simulate_commands(CLI::App& app, Session& session) {
  auto options = std::make_shared<SimulateOptions>();
  auto* simulate_command =
      app.add_subcommand("simulate", "Run jobs of the past through the scheduler, beside FIFO and EASY backfill");
  add_options(*simulate_command, *options);
  simulate_command->add_option("--policy", options->policies, "Only these; may be repeated")
      ->check(CLI::IsMember({"fifo", "easy", "falaj", "falaj-no-trials", "least-attained"}));
  simulate_command->callback([&session, options] { simulate(session, *options); });

  auto* what_if_command = app.add_subcommand("what-if", "What more nodes would have brought");
  add_options(*what_if_command, *options);
  what_if_command->add_option("--add-nodes", options->add_nodes, "So many nodes like those that are there")
      ->required()
      ->check(CLI::Range(1, 100'000));
  what_if_command->callback([&session, options] { what_if(session, *options); });
}

}  // namespace falaj::cli
