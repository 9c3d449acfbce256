// SPDX-License-Identifier: Apache-2.0
// Point-in-time joins on the flights, against the same joins written by hand in DuckDB's SQL, in the same engine and
// run.
//   as_of_bench [ROWS OF THE SPINE]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/json.h"
#include "foundation/sys/testing.h"
#include "lifecycle/features/as_of.h"
#include "storage/table/testing.h"

namespace {

using namespace falaj;
using namespace falaj::features;

constexpr std::int64_t kHour = 3'600'000'000;

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const char* claim, const char* against, double ours, double theirs, double goal) {
  const json::object line{{"claim", claim},  {"ours", ours},           {"unit", "s"},  {"against", against},
                          {"limit", theirs}, {"ratio", ours / theirs}, {"goal", goal}, {"better", "lower"}};
  std::puts(json::serialize(line).c_str());
}

ViewPlan plan(std::vector<std::string> key) {
  ViewPlan view;
  view.relation = "flights";
  view.key = view.spine_key = std::move(key);
  view.at = "date";
  view.available = "known";
  return view;
}

std::vector<std::vector<std::string>> answer(table::Workspace& room, const std::string& sql) {
  return table::rows(room, sql);
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 1'000'000;
  std::ifstream file("third_party/vega-datasets/flights-3m.parquet", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) return std::fputs("run ./setup first, and this from the root of the checkout\n", stderr), 2;
  sys::TempDir dir;
  const auto files = sys::open_files(dir.path());
  table::Workspace room({std::uint64_t{4} << 30, std::uint64_t{16} << 30, 2}, *files);
  room.put("flights", std::make_shared<table::MemorySource>(to_bytes(bytes)));
  // A delay is known on arrival.
  room.run(
      "CREATE TABLE flights AS SELECT *, date + to_microseconds(((0.6 + distance / 480.0) * 3600 * 1000000)::BIGINT)"
      " + to_minutes(greatest(delay, 0)) AS known FROM read_parquet('flights')");
  room.run(
      fmt::format("CREATE VIEW sample AS SELECT * FROM flights USING SAMPLE reservoir({} ROWS) REPEATABLE (7)", rows));
  number_spine(room, "sample", "spine");

  auto newest = plan({"origin"});
  newest.rows = {{"last_delay", "delay"}};
  const auto ours = seconds([&] {
    join_as_of(room, "spine", "date", newest, "ours");
    room.run("CREATE OR REPLACE TABLE kept AS SELECT * FROM ours");
  });
  // What somebody would write who knows that ASOF ties must be broken before the join.
  const auto theirs = seconds([&] {
    room.run(
        "CREATE OR REPLACE TABLE theirs AS WITH k AS (SELECT origin, date, known, delay FROM flights QUALIFY"
        " row_number() OVER (PARTITION BY origin, known ORDER BY date DESC, delay DESC) = 1)"
        " SELECT p.falaj_row, k.delay AS last_delay FROM spine p ASOF LEFT JOIN k ON p.origin = k.origin AND"
        " p.date >= k.known");
  });
  print("newest known row of 3M events for each of the spine's", "ASOF join written by hand", ours, theirs, 1.15);

  auto windows = plan({"origin"});
  windows.inputs = {"delay"};
  windows.windows = Windows(kHour, {{Aggregate::count, 0, 24 * kHour}, {Aggregate::mean, 0, 24 * kHour}});
  windows.window_names = {"many", "mean"};
  const auto swept = seconds([&] {
    join_as_of(room, "spine", "date", windows, "windows");
    room.run("CREATE OR REPLACE TABLE kept AS SELECT * FROM windows");
  });
  const auto ranged = seconds([&] {
    room.run(
        "CREATE OR REPLACE TABLE ranged AS SELECT falaj_row, count(delay) OVER w AS many, avg(delay) OVER w AS mean "
        "FROM ("
        "SELECT falaj_row, origin, date AS t, NULL AS delay FROM spine UNION ALL"
        " SELECT NULL, origin, known AS t, delay FROM flights) WINDOW w AS (PARTITION BY origin ORDER BY t RANGE "
        "BETWEEN"
        " INTERVAL 24 HOURS PRECEDING AND CURRENT ROW) QUALIFY falaj_row IS NOT NULL");
  });
  print("count and mean over 24 h known as of each row of the spine", "window functions, cut by arrival", swept, ranged,
        1.15);
  fmt::print("windows: {}\n", fmt::join(answer(room, "SELECT count(*), avg(many), avg(mean) FROM windows").at(0), " "));
  fmt::print("by hand: {}\n", fmt::join(answer(room, "SELECT count(*), avg(many), avg(mean) FROM ranged").at(0), " "));
  return ours / theirs <= 1.15 && swept / ranged <= 1.15 ? 0 : 1;
}
