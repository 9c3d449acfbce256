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
using lookup::Aggregate;

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
  std::fflush(stdout);
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

std::string list(const std::vector<std::string>& names, std::string_view before = "") {
  std::string out;
  for (const auto& name : names) out += fmt::format("{}{}{}", out.empty() ? "" : ", ", before, name);
  return out;
}

const std::vector<std::vector<std::string>> kKeys{
    {"origin"}, {"destination"}, {"origin", "destination"}, {"distance"}, {"origin", "distance"}};

// Three million flights and a spine of so many of them. A delay is known on arrival.
std::unique_ptr<table::Workspace> flights_room(sys::Files& files, const std::string& bytes, std::int64_t rows) {
  auto room =
      std::make_unique<table::Workspace>(table::Limits{std::uint64_t{4} << 30, std::uint64_t{16} << 30, 2}, files);
  room->put("flights", std::make_shared<table::MemorySource>(to_bytes(bytes)));
  room->run(
      "CREATE TABLE flights AS SELECT *, date + to_microseconds(((0.6 + distance / 480.0) * 3600 * 1000000)::BIGINT)"
      " + to_minutes(greatest(delay, 0)) AS known FROM read_parquet('flights')");
  room->run(
      fmt::format("CREATE VIEW sample AS SELECT * FROM flights USING SAMPLE reservoir({} ROWS) REPEATABLE (7)", rows));
  number_spine(*room, "sample", "spine");
  return room;
}

// Two views of a key: its newest row, and windows.
void join_ours(table::Workspace& room, const std::vector<std::string>& key) {
  auto newest = plan(key);
  newest.rows = {{"last_delay", "delay", table::Type::int64}};
  auto windows = plan(key);
  windows.inputs = {"delay"};
  windows.windows = Windows(kHour, {{Aggregate::count, 0, 24 * kHour}, {Aggregate::mean, 0, 24 * kHour}});
  windows.window_names = {"many", "mean"};
  join_as_of(room, "spine", "date", newest, "ours");
  room.run("CREATE OR REPLACE TABLE kept AS SELECT * FROM ours");
  join_as_of(room, "spine", "date", windows, "windows of all");
  room.run("CREATE OR REPLACE TABLE kept AS SELECT * FROM \"windows of all\"");
}

// The same as somebody would join them by hand.
void join_by_hand(table::Workspace& room, const std::vector<std::string>& key) {
  std::string same;
  for (const auto& name : key) same += fmt::format("p.{0} = k.{0} AND ", name);
  room.run(
      fmt::format("CREATE OR REPLACE TABLE theirs AS WITH k AS (SELECT {0}, date, known, delay FROM flights"
                  " QUALIFY row_number() OVER (PARTITION BY {0}, known ORDER BY date DESC, delay DESC) = 1)"
                  " SELECT p.falaj_row, k.delay AS last_delay FROM spine p ASOF LEFT JOIN k ON {1}"
                  " p.date >= k.known",
                  list(key), same));
  room.run(
      fmt::format("CREATE OR REPLACE TABLE ranged_of_all AS SELECT falaj_row, count(delay) OVER w AS many,"
                  " avg(delay) OVER w AS mean FROM (SELECT falaj_row, {0}, date AS t, NULL AS delay FROM spine"
                  " UNION ALL SELECT NULL, {0}, known AS t, delay FROM flights) WINDOW w AS (PARTITION BY {0}"
                  " ORDER BY t RANGE BETWEEN INTERVAL 24 HOURS PRECEDING AND CURRENT ROW)"
                  " QUALIFY falaj_row IS NOT NULL",
                  list(key)));
}

double all_views(table::Workspace& room) {
  double ours = 0, theirs = 0;
  for (const auto& key : kKeys) {
    ours += seconds([&] { join_ours(room, key); });
    theirs += seconds([&] { join_by_hand(room, key); });
  }
  print("10 views, newest rows and windows", "the same ten joins written by hand", ours, theirs, 1.15);
  return ours / theirs;
}

// Of each side in a process of its own.
void print_peak_memory(sys::Files& files, const std::string& bytes, std::int64_t rows) {
  const auto of = [&](void (*join)(table::Workspace&, const std::vector<std::string>&)) {
    return sys::peak_memory_bytes([&] {
      const auto room = flights_room(files, bytes, rows);
      for (const auto& key : kKeys) join(*room, key);
    });
  };
  const auto none = sys::peak_memory_bytes([&] { flights_room(files, bytes, rows); });
  fmt::print("peak memory of ten joins: ours {} MB, by hand {} MB, of which the tables {} MB\n", of(join_ours) >> 20,
             of(join_by_hand) >> 20, none >> 20);
}

// The events alone take four times the memory that the room has.
void beyond_memory(sys::Files& files, const std::string& bytes, std::int64_t rows) {
  table::Workspace small({std::uint64_t{128} << 20, std::uint64_t{16} << 30, 2}, files);
  small.put("flights", std::make_shared<table::MemorySource>(to_bytes(bytes)));
  small.run(
      "CREATE TABLE flights AS SELECT *, date + INTERVAL 2 HOUR AS known, repeat('x', 120) AS ballast"
      " FROM read_parquet('flights')");
  small.run(fmt::format("CREATE VIEW sample AS SELECT * FROM flights LIMIT {}", rows));
  number_spine(small, "sample", "spine");
  auto view = plan({"origin", "destination"});
  view.rows = {{"last", "ballast", table::Type::text}};
  view.inputs = {"delay"};
  view.windows = Windows(kHour, {{Aggregate::mean, 0, 24 * kHour}});
  view.window_names = {"mean"};
  const auto took = seconds([&] {
    join_as_of(small, "spine", "date", view, "joined");
    small.run("CREATE TABLE kept AS SELECT * FROM joined");
  });
  fmt::print(
      "beyond memory: 3M events of about 180 bytes and a spine of {} rows joined within 128 MiB in {:.1f} s: {}\n",
      rows, took, fmt::join(answer(small, "SELECT count(*), count(last), avg(mean) FROM kept").at(0), " "));
}

// A training set of two million rows with five views of eight windows each: 800 MB of features, in a room of an eighth.
void many_beyond_memory(sys::Files& files, const std::string& bytes) {
  table::Workspace small({std::uint64_t{256} << 20, std::uint64_t{16} << 30, 2}, files);
  small.put("flights", std::make_shared<table::MemorySource>(to_bytes(bytes)));
  small.run("CREATE VIEW flights AS SELECT *, date + INTERVAL 2 HOUR AS known FROM read_parquet('flights')");
  small.run("CREATE VIEW sample AS SELECT * FROM flights LIMIT 2000000");
  number_spine(small, "sample", "spine");
  std::string beside, columns = "p.*";
  const auto took = seconds([&] {
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      auto view = plan(kKeys[i]);
      view.rows = {{"last", "delay", table::Type::int64}};
      view.inputs = {"delay"};
      std::vector<lookup::WindowFeature> windows;
      for (const int hours : {1, 3, 24, 168}) {
        windows.push_back({Aggregate::mean, 0, hours * kHour});
        windows.push_back({Aggregate::count, 0, hours * kHour});
      }
      view.windows = Windows(kHour, windows);
      for (std::size_t w = 0; w < windows.size(); ++w) view.window_names.push_back(fmt::format("v{}w{}", i, w));
      join_as_of(small, "spine", "date", view, fmt::format("out{}", i));
      beside += fmt::format(" POSITIONAL JOIN out{} j{}", i, i);
      columns += fmt::format(", j{0}.* EXCLUDE (falaj_row, last), j{0}.last AS last{0}", i);
    }
    small.run(fmt::format("CREATE TABLE kept AS SELECT {} FROM spine p{}", columns, beside));
  });
  fmt::print("beyond memory: 2M rows with 45 features of 5 views within 256 MiB in {:.1f} s: {}\n", took,
             fmt::join(answer(small, "SELECT count(*), avg(v0w2), avg(v4w6), count(last2) FROM kept").at(0), " "));
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 1'000'000;
  std::ifstream file("third_party/vega-datasets/flights-3m.parquet", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) return std::fputs("run ./setup first, and this from the root of the checkout\n", stderr), 2;
  sys::TempDir dir;
  const auto files = sys::open_files(dir.path());
  print_peak_memory(*files, bytes, rows);
  const auto made = flights_room(*files, bytes, rows);
  auto& room = *made;

  auto newest = plan({"origin"});
  newest.rows = {{"last_delay", "delay", table::Type::int64}};
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
  const auto both = all_views(room);
  fmt::print("windows: {}\n", fmt::join(answer(room, "SELECT count(*), avg(many), avg(mean) FROM windows").at(0), " "));
  fmt::print("by hand: {}\n", fmt::join(answer(room, "SELECT count(*), avg(many), avg(mean) FROM ranged").at(0), " "));
  beyond_memory(*files, bytes, rows);
  many_beyond_memory(*files, bytes);
  return ours / theirs <= 1.15 && swept / ranged <= 1.15 && both <= 1.15 ? 0 : 1;
}
