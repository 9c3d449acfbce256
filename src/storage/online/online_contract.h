// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every Store must do, written once and run on each engine, sealed and in the clear.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "foundation/base/testing.h"
#include "storage/online/testing.h"

namespace falaj::online {

enum class Protection { sealed, clear };

class StoreContract : public testing::TestWithParam<std::tuple<std::string, Protection>> {
 protected:
  Store& store() { return scratch_->store(); }

  static crypto::Key key(int n) { return crypto::Key::from(Bytes(32, static_cast<std::byte>(n))); }
  static Space make_space(const std::string& name) {
    if (std::get<1>(GetParam()) == Protection::clear) return Space::in_the_clear(as_bytes(name));
    std::vector<NumberedKey> keys;
    keys.push_back({1, key(1)});
    return Space(as_bytes(name), key(100), std::move(keys));
  }

  std::size_t put(const Space& space, const std::string& entity, std::int64_t event, std::int64_t created,
                  const std::string& payload) {
    const Write write{as_bytes(entity), {event, created, as_bytes(payload)}};
    return store().put(space, {&write, 1});
  }
  // "payload@event/created", or "-".
  std::vector<std::string> get_all(const Space& space, const std::vector<std::string>& entities) {
    std::vector<BytesView> keys;
    for (const auto& entity : entities) keys.push_back(as_bytes(entity));
    std::vector<std::optional<Row>> rows(keys.size());
    const auto snapshot = store().snapshot();
    snapshot->get(space, keys, rows);
    std::vector<std::string> out;
    for (const auto& row : rows)
      out.push_back(!row ? "-"
                         : std::string(as_text(row->payload)) + "@" + std::to_string(row->event_us) + "/" +
                               std::to_string(row->created_us));
    return out;
  }
  std::string get(const Space& space, const std::string& entity) { return get_all(space, {entity})[0]; }
  std::size_t count(const Space& space) {
    std::size_t n = 0;
    store().snapshot()->each(space, [&](const Address&, const Row&) { return ++n > 0; });
    return n;
  }
  void add_one(const Space& space, std::span<const BytesView> keys) {
    store().update(space, keys, [](std::size_t, const std::optional<Row>& old) -> std::optional<Changed> {
      const int n = old ? std::stoi(std::string(as_text(old->payload))) : 0;
      return Changed{old ? old->event_us + 1 : 1, 0, to_bytes(std::to_string(n + 1))};
    });
  }

  const std::unique_ptr<Scratch> scratch_ = make_scratch(std::get<0>(GetParam()));
  const Space space_ = make_space("acme/fraud/view1/1");
};

TEST_P(StoreContract, GivesBackWhatWasPutAndNothingElse) {
  EXPECT_EQ(get(space_, "a"), "-");
  const std::string binary("\0\r\n\xff*", 5);
  EXPECT_EQ(put(space_, "a", 10, 1, "one"), 1U);
  EXPECT_EQ(put(space_, binary, -5, -6, binary), 1U);
  EXPECT_EQ(put(space_, "", 7, 7, ""), 1U);
  EXPECT_EQ(get_all(space_, {"a", "b", binary, "", "a"}),
            (std::vector<std::string>{"one@10/1", "-", binary + "@-5/-6", "@7/7", "one@10/1"}));
  EXPECT_EQ(get_all(space_, {}), std::vector<std::string>{});
}

TEST_P(StoreContract, KeepsTheRowOfTheLatestEventThenOfTheLastCreation) {
  EXPECT_EQ(put(space_, "a", 100, 5, "first"), 1U);
  EXPECT_EQ(put(space_, "a", 99, 9, "late"), 0U);
  EXPECT_EQ(put(space_, "a", 100, 4, "created earlier"), 0U);
  EXPECT_EQ(get(space_, "a"), "first@100/5");
  EXPECT_EQ(put(space_, "a", 100, 5, "same"), 1U);
  EXPECT_EQ(get(space_, "a"), "same@100/5");
  EXPECT_EQ(put(space_, "a", 100, 6, "corrected"), 1U);
  EXPECT_EQ(put(space_, "a", 256, 0, "later"), 1U);
  EXPECT_EQ(get(space_, "a"), "later@256/0");
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(put(space_, "b", kMin, kMin, "x"), 1U);
  EXPECT_EQ(put(space_, "b", -1, 0, "y"), 1U);
  EXPECT_EQ(put(space_, "b", kMax, kMax, "z"), 1U);
  EXPECT_EQ(put(space_, "b", kMax, kMax - 1, "w"), 0U);
  EXPECT_EQ(get(space_, "b").substr(0, 1), "z");
}

// Any order of arrival, cut into any batches, by several writers, ends in the same rows.
TEST_P(StoreContract, EventsInAnyOrderEndInTheSameRows) {
  constexpr std::uint64_t kSeed = 20'240;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  struct Event {
    std::string entity, payload;
    std::int64_t event, created;
  };
  std::vector<Event> events;
  std::map<std::string, std::string> newest;
  for (int i = 0; i < 2'000; ++i) {
    const std::int64_t event = static_cast<std::int64_t>(random() % 50);
    events.push_back({std::to_string(random() % 40), std::to_string(i), event, i});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.event < b.event; });
  for (const auto& e : events)
    newest[e.entity] = e.payload + "@" + std::to_string(e.event) + "/" + std::to_string(e.created);
  std::shuffle(events.begin(), events.end(), random);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<Write> batch;
      for (std::size_t i = t; i < events.size(); i += 4) {
        const auto& e = events[i];
        batch.push_back({as_bytes(e.entity), {e.event, e.created, as_bytes(e.payload)}});
        if (batch.size() <= i % 60) continue;
        store().put(space_, batch);
        batch.clear();
      }
      store().put(space_, batch);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& [entity, row] : newest) EXPECT_EQ(get(space_, entity), row) << entity;
  EXPECT_EQ(count(space_), newest.size());
}

TEST_P(StoreContract, SpacesDoNotTouchEachOther) {
  const Space other = make_space("acme/fraud/view1/2");
  put(space_, "a", 1, 1, "one");
  put(other, "a", 1, 1, "two");
  put(other, "b", 1, 1, "two");
  EXPECT_EQ(get(space_, "a"), "one@1/1");
  EXPECT_EQ(get(other, "a"), "two@1/1");
  EXPECT_EQ(get(space_, "b"), "-");
  EXPECT_EQ(count(space_), 1U);
  EXPECT_EQ(store().erase_before(other), 2U);
  EXPECT_EQ(count(other), 0U);
  EXPECT_EQ(get(space_, "a"), "one@1/1");
}

TEST_P(StoreContract, ErasesWhatItIsToldTo) {
  for (const auto* entity : {"a", "b", "c"}) put(space_, entity, 5, 1, entity);
  const BytesView keys[] = {as_bytes("a"), as_bytes("nobody"), as_bytes("c")};
  EXPECT_EQ(store().erase(space_, keys), 2U);
  EXPECT_EQ(store().erase(space_, keys), 0U);
  EXPECT_EQ(get_all(space_, {"a", "b", "c"}), (std::vector<std::string>{"-", "b@5/1", "-"}));
  EXPECT_EQ(put(space_, "a", 1, 1, "again"), 1U);  // an erased row is not remembered
}

TEST_P(StoreContract, SweepsOldEventsInLargeSpaces) {
  constexpr int kRows = 25'000;
  std::vector<std::string> names(kRows);
  std::vector<Write> writes;
  for (int i = 0; i < kRows; ++i) {
    names[static_cast<std::size_t>(i)] = "entity " + std::to_string(i);
    writes.push_back({as_bytes(names[static_cast<std::size_t>(i)]), {i - 1'000, 0, as_bytes("v")}});
  }
  EXPECT_EQ(store().put(space_, writes), std::size_t{kRows});
  EXPECT_EQ(store().erase_before(space_, 0), 1'000U);
  EXPECT_EQ(store().erase_before(space_, 0), 0U);
  EXPECT_EQ(get_all(space_, {"entity 999", "entity 1000"}), (std::vector<std::string>{"-", "v@0/0"}));
  EXPECT_EQ(store().erase_before(space_), 24'000U);
  EXPECT_EQ(count(space_), 0U);
}

TEST_P(StoreContract, IterationGivesEveryRowAndStopsWhenTold) {
  std::map<std::string, int> wanted, seen;
  for (int i = 0; i < 60; ++i) {
    const auto name = std::to_string(i);
    put(space_, name, i, 0, name);
    ++wanted[name];
  }
  const auto snapshot = store().snapshot();
  snapshot->each(space_, [&](const Address& address, const Row& row) {
    const std::string name(as_text(row.payload));
    EXPECT_EQ(address, space_.address(as_bytes(name)));
    return ++seen[name] > 0;
  });
  EXPECT_EQ(seen, wanted);
  int calls = 0;
  snapshot->each(space_, [&](const Address&, const Row&) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
}

TEST_P(StoreContract, UpdatesOfManyWritersAllCount) {
  const BytesView keys[] = {as_bytes("a"), as_bytes("b"), as_bytes("a")};  // one of them twice
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20;) try {
          add_one(space_, keys);
          ++i;
        } catch (const Error& error) {
          // Some of the rows may have been changed: only whole runs may be told apart, so none must fail here.
          ADD_FAILURE() << error.what();
          return;
        }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(get_all(space_, {"a", "b"}), (std::vector<std::string>{"120@120/0", "60@60/0"}));
}

TEST_P(StoreContract, AnUpdateMayLeaveARowOrFailAlone) {
  put(space_, "a", 1, 1, "1");
  const BytesView a = as_bytes("a");
  store().update(space_, {&a, 1}, [](std::size_t, const std::optional<Row>&) { return std::nullopt; });
  EXPECT_EQ(get(space_, "a"), "1@1/1");
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (int i = 0; i < 20; ++i)
      EXPECT_ERROR(store().update(space_, {&a, 1},
                                  [](std::size_t, const std::optional<Row>&) -> std::optional<Changed> {
                                    throw Error(Code::invalid, "no");
                                  }),
                   Code::invalid);
  });
  threads.emplace_back([&] {
    const BytesView b = as_bytes("b");
    for (int i = 0; i < 20; ++i) add_one(space_, {&b, 1});
  });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(get_all(space_, {"a", "b"}), (std::vector<std::string>{"1@1/1", "20@20/0"}));
}

TEST_P(StoreContract, RefusesWhatIsTooLarge) {
  const std::string longest(Space::kEntityKeyMax, 'k'), largest(kPayloadMax, 'p');
  EXPECT_EQ(put(space_, longest, 1, 1, largest), 1U);
  EXPECT_EQ(get(space_, longest), largest + "@1/1");
  EXPECT_ERROR(put(space_, longest + "k", 1, 1, "x"), Code::invalid);
  EXPECT_ERROR(put(space_, "a", 1, 1, largest + "p"), Code::invalid);
  EXPECT_ERROR(get(space_, longest + "k"), Code::invalid);
}

// Every row repeats one byte; a reader that ever sees two kinds saw half a write.
TEST_P(StoreContract, NoReaderSeesHalfARow) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(std::to_string(i));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; round < 200; ++round) {
      const std::string payload(500 + static_cast<std::size_t>(round % 7), static_cast<char>('a' + round % 26));
      std::vector<Write> writes;
      for (const auto& name : names) writes.push_back({as_bytes(name), {round, 0, as_bytes(payload)}});
      store().put(space_, writes);
    }
    done = true;
  });
  std::vector<BytesView> keys;
  for (const auto& name : names) keys.push_back(as_bytes(name));
  std::vector<std::optional<Row>> rows(keys.size());
  while (!done) {
    const auto snapshot = store().snapshot();
    snapshot->get(space_, keys, rows);
    for (const auto& row : rows) {
      if (!row) continue;
      ASSERT_EQ(row->payload.size(), 500U + static_cast<std::size_t>(row->event_us % 7));
      ASSERT_EQ(std::count(row->payload.begin(), row->payload.end(), static_cast<std::byte>('a' + row->event_us % 26)),
                static_cast<std::ptrdiff_t>(row->payload.size()));
    }
    if (std::get<0>(GetParam()) == "lmdb") {  // all of one moment
      for (const auto& row : rows) ASSERT_EQ(row.has_value(), rows[0].has_value());
      for (const auto& row : rows) ASSERT_EQ(row ? row->event_us : 0, rows[0] ? rows[0]->event_us : 0);
    }
  }
  writer.join();
  EXPECT_EQ(get(space_, "7").substr(0, 3), std::string(3, static_cast<char>('a' + 199 % 26)));
}

}  // namespace falaj::online
