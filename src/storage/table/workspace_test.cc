// SPDX-License-Identifier: Apache-2.0
#include "storage/table/workspace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"
#include "storage/table/testing.h"

namespace falaj::table {
namespace {

class Workspaces : public ::testing::Test {
 protected:
  sys::TempDir dir_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(dir_.path());
  Workspace room_{{}, *files_};

  std::vector<std::vector<std::string>> rows(const std::string& sql, std::span<const Value> values = {}) {
    return table::rows(room_, sql, values);
  }
  using Rows = std::vector<std::vector<std::string>>;
};

TEST_F(Workspaces, AnswersInOurTypes) {
  EXPECT_EQ(
      rows("SELECT 1::TINYINT a, 2::UBIGINT b, 3::HUGEINT c, 1.5::DECIMAL(5,2) d, 2.5::FLOAT e, 'x' f, NULL::INT g"),
      (Rows{{"1", "2", "3", "1.5", "2.5", "x", "null"}}));
  const auto schema = room_.describe(
      "SELECT 1::TINYINT a, DATE '2001-01-02' b, now() c, [1, 2] d, true e, 'x'::BLOB f, sum(x) g FROM range(3) t(x)");
  EXPECT_EQ(schema, (Schema{{"a", Type::int32, true},
                            {"b", Type::date, true},
                            {"c", Type::timestamp, true},
                            {"d", Type::text, true},
                            {"e", Type::boolean, true},
                            {"f", Type::bytes, true},
                            {"g", Type::int64, true}}));
  EXPECT_EQ(rows("SELECT [1, 2], {'a': 1}, INTERVAL 3 DAY"), (Rows{{"[1, 2]", "{'a': 1}", "3 days"}}));
  EXPECT_EQ(rows("SELECT DATE '1970-01-03', TIMESTAMP '1970-01-01 00:00:01', TIMESTAMPTZ '1970-01-01 04:00:00+04'"),
            (Rows{{"2", "1000000", "0"}}));
  EXPECT_ERROR(rows("SELECT 170141183460469231731687303715884105727::HUGEINT"), Code::invalid);
}

TEST_F(Workspaces, SaysWhichTableIsMissing) {
  const std::string sql =
      "WITH w AS (SELECT * FROM b) SELECT * FROM \"a@3\" JOIN w USING (x) WHERE x IN (SELECT x FROM c)";
  std::set<std::string> made;
  while (const auto name = room_.missing_table(sql)) {
    ASSERT_TRUE(made.insert(*name).second);
    room_.run("CREATE VIEW " + identifier(*name) + " AS SELECT 1 AS x");
  }
  EXPECT_EQ(made, (std::set<std::string>{"a@3", "b", "c"}));
  EXPECT_EQ(room_.missing_table("SELECT 1"), std::nullopt);
  EXPECT_ERROR(room_.missing_table("SELEC 1"), Code::invalid);
  EXPECT_ERROR(room_.missing_table("SELECT 1; SELECT 2"), Code::invalid);
  EXPECT_ERROR(room_.missing_table("SELECT nothing(1)"), Code::invalid);
}

TEST_F(Workspaces, StopsWhateverIsUnderWay) {
  for (const std::string sql : {"SELECT count(*) FROM range(100000000) a, range(100000000) b",
                                "SELECT i FROM range(10000000000) t(i) ORDER BY hash(i)",
                                "SELECT a.i, count(*) FROM range(100000) a(i), range(1000000) b(j) GROUP BY 1"})
    for (int n : {1, 20, 200}) {
      Workspace room({}, *files_);
      SCOPED_TRACE(sql);
      int left = n;
      EXPECT_ERROR(room.query(
                       sql, {}, [](const Chunk&) { return true; },
                       [&](double) {
                         if (--left == 0) throw Error(Code::deadline, "enough");
                       }),
                   Code::deadline);
      EXPECT_EQ(table::rows(room, "SELECT 1").size(), 1U);  // it goes on
    }
}

TEST_F(Workspaces, FillsTablesAndReadsTwoAnswersAtOnce) {
  room_.run("CREATE TABLE t(a BIGINT, b DOUBLE, c VARCHAR)");
  auto filler = room_.fill("t");
  for (std::int64_t i = 0; i < 10'000; ++i) {
    filler.add(i);
    i % 3 == 0 ? filler.null() : filler.add(static_cast<double>(i) / 2);
    filler.add("v" + std::to_string(i));
    filler.end_row();
  }
  filler.finish();
  auto up = room_.open("SELECT a FROM t ORDER BY a"), down = room_.open("SELECT a, c FROM t ORDER BY a DESC");
  std::int64_t seen = 0, sum = 0;
  for (;;) {
    const auto *one = up.next(), *other = down.next();
    ASSERT_EQ(one == nullptr, other == nullptr);
    if (!one) break;
    ASSERT_EQ(one->rows(), other->rows());
    for (std::size_t i = 0; i < one->rows(); ++i, ++seen) sum += one->integer(0, i) + other->integer(0, i);
  }
  EXPECT_EQ(seen, 10'000);
  EXPECT_EQ(sum, 9'999 * 10'000);
  EXPECT_EQ(rows("SELECT count(b), max(c) FROM t"), (Rows{{"6666", "v9999"}}));
  EXPECT_ERROR(room_.fill("nothing"), Code::invalid);
}

TEST_F(Workspaces, BindsValues) {
  const Value values[] = {std::int64_t{7}, 0.5, std::string("it's"), true, std::monostate{}};
  EXPECT_EQ(rows("SELECT $1::BIGINT, $2::DOUBLE, $3, $4::BOOLEAN, $5::VARCHAR", values),
            (Rows{{"7", "0.5", "it's", "1", "null"}}));
}

TEST_F(Workspaces, WritesAndReadsParquetThroughItsDoors) {
  const auto sink = std::make_shared<MemorySink>();
  room_.put("out", sink);
  room_.run("COPY (SELECT x, x * 0.5 AS half, 'v' || x AS name FROM range(10000) t(x)) TO 'out' (FORMAT parquet)");
  room_.drop("out");
  room_.put("in", std::make_shared<MemorySource>(sink->take()));
  EXPECT_EQ(rows("SELECT count(*), sum(x), max(half), min(name) FROM read_parquet('in')"),
            (Rows{{"10000", "49995000", "4999.5", "v0"}}));
  EXPECT_TRUE(files_->list("").empty());
}

TEST_F(Workspaces, StopsWhenTheReaderHasEnough) {
  std::size_t seen = 0;
  room_.query("SELECT * FROM range(100000000)", {}, [&](const Chunk& chunk) { return (seen += chunk.rows()) < 5000; });
  EXPECT_GE(seen, 5000U);
  EXPECT_LT(seen, 1'000'000U);
  EXPECT_EQ(rows("SELECT 1"), (Rows{{"1"}}));
}

TEST_F(Workspaces, GivesBackTheErrorOfASource) {
  struct Broken final : Source {
    std::uint64_t size() const override { return 1000; }
    void read(std::uint64_t, std::span<std::byte>) const override { throw Error(Code::corrupt, "block 7 is damaged"); }
  };
  room_.put("in", std::make_shared<Broken>());
  EXPECT_ERROR(rows("SELECT * FROM read_parquet('in')"), Code::corrupt);
  EXPECT_EQ(rows("SELECT 1"), (Rows{{"1"}}));
}

TEST_F(Workspaces, ReachesNothingThatWasNotPutIn) {
  for (const auto* sql : {
           "SELECT * FROM read_csv('/etc/passwd')",
           "SELECT * FROM read_text('/etc/passwd')",
           "SELECT * FROM read_blob('../../etc/passwd')",
           "SELECT * FROM '/etc/passwd.csv'",
           "SELECT * FROM read_parquet('http://127.0.0.1:1/x')",
           "SELECT * FROM read_parquet('s3://bucket/x')",
           "COPY (SELECT 1) TO '/tmp/falaj_was_here.csv'",
           "COPY (SELECT 1) TO 'nothing'",
           "ATTACH '/tmp/falaj_was_here.db'",
           "EXPORT DATABASE '/tmp/falaj_was_here'",
           "INSTALL httpfs",
           "LOAD '/tmp/x.duckdb_extension'",
           "SELECT * FROM read_csv('/proc/self/environ')",
           "SELECT * FROM sniff_csv('/etc/passwd')",
           "SELECT * FROM parquet_metadata('/etc/passwd')",
       }) {
    SCOPED_TRACE(sql);
    Rows seen;
    try {
      seen = rows(sql);
    } catch (const Error&) {
    }
    EXPECT_EQ(seen, Rows{});
  }
  EXPECT_EQ(rows("SELECT count(*) FROM glob('*')"), (Rows{{"0"}}));
  EXPECT_EQ(rows("SELECT count(*) FROM glob('/*')"), (Rows{{"0"}}));
}

TEST_F(Workspaces, ConfinedOnlyReads) {
  const auto sink = std::make_shared<MemorySink>();
  room_.put("out", sink);
  room_.run("COPY (SELECT 42 AS x) TO 'out' (FORMAT parquet)");
  room_.put("data", std::make_shared<MemorySource>(sink->take()));
  room_.run("CREATE VIEW data AS SELECT * FROM read_parquet('data')");
  room_.confine();
  EXPECT_EQ(rows("SELECT x FROM data"), (Rows{{"42"}}));
  EXPECT_EQ(rows("WITH a AS (SELECT 1 AS y) SELECT y FROM a"), (Rows{{"1"}}));
  for (const auto* sql : {"SET memory_limit = '100GB'", "RESET memory_limit", "PRAGMA threads = 64",
                          "CREATE TABLE t(x INT)", "DROP VIEW data", "COPY (SELECT 1) TO 'out'", "INSTALL httpfs",
                          "ATTACH ':memory:' AS other", "SELECT 1; SELECT 2", "", "CREATE MACRO f() AS 1",
                          "CALL pragma_version()", "USE memory", "CHECKPOINT", "VACUUM", "BEGIN"}) {
    SCOPED_TRACE(sql);
    EXPECT_THROW(rows(sql), Error);
  }
  EXPECT_EQ(rows("SELECT x FROM data"), (Rows{{"42"}}));
}

TEST_F(Workspaces, TakesOneHarmlessSelectOfAUser) {
  for (const auto* sql :
       {"SELECT json_structure(x)", "SELECT JSON_Structure (x)", "SELECT \"json_structure\"(x)",
        "SELECT json_structure /* no */ (x)", "SELECT json_structure -- no\n (x)", "SELECT x.json_structure()",
        "SELECT (SELECT max(json_tree(x)) FROM t)", "WITH a AS (SELECT * FROM query('SELECT 1')) SELECT * FROM a",
        "SELECT * FROM json_execute_serialized_sql('x')", "SELECT * FROM read_json('x')", "SELECT 1; SELECT 2",
        "CREATE TABLE t(x INT)", "SET threads = 9", "SELECT list_transform(x, y -> json_structure(y))"}) {
    SCOPED_TRACE(sql);
    EXPECT_THROW(room_.check_user_sql(sql), Error);
  }
  for (const auto* sql : {"SELECT query, json_structure FROM t WHERE query IN (SELECT 1)", "SELECT 'json_structure(x)'",
                          "SELECT max(x) FROM t -- json_structure(x)"}) {
    SCOPED_TRACE(sql);
    EXPECT_NO_THROW(room_.check_user_sql(sql));
  }
}

TEST_F(Workspaces, IsStoppedByItsWatch) {
  struct Enough {};
  int seen = 0;
  const auto watch = [&](double) {
    if (++seen > 3) throw Enough{};
  };
  const auto each = [](const Chunk&) { return true; };
  EXPECT_THROW(room_.query("SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = -1", {},
                           each, watch),
               Enough);
  EXPECT_EQ(rows("SELECT 1"), (Rows{{"1"}}));
  // Also when rows have come, and the rest takes for ever.
  std::size_t came = 0;
  int quiet = 0;
  const auto impatient = [&](double) {
    if (came > 0 && ++quiet > 3) throw Enough{};
  };
  EXPECT_THROW(room_.query(
                   "SELECT i FROM range(100000000000000) t(i) WHERE i < 200000", {},
                   [&](const Chunk& chunk) {
                     came += chunk.rows();
                     quiet = 0;
                     return true;
                   },
                   impatient),
               Enough);
  EXPECT_GT(came, 0U);
  EXPECT_EQ(rows("SELECT 1"), (Rows{{"1"}}));
}

TEST(Spilling, SortsMoreThanItsMemoryAndLeavesNothing) {
  sys::TempDir dir;
  const auto files = sys::open_files(dir.path());
  Workspace room({.memory_bytes = 64U << 20, .spill_bytes = 4ULL << 30, .threads = 2}, *files);
  // About 300 MB of rows in 64 MB.
  const auto sum =
      rows(room,
           "SELECT count(*), sum(hash(a) % 7) FROM (SELECT a, b FROM (SELECT 'row ' || (range * 7919 % 4000037) AS a, "
           "range AS b FROM range(4000000)) ORDER BY a)");
  EXPECT_EQ(sum.at(0).at(0), "4000000");
  EXPECT_TRUE(files->list("").empty());
}

TEST(Spilling, EndsAtItsBudget) {
  sys::TempDir dir;
  const auto files = sys::open_files(dir.path());
  Workspace room({.memory_bytes = 32U << 20, .spill_bytes = 8U << 20, .threads = 2}, *files);
  EXPECT_ERROR(
      rows(room,
           "SELECT max(b) FROM (SELECT a, b FROM (SELECT 'row ' || (range * 7919 % 4000037) AS a, range AS b FROM "
           "range(4000000)) ORDER BY a LIMIT 3999999)"),
      Code::exhausted);
  EXPECT_EQ(rows(room, "SELECT 1").at(0).at(0), "1");
}

}  // namespace
}  // namespace falaj::table
