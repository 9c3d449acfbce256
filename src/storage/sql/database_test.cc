// SPDX-License-Identifier: Apache-2.0
// What every engine must do, written once and run on each.
#include "storage/sql/database.h"

#include <atomic>
#include <barrier>
#include <cmath>
#include <future>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

constexpr Migration kThings[] = {
    {1, "things",
     "CREATE TABLE thing(id BIGINT PRIMARY KEY, name TEXT UNIQUE, size DOUBLE PRECISION, body BYTEA,"
     " CHECK (id >= 0))"},
    {2, "things",
     "CREATE TABLE part(id BIGINT PRIMARY KEY, thing BIGINT NOT NULL REFERENCES thing(id) ON DELETE CASCADE);"
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

TEST_P(DatabaseContract, FollowsReferencesWhenDeleting) {
  open();
  db->write(kAct, [](Writer& w) {
    put(w, 1, "a"), put(w, 2, "b");
    w.execute("INSERT INTO part(id, thing) VALUES (10, 1), (11, 1), (12, 2)", {});
  });
  db->write(kAct, [](Writer& w) { EXPECT_EQ(w.execute("DELETE FROM thing WHERE id = 1", {}), 1); });
  const auto left = db->read(
      [](Reader& r) { return r.all("SELECT id FROM part", {}, [](const Row& row) { return row.integer(0); }); });
  EXPECT_THAT(left, testing::ElementsAre(12));
}

TEST_P(DatabaseContract, ReturnsRowsOfAWriteThatReturnsThem) {
  open();
  const auto id = db->write(kAct, [](Writer& w) {
    return w.first("INSERT INTO thing(id, name) VALUES (7, 'x') RETURNING id", {},
                   [](const Row& row) { return row.integer(0); });
  });
  EXPECT_EQ(id, 7);
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

TEST_P(DatabaseContract, TakesAValueWhereThereWasNullBefore) {
  open();
  const Param values[] = {Null{}, "text", Null{}};
  std::int64_t id = 0;
  for (const auto& name : values)
    for (const Param& size : {Param(Null{}), Param(2.5)})
      db->write(kAct, [&](Writer& w) {
        const auto unique =
            std::holds_alternative<Null>(name) ? Param() : Param(std::string_view(size.index() ? "a" : "b"));
        w.execute("INSERT INTO thing(id, name, size) VALUES (?, ?, ?)", {++id, unique, size});
      });
  EXPECT_EQ(count(*db), 6);
}

TEST_P(DatabaseContract, RefusesTheWrongNumberOfParameters) {
  open();
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { w.execute("DELETE FROM thing WHERE id = ?", {}); }), Code::internal);
}

TEST_P(DatabaseContract, RunsTheSameQueryInsideItself) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"), put(w, 2, "b"), put(w, 3, "c"); });
  std::string seen;
  db->read([&](Reader& r) {
    r.query("SELECT name FROM thing WHERE id > ? ORDER BY id", {std::int64_t{0}}, [&](const Row& outer) {
      seen += outer.text(0);
      r.query("SELECT name FROM thing WHERE id > ? ORDER BY id", {std::int64_t{2}},
              [&](const Row& inner) { seen += inner.text(0); });
    });
  });
  EXPECT_EQ(seen, "acbccc");
}

TEST_P(DatabaseContract, KeepsBigValues) {
  open();
  const std::string name(3 << 20, 'n');
  Bytes body(std::size_t{24} << 20);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 7);
  db->write(kAct, [&](Writer& w) {
    // An index entry of this size is refused by PostgreSQL, so the name goes where no index is.
    w.execute("INSERT INTO thing(id, body) VALUES (1, ?), (2, ?)", {as_bytes(name), BytesView(body)});
  });
  db->read([&](Reader& r) {
    r.query("SELECT body FROM thing ORDER BY id DESC LIMIT 1", {},
            [&](const Row& row) { EXPECT_EQ(as_text(row.bytes(0)), as_text(body)); });
  });
}

TEST_P(DatabaseContract, ShowsAReaderOneSnapshot) {
  open();
  db->read([&](Reader& r) {
    const auto seen = [&] {
      return *r.first("SELECT COUNT(*) FROM thing", {}, [](const Row& row) { return row.integer(0); });
    };
    EXPECT_EQ(seen(), 0);
    db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
    EXPECT_EQ(seen(), 0);
    EXPECT_EQ(count(*db), 1);
  });
  EXPECT_EQ(count(*db), 1);
}

TEST_P(DatabaseContract, CannotWriteThroughAReader) {
  open();
  EXPECT_THROW(db->read([](Reader& r) { r.query("DELETE FROM thing", {}, [](const Row&) {}); }), Error);
}

TEST_P(DatabaseContract, LetsMoreThreadsReadThanItHasReaders) {
  open({.readers_max = 2});
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  std::vector<std::thread> threads;
  std::atomic<int> seen = 0;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) seen += static_cast<int>(count(*db));
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(seen, 800);
}

// Holds the writer inside a write until told, so that the writes behind it gather into one group.
class Gathered {
 public:
  Gathered(Database& db, Metrics& metrics)
      : db_(db), waiting_(metrics.gauge("falaj_sql_writes_waiting", "Writes waiting for their turn.")) {
    std::promise<void> inside;
    holder_ = std::thread([this, &inside] {
      db_.write(kAct, [&](Writer&) {
        inside.set_value();
        go_.get_future().wait();
      });
    });
    inside.get_future().wait();
  }
  template <class F>
  std::future<void> add(F work) {
    auto done = std::async(std::launch::async, [this, work] { db_.write(kAct, work); });
    ++added_;
    while (waiting_.Value() < added_) std::this_thread::yield();
    return done;
  }
  void go() {
    go_.set_value();
    holder_.join();
  }

 private:
  Database& db_;
  Gauge& waiting_;
  std::thread holder_;
  std::promise<void> go_;
  int added_ = 0;
};

TEST_P(DatabaseContract, RollsBackOneWriteOfAGroupAndCommitsItsNeighbours) {
  open();
  Gathered group(*db, metrics);
  auto a = group.add([](Writer& w) { put(w, 1, "a"); });
  auto conflict = group.add([](Writer& w) { put(w, 2, "b"), put(w, 1, "again"); });
  auto foreign = group.add([](Writer& w) {
    put(w, 3, "c");
    throw 42;
  });
  auto own = group.add([](Writer& w) {
    put(w, 4, "d");
    throw Error(Code::denied, "not you");
  });
  auto before_any = group.add([](Writer&) { throw Error(Code::not_found, "nothing done yet"); });
  auto nothing = group.add([](Writer&) {});
  auto z = group.add([](Writer& w) { put(w, 5, "z"); });
  group.go();
  a.get();
  EXPECT_ERROR(conflict.get(), Code::conflict);
  EXPECT_ERROR(foreign.get(), Code::internal);
  EXPECT_ERROR(own.get(), Code::denied);
  EXPECT_ERROR(before_any.get(), Code::not_found);
  nothing.get();
  z.get();
  EXPECT_THAT(db->read([](Reader& r) {
    return r.all("SELECT id FROM thing ORDER BY id", {}, [](const Row& row) { return row.integer(0); });
  }),
              testing::ElementsAre(1, 5));
}

TEST_P(DatabaseContract, LosesAWriteWhoseFailedStatementWasSwallowed) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  EXPECT_ERROR(db->write(kAct,
                         [](Writer& w) {
                           put(w, 2, "b");
                           try {
                             put(w, 1, "again");
                           } catch (const Error&) {
                           }
                           EXPECT_ERROR(put(w, 3, "c"), Code::conflict);
                         }),
               Code::conflict);
  EXPECT_EQ(count(*db), 1);
}

TEST_P(DatabaseContract, AnswersExhaustedWhenTooManyWait) {
  open({.writes_waiting_max = 2});
  Gathered group(*db, metrics);
  auto a = group.add([](Writer& w) { put(w, 1, "a"); });
  auto b = group.add([](Writer& w) { put(w, 2, "b"); });
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 3, "c"); }), Code::exhausted);
  group.go();
  a.get(), b.get();
  EXPECT_EQ(count(*db), 2);
}

TEST_P(DatabaseContract, SplitsAGroupAtItsLimit) {
  open({.writes_per_commit_max = 2});
  Gathered group(*db, metrics);
  std::vector<std::future<void>> all;
  for (int i = 0; i < 5; ++i) all.push_back(group.add([i](Writer& w) { put(w, i, std::to_string(i)); }));
  group.go();
  for (auto& one : all) one.get();
  EXPECT_EQ(count(*db), 5);
}

TEST_P(DatabaseContract, FinishesWhatItTookWhenStopped) {
  open();
  Gathered group(*db, metrics);
  auto a = group.add([](Writer& w) { put(w, 1, "a"); });
  auto b = group.add([](Writer& w) { put(w, 2, "b"); });
  std::thread stopping([&] { db->stop(); });
  const auto refused = [&] {
    try {
      db->write(kAct, [](Writer&) {});
      return false;
    } catch (const Error& error) {
      return error.code() == Code::cancelled;
    }
  };
  group.go();
  while (!refused()) std::this_thread::yield();
  stopping.join();
  a.get(), b.get();
  db->stop();
  EXPECT_EQ(count(*db), 2);
}

TEST_P(DatabaseContract, WhoComesAloneWritesByItself) {
  open();
  const auto thread_of_write = [&] { return db->write(kAct, [](Writer&) { return std::this_thread::get_id(); }); };
  EXPECT_EQ(thread_of_write(), std::this_thread::get_id());
  EXPECT_ERROR(db->write(kAct, [](Writer&) { throw Error(Code::invalid, "no"); }), Code::invalid);
  Gathered group(*db, metrics);
  auto a = group.add([](Writer& w) { put(w, 1, "a"); });
  auto b = group.add([](Writer& w) { put(w, 2, "b"); });
  group.go();
  a.get(), b.get();
  EXPECT_NE(thread_of_write(), std::this_thread::get_id()) << "others may come back to share the commit";
  EXPECT_EQ(thread_of_write(), std::this_thread::get_id()) << "but they did not";
}

TEST_P(DatabaseContract, PublishesAfterTheCommitInTheOrderOfTheWrites) {
  open();
  std::vector<int> published;  // only touched by the writer's thread until go() returned everything
  Gathered group(*db, metrics);
  std::vector<std::future<void>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(group.add([&, i](Writer& w) {
      put(w, i, std::to_string(i));
      w.after_commit([&, i] {
        EXPECT_EQ(count(*db), 4);  // another connection sees it: it is committed
        published.push_back(i);
      });
      if (i == 2) throw Error(Code::invalid, "this one not");
    }));
  all.push_back(group.add([](Writer& w) { put(w, 9, "nine"); }));
  group.go();
  for (auto& one : all) one.wait();
  EXPECT_THAT(published, testing::ElementsAre(0, 1, 3));
}

// Keeps one row for each write, as the audit log does, and can be told to fail.
class RowLedger final : public Ledger {
 public:
  void append(Writer& in, const Act& act, std::span<const Effect> effects) override {
    EXPECT_EQ(act.verb, kAct.verb);
    in.execute("INSERT INTO thing(id, size) VALUES (?, ?)", {1'000'000 + next_, static_cast<double>(effects.size())});
    ++next_;
  }
  void seal(Writer& in) override {
    ++seals;
    in.execute("UPDATE part SET thing = thing", {});
    if (fail_seals > 0) {
      --fail_seals;
      throw Error(Code::unavailable, "seal refused");
    }
  }
  void committed(bool success) override {
    success ? void(durable_ = next_) : void(next_ = durable_);
    ++(success ? commits : rollbacks);
  }
  std::int64_t appended() const { return durable_; }
  int seals = 0, fail_seals = 0, commits = 0, rollbacks = 0;

 private:
  std::int64_t next_ = 0, durable_ = 0;
};

std::int64_t ledger_rows(Database& db) {
  return db.read([](Reader& r) {
    return *r.first("SELECT COUNT(*) FROM thing WHERE id >= 1000000", {},
                    [](const Row& row) { return row.integer(0); });
  });
}

TEST_P(DatabaseContract, RecordsEachCommittedWriteExactlyOnce) {
  open();
  RowLedger ledger;
  db->set_ledger(ledger);
  Gathered group(*db, metrics);
  auto a = group.add([](Writer& w) {
    put(w, 1, "a");
    w.record({"/x", {}, Digest{}});
  });
  auto fails = group.add([](Writer& w) { put(w, 1, "again"); });
  auto b = group.add([](Writer& w) { put(w, 2, "b"); });
  group.go();
  a.get(), b.get();
  EXPECT_ERROR(fails.get(), Code::conflict);
  EXPECT_EQ(ledger_rows(*db), 3);  // the holder's, a's and b's
  EXPECT_EQ(ledger.appended(), 3);
  EXPECT_EQ(ledger.seals, 2);
  EXPECT_EQ(ledger.commits, 2);
}

TEST_P(DatabaseContract, RunsAGroupAgainOneByOneWhenItsSealFails) {
  open();
  RowLedger ledger;
  db->set_ledger(ledger);
  Gathered group(*db, metrics);
  std::atomic<int> runs = 0;
  auto a = group.add([&](Writer& w) { put(w, 1, "a"), ++runs; });
  auto b = group.add([&](Writer& w) { put(w, 2, "b"), ++runs; });
  auto c = group.add([&](Writer& w) {
    put(w, 3, "c"), ++runs;
    w.after_commit([&] { runs += 100; });
  });
  ledger.fail_seals = 0;
  std::thread go([&] { group.go(); });
  go.join();
  a.get(), b.get(), c.get();
  EXPECT_EQ(runs, 103);

  Gathered second(*db, metrics);
  auto d = second.add([&](Writer& w) { put(w, 4, "d"), ++runs; });
  auto e = second.add([&](Writer& w) {
    put(w, 5, "e"), ++runs;
    if (ledger.rollbacks == 0) ledger.fail_seals = 1;  // the writer's thread owns the ledger: set it from there
  });
  second.go();
  d.get(), e.get();
  EXPECT_EQ(runs, 107);
  EXPECT_EQ(ledger.rollbacks, 1);
  EXPECT_EQ(ledger_rows(*db), 7);
  EXPECT_EQ(ledger.appended(), 7);
}

TEST_P(DatabaseContract, AnswersALoneWriteWithTheErrorOfItsSeal) {
  open();
  RowLedger ledger;
  db->set_ledger(ledger);
  EXPECT_ERROR(db->write(kAct, [&](Writer& w) { put(w, 1, "a"), ledger.fail_seals = 1; }), Code::unavailable);
  EXPECT_EQ(count(*db), 0);
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  EXPECT_EQ(count(*db), 2);
}

TEST_P(DatabaseContract, RefusesASecondControlPlane) {
  open();
  EXPECT_ERROR(scratch->open(metrics), Code::conflict);
  open();
}

TEST_P(DatabaseContract, KeepsWhatWasWrittenWhenOpenedAgain) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  open();
  EXPECT_EQ(count(*db), 1);
}

TEST_P(DatabaseContract, MigratesInOrderAndOnlyOnce) {
  db = scratch->open(metrics);
  db->migrate(std::span(kThings).first(1));
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  db->migrate(kThings);
  db->migrate(kThings);
  const auto rows = db->read([](Reader& r) {
    return r.all("SELECT module, version FROM migration ORDER BY version", {},
                 [](const Row& row) { return std::string(row.text(0)) + std::to_string(row.integer(1)); });
  });
  EXPECT_THAT(rows, testing::ElementsAre("things1", "things2"));
  EXPECT_EQ(count(*db), 1);
}

TEST_P(DatabaseContract, RefusesADatabaseThatIsNewerOrHasAnotherText) {
  open();
  EXPECT_ERROR(db->migrate(std::span(kThings).first(1)), Code::corrupt);
  const Migration changed[] = {{1, "things", "CREATE TABLE thing(id BIGINT)"}, kThings[1]};
  EXPECT_ERROR(db->migrate(changed), Code::corrupt);
  constexpr Migration other[] = {{1, "other", "CREATE TABLE other(id BIGINT)"}};
  db->migrate(other);  // of a module that is not in this list nothing is said
}

TEST_P(DatabaseContract, LeavesNothingOfAMigrationThatFailedHalfWay) {
  db = scratch->open(metrics);
  const Migration broken[] = {kThings[0], {2, "things", "CREATE TABLE half(id BIGINT); CREATE TABLE thing(id BIGINT)"}};
  EXPECT_THROW(db->migrate(broken), Error);
  const Migration fixed[] = {kThings[0], {2, "things", "CREATE TABLE half(id BIGINT)"}};
  db->migrate(fixed);  // would fail if the first half were still there
  db->write(kAct, [](Writer& w) { w.execute("INSERT INTO half(id) VALUES (1)", {}); });
}

TEST_P(DatabaseContract, CountsWhatItDid) {
  open();
  db->write(kAct, [](Writer& w) { put(w, 1, "a"); });
  EXPECT_ERROR(db->write(kAct, [](Writer& w) { put(w, 1, "a"); }), Code::conflict);
  const auto text = metrics.render();
  EXPECT_THAT(text, testing::HasSubstr("falaj_sql_writes_total 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("falaj_sql_writes_failed_total 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("falaj_sql_writes_per_commit_count 1\n"));
}

INSTANTIATE_TEST_SUITE_P(Engines, DatabaseContract, testing::ValuesIn(engines()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace falaj::sql
