// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using Buckets = LoadTally::Buckets;

constexpr std::size_t kTroubleBytesMax = 300;
constexpr double kRateMax = 10'000'000;
struct ShownQuantile {
  const char *name, *title;
  double share;
};
constexpr ShownQuantile kShownQuantiles[] = {
    {"p50", "p50", 0.5}, {"p90", "p90", 0.9}, {"p99", "p99", 0.99}, {"p999", "p99.9", 0.999}};

struct TimeRange {  // of times, and how many were in it
  std::int64_t from_us = 0, to_us = 0;
  std::uint64_t count = 0;
};

// By half powers of two, without empty ones at either end.
std::vector<TimeRange> ranges_of(const Buckets::Tally& tally) {
  std::vector<TimeRange> out;
  std::int64_t from = 0, to = 16;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < tally.size(); ++i) {
    count += tally[i];
    if (Buckets::top_us(i) < to) continue;
    if (count > 0 || !out.empty()) out.push_back({from, to, count});
    from = to;
    to = std::has_single_bit(static_cast<std::uint64_t>(to)) ? to / 2 * 3 : to / 3 * 4;
    count = 0;
  }
  while (!out.empty() && out.back().count == 0) out.pop_back();
  return out;
}

}  // namespace

void LoadTally::add(const net::Heard& heard) {
  using What = net::Heard::What;
  ++requests_;
  ++tardy_[Buckets::bucket(heard.tardy_us)];
  const bool good = heard.what == What::answer && heard.status >= 200 && heard.status < 300;
  if (good) {
    ++answers_;
  } else {
    const auto name = heard.what == What::answer   ? std::to_string(heard.status)
                      : heard.what == What::broken ? "broken"
                      : heard.what == What::late   ? "late"
                                                   : "unsent";
    ++failures_[name];
    if (first_trouble_.empty()) first_trouble_ = fmt::format("{}: {}", name, heard.body.substr(0, kTroubleBytesMax));
  }
  if (!good && heard.what != What::late && heard.what != What::unsent) return;
  ++latency_[Buckets::bucket(heard.latency_us)];
  max_us_ = std::max(max_us_, heard.latency_us);
}

std::uint64_t LoadTally::failures() const { return requests_ - answers_; }

double LoadTally::quantile_us(double share) const {
  return std::min(Buckets::quantile_us(latency_, share), static_cast<double>(max_us_));
}

double LoadTally::busy() const { return took_.seconds > 0 ? took_.cpu_seconds / took_.seconds : 0; }

json::object LoadTally::to_json() const {
  json::object errors, latency;
  for (const auto& [name, count] : failures_) errors[name] = count;
  for (const auto& [name, title, share] : kShownQuantiles) latency[name] = quantile_us(share);
  latency["max"] = max_us_;
  json::array histogram;
  for (const auto& range : ranges_of(latency_))
    histogram.push_back(json::object{{"from_us", range.from_us}, {"to_us", range.to_us}, {"count", range.count}});
  return {{"asked_per_second", load_.per_second > 0 ? json::value(load_.per_second) : json::value(nullptr)},
          {"connections", load_.connections},
          {"seconds", took_.seconds},
          {"requests", requests_},
          {"answers", answers_},
          {"per_second", per_second()},
          {"errors", std::move(errors)},
          {"first_error", first_trouble_.empty() ? json::value(nullptr) : json::value(first_trouble_)},
          {"latency_us", std::move(latency)},
          {"histogram", std::move(histogram)},
          {"client", {{"busy", busy()}, {"late_p99_us", tardy_us(0.99)}}}};
}

std::vector<std::string> LoadTally::histogram(std::size_t width) const {
  const auto ranges = ranges_of(latency_);
  std::uint64_t most = 1, total = 0;
  for (const auto& range : ranges) {
    most = std::max(most, range.count);
    total += range.count;
  }
  std::vector<std::string> out;
  for (const auto& range : ranges) {
    auto bar = static_cast<std::size_t>(static_cast<double>(width) * static_cast<double>(range.count) /
                                        static_cast<double>(most));
    if (range.count > 0) bar = std::max<std::size_t>(bar, 1);
    out.push_back(fmt::format("{:>9} to {:>9}  {:<{}}  {:>9}  {:5.1f} %", format_duration_us(range.from_us),
                              format_duration_us(range.to_us), std::string(bar, '#'), width, range.count,
                              100 * static_cast<double>(range.count) / static_cast<double>(total)));
  }
  return out;
}

Chart latency_chart(const std::string& title, std::span<const LoadTally> steps) {
  Chart chart{title, "", {}, true};
  if (steps.size() > 1) {
    chart.x_title = "answers per second; microseconds";
    for (const auto& [name, label, share] : kShownQuantiles) {
      Line line{label, {}, {}};
      for (const auto& step : steps) {
        line.x.push_back(step.per_second());
        line.y.push_back(step.quantile_us(share));
      }
      chart.lines.push_back(std::move(line));
    }
    return chart;
  }
  chart.x_title = "nines of the share of requests that took at most so many microseconds (2 = 99 %)";
  for (const auto& step : steps) {
    Line line{fmt::format("{:.0f} answers/s", step.per_second()), {}, {}};
    const double nines_max = std::log10(std::max<double>(10, static_cast<double>(step.answers())));
    for (double nines = 0; nines <= nines_max; nines += 0.1) {
      line.x.push_back(nines);
      line.y.push_back(step.quantile_us(1 - std::pow(10.0, -nines)));
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> out;
  for (const auto part : split(text, ',')) {
    const auto word = trim(part);
    double rate = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), rate);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size() || !(rate > 0 && rate <= kRateMax))
      throw Error(Code::invalid,
                  fmt::format("'{}': requests per second are numbers above 0, such as 100,500,1000", text));
    out.push_back(rate);
  }
  return out;
}

}  // namespace falaj::cli
