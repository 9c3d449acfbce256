// SPDX-License-Identifier: Apache-2.0
// A dump of either engine loads into either.
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "storage/sql/testing.h"

namespace falaj::sql {
namespace {

// Named so that the order of names is not the order of references.
constexpr Migration kTables[] = {
    {1, "things",
     "CREATE TABLE whole(id BIGINT PRIMARY KEY, name TEXT, size DOUBLE PRECISION, body BYTEA, parent BIGINT REFERENCES "
     "whole(id));"
     "CREATE TABLE a_part(whole BIGINT NOT NULL REFERENCES whole(id), place TEXT NOT NULL, PRIMARY KEY(whole, place));"
     "CREATE TABLE \"order\"(\"from\" TEXT PRIMARY KEY)"}};

// Everything it was given, as text.
class Written final : public TableSink {
 public:
  void table(const Table& table) override {
    names.push_back(table.name);
    text += "# " + table.name;
    for (const auto& c : table.columns) text += " " + c.name + ":" + std::to_string(static_cast<int>(c.kind));
    text += '\n';
  }
  void row(std::span<const Value> values) override {
    ++rows;
    if (names.back() == "migration") return;  // when it was applied differs
    struct Print {
      std::string operator()(Null) const { return "null"; }
      std::string operator()(std::int64_t v) const { return std::to_string(v); }
      std::string operator()(double v) const { return std::to_string(v); }
      std::string operator()(const std::string& v) const { return "'" + v + "'"; }
      std::string operator()(const Bytes& v) const { return "x" + to_hex(v); }
    };
    for (const auto& value : values) text += std::visit(Print{}, value) + " ";
    text += '\n';
  }
  std::vector<std::string> names;
  std::string text;
  int rows = 0;
};

Written dump_of(Database& db) {
  Written written;
  db.read([&](Reader& r) { r.dump(written); });
  return written;
}

class Loading : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    for (auto* db : {&from, &to}) (*db)->migrate(kTables);
    from->write(kAct, [](Writer& w) {
      w.execute("INSERT INTO whole(id, name, size, body, parent) VALUES (1, ?, 0.5, ?, NULL)",
                {"فلج ' ?", as_bytes("\x01\xff")});
      w.execute("INSERT INTO whole(id, name, size, body, parent) VALUES (2, NULL, NULL, ?, 1)", {BytesView{}});
      w.execute("INSERT INTO a_part(whole, place) VALUES (2, 'b'), (2, 'a'), (1, 'Z')", {});
      w.execute("INSERT INTO \"order\"(\"from\") VALUES ('x')", {});
    });
  }
  Metrics metrics;
  std::unique_ptr<Scratch> from_place = make_scratch(std::get<0>(GetParam())),
                           to_place = make_scratch(std::get<1>(GetParam()));
  std::unique_ptr<Database> from = from_place->open(metrics), to = to_place->open(metrics);
};

TEST_P(Loading, GivesBackTheSameRows) {
  to->load_into_empty([&](TableSink& into) { from->read([&](Reader& r) { r.dump(into); }); });
  const auto before = dump_of(*from), after = dump_of(*to);
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.rows, 1 + 2 + 3 + 1);
  EXPECT_THAT(after.names, testing::ElementsAre("migration", "order", "whole", "a_part"));
  to->write(kAct, [](Writer& w) { w.execute("INSERT INTO whole(id) VALUES (3)", {}); });
}

TEST_P(Loading, RefusesADatabaseThatHasRows) {
  to->write(kAct, [](Writer& w) { w.execute("INSERT INTO whole(id) VALUES (3)", {}); });
  EXPECT_ERROR(to->load_into_empty([&](TableSink& into) { from->read([&](Reader& r) { r.dump(into); }); }),
               Code::conflict);
}

TEST_P(Loading, RefusesAnotherSchemaAndLeavesNothing) {
  constexpr Migration more[] = {{1, "more", "CREATE TABLE more(id BIGINT PRIMARY KEY)"}};
  const auto load = [&] {
    to->load_into_empty([&](TableSink& into) { from->read([&](Reader& r) { r.dump(into); }); });
  };
  to->migrate(more);  // newer than what is loaded
  EXPECT_ERROR(load(), Code::conflict);
  EXPECT_EQ(dump_of(*to).rows, 2);
  from->migrate(more);
  load();
}

TEST_P(Loading, RefusesTablesAndRowsItDoesNotKnow) {
  const auto with = [&](const Table& table, std::vector<Value> row) {
    to->load_into_empty([&](TableSink& into) { into.table(table), into.row(row); });
  };
  EXPECT_ERROR(with({"order\"; DROP TABLE whole; --", {{"from", Kind::text}}}, {std::string("x")}), Code::invalid);
  EXPECT_ERROR(with({"order", {{"to", Kind::text}}}, {std::string("x")}), Code::invalid);
  EXPECT_ERROR(with({"order", {{"from", Kind::text}}}, {}), Code::invalid);
  EXPECT_ERROR(with({"order", {{"from", Kind::text}}}, {std::string("x")}),
               Code::conflict);  // no migrations came with it
  EXPECT_EQ(dump_of(*to).rows, 1);
}

TEST_P(Loading, DumpsOneSnapshotWhileWritersGoOn) {
  struct Nosy final : TableSink {
    explicit Nosy(Database& db) : db(db) {}
    void table(const Table& table) override { name = table.name; }
    void row(std::span<const Value>) override {
      if (name == "a_part") ++parts;
      db.write(kAct, [&](Writer& w) {
        w.execute("INSERT INTO a_part(whole, place) VALUES (1, ?)",
                  {std::string_view("n" + std::to_string(++written))});
      });
    }
    Database& db;
    std::string name;
    int parts = 0, written = 0;
  } nosy(*from);
  from->read([&](Reader& r) { r.dump(nosy); });
  EXPECT_EQ(nosy.parts, 3);
  EXPECT_EQ(dump_of(*from).rows, 7 + nosy.written);
}

INSTANTIATE_TEST_SUITE_P(Engines, Loading, testing::Combine(testing::ValuesIn(engines()), testing::ValuesIn(engines())),
                         [](const auto& info) { return std::get<0>(info.param) + "_to_" + std::get<1>(info.param); });

TEST(Dump, FetchesATableInSeveralSteps) {
  for (const auto& engine : engines()) {
    Metrics metrics;
    const auto place = make_scratch(engine);
    const auto db = place->open(metrics);
    db->migrate(kTables);
    db->write(kAct, [](Writer& w) {
      for (std::int64_t i = 0; i < 2500; ++i) w.execute("INSERT INTO whole(id) VALUES (?)", {i});
    });
    EXPECT_EQ(dump_of(*db).rows, 2501);  // more than one fetch, and not a whole number of them
  }
}

}  // namespace
}  // namespace falaj::sql
