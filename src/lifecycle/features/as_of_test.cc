// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/as_of.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "foundation/sys/testing.h"
#include "storage/table/testing.h"

namespace falaj::features {
namespace {

using lookup::Aggregate;

constexpr std::int64_t kSecondUs = 1'000'000;

struct Row {
  std::string key;  // "" = null
  std::int64_t at = 0, known = 0;
  double value = 0;
};

class AsOf : public ::testing::Test {
 protected:
  sys::TempDir dir_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(dir_.path());
  table::Workspace room_{{}, *files_};

  void load(const std::string& table, const std::vector<Row>& rows) {
    room_.run("CREATE OR REPLACE TABLE raw(k VARCHAR, a BIGINT, n BIGINT, v DOUBLE)");
    auto filler = room_.fill("raw");
    for (const auto& row : rows) {
      row.key.empty() ? filler.null() : filler.add(std::string_view(row.key));
      filler.add(row.at);
      filler.add(row.known);
      filler.add(row.value);
      filler.end_row();
    }
    filler.finish();
    room_.run("CREATE OR REPLACE TABLE " + table +
              " AS SELECT k, make_timestamp(a) AS at, make_timestamp(n) AS known, v FROM raw");
  }
  static ViewPlan plan() {
    ViewPlan view;
    view.relation = "events";
    view.key = view.spine_key = {"k"};
    view.at = "at";
    view.available = "known";
    view.rows = {{"newest", "v", table::Type::float64}};
    view.inputs = {"v", "CASE WHEN v > 3 THEN v END"};
    view.windows = Windows(kSecondUs, {{Aggregate::sum, 0, 5 * kSecondUs},
                                       {Aggregate::count, 1, 20 * kSecondUs},
                                       {Aggregate::max, 0, 10 * kSecondUs},
                                       {Aggregate::last, 1, 10 * kSecondUs}});
    view.window_names = {"sum5", "many", "max10", "last"};
    return view;
  }
  using Text = std::vector<std::vector<std::string>>;
};

std::string text(Cell cell) { return cell ? fmt::format("{}", *cell) : "null"; }

// From the definition alone.
std::vector<std::string> naive(const std::vector<Row>& events, const Row& asked, const ViewPlan& view) {
  if (asked.key.empty()) return std::vector<std::string>(5, "null");
  const Row* newest = nullptr;
  for (const auto& e : events)
    if (e.key == asked.key && e.at <= asked.at && e.known <= asked.at &&
        (!newest || std::tie(e.at, e.known) >= std::tie(newest->at, newest->known)))
      newest = &e;
  if (newest && view.ttl_us && newest->at < asked.at - *view.ttl_us) newest = nullptr;
  const auto in = [&](std::int64_t window, bool big) {
    std::vector<const Row*> out;
    for (const auto& e : events) {
      const auto tile = (e.at >= 0 ? e.at / kSecondUs : -((-e.at + kSecondUs - 1) / kSecondUs)) * kSecondUs;
      if (e.key == asked.key && e.at <= asked.at && e.known <= asked.at && tile > asked.at - window &&
          (!big || e.value > 3))
        out.push_back(&e);
    }
    return out;
  };
  Cell sum, max, last;
  for (const auto* e : in(5 * kSecondUs, false)) sum = sum.value_or(0) + e->value;
  for (const auto* e : in(10 * kSecondUs, false)) max = std::max(max.value_or(e->value), e->value);
  const Row* newest_big = nullptr;
  for (const auto* e : in(10 * kSecondUs, true))
    if (!newest_big || std::tie(e->at, e->known) >= std::tie(newest_big->at, newest_big->known)) newest_big = e;
  if (newest_big) last = newest_big->value;
  return {newest ? text(newest->value) : "null", text(sum), fmt::format("{}", in(20 * kSecondUs, true).size()),
          text(max), text(last)};
}

TEST_F(AsOf, IsWhatTheDefinitionSays) {
  const auto* asked_for = std::getenv("FALAJ_CASES");
  const auto cases = asked_for ? std::strtoull(asked_for, nullptr, 10) : 40;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    sys::SimRandom dice(seed);
    const auto key = [&] {
      return dice.below(8) == 0 ? std::string() : std::string(1, static_cast<char>('a' + dice.below(4)));
    };
    const auto moment = [&] { return static_cast<std::int64_t>(dice.below(60)) * kSecondUs / 2 - 10 * kSecondUs; };
    std::vector<Row> events, spine;
    for (std::size_t i = 0, n = dice.below(120); i < n; ++i) {
      Row row{key(), moment(), 0, static_cast<double>(dice.below(10))};
      row.known = row.at + (dice.below(2) ? 0 : static_cast<std::int64_t>(dice.below(12)) * kSecondUs / 2);
      events.push_back(row);
    }
    for (std::size_t i = 0, n = 1 + dice.below(60); i < n; ++i) spine.push_back({key(), moment(), 0, 0});
    load("events", events);
    load("asked", spine);
    auto view = plan();
    if (dice.below(2)) view.ttl_us = 4 * kSecondUs;
    number_spine(room_, "asked", "spine");
    join_as_of(room_, "spine", "at", view, "out");
    const auto got = table::rows(room_, "SELECT falaj_row, newest, sum5, many, max10, last FROM out");
    ASSERT_EQ(got.size(), spine.size());
    for (std::size_t i = 0; i < spine.size(); ++i) {
      auto wanted = naive(events, spine[i], view);
      wanted.insert(wanted.begin(), std::to_string(i));
      ASSERT_EQ(got[i], wanted);
    }
  }
}

// Many views, none of which would leave room for another: what each gives lies beside the spine, on disk if need be.
TEST_F(AsOf, ManyViewsTogetherNeedNoMoreMemoryThanOne) {
  const auto one = sys::open_files(dir_.path());
  table::Workspace small({std::uint64_t{32} << 20, std::uint64_t{8} << 30, 2}, *one);
  small.run(
      "CREATE TABLE events AS SELECT 'k' || i % 1000 AS k, make_timestamp(i * 1000) AS at, make_timestamp(i * 1000)"
      " AS known, (i % 17)::DOUBLE AS v FROM range(100000) t(i)");
  number_spine(small, "events", "spine");
  auto view = plan();
  view.windows = Windows(kSecondUs, {{Aggregate::sum, 0, 5 * kSecondUs},
                                     {Aggregate::count, 0, 20 * kSecondUs},
                                     {Aggregate::max, 0, 10 * kSecondUs},
                                     {Aggregate::last, 0, 10 * kSecondUs}});
  std::string beside;
  for (int i = 0; i < 8; ++i) {
    join_as_of(small, "spine", "at", view, fmt::format("out{}", i));
    beside += fmt::format(" POSITIONAL JOIN out{}", i);
  }
  EXPECT_EQ(table::rows(small,
                        "SELECT count(*), count(out0.newest), count(out7.many), bool_and(out0.sum5 = out7.sum5),"
                        " bool_and(spine.falaj_row = out7.falaj_row) FROM spine" +
                            beside),
            (Text{{"100000", "100000", "100000", "1", "1"}}));
}

TEST_F(AsOf, NeverShowsWhatIsKnownASecondLater) {
  std::vector<Row> events, spine;
  for (int i = 0; i < 1000; ++i) {
    const auto at = std::int64_t{i} * kSecondUs;
    spine.push_back({"k" + std::to_string(i), at, 0, 0});
    events.push_back({"k" + std::to_string(i), at, at + kSecondUs, 77});
  }
  load("events", events);
  load("asked", spine);
  number_spine(room_, "asked", "spine");
  join_as_of(room_, "spine", "at", plan(), "out");
  EXPECT_EQ(table::rows(room_, "SELECT count(*), count(newest), count(sum5), sum(many), count(max10) FROM out"),
            (Text{{"1000", "0", "0", "0", "0"}}));
}

}  // namespace
}  // namespace falaj::features
