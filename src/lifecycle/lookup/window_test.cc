// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"

namespace falaj::lookup {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

// The definition, word by word: every event that is known as of T and whose tile begins after T - w.
Cell naive(const Windows& windows, const WindowFeature& feature, const std::vector<Event>& events, std::int64_t t) {
  std::vector<const Event*> in;
  for (const auto& e : events) {
    const auto begin = windows.tile_of(e.at_us) * windows.tile_us();
    if (e.at_us <= t && e.available_us <= t && begin > t - feature.window_us && e.cells[feature.input])
      in.push_back(&e);
  }
  const auto value = [&](const Event* e) { return *e->cells[feature.input]; };
  double sum = 0, squares = 0;
  std::set<double> different;
  for (const auto* e : in) sum += value(e), different.insert(value(e));
  const auto n = static_cast<double>(in.size());
  if (feature.aggregate == Aggregate::count) return n;
  if (feature.aggregate == Aggregate::distinct_approx) return static_cast<double>(different.size());
  if (in.empty()) return std::nullopt;
  for (const auto* e : in) squares += (value(e) - sum / n) * (value(e) - sum / n);
  switch (feature.aggregate) {
    case Aggregate::sum:
      return sum;
    case Aggregate::mean:
      return sum / n;
    case Aggregate::min:
      return *different.begin();
    case Aggregate::max:
      return *different.rbegin();
    case Aggregate::stddev:
      return in.size() < 2 ? Cell() : std::sqrt(squares / (n - 1));
    default:
      return value(*std::max_element(in.begin(), in.end(), [](const Event* a, const Event* b) {
        return std::tie(a->at_us, a->available_us, a->row) < std::tie(b->at_us, b->available_us, b->row);
      }));
  }
}

struct World {
  Windows windows;
  std::vector<Event> events;          // as they happened
  std::vector<std::int64_t> queries;  // ascending
};

// Windows of every aggregate; events that come late, out of order, twice, at the same moment, on the edges of tiles.
World random_world(sys::Random& dice) {
  const std::int64_t tile = kSecond * static_cast<std::int64_t>(1 + dice.below(7));
  std::vector<WindowFeature> features;
  const auto inputs = 1 + dice.below(3);
  for (std::size_t i = 0, n = 1 + dice.below(12); i < n; ++i)
    features.push_back({kAggregates[dice.below(std::size(kAggregates))], dice.below(inputs),
                        tile * static_cast<std::int64_t>(1 + dice.below(20))});
  World world{Windows(tile, features), {}, {}};
  const auto span = tile * static_cast<std::int64_t>(1 + dice.below(60));
  const auto moment = [&] {
    auto t = static_cast<std::int64_t>(dice.below(static_cast<std::uint64_t>(span))) - span / 3;
    if (dice.below(3) == 0) t = (t / tile) * tile + static_cast<std::int64_t>(dice.below(3)) - 1;
    return t;
  };
  for (std::size_t i = 0, n = dice.below(80); i < n; ++i) {
    Event e{moment(), 0, i, {}};
    e.available_us = e.at_us + (dice.below(2) ? 0 : static_cast<std::int64_t>(dice.below(20)) * kSecond) -
                     (dice.below(5) ? 0 : kSecond);
    for (std::size_t c = 0; c < inputs; ++c)
      e.cells.push_back(dice.below(6) == 0 ? Cell() : static_cast<double>(dice.below(40)) - 20);
    world.events.push_back(e);
    if (dice.below(8) == 0) world.events.push_back(e), world.events.back().row = 1000 + i;
  }
  for (std::size_t i = 0, n = 1 + dice.below(30); i < n; ++i) world.queries.push_back(moment());
  for (const auto& e : world.events)
    if (dice.below(4) == 0) world.queries.push_back(e.known_us() + static_cast<std::int64_t>(dice.below(3)) - 1);
  std::sort(world.queries.begin(), world.queries.end());
  return world;
}

void expect_same(Cell got, Cell wanted, const WindowFeature& feature) {
  ASSERT_EQ(got.has_value(), wanted.has_value()) << name(feature.aggregate);
  if (!got) return;
  ASSERT_NEAR(*got, *wanted, 1e-9 * std::max(1.0, std::abs(*wanted))) << name(feature.aggregate);
}

std::uint64_t cases() {
  const auto* text = std::getenv("FALAJ_CASES");
  return text ? std::strtoull(text, nullptr, 10) : 400;
}

TEST(Windows, AreWhatTheirDefinitionSays) {
  int read_straight = 0;
  for (std::uint64_t seed = 0; seed < cases(); ++seed) {
    SCOPED_TRACE(seed);
    sys::SimRandom dice(seed);
    auto world = random_world(dice);
    // As they become known; of one moment in any order.
    std::vector<std::pair<std::int64_t, std::uint64_t>> order;
    for (std::size_t i = 0; i < world.events.size(); ++i)
      order.push_back({world.events[i].known_us(), dice.next() << 16 | i});
    std::sort(order.begin(), order.end());
    Tiles tiles(world.windows);
    std::size_t next = 0;
    std::vector<Cell> out(world.windows.features().size());
    for (const auto t : world.queries) {
      for (; next < order.size() && order[next].first <= t; ++next)
        tiles.add(world.events[order[next].second & 0xffff]);
      if (dice.below(4) == 0) tiles.forget(t);
      if (dice.below(4) == 0) {  // as if stored and read again
        ByteWriter bytes;
        tiles.encode(bytes);
        ByteReader in(bytes.bytes()), straight(bytes.bytes());
        tiles = Tiles::decode(world.windows, in);
        std::vector<Cell> read(out.size());
        if (Tiles::read_encoded(world.windows, straight, t, read)) {
          straight.expect_end();
          tiles.read(t, out);
          ASSERT_EQ(read, out) << "to the last bit: nothing is added in another order";
          ++read_straight;
        }
      }
      tiles.read(t, out);
      for (std::size_t f = 0; f < out.size(); ++f) {
        const auto& feature = world.windows.features()[f];
        expect_same(out[f], naive(world.windows, feature, world.events, t), feature);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(read_straight, 100);
}

TEST(Windows, ShowNothingThatIsKnownLater) {
  const Windows windows(kSecond, {{Aggregate::sum, 0, 10 * kSecond}});
  Tiles tiles(windows);
  const Event leak{0, 5 * kSecond + 1, 0, {7.0}};
  EXPECT_EQ(leak.known_us(), 5 * kSecond + 1);
  std::vector<Cell> out(1);
  tiles.read(5 * kSecond, out);
  EXPECT_EQ(out[0], std::nullopt);
  tiles.add(leak);
  tiles.read(5 * kSecond + 1, out);
  EXPECT_EQ(out[0], 7.0);
}

TEST(Windows, RefuseWhatIsNoWholeNumberOfTiles) {
  EXPECT_ERROR(Windows(0, {}), Code::invalid);
  EXPECT_ERROR(Windows(kSecond, {{Aggregate::sum, 0, kSecond + 1}}), Code::invalid);
  EXPECT_ERROR(Windows(kSecond, {{Aggregate::sum, 0, 0}}), Code::invalid);
}

}  // namespace
}  // namespace falaj::lookup
