// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/plain_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"
#include "lifecycle/features/definitions.h"
#include "lifecycle/features/event_cursor.h"
#include "lifecycle/features/push_room.h"

namespace falaj::features {
namespace {

using lookup::Value;
using KeyColumns = std::vector<std::pair<std::string, std::string>>;  // names and types

const table::Schema kColumns = {
    {"t", table::Type::timestamp, true}, {"day", table::Type::date, true},  {"k", table::Type::text, true},
    {"n", table::Type::int64, true},     {"i", table::Type::int32, true},   {"v", table::Type::float64, true},
    {"b", table::Type::boolean, true},   {"raw", table::Type::bytes, true}, {"f", table::Type::float32, true}};

FeatureViewSpec view_with(std::vector<AggregateSpec> aggregates) {
  FeatureViewSpec spec;
  spec.entity = "thing";
  spec.dataset = "events";
  spec.time = "t";
  spec.tile_us = 1'000'000;
  spec.features = {{"day", "", ""}, {"text", "k", ""}, {"n", "", ""}, {"i", "", ""}, {"v", "", ""}, {"b", "", ""}};
  spec.features.push_back({"raw", "", ""});
  spec.aggregates = std::move(aggregates);
  return spec;
}

AggregateSpec mean_of(std::string name, std::string of, std::vector<FilterSpec> where = {}) {
  return {std::move(name), std::move(of), "mean", "", 60'000'000, std::move(where)};
}

class PlainRowsTest : public testing::Test {
 protected:
  Definition defined(FeatureViewSpec spec, const KeyColumns& key) {
    Definition d;
    d.spec = std::move(spec);
    for (const auto& [name, type] : key) {
      auto& column = d.entity.key.emplace_back();
      column.name = name;
      column.type = type;
    }
    d.rows = kColumns;
    d.select = "SELECT * FROM events";
    d.plan = compile(d.spec, d.entity, d.rows, {});
    d.view = view_of(d);
    return d;
  }
  PlainRows::Row random_row() {
    const auto some = [&](Value value) { return dice_.below(6) == 0 ? Value() : std::move(value); };
    const auto number = [&] { return static_cast<std::int64_t>(dice_.below(9)) - 4; };
    return {some(number() * 777'777),
            some(number()),
            some(std::string(1 + dice_.below(2), static_cast<char>('a' + dice_.below(3)))),
            some(number() << dice_.below(50)),
            some(number()),
            some(static_cast<double>(number()) / 2),
            some(dice_.below(2) == 0),
            some(std::string("\x00\xff", 2)),
            some(0.1)};
  }
  // By the engine, as it was before there was another way.
  EntityEvents by_engine(const Definition& definition, const std::vector<PlainRows::Row>& rows) {
    PushRoom room(std::make_unique<table::Workspace>(kCheckRoom, *files_), "events", kColumns);
    room.fill(rows);
    EntityEvents out;
    for (EventCursor events(room.room(), definition, ""); !events.at_end(); events.next()) {
      auto key = events.key();
      if (out.empty() || out.back().first != key) out.push_back({std::move(key), {}});
      out.back().second.push_back({events.event(), events.row()});
    }
    return out;
  }
  void expect_same(const Definition& definition) {
    const auto plain = PlainRows::of(definition.spec, definition.plan, kColumns);
    ASSERT_TRUE(plain);
    std::vector<PlainRows::Row> rows;
    for (std::size_t i = 0, n = 1 + dice_.below(200); i < n; ++i) rows.push_back(random_row());
    auto ours = plain->events(*definition.view, rows), theirs = by_engine(definition, rows);
    const auto by_key = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::sort(ours.begin(), ours.end(), by_key);
    std::sort(theirs.begin(), theirs.end(), by_key);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t e = 0; e < ours.size(); ++e) {
      EXPECT_EQ(ours[e].first, theirs[e].first);
      ASSERT_EQ(ours[e].second.size(), theirs[e].second.size());
      for (std::size_t i = 0; i < ours[e].second.size(); ++i) {
        const auto &a = ours[e].second[i], &b = theirs[e].second[i];
        EXPECT_EQ(a.event.at_us, b.event.at_us);
        EXPECT_EQ(a.event.available_us, b.event.available_us);
        EXPECT_EQ(a.event.row, b.event.row);
        EXPECT_EQ(a.event.cells, b.event.cells);
        EXPECT_EQ(a.row, b.row);
      }
    }
  }

  sys::TempDir dir_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(dir_.path());
  sys::SimRandom dice_{7};
};

TEST_F(PlainRowsTest, AreTheEventsOfTheEngine) {
  for (std::size_t round = 0; round < repeats(40); ++round) {
    std::vector<AggregateSpec> aggregates{{"all", "", "count", "", 60'000'000, {}}};
    const char* numbers[] = {"n", "i", "v", "b"};
    for (std::size_t i = 0, n = 1 + dice_.below(4); i < n; ++i) {
      std::vector<FilterSpec> where;
      const std::string is(kComparisons[dice_.below(std::size(kComparisons))]);
      const auto whole = static_cast<std::int64_t>(dice_.below(5)) - 2;
      switch (dice_.below(5)) {
        case 0:
          where.push_back({"k", is, json::value("b")});
          [[fallthrough]];
        case 1:
          where.push_back({"v", is, json::value(whole)});
          break;
        case 2:
          where.push_back({"n", is, json::value(static_cast<double>(whole) + 0.5)});
          break;
        case 3:
          where.push_back({"i", is, json::value(whole)});
          break;
        default:
          break;
      }
      aggregates.push_back(mean_of("a" + std::to_string(i), numbers[dice_.below(4)], where));
    }
    auto spec = view_with(std::move(aggregates));
    if (dice_.below(2) == 0) spec.available = "day";
    if (dice_.below(3) == 0) spec.time = "day";
    const KeyColumns keys[] = {
        {{"k", "text"}}, {{"n", "int64"}}, {{"k", "text"}, {"day", "date"}}, {{"b", "boolean"}, {"v", "float64"}}};
    expect_same(defined(spec, keys[dice_.below(4)]));
  }
}

TEST_F(PlainRowsTest, AreNotThoseThatOnlyTheEngineKnows) {
  const auto is_plain = [&](FeatureViewSpec spec, const KeyColumns& key) {
    const auto d = defined(std::move(spec), key);
    return PlainRows::of(d.spec, d.plan, kColumns).has_value();
  };
  EXPECT_TRUE(is_plain(view_with({mean_of("m", "v")}), {{"k", "text"}}));
  EXPECT_FALSE(is_plain(view_with({mean_of("m", "v")}), {{"n", "text"}})) << "the key is converted";
  EXPECT_FALSE(is_plain(view_with({mean_of("m", "f")}), {{"k", "text"}})) << "rounded";
  EXPECT_FALSE(is_plain(view_with({{"d", "k", "distinct_approx", "", 1'000'000, {}}}), {{"k", "text"}})) << "a hash";
  EXPECT_FALSE(is_plain(view_with({mean_of("m", "v", {{"b", "=", json::value(true)}})}), {{"k", "text"}}));
  auto sql = view_with({mean_of("m", "v")});
  sql.sql = "SELECT * FROM events";
  EXPECT_FALSE(is_plain(sql, {{"k", "text"}}));
}

}  // namespace
}  // namespace falaj::features
