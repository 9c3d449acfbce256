// SPDX-License-Identifier: Apache-2.0
#pragma once

// What servers counted of the versions behind an endpoint, and what of that is new since some moment.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/stats/time_buckets.h"

namespace falaj::traffic {

using Times = stats::TimeBuckets<4>;

// Of one version of a variant, by one server, since it loaded it.
struct Tally {
  std::string server, variant;
  std::int64_t version = 0, requests = 0, failures = 0;
  std::vector<std::int64_t> latency;  // of those answered: places in Times::Tally and their counts, in turn
};

struct Grown {
  std::int64_t requests = 0, failures = 0;
  Times::Tally latency{};
};

// What is compared with: the tallies of some moment.
class Tallies {
 public:
  explicit Tallies(const std::vector<Tally>& tallies);
  bool knows_server(const std::string& server) const { return servers_.contains(server); }
  // By how much `now` is more; all of it when it began anew since, as after a start of its server.
  void add_growth(Grown& to, const Tally& now) const;

 private:
  using Of = std::tuple<std::string, std::string, std::int64_t>;  // server, variant, version
  std::map<Of, Grown> before_;
  std::set<std::string> servers_;
};

}  // namespace falaj::traffic

template <>
struct falaj::Shape<falaj::traffic::Tally> {
  using T = traffic::Tally;
  static constexpr std::string_view name = "VariantTally";
  static Fields fields() {
    return {
        field("server", &T::server, "Who counted."),           field("variant", &T::variant, "Its name."),
        field("version", &T::version, "Of the model."),        field("requests", &T::requests, "Answered."),
        field("failures", &T::failures, "Refused or failed."), field("latency", &T::latency, "Buckets and counts.")};
  }
};
