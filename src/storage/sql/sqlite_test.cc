// SPDX-License-Identifier: Apache-2.0
// What only SQLite does.
#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "storage/sql/schema.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

const Act kAct{"user/ada", "thing.put", "/t/acme/things", ""};
constexpr Migration kThing[] = {{1, "things", "CREATE TABLE thing(id BIGINT PRIMARY KEY, body BYTEA)"}};

TEST(Sqlite, KeepsItsFilesFromOtherUsers) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto db = scratch->open(metrics);
  db->migrate(kThing);
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    struct stat info {};
    ASSERT_EQ(::stat((scratch->where() + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
}

TEST(Sqlite, BoundsItsLogWhileReadersComeAndGo) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto db = scratch->open(metrics);
  db->migrate(kThing);
  const Bytes body(1 << 20);
  for (std::int64_t i = 0; i < 100; ++i) {
    db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id, body) VALUES (?, ?)", {i, BytesView(body)}); });
    db->read([](Reader& r) { r.query("SELECT COUNT(*) FROM thing", {}, [](const Row&) {}); });
  }
  // 100 MiB were written; the log starts over whenever it has been copied back.
  EXPECT_LT(std::filesystem::file_size(scratch->where() + "-wal"), 32u << 20);
}

TEST(Sqlite, DoesNotBlockWritersWhileASnapshotIsHeldLong) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto db = scratch->open(metrics);
  db->migrate(kThing);
  const Bytes body(1 << 20);
  db->read([&](Reader& r) {
    r.query("SELECT COUNT(*) FROM thing", {}, [](const Row&) {});
    for (std::int64_t i = 0; i < 80; ++i)
      db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id, body) VALUES (?, ?)", {i, BytesView(body)}); });
    r.query("SELECT COUNT(*) FROM thing", {}, [](const Row& row) { EXPECT_EQ(row.integer(0), 0); });
  });
}

TEST(Sqlite, SaysCorruptForAFileThatIsNoDatabase) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  FILE* file = std::fopen(scratch->where().c_str(), "w");
  for (int i = 0; i < 1000; ++i) std::fputs("this is not a database\n", file);
  std::fclose(file);
  EXPECT_ERROR(scratch->open(metrics), Code::corrupt);
}

TEST(SqliteSchema, MakesAnIntegerKeyTheRowsOwn) {
  EXPECT_EQ(sqlite_schema("CREATE TABLE t(a BIGINT PRIMARY KEY, b BIGINT)"),
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b BIGINT)");
}

TEST(PostgresqlSchema, ComparesTextByBytes) {
  EXPECT_EQ(postgresql_schema("CREATE TABLE t(a TEXT NOT NULL, context TEXT, TEXTS TEXT)"),
            "CREATE TABLE t(a TEXT COLLATE \"C\" NOT NULL, context TEXT COLLATE \"C\", TEXTS TEXT COLLATE \"C\")");
}

}  // namespace
}  // namespace falaj::sql
