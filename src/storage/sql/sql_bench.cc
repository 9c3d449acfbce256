// SPDX-License-Identifier: Apache-2.0
// Reads through the Database on SQLite against the same statements on SQLite's own interface, on one thread.
// Writes are measured where they are audited: audit_bench.
#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

constexpr std::int64_t kRows = 100'000;
constexpr Migration kThings[] = {
    {1, "things", "CREATE TABLE thing(id BIGINT PRIMARY KEY, name TEXT NOT NULL, size DOUBLE PRECISION)"}};

template <class F>
double per_second(std::int64_t count, F run) {
  const sys::RealClock clock;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto began = clock.now();
    run();
    best = std::max(best, static_cast<double>(count) / std::chrono::duration<double>(clock.now() - began).count());
  }
  return best;
}

void print(const char* claim, double ours, double limit, double goal) {
  const json::object line{{"claim", claim},
                          {"ours", std::int64_t(ours)},
                          {"unit", "1/s"},
                          {"against", "sqlite3_step"},
                          {"limit", std::int64_t(limit)},
                          {"ratio", ours / limit},
                          {"goal", goal}};
  std::puts(json::serialize(line).c_str());
}

// The rows a query gives on the engine's own interface.
std::int64_t rows_of(sqlite3_stmt* statement) {
  std::int64_t seen = 0;
  while (sqlite3_step(statement) == SQLITE_ROW)
    seen += sqlite3_column_int64(statement, 0) >= 0 && sqlite3_column_text(statement, 1) &&
            sqlite3_column_double(statement, 2) >= 0;
  sqlite3_reset(statement);
  return seen;
}

void run() {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto db = scratch->open(metrics);
  db->migrate(kThings);
  db->write({"bench", "thing.put", "/", ""}, [](Writer& w) {
    for (std::int64_t i = 0; i < kRows; ++i)
      w.execute("INSERT INTO thing(id, name, size) VALUES (?, 'a thing of ours', 1.5)", {i});
  });
  sqlite3* raw = nullptr;
  sqlite3_stmt *all = nullptr, *one = nullptr;
  sqlite3_open_v2(scratch->where().c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  sqlite3_prepare_v2(raw, "SELECT id, name, size FROM thing", -1, &all, nullptr);
  sqlite3_prepare_v2(raw, "SELECT id, name, size FROM thing WHERE id = ?", -1, &one, nullptr);

  std::int64_t seen = 0;
  const EachRow each = [&](const Row& row) { seen += row.integer(0) >= 0 && !row.text(1).empty() && row.real(2) >= 0; };
  print("rows read in one query",
        per_second(kRows, [&] { db->read([&](Reader& r) { r.query("SELECT id, name, size FROM thing", {}, each); }); }),
        per_second(kRows, [&] { seen += rows_of(all); }), 0.6);
  print("rows read by key in one transaction",
        per_second(kRows,
                   [&] {
                     db->read([&](Reader& r) {
                       for (std::int64_t i = 0; i < kRows; ++i)
                         r.query("SELECT id, name, size FROM thing WHERE id = ?", {i}, each);
                     });
                   }),
        per_second(kRows,
                   [&] {
                     sqlite3_exec(raw, "BEGIN", nullptr, nullptr, nullptr);
                     for (std::int64_t i = 0; i < kRows; ++i) {
                       sqlite3_bind_int64(one, 1, i);
                       seen += rows_of(one);
                     }
                     sqlite3_exec(raw, "COMMIT", nullptr, nullptr, nullptr);
                   }),
        0.6);
  print(
      "transactions that read a row by key",
      per_second(kRows,
                 [&] {
                   for (std::int64_t i = 0; i < kRows; ++i)
                     db->read([&](Reader& r) { r.query("SELECT id, name, size FROM thing WHERE id = ?", {i}, each); });
                 }),
      per_second(kRows,
                 [&] {
                   for (std::int64_t i = 0; i < kRows; ++i) {
                     sqlite3_bind_int64(one, 1, i);
                     seen += rows_of(one);
                   }
                 }),
      0.5);
  sqlite3_finalize(all);
  sqlite3_finalize(one);
  sqlite3_close(raw);
  CHECK(seen == 6 * 3 * kRows, "both sides saw every row");
}

}  // namespace
}  // namespace falaj::sql

int main() { falaj::sql::run(); }
