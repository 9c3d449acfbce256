// SPDX-License-Identifier: Apache-2.0
// falaj simulate, falaj what-if: the live server's own decisions on jobs that ran once, here and now. A server is asked
// only for what ran on it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "cli/plot.h"
#include "cli/plot_png.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/schedule/simulate.h"

namespace falaj::cli {
namespace {

using schedule::Outcome;
using schedule::Simulated;
using schedule::Trace;

struct SimulateOptions {
  std::string trace, plot, save, since = "30d";
  std::vector<std::string> quotas;  // QUEUE=CPUS
  int nodes = 0;
  int add_nodes = 0;
  std::vector<std::string> policies;
  double node_hours = 0;  // between losses of one node; 0 = none is lost
  double repair_hours = 1;
  std::uint64_t seed = 1;
};

// What the server's own jobs did, on the nodes that it has.
Trace read_history(Session& session, const std::string& since) {
  constexpr std::size_t kJobsMax = 2'000'000;
  const auto ago = parse_duration_us(since);
  const auto from = ago ? format_time(session.clock().wall().count() - *ago) : since;
  Trace out;
  std::set<std::string> queues;
  std::string cursor;
  do {
    client::Query query{{"scope", session.scope()}, {"since", from}};
    if (!cursor.empty()) query.emplace_back("cursor", cursor);
    const auto page = session.api().get("/v1/usage/trace", query);
    for (const auto& item : page.at("items").as_array()) {
      const auto number = [&](const char* key) { return item.at(key).as_int64(); };
      schedule::TraceJob job;
      job.submitted = schedule::Micros(number("submitted_us"));
      job.ran = schedule::Micros(number("ran_us"));
      if (job.ran <= schedule::Micros(0)) {
        ++out.skipped;
        continue;
      }
      if (const auto limit = number("limit_us"); limit > 0) job.limit = std::max(schedule::Micros(limit), job.ran);
      if (const auto deadline = number("deadline_us"); deadline > 0) job.deadline = schedule::Micros(deadline);
      job.tasks = static_cast<int>(number("tasks"));
      job.task = {number("cpu_millis"), number("memory_bytes"), 0, number("gpu_millis")};
      job.user = item.at("owner").as_string();
      job.name = item.at("name").as_string();
      job.queue = item.at("queue").as_string();
      queues.insert(job.queue);
      out.jobs.push_back(std::move(job));
    }
    const auto* next = page.as_object().if_contains("next");
    cursor = next && next->is_string() ? std::string(next->as_string()) : "";
  } while (!cursor.empty() && out.jobs.size() < kJobsMax);
  std::stable_sort(out.jobs.begin(), out.jobs.end(),
                   [](const auto& a, const auto& b) { return a.submitted < b.submitted; });
  for (const auto& name : queues) {
    schedule::Queue queue;
    queue.name = name;
    out.queues.push_back(std::move(queue));
  }
  const auto nodes = session.api().get("/v1/nodes", {{"scope", session.project_scope()}});
  for (const auto& item : nodes.at("items").as_array()) {
    if (!item.at("up").as_bool()) continue;
    schedule::Node node;
    node.name = item.at("name").as_string();
    node.capacity.cpu_millis = std::llround(item.at("cpus").to_number<double>() * 1000);
    node.capacity.memory_bytes = item.at("memory_bytes").as_int64();
    node.capacity.disk_bytes = std::int64_t{1} << 60;
    for (int i = 0; i < std::lround(item.at("gpus").to_number<double>()); ++i)
      node.devices.push_back({std::to_string(i), ""});
    out.nodes.push_back(std::move(node));
  }
  if (out.jobs.empty()) throw Error(Code::not_found, fmt::format("no job has ended since {}", since));
  return out;
}

Trace read_trace(Session& session, const SimulateOptions& options) {
  if (options.trace.empty()) return read_history(session, options.since);
  if (options.trace == "synthetic") {
    return schedule::make_trace(options.seed, 5000, options.nodes > 0 ? options.nodes : 16, 32);
  }
  std::ifstream in(options.trace, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read the trace: {}", options.trace));
  std::ostringstream text;
  text << in.rdbuf();
  return schedule::read_trace(options.trace, text.str(), options.nodes);
}

// In the Standard Workload Format: processors and times; what it has no column for is left out.
void save_swf(const std::string& path, const Trace& trace) {
  const auto seconds = [](schedule::Micros span) { return std::llround(schedule::in_seconds(span)); };
  std::int64_t processors = 0;
  for (const auto& node : trace.nodes) processors += node.capacity.cpu_millis / 1000;
  const auto first = trace.jobs.empty() ? schedule::Micros(0) : trace.jobs.front().submitted;
  std::string out = fmt::format("; Version: 2.2\n; UnixStartTime: {}\n; MaxProcs: {}\n", seconds(first), processors);
  std::map<std::string, std::size_t> users, names, queues;  // by number, in the order in which they come
  const auto number = [](auto& all, const std::string& key) {
    return all.try_emplace(key, all.size() + 1).first->second;
  };
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    const auto& job = trace.jobs[i];
    const auto wide = std::max<std::int64_t>((job.task.cpu_millis * job.tasks + 999) / 1000, 1);
    const auto memory = job.task.memory_bytes * job.tasks / wide / 1024;
    out += fmt::format("{} {} -1 {} {} -1 {} {} {} {} 1 {} -1 {} {} -1 -1 -1\n", i + 1, seconds(job.submitted - first),
                       std::max<std::int64_t>(seconds(job.ran), 1), wide, memory, wide,
                       job.limit == schedule::kNever ? -1 : seconds(job.limit), memory, number(users, job.user),
                       number(names, job.name), number(queues, job.queue));
  }
  ResultFile file(path);
  file.write(as_bytes(out));
  file.keep();
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
          {"guessLateMaxSeconds", o.guess_late_max},
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
  const Trace trace = read_trace(session, options);
  if (!options.save.empty()) save_swf(options.save, trace);
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

// "research=64": the queue may never hold more than 64 processors.
void limit_queue(Trace& trace, const std::string& text) {
  const auto equals = text.find('=');
  const auto cpus = equals == std::string::npos ? std::nullopt : parse_int(text.substr(equals + 1));
  if (!cpus || *cpus < 1) throw Error(Code::invalid, fmt::format("--quota: '{}' must be QUEUE=CPUS", text));
  for (auto& queue : trace.queues) {
    if (queue.name != text.substr(0, equals)) continue;
    using schedule::kUnbounded;
    queue.limit = schedule::Amounts{*cpus * 1000, kUnbounded, kUnbounded, kUnbounded};
    return;
  }
  throw Error(Code::not_found, fmt::format("--quota: no job of the trace was in queue '{}'", text.substr(0, equals)));
}

void what_if(Session& session, const SimulateOptions& options) {
  if (options.add_nodes == 0 && options.quotas.empty())
    throw Error(Code::invalid, "what if what? Give --add-nodes, --quota, or both");
  Trace trace = read_trace(session, options);
  std::vector<Named> rows;
  rows.push_back(run(session, trace, "as it is", policy_of("falaj"), options));
  if (trace.nodes.empty()) throw Error(Code::invalid, "the trace has no nodes");
  const std::size_t before = trace.nodes.size();
  std::string then;
  for (int i = 0; i < options.add_nodes; ++i) {
    schedule::Node node = trace.nodes[static_cast<std::size_t>(i) % before];
    node.name = fmt::format("added{}", i + 1);
    trace.nodes.push_back(std::move(node));
  }
  if (options.add_nodes > 0) then = fmt::format("with {} nodes more", options.add_nodes);
  for (const auto& quota : options.quotas) {
    limit_queue(trace, quota);
    then += (then.empty() ? "with " : ", ") + quota;
  }
  rows.push_back(run(session, trace, then, policy_of("falaj"), options));
  print(session, trace, rows);
  if (!options.plot.empty()) draw(options.plot, rows);
}

void add_options(CLI::App& command, SimulateOptions& options) {
  command.add_option(
      "--trace", options.trace,
      "Jobs that ran once: a file in the Standard Workload Format, or .csv with timestamp, duration, num_gpus, "
      "either with .gz after it; "
      "'synthetic' makes one up; without it, the jobs that this server ran");
  command
      .add_option("--since", options.since, "Of the server's own jobs: those that ended since a time, or so long ago")
      ->capture_default_str();
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
  simulate_command->add_option("--save", options->save,
                               "Keep the jobs as a file in the Standard Workload Format, to be run again elsewhere");
  simulate_command->callback([&session, options] { simulate(session, *options); });

  auto* what_if_command =
      app.add_subcommand("what-if", "What more nodes, or other limits of queues, would have brought");
  add_options(*what_if_command, *options);
  what_if_command->add_option("--add-nodes", options->add_nodes, "So many nodes like those that are there")
      ->check(CLI::Range(0, 100'000));
  what_if_command->add_option("--quota", options->quotas,
                              "QUEUE=CPUS: a queue that may never hold more; may be repeated");
  what_if_command->callback([&session, options] { what_if(session, *options); });
}

}  // namespace falaj::cli
