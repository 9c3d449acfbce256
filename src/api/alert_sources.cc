// SPDX-License-Identifier: Apache-2.0
#include "api/alert_sources.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/alerts/exposition.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/loop/loop.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/watch/watch.h"

namespace falaj::api {
namespace {

using alerts::Question;
using alerts::Signal;

constexpr std::int64_t kForgetUs = 7200 * alerts::kSecondUs;  // of counts that nobody tells any more

vault::Where project_asked(const Question& question) {
  return {TenantName::parse(question.where.tenant), ProjectName::parse(question.where.project)};
}

using VariantName = std::pair<std::string, std::string>;  // its endpoint, and its own

bool is_asked(const Question& question, const serving::VariantReport& one) {
  return one.tenant == question.where.tenant && one.project == question.where.project;
}

// Counts begin anew with another version, and are looked at through several windows.
std::string series_of(const Question& question, const serving::ServerReport& report,
                      const serving::VariantReport& one) {
  return fmt::format("{} {}/{}/{}/{}/{} {}", report.server, one.tenant, one.project, one.endpoint, one.variant,
                     one.version, question.window_us);
}

Signal variant_signal(const VariantName& of, double value, std::string text) {
  return {"endpoint/" + of.first, {{"endpoint", of.first}, {"variant", of.second}}, value, std::move(text), 0};
}

double seconds(std::int64_t us) { return static_cast<double>(us) / 1e6; }

}  // namespace

std::vector<Signal> EndpointSignals::read(const Question& question) {
  return question.on == "latency" ? latencies(question) : errors(question);
}

std::vector<Signal> EndpointSignals::latencies(const Question& question) {
  using Times = alerts::TimeWindows::Times;
  std::map<VariantName, Times::Tally> by;  // over all servers
  Lock lock(mu_);
  times_.forget(question.now_us - std::max(kForgetUs, question.window_us));
  for (const auto& report : endpoints_.reports())
    for (const auto& one : report.variants) {
      if (!is_asked(question, one)) continue;
      Times::Tally counts{};
      for (std::size_t i = 0; i + 1 < one.latency.size(); i += 2)
        if (one.latency[i] >= 0 && one.latency[i] < static_cast<std::int64_t>(counts.size()))
          counts[static_cast<std::size_t>(one.latency[i])] = static_cast<std::uint64_t>(one.latency[i + 1]);
      const auto grown = times_.see(series_of(question, report, one), question.window_us, counts, question.now_us);
      auto& sum = by[{one.endpoint, one.variant}];
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += grown[i];
    }
  std::vector<Signal> out;
  for (const auto& [of, tally] : by) {
    const auto p99_us = Times::quantile_us(tally, 0.99);
    if (p99_us <= 0) continue;  // nobody asked
    out.push_back(variant_signal(of, p99_us / 1e6,
                                 fmt::format("99 of 100 requests to {} took up to {:.1f} ms within {}", of.first,
                                             p99_us / 1000, format_duration_us(question.window_us))));
  }
  return out;
}

std::vector<Signal> EndpointSignals::errors(const Question& question) {
  struct Seen {
    double requests = 0, failures = 0;
  };
  std::map<VariantName, Seen> by;
  Lock lock(mu_);
  windows_.forget(question.now_us - std::max(kForgetUs, question.window_us));
  for (const auto& report : endpoints_.reports())
    for (const auto& one : report.variants) {
      if (!is_asked(question, one)) continue;
      const auto series = series_of(question, report, one);
      const auto answered =
          windows_.see(series + " answered", question.window_us, static_cast<double>(one.requests), question.now_us);
      const auto failed =
          windows_.see(series + " failed", question.window_us, static_cast<double>(one.failures), question.now_us);
      auto& seen = by[{one.endpoint, one.variant}];
      seen.requests += answered.by + failed.by;
      seen.failures += failed.by;
    }
  std::vector<Signal> out;
  for (const auto& [of, seen] : by)
    if (seen.requests > 0)
      out.push_back(variant_signal(
          of, seen.failures / seen.requests,
          fmt::format("{:.2f} % of {:.0f} requests to {} failed within {}", 100 * seen.failures / seen.requests,
                      seen.requests, of.first, format_duration_us(question.window_us))));
  return out;
}

std::vector<Signal> FindingSignals::read(const Question& question) {
  watch::FindingFilter filter;
  filter.kind = question.on;
  std::vector<Signal> out;
  for (const auto& one : watch_.findings(project_asked(question), filter))
    out.push_back({"endpoint/" + one.endpoint,
                   {{"monitor", one.monitor},
                    {"endpoint", one.endpoint},
                    {"variant", one.variant},
                    {"version", std::to_string(one.version)},
                    {"column", one.finding.column},
                    {"test", one.finding.test}},
                   one.finding.score,
                   one.finding.diagnosis.empty() ? one.finding.text : one.finding.text + "; " + one.finding.diagnosis,
                   one.first_us});
  return out;
}

std::vector<Signal> JobSignals::read(const Question& question) {
  const auto where = project_asked(question);
  const auto since = question.now_us - question.window_us;
  std::vector<Signal> out;
  if (question.on == "queueWait") {
    for (const auto& queue : jobs_.waiting(where)) {
      const auto waited = std::max<std::int64_t>(0, question.now_us - queue.at_us);
      out.push_back({"queue/" + queue.name,
                     {{"queue", queue.name}},
                     seconds(waited),
                     fmt::format("{} jobs wait in queue {}, one of them for {}", queue.count, queue.name,
                                 format_duration_us(waited)),
                     0});
    }
  } else if (question.on == "jobFailures") {
    for (const auto& job : jobs_.failed(where, since))
      out.push_back({"job/" + job.name,
                     {{"job", job.name}},
                     static_cast<double>(job.count),
                     fmt::format("{} of the jobs called {} failed within {}", job.count, job.name,
                                 format_duration_us(question.window_us)),
                     0});
  } else {
    double cost = 0;
    for (const auto& usage : jobs_.usage(where.scope(), jobs::UsageBy::project, since, question.now_us))
      cost += usage.cost;
    out.push_back({"project/" + question.where.project,
                   {},
                   cost,
                   fmt::format("jobs cost {:.2f} within {}", cost, format_duration_us(question.window_us)),
                   0});
  }
  return out;
}

std::vector<Signal> MetricSignals::read(const Question& question) {
  const auto exposed = alerts::find_exposed(metrics_.render(), question.metric);
  std::vector<Signal> out;
  Lock lock(mu_);
  windows_.forget(question.now_us - std::max(kForgetUs, question.window_us));
  for (const auto& sample : exposed.samples) {
    Signal signal{"metric/" + question.metric, sample.labels, sample.value, "", 0};
    std::string words, series = fmt::format("{} {}", question.metric, question.window_us);
    for (const auto& [label, value] : sample.labels) {
      words += fmt::format("{}{}={}", words.empty() ? "" : ",", label, value);
      series += fmt::format("\n{}={}", label, value);
    }
    if (exposed.counter)
      signal.value = windows_.see(series, question.window_us, sample.value, question.now_us).per_second();
    signal.text = fmt::format("{}{{{}}} {} {:.6g}{}", question.metric, words, exposed.counter ? "grows by" : "is",
                              signal.value, exposed.counter ? " a second" : "");
    out.push_back(std::move(signal));
  }
  return out;
}

void LoopSignals::tell_of(loop::Loop& loop) {
  Lock lock(mu_);
  loop_ = &loop;
}

std::vector<Signal> LoopSignals::read(const Question& question) {
  Lock lock(mu_);
  return loop_ ? loop_->stopped(question.where) : std::vector<Signal>();
}

alerts::Sources alert_sources(EndpointSignals& endpoints, FindingSignals& findings, JobSignals& jobs, LoopSignals& loop,
                              MetricSignals& metrics) {
  return {{"drift", &findings},    {"quality", &findings}, {"performance", &findings}, {"skew", &findings},
          {"latency", &endpoints}, {"errors", &endpoints}, {"queueWait", &jobs},       {"jobFailures", &jobs},
          {"loop", &loop},         {"budget", &jobs},      {"metric", &metrics}};
}

alerts::Reveal reveal_of(jobs::Jobs& jobs) {
  return [&jobs](const std::string& tenant, const std::string& project, const std::string& name) {
    return jobs.secrets().reveal({TenantName::parse(tenant), ProjectName::parse(project)}, name);
  };
}

}  // namespace falaj::api
