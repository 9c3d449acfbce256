// SPDX-License-Identifier: Apache-2.0
// What every engine must do, written once and run on each.
#include "storage/sql/database.h"

#include <atomic>
#include <barrier>
#include <future>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

const Act kAct{"user/ada", "thing.put", "/t/acme/things", "r1"};
constexpr Migration kThings[] = {
    {1, "things",
     "CREATE TABLE thing(id BIGINT PRIMARY KEY, name TEXT UNIQUE, size DOUBLE PRECISION, body BYTEA,"
     " CHECK (id >= 0))"},
    {2, "things",
     "CREATE TABLE part(id BIGINT PRIMARY KEY, thing BIGINT NOT NULL REFERENCES thing(id));"
     "CREATE INDEX part_thing ON part(thing)"},
};

void put(Writer& w, std::int64_t id, std::string_view name) {
  w.execute("INSERT INTO thing(id, name) VALUES (?, ?)", {id, name});
}
std::int64_t count(Database& db) {
  return *db.read([](Reader& r) {
    return r.first("SELECT COUNT(*) FROM thing", {}, [](const Row& row) { return row.integer(0); });
  });
}

class DatabaseContract : public testing::TestWithParam<std::string> {
 protected:
  void open(Limits limits = {}) {
    db.reset();
    db = scratch->open(metrics, limits);
    db->migrate(kThings);
  }
  Metrics metrics;
  std::unique_ptr<Scratch> scratch = make_scratch(GetParam());
  std::unique_ptr<Database> db;
};

TEST_P(DatabaseContract, GivesBackEveryTypeAsItWasPut) {
  open();
  const std::string text = "فلج \U0001F4A7 'quoted' ?";
  const Bytes body = to_bytes(std::string_view("\0\x01\xff\0", 4));
  db->write(kAct, [&](Writer& w) {
    const auto all = w.execute("INSERT INTO thing(id, name, size, body) VALUES (?, ?, ?, ?)",
                               {std::numeric_limits<std::int64_t>::max(), text, 0.1, BytesView(body)});
    EXPECT_EQ(all, 1);
    w.execute("INSERT INTO thing(id, name, size, body) VALUES (?, ?, ?, ?)", {std::int64_t{0}, "", -0.0, BytesView{}});
    w.execute("INSERT INTO thing(id, name, size, body) VALUES (?, ?, ?, ?)", {std::int64_t{1}, Null{}, Null{}, Null{}});
  });
  int rows = 0;
  db->read([&](Reader& r) {
    r.query("SELECT id, name, size, body FROM thing ORDER BY id", {}, [&](const Row& row) {
      if (rows == 0) {
        EXPECT_EQ(row.integer(0), 0);
        EXPECT_FALSE(row.is_null(1));
        EXPECT_EQ(row.text(1), "");
        EXPECT_TRUE(std::signbit(row.real(2)) || row.real(2) == 0);
        EXPECT_FALSE(row.is_null(3));
        EXPECT_EQ(row.bytes(3).size(), 0u);
      } else if (rows == 1) {
        for (int column = 1; column < 4; ++column) EXPECT_TRUE(row.is_null(column)) << column;
      } else {
        EXPECT_EQ(row.integer(0), std::numeric_limits<std::int64_t>::max());
        EXPECT_EQ(row.text(1), text);
        EXPECT_EQ(row.real(2), 0.1);
        EXPECT_EQ(as_text(row.bytes(3)), as_text(body));
        EXPECT_ERROR(row.text(0), Code::internal);
        EXPECT_ERROR(row.integer(1), Code::internal);
        EXPECT_ERROR(row.integer(4), Code::internal);
        EXPECT_ERROR(row.digest(3), Code::corrupt);
      }
      ++rows;
    });
  });
  EXPECT_EQ(rows, 3);
}

TEST_P(DatabaseContract, MapsErrorsToCodes) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 1, "b"); }), Code::conflict);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 2, "a"); }), Code::conflict);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, -1, "c"); }), Code::invalid);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 2, std::string_view("a\0b", 3)); }), Code::invalid);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 2, "\xff"); }), Code::invalid);
  EXPECT_ERROR(db->write(kAct,
                         [](Writer& w) {
                           w.execute("INSERT INTO part(id, thing) VALUES (?, ?)", {std::int64_t{1}, std::int64_t{99}});
                         }),
               Code::conflict);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { w.execute("INSERT INTO nothing(id) VALUES (1)", {}); }), Code::internal);
  EXPECT_EQ(count(*db), 1);
}

TEST_P(DatabaseContract, AddsUpWhatManyThreadsIncrement) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  db->write(kAct, [](Writer& w) { w.execute("UPDATE thing SET size = 0 WHERE id = 1", {}); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        db->write(kAct, [](Writer& w) {
          const auto size = *w.first("SELECT size FROM thing WHERE id = 1", {}, [](const Row& r) { return r.real(0); });
          EXPECT_EQ(w.execute("UPDATE thing SET size = ? WHERE id = 1", {size + 1}), 1);
        });
    });
  for (auto& t : threads) t.join();
  const auto size = db->read([](Reader& r) {
    return *r.first("SELECT size FROM thing WHERE id = 1", {}, [](const Row& row) { return row.real(0); });
  });
  EXPECT_EQ(size, 640);
}

INSTANTIATE_TEST_SUITE_P(Engines, DatabaseContract, testing::ValuesIn(engines()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace falaj::sql
