// SPDX-License-Identifier: Apache-2.0
// What only the store on LMDB does.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "storage/online/testing.h"

namespace falaj::online {
namespace {

crypto::Key key(int n) { return crypto::Key::from(Bytes(32, static_cast<std::byte>(n))); }
Space make_space(std::initializer_list<std::uint32_t> numbers = {1}) {
  std::vector<NumberedKey> keys;
  for (const auto n : numbers) keys.push_back({n, key(static_cast<int>(n))});
  return Space(as_bytes("acme/view"), key(100), std::move(keys));
}

void put(Store& store, const Space& space, const std::string& entity, std::int64_t event, const std::string& payload) {
  const Write write{as_bytes(entity), {event, 0, as_bytes(payload)}};
  store.put(space, {&write, 1});
}
std::string get(Reader& reader, const Space& space, const std::string& entity) {
  const BytesView name = as_bytes(entity);
  std::optional<Row> row;
  const auto snapshot = reader.snapshot();
  snapshot->get(space, {&name, 1}, {&row, 1});
  return row ? std::string(as_text(row->payload)) : "-";
}

// One test of this program as a process of its own, its output beside the store.
sys::Command this_program(const std::string& test, const std::string& directory) {
  sys::Command command;
  command.argv = {"/proc/self/exe", "--gtest_filter=" + test, "--gtest_also_run_disabled_tests"};
  command.environment = {"FALAJ_TEST_STORE=" + directory};
  command.stdout_file = command.stderr_file = directory + ".out";
  return command;
}

class Lmdb : public testing::Test {
 protected:
  std::unique_ptr<Store> open(const LmdbOptions& options = {}) { return open_lmdb(where_, metrics_, options); }
  std::string said() const {
    std::ifstream file(where_ + ".out");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  sys::TempDir directory_;
  const std::string where_ = directory_ / "online";
  Metrics metrics_;
};

TEST_F(Lmdb, NeitherKeysNorValuesAreOnDiskAndOthersMayNotRead) {
  const Space space = make_space();
  {
    const auto store = open();
    for (int i = 0; i < 50; ++i) put(*store, space, "emirates-id-784", i, "salary=12345");
  }
  for (const auto& entry : std::filesystem::directory_iterator(where_)) {
    std::ifstream file(entry.path());
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find("emirates-id-784"), std::string::npos) << entry.path();
    EXPECT_EQ(bytes.find("salary"), std::string::npos) << entry.path();
    struct stat info {};
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << entry.path();
  }
}

TEST_F(Lmdb, KeysRotateWithoutRewritingRows) {
  const auto store = open();
  put(*store, make_space({1}), "a", 1, "old");
  put(*store, make_space({1, 2}), "b", 1, "new");
  EXPECT_EQ(get(*store, make_space({1, 2}), "a"), "old");
  EXPECT_EQ(get(*store, make_space({1, 2}), "b"), "new");
  EXPECT_ERROR(get(*store, make_space({2}), "a"), Code::denied);
  EXPECT_EQ(get(*store, make_space({2}), "b"), "new");
}

TEST_F(Lmdb, AnotherKeyOrPlaceDoesNotOpenARow) {
  const auto store = open();
  put(*store, make_space(), "a", 1, "value");
  std::vector<NumberedKey> others;
  others.push_back({1, key(9)});
  EXPECT_ERROR(get(*store, Space(as_bytes("acme/view"), key(100), std::move(others)), "a"), Code::corrupt);
  // The same row copied to another entity of the same space, or with another time, as who writes to the disk could.
  const Space space = make_space();
  Bytes record, out(100);
  Space::Sealing(space).append_record(record, space.address(as_bytes("a")), {5, 6, as_bytes("value")});
  Space::Opening opening(space);
  EXPECT_EQ(opening.open(space.address(as_bytes("a")), record, out.data()).event_us, 5);
  EXPECT_ERROR(opening.open(space.address(as_bytes("b")), record, out.data()), Code::corrupt);
  for (std::size_t at = 0; at < record.size(); ++at) {
    Bytes changed = record;
    changed[at] ^= std::byte{1};
    const auto wanted = at >= 4 && at < 8 ? Code::denied : Code::corrupt;  // there is no key of that number
    EXPECT_ERROR(opening.open(space.address(as_bytes("a")), changed, out.data()), wanted);
  }
  // A row in the clear is not taken for a sealed one.
  Bytes forged;
  const Space clear = Space::in_the_clear(as_bytes("acme/view"));
  Space::Sealing(clear).append_record(forged, space.address(as_bytes("a")), {5, 6, as_bytes("value")});
  EXPECT_ERROR(opening.open(space.address(as_bytes("a")), forged, out.data()), Code::corrupt);
}

// Rows that were opened lately are given again from memory: each snapshot must still see what it saw, whatever was
// written meanwhile, however small that memory is.
TEST_F(Lmdb, WhatWasOpenedLatelyIsNeverOlderOrNewerThanTheSnapshot) {
  const Space space = make_space();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 20}) {
    std::filesystem::remove_all(where_);
    LmdbOptions options;
    options.opened_bytes = bytes;
    const auto store = open(options);
    sys::SimRandom random(bytes + 1);
    std::map<std::string, std::string> now;
    std::int64_t event = 0;
    for (int round = 0; round < 60; ++round) {
      const auto before = now;
      const auto old = store->snapshot();
      for (int i = 0; i < 5; ++i) {
        const auto entity = "entity " + std::to_string(random.below(40));
        if (random.below(4) == 0) {
          const BytesView name = as_bytes(entity);
          store->erase(space, {&name, 1});
          now.erase(entity);
        } else {
          now[entity] =
              std::string(random.below(600), static_cast<char>('a' + random.below(26))) + std::to_string(event);
          put(*store, space, entity, event++, now[entity]);
        }
      }
      const auto latest = store->snapshot();
      for (int i = 0; i < 80; ++i) {
        const auto entity = "entity " + std::to_string(random.below(40));
        const BytesView name = as_bytes(entity);
        for (const bool is_old : {i % 2 == 0, i % 3 == 0}) {
          std::optional<Row> row;
          (is_old ? old : latest)->get(space, {&name, 1}, {&row, 1});
          const auto& expected = is_old ? before : now;
          const auto found = expected.find(entity);
          ASSERT_EQ(row.has_value(), found != expected.end()) << entity << " in round " << round;
          if (row) {
            ASSERT_EQ(as_text(row->payload), found->second);
          }
        }
      }
    }
  }
}

TEST_F(Lmdb, WhatWasOpenedLatelyIsNotForThoseWithoutItsKey) {
  const auto store = open();
  put(*store, make_space({1}), "a", 1, "secret");
  EXPECT_EQ(get(*store, make_space({1}), "a"), "secret");
  EXPECT_ERROR(get(*store, make_space({2}), "a"), Code::denied);
  EXPECT_EQ(get(*store, make_space({1, 2}), "a"), "secret");
}

TEST_F(Lmdb, IsOpenOnceInAProcess) {
  const auto store = open();
  EXPECT_ERROR(open(), Code::exists);
  EXPECT_ERROR(read_lmdb(where_ + "/."), Code::exists);
}

TEST_F(Lmdb, KeepsRowsWhenClosedAndOpened) {
  put(*open(), make_space(), "a", 1, "kept");
  EXPECT_EQ(get(*open(), make_space(), "a"), "kept");
}

TEST_F(Lmdb, ItsMapGrowsUnderReaders) {
  LmdbOptions small;
  small.map_bytes_first = 256 << 10;
  const auto store = open(small);
  const Space space = make_space();
  put(*store, space, "first", 1, "here");
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) EXPECT_EQ(get(*store, space, "first"), "here");
  });
  const std::string payload(10'000, 'x');
  for (int i = 0; i < 300; ++i) put(*store, space, std::to_string(i), 1, payload);  // 3 MB: grows four times
  done = true;
  reader.join();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(get(*store, space, std::to_string(i)), payload);
}

TEST_F(Lmdb, SaysExhaustedAtTheLimitOfItsMapAndGoesOn) {
  LmdbOptions small;
  small.map_bytes_first = small.map_bytes_max = 1 << 20;
  const auto store = open(small);
  const Space space = make_space();
  put(*store, space, "a", 1, "small");
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) names.push_back(std::to_string(i));
  const std::string payload(10'000, 'x');
  std::vector<Write> writes;
  for (const auto& name : names) writes.push_back({as_bytes(name), {1, 0, as_bytes(payload)}});
  EXPECT_ERROR(store->put(space, writes), Code::exhausted);
  EXPECT_EQ(get(*store, space, "0"), "-");  // all or nothing
  put(*store, space, "b", 1, "still works");
  EXPECT_EQ(get(*store, space, "b"), "still works");
}

TEST_F(Lmdb, ASnapshotHeldTooLongCostsTheWriteThatNeedsRoomAndNoMore) {
  LmdbOptions small;
  small.map_bytes_first = 256 << 10;
  small.grow_wait_max = std::chrono::milliseconds(10);
  const auto store = open(small);
  const Space space = make_space();
  put(*store, space, "a", 1, "small");
  const std::string large(500'000, 'x');
  auto held = store->snapshot();
  EXPECT_ERROR(put(*store, space, "b", 1, large), Code::exhausted);
  put(*store, space, "c", 1, "small");
  held.reset();
  put(*store, space, "b", 1, large);
  EXPECT_EQ(get(*store, space, "b"), large);
}

TEST_F(Lmdb, RefusesAWriteTooMany) {
  LmdbOptions few;
  few.waiting_max = 1;
  const auto store = open(few);
  const Space space = make_space();
  std::promise<void> entered, leave;
  std::thread busy([&] {
    const BytesView a = as_bytes("a");
    store->update(space, {&a, 1}, [&](std::size_t, const std::optional<Row>&) -> std::optional<Changed> {
      entered.set_value();
      leave.get_future().wait();
      return std::nullopt;
    });
  });
  entered.get_future().wait();
  std::thread waiting([&] { put(*store, space, "b", 1, "waited"); });
  while (metrics_.render().find("falaj_online_writes_waiting 1") == std::string::npos) std::this_thread::yield();
  EXPECT_ERROR(put(*store, space, "c", 1, "refused"), Code::exhausted);
  leave.set_value();
  busy.join();
  waiting.join();
  EXPECT_EQ(get(*store, space, "b") + get(*store, space, "c"), "waited-");
}

TEST_F(Lmdb, RefusesAReaderTooMany) {
  LmdbOptions few;
  few.readers_max = 2;
  const auto store = open(few);
  auto one = store->snapshot(), two = store->snapshot();
  EXPECT_ERROR(store->snapshot(), Code::exhausted);
  one.reset();
  EXPECT_NO_THROW(store->snapshot());
}

TEST_F(Lmdb, SaysCorruptForAFileThatIsNoStore) {
  std::filesystem::create_directories(where_);
  std::ofstream(where_ + "/data.mdb") << std::string(100'000, 'x');
  EXPECT_ERROR(open(), Code::corrupt);
  EXPECT_ERROR(read_lmdb(directory_ / "nowhere"), Code::not_found);
}

// Not a test by itself: what the next one starts. Several callers put batches of ten rows that all say the same number,
// and print it once the batch is acknowledged.
TEST(LmdbChild, DISABLED_WritesUntilKilled) {
  Metrics metrics;
  const auto store = open_lmdb(std::getenv("FALAJ_TEST_STORE"), metrics);
  const Space space = make_space();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::string> names;
      for (int n = 0; n < 10; ++n) names.push_back(std::to_string(t) + "/" + std::to_string(n));
      for (std::int64_t event =
               1 + (get(*store, space, names[0]) == "-" ? 0 : std::stoll(get(*store, space, names[0])));
           ; ++event) {
        const auto payload = std::to_string(event);
        std::vector<Write> writes;
        for (const auto& name : names) writes.push_back({as_bytes(name), {event, 0, as_bytes(payload)}});
        ASSERT_EQ(store->put(space, writes), 10U);
        const auto line = "put " + std::to_string(t) + " " + payload + "\n";
        ASSERT_EQ(::write(STDOUT_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(Lmdb, KilledItLosesNothingAcknowledgedAndHasNoHalfBatch) {
  const Space space = make_space();
  std::size_t lines = 0;
  std::map<int, std::int64_t> acknowledged;
  const auto read_lines = [&] {
    std::ifstream file(where_ + ".out");
    lines = 0;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      if (!line.starts_with("put ")) continue;
      ++lines;
      auto& last = acknowledged[line[4] - '0'];
      last = std::max<std::int64_t>(last, std::stoll(line.substr(6)));
    }
  };
  sys::RealProcesses processes;
  for (std::size_t round = 1; round <= 3; ++round) {
    const auto child = processes.start(this_program("LmdbChild.DISABLED_WritesUntilKilled", where_));
    for (; lines < round * 100; read_lines())
      ASSERT_FALSE(child->wait(std::chrono::milliseconds(5))) << "it ended by itself: " << said();
    child->signal(SIGKILL);
    ASSERT_TRUE(child->wait(std::chrono::seconds(10)));
    read_lines();
    const auto store = open();
    for (int t = 0; t < 4; ++t) {
      const auto first = get(*store, space, std::to_string(t) + "/0");
      ASSERT_NE(first, "-");
      EXPECT_GE(std::stoll(first), acknowledged[t]);
      for (int n = 1; n < 10; ++n) EXPECT_EQ(get(*store, space, std::to_string(t) + "/" + std::to_string(n)), first);
    }
  }
}

// Started by the next one: a file that may not grow further is what a full disk looks like.
TEST(LmdbChild, DISABLED_WritesMoreThanItMay) {
  Metrics metrics;
  const auto store = open_lmdb(std::getenv("FALAJ_TEST_STORE"), metrics);
  const Space space = make_space();
  put(*store, space, "a", 1, "before");
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{256 << 10, 256 << 10};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_ERROR(put(*store, space, "b", 1, std::string(1 << 20, 'x')), Code::exhausted);
  EXPECT_EQ(get(*store, space, "b"), "-");
  put(*store, space, "c", 1, "after");
  EXPECT_EQ(get(*store, space, "a") + get(*store, space, "c"), "beforeafter");
}

TEST_F(Lmdb, SaysExhaustedWhenTheDiskIsFullAndGoesOn) {
  sys::RealProcesses processes;
  const auto child = processes.start(this_program("LmdbChild.DISABLED_WritesMoreThanItMay", where_));
  const auto exit = child->wait(std::chrono::seconds(60));
  ASSERT_TRUE(exit);
  EXPECT_EQ(*exit, (sys::Exit{0, 0})) << said();
  EXPECT_EQ(get(*open(), make_space(), "c"), "after");
}

// Started by the next one: another process reads while this one writes.
TEST(LmdbChild, DISABLED_ReadsUntilTheLast) {
  const auto reader = read_lmdb(std::getenv("FALAJ_TEST_STORE"));
  const Space space = make_space();
  const BytesView names[] = {as_bytes("a"), as_bytes("b")};
  std::optional<Row> rows[2];
  std::int64_t before = 0;
  while (before < 200) {
    const auto snapshot = reader->snapshot();
    snapshot->get(space, names, rows);
    ASSERT_TRUE(rows[0] && rows[1]);
    ASSERT_EQ(rows[0]->event_us, rows[1]->event_us);  // of one moment
    ASSERT_EQ(as_text(rows[0]->payload), std::to_string(rows[0]->event_us));
    ASSERT_GE(rows[0]->event_us, before);
    before = rows[0]->event_us;
  }
}

TEST_F(Lmdb, AnotherProcessReadsWholeBatchesWhileOneWritesAndGrows) {
  const Space space = make_space();
  LmdbOptions small;
  small.map_bytes_first = 256 << 10;
  const auto store = open(small);
  const std::string filler(10'000, 'x');
  const auto put_both = [&](std::int64_t event) {
    const auto payload = std::to_string(event);
    const Write writes[] = {{as_bytes("a"), {event, 0, as_bytes(payload)}},
                            {as_bytes("b"), {event, 0, as_bytes(payload)}}};
    store->put(space, writes);
    put(*store, space, "filler " + payload, event, filler);
  };
  put_both(1);
  sys::RealProcesses processes;
  const auto child = processes.start(this_program("LmdbChild.DISABLED_ReadsUntilTheLast", where_));
  for (std::int64_t event = 2; event <= 200; ++event) put_both(event);
  const auto exit = child->wait(std::chrono::seconds(60));
  ASSERT_TRUE(exit);
  EXPECT_EQ(*exit, (sys::Exit{0, 0})) << said();
}

}  // namespace
}  // namespace falaj::online
