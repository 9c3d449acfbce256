// SPDX-License-Identifier: Apache-2.0
// What only PostgreSQL does: its server can go away.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/base/mutex.h"
#include "foundation/base/testing.h"
#include "storage/sql/postgresql_wire.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

constexpr Migration kIds[] = {{1, "things", "CREATE TABLE thing(id BIGINT PRIMARY KEY)"}};

TEST(PostgresqlText, NumbersParametersOutsideQuotesAndComments) {
  EXPECT_EQ(numbered_parameters("a = ? AND b = '?' AND \"c?\" = ? -- why?\n AND d = ?"),
            "a = $1 AND b = '?' AND \"c?\" = $2 -- why?\n AND d = $3");
  EXPECT_EQ(numbered_parameters("'it''s ?' ?"), "'it''s ?' $1");
  EXPECT_EQ(numbered_parameters("'open ?"), "'open ?");
  EXPECT_EQ(numbered_parameters("? -- ?"), "$1 -- ?");
}

TEST(PostgresqlText, MapsStatesToCodes) {
  EXPECT_EQ(code_of_sqlstate("23505"), Code::conflict);
  EXPECT_EQ(code_of_sqlstate("23514"), Code::invalid);
  EXPECT_EQ(code_of_sqlstate("40001"), Code::conflict);
  EXPECT_EQ(code_of_sqlstate("53300"), Code::exhausted);
  EXPECT_EQ(code_of_sqlstate("57P01"), Code::unavailable);
  EXPECT_EQ(code_of_sqlstate("XX001"), Code::corrupt);
  EXPECT_EQ(code_of_sqlstate("42P01"), Code::internal);
}

class Postgresql : public testing::Test {
 protected:
  void SetUp() override {
    const auto have = engines();
    if (std::find(have.begin(), have.end(), "postgresql") == have.end()) GTEST_SKIP() << "no PostgreSQL server here";
    scratch = make_scratch("postgresql");
    db = scratch->open(metrics);
    db->migrate(kIds);
  }
  std::set<std::int64_t> stored() {
    std::set<std::int64_t> ids;
    db->read(
        [&](Reader& r) { r.query("SELECT id FROM thing", {}, [&](const Row& row) { ids.insert(row.integer(0)); }); });
    return ids;
  }
  // Until the database takes a write again.
  void wait_until_back() {
    for (std::int64_t id = -1;; --id) try {
        db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (?)", {id}); });
        db->write(kAct, [&](Writer& w) { w.execute("DELETE FROM thing WHERE id < 0", {}); });
        return;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Code::unavailable);
        std::this_thread::yield();
      }
  }
  Metrics metrics;
  std::unique_ptr<Scratch> scratch;
  std::unique_ptr<Database> db;
};

TEST_F(Postgresql, RefusesAConnectionStringItCannotRead) {
  EXPECT_ERROR(open_postgresql("nonsense", metrics), Code::invalid);
  EXPECT_ERROR(open_postgresql("host=/nowhere dbname=x", metrics), Code::unavailable);
}

TEST_F(Postgresql, SaysUnavailableWhileTheServerIsDownAndRecoversByItself) {
  db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (1)", {}); });
  (void)stored();
  PostgresqlServer::shared().kill();
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (2)", {}); }),
               Code::unavailable);
  EXPECT_ERROR(stored(), Code::unavailable);
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (3)", {}); }),
               Code::unavailable);
  PostgresqlServer::shared().start();
  wait_until_back();
  EXPECT_EQ(stored(), std::set<std::int64_t>{1});
}

TEST_F(Postgresql, RecoversWhenOnlyItsSessionsAreEnded) {
  (void)stored();
  scratch->tamper("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'falaj'");
  wait_until_back();
  EXPECT_TRUE(stored().empty());
}

// A commit that waits for a replica is durable already; ending the session then loses only the answer.
TEST_F(Postgresql, FindsOutThatACommitHappenedWhenItsAnswerIsLost) {
  scratch->tamper("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
  scratch->tamper("SELECT pg_reload_conf()");
  auto& reconnects = metrics.counter("falaj_sql_reconnects_total", "Connections made again after the first.");
  std::set<std::int64_t> written, published;
  for (std::int64_t id = 0; reconnects.Value() == 0; ++id) {  // the server takes the setting over in its own time
    auto done = std::async(std::launch::async, [&] {
      db->write(kAct, [&](Writer& w) {
        w.execute("INSERT INTO thing(id) VALUES (?)", {id});
        w.after_commit([&] { published.insert(id); });
      });
    });
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      scratch->tamper(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'falaj' AND"
          " wait_event = 'SyncRep'");
    done.get();
    written.insert(id);
  }
  scratch->tamper("ALTER SYSTEM RESET synchronous_standby_names");
  scratch->tamper("SELECT pg_reload_conf()");
  EXPECT_EQ(published, written);
  EXPECT_EQ(stored(), written);
}

TEST_F(Postgresql, FindsOutThatACommitDidNotHappen) {
  scratch->tamper(
      "CREATE FUNCTION end_session() RETURNS trigger LANGUAGE plpgsql AS"
      " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';"
      "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON thing DEFERRABLE INITIALLY DEFERRED"
      " FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION end_session()");
  db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (1)", {}); });
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (2)", {}); }),
               Code::unavailable);
  db->write(kAct, [](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (3)", {}); });
  EXPECT_EQ(stored(), (std::set<std::int64_t>{1, 3}));
}

// The commit's answer never arrives, yet each write is answered with what really happened to it.
TEST_F(Postgresql, AnswersTrulyWhenTheServerDiesWhileCommitting) {
  constexpr int kThreads = 16, kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    Mutex mu;
    std::set<std::int64_t> yes, no;
    std::atomic<bool> enough = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (std::int64_t i = 0; !enough; ++i) {
          const std::int64_t id = (round * kThreads + t) * std::int64_t{1'000'000} + i;
          bool ok = true;
          try {
            db->write(kAct, [&](Writer& w) { w.execute("INSERT INTO thing(id) VALUES (?)", {id}); });
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::unavailable) << error.what();
            ok = false;
          }
          Lock lock(mu);
          (ok ? yes : no).insert(id);
          if (!ok) return;
        }
      });
    const auto reached = [&](std::size_t n) {
      Lock lock(mu);
      return yes.size() >= n;
    };
    while (!reached(static_cast<std::size_t>(200 + round * 37))) std::this_thread::yield();
    PostgresqlServer::shared().kill();
    PostgresqlServer::shared().start();
    wait_until_back();
    enough = true;
    for (auto& t : threads) t.join();
    const auto there = stored();
    for (const auto id : yes) EXPECT_TRUE(there.contains(id)) << "acknowledged and lost: " << id;
    for (const auto id : no) EXPECT_FALSE(there.contains(id)) << "refused and there: " << id;
  }
}

}  // namespace
}  // namespace falaj::sql
