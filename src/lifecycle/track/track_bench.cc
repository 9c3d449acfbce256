// SPDX-License-Identifier: Apache-2.0
// Searching many runs, and what a point of a metric costs on the disk.
//   track_bench [runs]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "governance/vault/testing.h"
#include "lifecycle/track/track.h"

namespace falaj::track {
namespace {

constexpr int kKeys = 20, kWriters = 32, kAsks = 15;
constexpr std::int64_t kPage = 100;
const auto kFlights = vault::VaultFixture::kFlights;

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  double pages = 0;
  in >> pages >> pages;
  return pages * 4096 / (1 << 20);
}

template <class F>
double seconds(F work) {
  const sys::RealClock clock;
  const auto began = clock.now();
  work();
  return std::chrono::duration<double>(clock.now() - began).count();
}

void claim(const std::string& what, double ours, const char* unit, const char* against, double limit, double goal) {
  const json::object line{{"claim", what},  {"ours", ours},          {"unit", unit}, {"against", against},
                          {"limit", limit}, {"ratio", ours / limit}, {"goal", goal}, {"better", "lower"}};
  std::puts(json::serialize(line).c_str());
}

void fill(Track& track, std::int64_t runs) {
  std::atomic<std::int64_t> next = 0;
  std::vector<std::thread> writers;
  for (int t = 0; t < kWriters; ++t)
    writers.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      const auto act = vault::VaultFixture::act();
      for (auto i = next++; i < runs; i = next++) {
        const auto id = track.create_run(kFlights, {0, "", "ada", 1'700'000'000'000 + i * 1000, {{"team", "ops"}}}, act)
                            .info.run_id;
        Batch batch;
        for (int k = 0; k < kKeys; ++k) {
          batch.metrics.push_back({fmt::format("metric_{}", k),
                                   {1'700'000'000'000 + i, 1, std::uniform_real_distribution<>(0, 1)(random)},
                                   "",
                                   "",
                                   ""});
          batch.params.push_back({fmt::format("param_{}", k), fmt::format("{}", random() % 50)});
        }
        track.log(kFlights, id, batch, act);
      }
    });
  for (auto& writer : writers) writer.join();
}

int run(std::int64_t runs) {
  vault::VaultFixture base("sqlite");
  base.database->migrate(Track::migrations());
  Track track(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  const auto filled = seconds([&] { fill(track, runs); });
  const auto [stored, images] = *base.database->read([](sql::Reader& r) {
    return r.first(
        "SELECT page_count * page_size, (SELECT SUM(LENGTH(data)) FROM track_image) FROM pragma_page_count(),"
        " pragma_page_size()",
        {}, [](const sql::Row& row) { return std::pair(row.integer(0), row.is_null(1) ? 0 : row.integer(1)); });
  });
  std::fprintf(stderr,
               "%ld runs with %d metrics and %d params each logged in %.1f s, stored in %.0f MiB (%.0f of them "
               "images), resident %.0f MiB\n",
               runs, kKeys, kKeys, filled, static_cast<double>(stored) / (1 << 20),
               static_cast<double>(images) / (1 << 20), resident_mib());

  struct Ask {
    const char* what;
    std::string filter;
    std::vector<std::string> order_by;
    std::size_t offset = 0;
  };
  const auto deep = static_cast<std::size_t>(runs / 2);
  const std::vector<Ask> asks = {
      {"list", "", {}},
      {"list from the middle", "", {}, deep},
      {"filter by metric", "metrics.metric_3 < 0.01", {}},
      {"filter by param", "params.param_3 = '7'", {}},
      {"filter by metric and two params",
       "metrics.metric_4 > 0.5 AND params.param_4 = '7' AND params.param_5 != '1'",
       {}},
      {"filter that nothing passes", "metrics.metric_5 > 0.5 AND metrics.metric_5 < 0.4", {}},
      {"sort by metric", "", {"metrics.metric_6 DESC"}},
      {"sort by param, then metric", "", {"params.param_7 ASC", "metrics.metric_7 DESC"}},
      {"filter and sort", "metrics.metric_8 < 0.5 AND params.param_8 LIKE '1%'", {"metrics.metric_9 ASC"}},
  };
  for (const auto& ask : asks) {
    SearchRuns search;
    search.experiments = {0};
    search.filter = ask.filter;
    search.order_by = ask.order_by;
    search.offset = ask.offset;
    search.limit = kPage;
    const auto first = seconds([&] { (void)track.search_runs(kFlights, search); });
    std::vector<double> times;
    for (int i = 0; i < kAsks; ++i) times.push_back(seconds([&] { (void)track.search_runs(kFlights, search); }));
    std::sort(times.begin(), times.end());
    std::fprintf(stderr, "%-34s first %6.1f ms, then %5.1f ms (worst %5.1f)\n", ask.what, first * 1e3,
                 times[kAsks / 2] * 1e3, times.back() * 1e3);
    claim(fmt::format("the first page of {} runs after a start: {}", runs, ask.what), first * 1e3, "ms",
          "what a person notices", 50, 1);
    claim(fmt::format("a page of {} runs: {}", runs, ask.what), times[kAsks / 2] * 1e3, "ms", "what a person notices",
          50, 1);
  }
  std::fprintf(stderr, "resident %.0f MiB\n", resident_mib());

  // A million points of one run, in the largest batches.
  const auto size_of_table = [&] {
    return *base.database->read([](sql::Reader& r) {
      return r.first("SELECT SUM(LENGTH(data)) + 40 * COUNT(*) FROM track_block", {},
                     [](const sql::Row& row) { return row.integer(0); });
    });
  };
  const auto id = track.create_run(kFlights, {}, vault::VaultFixture::act()).info.run_id;
  const auto before = size_of_table();
  constexpr std::int64_t kPoints = 1'000'000;
  std::mt19937_64 random(1);
  const auto logged = seconds([&] {
    for (std::int64_t at = 0; at < kPoints;) {
      Batch batch;
      for (std::size_t i = 0; i < kBatchMetricsMax; ++i, ++at)
        batch.metrics.push_back({"loss",
                                 {1'700'000'000'000 + at * 37, at,
                                  1.0 / (1.0 + static_cast<double>(at)) + 1e-3 * static_cast<double>(random() % 1000)},
                                 "",
                                 "",
                                 ""});
      track.log(kFlights, id, batch, vault::VaultFixture::act());
    }
  });
  std::fprintf(stderr, "1M points of one run logged in %.2f s, one call after the other (%.0f points/s)\n", logged,
               kPoints / logged);
  claim("bytes of a stored point", static_cast<double>(size_of_table() - before) / kPoints, "bytes", "a plain row", 24,
        0.5);
  const auto page = seconds([&] { (void)track.history(kFlights, id, "loss", std::nullopt, 1000); });
  const auto all = seconds([&] {
    (void)thin(track.history(kFlights, id, "loss", std::nullopt, std::numeric_limits<std::size_t>::max()).points, 1000);
  });
  std::fprintf(stderr, "first page of 1M points %.2f ms, all of them thinned to 1000 %.1f ms\n", page * 1e3, all * 1e3);
  return 0;
}

}  // namespace
}  // namespace falaj::track

int main(int argc, char** argv) {
  const auto runs = argc > 1 ? falaj::parse_int(argv[1]).value_or(0) : 100'000;
  if (runs < 100) {
    std::fprintf(stderr, "usage: track_bench [runs, at least 100]\n");
    return 2;
  }
  return falaj::track::run(runs);
}
