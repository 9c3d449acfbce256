// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a load came to, as pure functions of what was heard.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/plot.h"
#include "foundation/base/json.h"
#include "foundation/net/load.h"
#include "foundation/stats/time_buckets.h"

namespace falaj::cli {

// One step of a load.
class LoadTally {
 public:
  using Buckets = stats::TimeBuckets<7>;  // quantiles are right to one part in 128

  explicit LoadTally(const net::Load& load) : load_(load) {}
  void add(const net::Heard& heard);
  void finish(const net::LoadTook& took) { took_ = took; }

  const net::Load& load() const { return load_; }
  std::uint64_t answers() const { return answers_; }  // with status 2xx
  std::uint64_t failures() const;
  double per_second() const { return took_.seconds > 0 ? static_cast<double>(answers_) / took_.seconds : 0; }
  // Of answers 2xx, and of requests that nobody answered in time: those waited too. Refusals are counted apart, so that
  // refusing at once does not look fast.
  double quantile_us(double share) const;
  const std::string& first_trouble() const { return first_trouble_; }
  double busy() const;  // the share of the time for which the client's own thread worked
  double tardy_us(double share) const { return Buckets::quantile_us(tardy_, share); }  // how late it sent by itself

  json::object to_json() const;
  // A line for each half power of two that was taken: "    64 us to     96 us  ######  1234   12.3 %"
  std::vector<std::string> histogram(std::size_t width) const;

 private:
  net::Load load_;
  net::LoadTook took_;
  std::uint64_t requests_ = 0, answers_ = 0;
  std::map<std::string, std::uint64_t> failures_;  // by status, or "broken", "late", "unsent"
  std::string first_trouble_;
  Buckets::Tally latency_{}, tardy_{};
  std::int64_t max_us_ = 0;
};

// Several steps: latency by answers per second. One: latency by how many of ten, a hundred, ... it holds for.
Chart latency_chart(const std::string& title, std::span<const LoadTally> steps);

// "100,500,1000" or one number, each above zero. Throws invalid.
std::vector<double> parse_rates(const std::string& text);

}  // namespace falaj::cli
