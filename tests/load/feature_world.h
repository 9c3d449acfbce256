// SPDX-License-Identifier: Apache-2.0
#pragma once

// A falaj of its own with features online, for benchmarks of the whole program.
//
// Every row of dataset `rows` has a number n, and its feature fi is n + i: a read that sees a row half written sees
// numbers that do not belong together. View `row` has the newest row's f0 to f49, view `sums` the sums of n and of f0
// over a day, which are the same.

#include <cstdint>
#include <string>
#include <string_view>

#include "foundation/base/json.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/testing.h"
#include "tests/program.h"

namespace falaj::tests {

inline constexpr std::size_t kFeatures = 50;

double peak_mb_of(int pid);  // most memory that a process had so far
double cpu_seconds_of(int pid);

class FeatureWorld {
 public:
  // `binary` is the falaj program. Rows of as many entities are ingested and brought online.
  FeatureWorld(const std::string& binary, std::size_t entities, std::vector<std::string> more_arguments = {});

  std::uint16_t port() const;
  std::size_t entities() const { return entities_; }
  client::Target target() const;
  client::ApiClient api() const { return client::ApiClient(target(), 1); }
  const client::Query& project() const { return project_; }

  static std::string entity(std::size_t number) { return "customer-" + std::to_string(10'000'000 + number); }
  // A row as it is pushed.
  static json::object row(std::size_t entity, std::int64_t n, std::int64_t at_us);
  // POST of a body to a path, as bytes; `path` with its query.
  std::string request(std::string_view path, std::string_view body) const;
  std::string read_request(std::string_view service, std::span<const std::size_t> entities) const;

  double peak_mb() const { return peak_mb_of(program_.pid()); }
  double cpu_seconds() const { return cpu_seconds_of(program_.pid()); }

 private:
  void ingest(client::ApiClient& api);

  const std::size_t entities_;
  const client::Query project_{{"scope", "/t/default/p/default"}};
  sys::RealClock clock_;
  sys::TempDir directory_;
  Program program_;
  const std::string token_;
};

// The falaj that was built beside this program. Throws not_found when it was not.
std::string falaj_beside_this();

// The numbers of column after column in an answer of features:get; what is wrong with them, "" when nothing is.
// `least` for each entity: the smallest n that may be seen.
std::string check_answer(std::string_view body, std::size_t entities, bool with_sums,
                         std::span<const std::int64_t> least);

// One line of ./bench.
void claim(const std::string& what, double ours, std::string_view unit, std::string_view against, double limit,
           double ratio, double goal, std::string_view better = "higher");

}  // namespace falaj::tests
