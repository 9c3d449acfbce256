// SPDX-License-Identifier: Apache-2.0
// What only SQLite does.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/process.h"
#include "foundation/sys/random.h"
#include "storage/sql/schema.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

constexpr Migration kThing[] = {{1, "things", "CREATE TABLE thing(id BIGINT PRIMARY KEY, body BYTEA)"}};

// One test of this program as a process of its own, its output beside the database.
sys::Command this_program(const std::string& test, const std::string& database) {
  sys::Command command;
  command.argv = {"/proc/self/exe", "--gtest_filter=" + test, "--gtest_also_run_disabled_tests"};
  command.environment = {"FALAJ_TEST_DATABASE=" + database};
  command.stdout_file = command.stderr_file = database + ".out";
  return command;
}

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

// Rows of all sizes come, change and go in random order, so that pages are split, joined and moved about; then every
// row with the mark is deleted or overwritten.
TEST(Sqlite, LeavesNoByteOfWhatWasDeleted) {
  constexpr Migration kTables[] = {{1, "things",
                                    "CREATE TABLE thing(id BIGINT PRIMARY KEY, body TEXT NOT NULL);"
                                    "CREATE TABLE word(word TEXT PRIMARY KEY, other TEXT NOT NULL);"
                                    "CREATE INDEX word_other ON word(other)"}};
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto db = scratch->open(metrics);
  db->migrate(kTables);
  sys::SimRandom random(11);
  const auto text = [&](std::string_view mark, std::int64_t i) {
    std::string out;
    do out += std::string(mark) + std::to_string(i) + "-";
    while (random.below(4) != 0 && out.size() < 20'000 && (out.size() < 200 || random.below(8) != 0));
    return out + std::string(random.below(3) == 0 ? random.below(9000) : 0, 'x');
  };
  for (std::int64_t i = 0; i < 1500; ++i)
    db->write(kAct, [&](Writer& w) {
      const auto id = static_cast<std::int64_t>(random.below(800));
      const auto mark = id % 3 == 0 ? "canary" : "others";
      w.execute("INSERT INTO thing(id, body) VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET body = excluded.body",
                {id, text(mark, id)});
      w.execute("INSERT INTO word(word, other) VALUES (?, ?) ON CONFLICT DO NOTHING", {text(mark, id), text(mark, id)});
      if (random.below(3) == 0)
        w.execute("DELETE FROM thing WHERE id = ?", {static_cast<std::int64_t>(random.below(800))});
    });
  const auto found = [&](std::string_view mark) {
    std::size_t times = 0;
    for (const char* suffix : {"", "-wal"}) {
      std::ifstream in(scratch->where() + suffix, std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(in)), {});
      for (auto at = all.find(mark); at != std::string::npos; at = all.find(mark, at + 1)) ++times;
    }
    return times;
  };
  ASSERT_GT(found("canary"), 1000u);
  db->write(kAct, [](Writer& w) {
    w.execute("UPDATE thing SET body = '' WHERE id % 3 = 0 AND id % 2 = 0", {});
    w.execute("DELETE FROM thing WHERE id % 3 = 0 AND id % 2 = 1", {});
    w.execute("DELETE FROM word WHERE word LIKE 'canary%'", {});
  });
  EXPECT_GT(found("canary"), 0u) << "in the log";
  constexpr std::string_view kBoth[] = {"thing", "word"};
  db->scrub(kBoth);
  EXPECT_EQ(found("canary"), 0u);
  EXPECT_GT(found("others"), 1000u);
  // A snapshot from before keeps the log; whoever asked is told, and asks again.
  db->read([&](Reader& r) {
    r.query("SELECT COUNT(*) FROM thing", {}, [](const Row&) {});
    db->write(kAct, [](Writer& w) { w.execute("DELETE FROM thing WHERE id = 1", {}); });
    EXPECT_ERROR(db->scrub({}), Code::unavailable);
  });
  db->scrub({});
  EXPECT_EQ(std::filesystem::file_size(scratch->where() + "-wal"), 0u);
}

TEST(Sqlite, SaysCorruptForAFileThatIsNoDatabase) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  FILE* file = std::fopen(scratch->where().c_str(), "w");
  for (int i = 0; i < 1000; ++i) std::fputs("this is not a database\n", file);
  std::fclose(file);
  EXPECT_ERROR(scratch->open(metrics), Code::corrupt);
}

// Not a test by itself: what the next one starts as a process of its own. Prints each id once its write returned.
TEST(Sqlite, DISABLED_WritesUntilKilled) {
  Metrics metrics;
  const auto db = open_sqlite(std::getenv("FALAJ_TEST_DATABASE"), metrics);
  db->migrate(kThing);
  std::atomic<std::int64_t> next = db->read([](Reader& r) {
    return *r.first("SELECT COALESCE(MAX(id) + 1, 0) FROM thing", {}, [](const Row& row) { return row.integer(0); });
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      while (true) {
        const auto id = next++;
        db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (?)", {id}); });
        const auto line = "id " + std::to_string(id) + "\n";
        ASSERT_EQ(::write(STDOUT_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
      }
    });
  for (auto& t : threads) t.join();
}

TEST(Sqlite, LosesNothingAcknowledgedWhenItsProcessIsKilled) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  const auto printed = scratch->where() + ".out";
  const auto acknowledged = [&] {
    std::vector<std::int64_t> ids;
    std::ifstream file(printed);
    for (std::string line; std::getline(file, line) && !file.eof();)
      if (line.starts_with("id ")) ids.push_back(std::stoll(line.substr(3)));
    return ids;
  };
  sys::RealProcesses processes;
  for (std::size_t round = 1; round <= 4; ++round) {
    const auto child = processes.start(this_program("Sqlite.DISABLED_WritesUntilKilled", scratch->where()));
    while (acknowledged().size() < round * 150)
      ASSERT_FALSE(child->wait(std::chrono::milliseconds(5))) << "it ended by itself";
    child->signal(SIGKILL);
    ASSERT_TRUE(child->wait(std::chrono::seconds(10)));

    const auto db = scratch->open(metrics);
    std::set<std::int64_t> stored;
    db->read([&](Reader& r) {
      r.query("SELECT id FROM thing", {}, [&](const Row& row) { stored.insert(row.integer(0)); });
    });
    for (const auto id : acknowledged()) EXPECT_TRUE(stored.contains(id)) << id;
  }
}

// Started by the next one.
TEST(Sqlite, DISABLED_WritesMoreThanItMay) {
  Metrics metrics;
  const auto db = open_sqlite(std::getenv("FALAJ_TEST_DATABASE"), metrics);
  db->migrate(kThing);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails as on a broken disk
  const rlimit limit{128 << 10, 128 << 10};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Bytes body(1 << 20);
  db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id, body) VALUES (1, ?)", {BytesView(body)}); });
}

TEST(Sqlite, EndsItsProcessWhenTheDiskFailsACommit) {
  Metrics metrics;
  const auto scratch = make_scratch("sqlite");
  sys::RealProcesses processes;
  const auto child = processes.start(this_program("Sqlite.DISABLED_WritesMoreThanItMay", scratch->where()));
  const auto exit = child->wait(std::chrono::seconds(60));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->signal, SIGABRT);
  std::ifstream file(scratch->where() + ".out");
  const std::string said((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(said.find("commit failed on the disk"), std::string::npos) << said;
  const auto db = scratch->open(metrics);
  db->read([](Reader& r) {
    r.query("SELECT COUNT(*) FROM thing", {}, [](const Row& row) { EXPECT_EQ(row.integer(0), 0); });
  });
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
