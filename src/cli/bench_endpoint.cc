// SPDX-License-Identifier: Apache-2.0
// bench endpoint: how many requests an endpoint answers, and how fast

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/progress.h"
#include "cli/serving_target.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr std::size_t kRequestsMax = 1024, kRequestBytesMax = std::size_t{64} << 20, kValuesMax = 4'000'000;
constexpr std::size_t kConnectionsMax = 4096, kOpenConnections = 64, kBarColumns = 40;
constexpr double kWarmUpSeconds = 0.5, kBusyMax = 0.9, kTardyUsMax = 1000;

struct BenchOptions {
  std::string name, server, rows_file, plot, steps;
  std::size_t connections = 0, batch = 1;
  double rate = 0, seconds = 10;
  std::uint64_t seed = 1;
  bool as_json = false;
};

std::vector<json::object> read_rows(const std::string& path, std::size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", path));
  std::vector<json::object> out;
  std::size_t number = 0, bytes = 0;
  for (std::string line; out.size() < most && bytes < kRequestBytesMax && std::getline(in, line);) {
    ++number;
    bytes += line.size();
    if (trim(line).empty()) continue;
    try {
      out.push_back(parse_json(line).as_object());
    } catch (const std::exception& e) {
      throw Error(Code::invalid, fmt::format("{}, line {}: must be a JSON object of named fields: {}", path, number,
                                             std::string_view(e.what()).substr(0, 200)));
    }
  }
  if (out.empty()) throw Error(Code::invalid, fmt::format("{} has no rows: one JSON object a line", path));
  return out;
}

// Requests that differ, to be sent in turn: what is asked twice in a row is faster than what people ask.
std::vector<std::string> make_requests(const BenchOptions& options, const RequestForm& form,
                                       std::span<const PortShape> inputs) {
  std::vector<json::object> rows;
  if (!options.rows_file.empty()) {
    rows = read_rows(options.rows_file, kRequestsMax * options.batch);
  } else {
    std::size_t width = 1;
    for (const auto& port : inputs) width += port.width();
    if (options.batch * width > kValuesMax)
      throw Error(Code::invalid, fmt::format("--batch {}: of {} values each, that is more than a request may have",
                                             options.batch, width - 1));
    const auto count = std::max(options.batch, std::min(kRequestsMax, kValuesMax / width));
    for (std::size_t i = 0; i < count; ++i) rows.push_back(made_row(inputs, options.seed + i));
  }
  std::vector<std::string> out;
  std::size_t bytes = 0;
  const auto windows = std::max<std::size_t>(rows.size() / options.batch, 1);
  for (std::size_t w = 0; w < windows && out.size() < kRequestsMax && bytes < kRequestBytesMax; ++w) {
    std::vector<json::object> chosen;
    for (std::size_t i = 0; i < options.batch; ++i) chosen.push_back(rows[(w * options.batch + i) % rows.size()]);
    out.push_back(request_of(form, inputs, chosen));
    bytes += out.back().size();
  }
  return out;
}

std::vector<net::Load> loads_of(const BenchOptions& options) {
  std::vector<double> rates;
  if (!options.steps.empty())
    rates = parse_rates(options.steps);
  else
    rates.push_back(options.rate);
  std::vector<net::Load> out;
  for (const double rate : rates) {
    net::Load load;
    load.per_second = rate;
    load.seconds = options.seconds;
    load.connections = options.connections != 0 ? options.connections : rate > 0 ? kOpenConnections : 1;
    out.push_back(load);
  }
  return out;
}

LoadTally measure(const net::LoadTarget& target, const net::Load& load, const std::vector<std::string>& requests,
                  const sys::Clock& clock, Progress* progress) {
  LoadTally tally(load);
  const auto began = clock.now();
  std::uint64_t heard = 0, shown = 0;
  net::Talk talk;
  talk.ask = [&](std::uint64_t number, std::string& request) { request += requests[number % requests.size()]; };
  talk.hear = [&](const net::Heard& one) {
    tally.add(one);
    if (!progress || (++heard & 255) != 0) return;
    const auto seconds =
        static_cast<std::uint64_t>(std::min(static_cast<double>((clock.now() - began).count()) / 1e6, load.seconds));
    if (seconds > shown) progress->add(seconds - shown);
    shown = std::max(shown, seconds);
  };
  const auto took = net::offer_load(target, load, talk, clock);
  tally.finish(took);
  const auto whole = static_cast<std::uint64_t>(load.seconds);
  if (progress && whole > shown) progress->add(whole - shown);
  return tally;
}

void print_steps(const Output& output, const std::vector<LoadTally>& steps) {
  json::array items;
  for (const auto& step : steps) items.push_back(step.to_json());
  if (!output.for_people()) return output.value(items);
  json::array rows;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    const auto time = [&](double share) {
      return json::value(format_duration_us(static_cast<std::int64_t>(step.quantile_us(share))));
    };
    std::string errors;
    for (const auto& error : items[i].at("errors").as_object())
      errors += fmt::format("{}{}: {}", errors.empty() ? "" : ", ", std::string_view(error.key()),
                            error.value().to_number<std::uint64_t>());
    rows.push_back(json::object{
        {"asked", step.load().per_second > 0 ? json::value(fmt::format("{:.0f}", step.load().per_second)) : "-"},
        {"connections", step.load().connections},
        {"answered", fmt::format("{:.0f}", step.per_second())},
        {"errors", errors.empty() ? "none" : errors},
        {"p50", time(0.5)},
        {"p90", time(0.9)},
        {"p99", time(0.99)},
        {"p999", time(0.999)},
        {"max", time(1)}});
  }
  output.table(rows, {{"ASKED/S", "asked"},
                      {"ANSWERED/S", "answered"},
                      {"CONNECTIONS", "connections"},
                      {"P50", "p50"},
                      {"P90", "p90"},
                      {"P99", "p99"},
                      {"P99.9", "p999"},
                      {"MAX", "max"},
                      {"ERRORS", "errors"}});
  if (isatty(STDOUT_FILENO) != 1) return;
  for (const auto& step : steps) {
    output.line("");
    if (steps.size() > 1) output.line(fmt::format("{:.0f}/s asked", step.load().per_second));
    for (const auto& line : step.histogram(kBarColumns)) output.line(line);
  }
}

// With --quiet, doubts of the measurement are only in the JSON, under "client".
void say_doubts(const std::vector<LoadTally>& steps, bool quiet) {
  std::fflush(stdout);
  for (const auto& step : steps) {
    if (!step.first_trouble().empty())
      fmt::print(stderr, "the first that failed: {}\n", harmless(step.first_trouble()));
    if (quiet) continue;
    if (step.busy() > kBusyMax)
      fmt::print(stderr,
                 "this tool worked {:.0f} % of the time: what is measured may be its own limit, not the endpoint's\n",
                 100 * step.busy());
    if (step.tardy_us(0.99) > kTardyUsMax)
      fmt::print(
          stderr,
          "one of a hundred requests was sent {} late, as this machine had other work: latencies hold that too\n",
          format_duration_us(static_cast<std::int64_t>(step.tardy_us(0.99))));
  }
}

void write_plot(const std::string& path, const Chart& chart) {
  ResultFile file(path);
  file.write(as_bytes(to_svg(chart)));
  file.keep();
}

void bench_endpoint(Session& session, const BenchOptions& options) {
  if (options.rate > 0 && !options.steps.empty())
    throw Error(Code::invalid, "--rate is one step and --steps are several: give one of them");
  const auto loads = loads_of(options);
  const auto serving = serving_target(session, options.name, options.server);
  client::ApiClient direct(serving.server);
  const auto inputs = ports_of(direct.get(serving.path()), "inputs");
  const auto target = net::load_target(serving.server.url, serving.server.ca_file);
  const RequestForm form{fmt::format("{}:{}", target.host, target.port), serving.model, serving.server.token,
                         options.as_json};
  const auto requests = make_requests(options, form, inputs);

  auto warm_up = loads.front();
  warm_up.seconds = std::min(kWarmUpSeconds, options.seconds);
  const auto warmed = measure(target, warm_up, requests, session.clock(), nullptr);
  if (warmed.answers() == 0)
    throw Error(Code::unavailable, fmt::format("no request was answered; {}", warmed.first_trouble()));
  std::vector<LoadTally> steps;
  {
    Progress progress("bench " + options.name, static_cast<std::uint64_t>(options.seconds) * loads.size(),
                      Progress::Unit::items, session.clock(), session.quiet);
    for (const auto& load : loads) steps.push_back(measure(target, load, requests, session.clock(), &progress));
  }
  if (!options.plot.empty())
    write_plot(options.plot, latency_chart(fmt::format("endpoint {}: latency in microseconds", options.name), steps));
  print_steps(session.output(), steps);
  say_doubts(steps, session.quiet);
}

}  // namespace

void add_bench_commands(CLI::App& app, Session& session) {
  auto* bench = app.add_subcommand("bench", "Measure what is served");
  bench->require_subcommand(1);
  const auto options = std::make_shared<BenchOptions>();
  auto* endpoint = bench->add_subcommand(
      "endpoint", "Ask an endpoint at a rate, or as fast as it answers: requests per second, latency, errors");
  endpoint->add_option("name", options->name, "The endpoint")->required();
  endpoint
      ->add_option("--connections", options->connections,
                   "How many ask at once, each as soon as it has its answer (default 1); with a rate, at most so "
                   "many (default 64)")
      ->check(CLI::Range(std::size_t{1}, kConnectionsMax));
  endpoint->add_option("--rate", options->rate, "Requests per second, sent whether or not the ones before are answered")
      ->check(CLI::Range(0.001, 1e7));
  endpoint->add_option("--steps", options->steps, "Several rates one after the other, such as 100,500,1000");
  endpoint->add_option("--seconds", options->seconds, "How long each step lasts")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0));
  endpoint->add_option("--rows", options->rows_file,
                       "Ask for these: a JSON object of named fields a line (default: made by the inputs' types)");
  endpoint->add_option("--batch", options->batch, "Rows in a request")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  endpoint->add_flag("--json", options->as_json, "Send rows as JSON (default: tensors as bytes)");
  endpoint->add_option("--seed", options->seed, "Of made rows")->capture_default_str();
  endpoint->add_option("--server", options->server, "Which server to ask; the first that serves it when absent");
  endpoint->add_option("--plot", options->plot, "Write a chart of latencies to this file, as SVG");
  endpoint->callback([&session, options] { bench_endpoint(session, *options); });
}

}  // namespace falaj::cli
