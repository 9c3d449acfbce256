// SPDX-License-Identifier: Apache-2.0
// Collection, crashes, and a long random life compared with a naive model.
#include "storage/blob/upkeep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "foundation/sys/sim_files.h"
#include "storage/blob/directory_backend.h"
#include "storage/blob/memory_backend.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

using std::chrono::hours;

class Collecting : public testing::Test {
 protected:
  Address put(BytesView bytes) { return store_.put(kAcme, source_of(bytes)).info.address; }
  bool whole(const Address& address) {
    try {
      (void)store_.get(kReader, address)->read_all();
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  std::size_t blobs() { return backend_.list("", "", 100'000).size(); }

  sys::SimClock clock_;
  MemoryBackend backend_{clock_};
  FixedKeys keys_;
  Metrics metrics_;
  Store store_{kUae, backend_, keys_, clock_, metrics_, {.grace = hours(24), .list_entries = 2}};
};

TEST_F(Collecting, RemovesWhatNoRootNeedsAfterTheGrace) {
  const Bytes kept = random_bytes(6'000'000, 1), dropped = random_bytes(5'000'000, 2);
  const Address root = put(kept), garbage = put(dropped), small = put(BytesView(dropped).first(10));
  const Address roots[] = {root};
  EXPECT_EQ(store_.collect(kAcme, roots).blocks, 0U) << "all of it is young";
  clock_.advance(hours(25));
  const std::size_t before = blobs();
  const Collected collected = store_.collect(kAcme, roots);
  EXPECT_EQ(collected.objects, 2U);
  EXPECT_EQ(collected.blocks, before - blobs());
  EXPECT_GT(collected.bytes, 5'000'000U);
  EXPECT_TRUE(collected.missing.empty());
  EXPECT_TRUE(whole(root));
  EXPECT_FALSE(store_.exists(kReader, garbage));
  EXPECT_FALSE(store_.exists(kReader, small));
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
  EXPECT_EQ(store_.collect(kAcme, {}).objects, 1U);
  EXPECT_EQ(blobs(), 0U);
}

TEST_F(Collecting, KeepsWhatRootsShareWithGarbage) {
  Bytes shared = random_bytes(8'000'000, 1);
  const Address garbage = put(shared);
  shared.resize(7'000'000);
  const Address root = put(shared);
  clock_.advance(hours(25));
  const Address roots[] = {root};
  EXPECT_EQ(store_.collect(kAcme, roots).objects, 1U);
  EXPECT_TRUE(whole(root));
  EXPECT_FALSE(store_.exists(kReader, garbage));
}

TEST_F(Collecting, DestroysAtOnceWhatNothingElseIsMadeOf) {
  Bytes bytes = random_bytes(8'000'000, 1);
  const Address doomed = put(bytes);
  bytes.resize(7'000'000);
  const Address shares = put(bytes), unnamed = put(random_bytes(3'000'000, 2)), small = put(random_bytes(10, 3));
  const std::size_t before = blobs();
  const Address objects[] = {doomed, small, shares};
  const auto needed = [&] { return std::vector{shares}; };
  const Destroyed destroyed = store_.destroy(kAcme, objects, needed);
  EXPECT_EQ(destroyed.objects, 2U);
  EXPECT_EQ(destroyed.needed, (std::vector{shares}));
  EXPECT_EQ(before - blobs(), destroyed.blocks + destroyed.objects);
  EXPECT_FALSE(store_.exists(kReader, doomed));
  EXPECT_TRUE(whole(shares));
  EXPECT_TRUE(whole(unnamed)) << "nobody asked for that";
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
  EXPECT_EQ(store_.destroy(kAcme, objects, needed).blocks, 0U);
  const Address all[] = {doomed, small, shares, unnamed};
  store_.destroy(kAcme, all, [] { return std::vector<Address>{}; });
  EXPECT_EQ(blobs(), 0U);
}

TEST_F(Collecting, DestroysNothingThatAPutStillHolds) {
  const Bytes bytes = random_bytes(6'000'000, 1);
  const Address address = put(bytes);
  const Address objects[] = {address};
  const auto nothing = [] { return std::vector<Address>{}; };
  {
    Hold hold;
    EXPECT_EQ(store_.put(kAcme, source_of(bytes), &hold).new_bytes, 0U);
    EXPECT_EQ(store_.destroy(kAcme, objects, nothing).needed, (std::vector{address}));
    EXPECT_TRUE(whole(address));
  }
  // It ends while the question what is needed is being answered: too late to be in the answer.
  auto hold = std::make_unique<Hold>();
  store_.put(kAcme, source_of(bytes), hold.get());
  const auto ends = [&] {
    hold.reset();
    return std::vector<Address>{};
  };
  EXPECT_EQ(store_.destroy(kAcme, objects, ends).needed, (std::vector{address}));
  EXPECT_TRUE(whole(address));
  EXPECT_TRUE(store_.destroy(kAcme, objects, nothing).needed.empty());
  EXPECT_EQ(blobs(), 0U);
}

TEST_F(Collecting, FinishesADestructionThatBrokeOffAnywhere) {
  const Bytes bytes = random_bytes(6'000'000, 1), other = random_bytes(5'000'000, 2);
  const auto nothing = [] { return std::vector<Address>{}; };
  int faults = 0;
  for (int at = 0;; ++at) {
    int calls = 0;
    FaultyBackend faulty(backend_, [&](BackendCall, const std::string&) { return calls++ == at; });
    const Address kept = put(other), doomed = put(bytes);
    const Address objects[] = {doomed};
    bool failed = false;
    try {
      Store(kUae, faulty, keys_, clock_, metrics_, {.grace = hours(24), .list_entries = 2})
          .destroy(kAcme, objects, nothing);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::unavailable);
      failed = true;
    }
    ASSERT_TRUE(whole(kept));
    store_.destroy(kAcme, objects, nothing);
    ASSERT_TRUE(whole(kept));
    ASSERT_TRUE(store_.scrub(kAcme).damaged.empty());
    const Address rest[] = {kept};
    store_.destroy(kAcme, rest, nothing);
    ASSERT_EQ(blobs(), 0U);
    faults += failed ? 1 : 0;
    if (!failed) break;
  }
  EXPECT_GT(faults, 10);
}

TEST_F(Collecting, SparesWhatAPutJustReliedOn) {
  const Bytes bytes = random_bytes(6'000'000, 1);
  put(bytes);
  clock_.advance(hours(1000));
  // All of its blocks are old and no root needs them; this put stores none of them again but its record.
  const Address address = put(bytes);
  EXPECT_EQ(store_.collect(kAcme, {}).blocks, 0U);
  EXPECT_TRUE(whole(address));
  clock_.advance(hours(23));
  EXPECT_EQ(store_.collect(kAcme, {}).blocks, 0U);
  clock_.advance(hours(2));
  EXPECT_GT(store_.collect(kAcme, {}).blocks, 5U);
  EXPECT_EQ(blobs(), 0U);
}

TEST_F(Collecting, ARecordOlderThanHalfTheGraceIsWrittenAgainAndAYoungOneIsNot) {
  const Bytes bytes = random_bytes(100, 1);
  put(bytes);
  const std::int64_t first = backend_.list("", "", 10)[0].modified_us;
  clock_.advance(hours(11));
  put(bytes);
  EXPECT_EQ(backend_.list("", "", 10)[0].modified_us, first);
  clock_.advance(hours(2));
  put(bytes);
  EXPECT_GT(backend_.list("", "", 10)[0].modified_us, first);
}

TEST_F(Collecting, ACollectionDuringAPutTakesNothingFromIt) {
  const Bytes bytes = random_bytes(9'000'000, 1);
  put(bytes);
  clock_.advance(hours(1000));
  // The put stops in the middle of its source while everything it has relied on so far is collected around it.
  std::uint64_t removed = 0;
  std::size_t given = 0;
  bool collected = false;
  const Source stopping = [&](std::span<std::byte> out) {
    if (given > 5'000'000 && !collected) {
      collected = true;
      removed = store_.collect(kAcme, {}).blocks;
    }
    const std::size_t n = std::min(out.size(), bytes.size() - given);
    std::copy_n(bytes.begin() + static_cast<long>(given), n, out.begin());
    given += n;
    return n;
  };
  const Address address = store_.put(kAcme, stopping).info.address;
  EXPECT_GT(removed, 0U) << "what the put had not come to yet was garbage";
  EXPECT_TRUE(whole(address));
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(Collecting, APutThatEndsDuringACollectionKeepsWhatItReliedOn) {
  const Bytes bytes = random_bytes(9'000'000, 1);
  put(bytes);
  clock_.advance(hours(1000));
  // The put runs between the listing of objects and the removals.
  bool done = false;
  std::optional<Address> address;
  // Pins are those of one store, so the store that collects must be the one that puts.
  std::unique_ptr<Store> store;
  FaultyBackend backend(backend_, [&](BackendCall call, const std::string& name) {
    if (call == BackendCall::list && name.ends_with("/c/") && !done) {
      done = true;
      address = store->put(kAcme, source_of(bytes)).info.address;
    }
    return false;
  });
  store = std::make_unique<Store>(kUae, backend, keys_, clock_, metrics_, StoreOptions{.list_entries = 2});
  store->collect(kAcme, {});
  ASSERT_TRUE(address);
  EXPECT_TRUE(whole(*address));
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(Collecting, ReportsRootsThatAreGone) {
  const Address root = put(random_bytes(100, 1));
  store_.remove(kAcme, root);
  const Address roots[] = {root};
  EXPECT_EQ(store_.collect(kAcme, roots).missing, std::vector<Address>{root});
}

TEST_F(Collecting, RemovesNothingWhenARootCannotBeRead) {
  const Address root = put(random_bytes(6'000'000, 1));
  put(random_bytes(100, 2));
  clock_.advance(hours(25));
  for (const auto& info : backend_.list("", "", 1000)) {
    if (info.name.ends_with(root.hex())) backend_.put(info.name, as_bytes("damaged"), Durable::now, Existing::replace);
  }
  const std::size_t before = blobs();
  const Address roots[] = {root};
  EXPECT_ERROR(store_.collect(kAcme, roots), Code::corrupt);
  EXPECT_EQ(blobs(), before);
}

TEST_F(Collecting, LeavesOtherTenantsAlone) {
  store_.put(kOther, source_of(random_bytes(100, 1)));
  clock_.advance(hours(25));
  EXPECT_EQ(store_.collect(kAcme, {}).blocks, 0U);
  EXPECT_EQ(blobs(), 1U);
}

TEST_F(Collecting, PutsAndCollectionsAtOnceLoseNothing) {
  // Few distinct contents, a collector that never stops, time that runs: every put relies on doomed blocks.
  std::vector<Bytes> contents;
  for (std::uint64_t i = 0; i < 4; ++i) contents.push_back(random_bytes(2'500'000, i));
  std::atomic<bool> stop{false};
  std::thread collector([&] {
    while (!stop) {
      clock_.advance(hours(13));
      store_.collect(kAcme, {});
    }
  });
  std::vector<std::thread> putters;
  std::atomic<int> broken{0};
  for (std::size_t t = 0; t < 3; ++t) {
    putters.emplace_back([&, t] {
      for (std::size_t i = 0; i < repeats(30U); ++i) {
        // A grace has passed only when the clock was moved twice in between: read while it cannot have.
        const auto before = clock_.now();
        const Address address = put(contents[(t + i) % contents.size()]);
        const bool ok = whole(address);
        if (!ok && clock_.now() - before < hours(12)) ++broken;
      }
    });
  }
  for (auto& putter : putters) putter.join();
  stop = true;
  collector.join();
  EXPECT_EQ(broken, 0);
  const Scrubbed scrubbed = store_.scrub(kAcme);
  EXPECT_TRUE(scrubbed.damaged.empty());
}

// Acknowledged means durable, and a crash never makes later puts rely on what it tore.
TEST(CrashingStore, KeepsEveryAcknowledgedObject) {
  FixedKeys keys;
  Metrics metrics;
  for (std::uint64_t seed = 1; seed <= repeats(40U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    sys::SimClock clock;
    sys::SimFiles files(clock, seed);
    sys::SimRandom random(seed);
    std::map<Address, Bytes> acknowledged;
    for (int life = 0; life < 4; ++life) {
      DirectoryBackend directory(files);
      // Power fails before some call; everything after it fails too.
      std::atomic<std::int64_t> calls_left{static_cast<std::int64_t>(random.below(60))};
      FaultyBackend backend(directory, [&](BackendCall, const std::string&) { return --calls_left < 0; });
      Store store(kUae, backend, keys, clock, metrics);
      try {
        for (;;) {
          // Few contents, so that puts meet what earlier lives left behind.
          const std::uint64_t content = random.below(6);
          const Bytes bytes = random_bytes(content < 3 ? 1000 : 1'500'000, content);
          std::vector<Source> sources = {source_of(bytes)};
          const Bytes second = random_bytes(500, random.below(50));
          if (random.below(2) == 0) {
            acknowledged[store.put(kAcme, source_of(bytes)).info.address] = bytes;
          } else {
            sources.push_back(source_of(second));
            const auto stored = store.put_many(kAcme, sources);
            acknowledged[stored[0].info.address] = bytes;
            acknowledged[stored[1].info.address] = second;
          }
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::unavailable);
      }
      files.crash();
      Store after(kUae, directory, keys, clock, metrics);
      for (const auto& [address, bytes] : acknowledged) {
        ASSERT_EQ(after.get(kReader, address)->read_all(), bytes) << address.hex();
      }
      // Also what was never acknowledged: a record that opens refers to nothing that is not there.
      for (const auto& object : after.list(kAcme, std::nullopt, 1000)) {
        std::optional<ObjectInfo> info;
        try {
          info = after.stat(kReader, object.address);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::corrupt);  // torn
        }
        if (info) {
          EXPECT_NO_THROW(after.get(kReader, object.address)->read_all());
        }
      }
    }
  }
}

// A long random life against a map.
TEST(StoreModel, BehavesLikeAMapOfContents) {
  constexpr std::uint64_t kSeed = 20'240'501;
  RecordProperty("seed", std::to_string(kSeed));
  sys::SimRandom random(kSeed);
  sys::SimClock clock;
  MemoryBackend backend(clock);
  FixedKeys keys;
  Metrics metrics;
  Store store(kUae, backend, keys, clock, metrics, {.grace = hours(24), .list_entries = 2});
  struct Known {
    Bytes bytes;
    sys::Micros put_at;
    bool named = false;
  };
  std::map<Address, Known> model;
  for (int step = 0; step < repeats(400); ++step) {
    const auto pick = [&]() -> std::optional<Address> {
      if (model.empty()) return std::nullopt;
      return std::next(model.begin(), static_cast<long>(random.below(model.size())))->first;
    };
    switch (random.below(6)) {
      case 0:
      case 1: {
        const std::uint64_t which = random.below(30);
        const Bytes bytes = random_bytes(which * which * 5'000, which % 10);
        const Address address = store.put(kAcme, source_of(bytes)).info.address;
        model[address] = {bytes, clock.now(), random.below(2) == 0};
        break;
      }
      case 2: {
        if (const auto address = pick()) {
          const Bytes& bytes = model[*address].bytes;
          const std::uint64_t offset = random.below(bytes.size() + 1), length = random.below(bytes.size() + 1);
          const auto part = BytesView(bytes).subspan(offset, std::min(length, bytes.size() - offset));
          ASSERT_EQ(store.get(kReader, *address, offset, length)->read_all(), Bytes(part.begin(), part.end()));
        }
        break;
      }
      case 3:
        if (const auto address = pick(); address && random.below(3) == 0) {
          store.remove(kAcme, *address);
          model.erase(*address);
        }
        break;
      case 4:
        clock.advance(hours(random.below(10)));
        if (random.below(20) == 0) keys.rotate(kAcme);
        break;
      default: {
        std::vector<Address> roots;
        for (const auto& [address, known] : model) {
          if (known.named) roots.push_back(address);
        }
        const Collected collected = store.collect(kAcme, roots);
        ASSERT_TRUE(collected.missing.empty());
        // What is neither named nor put within the grace is gone, except that a put of known content need not have
        // made its record younger than half the grace.
        std::erase_if(model, [&](const auto& entry) {
          const bool gone = !store.exists(kReader, entry.first);
          if (gone) {
            EXPECT_FALSE(entry.second.named);
            EXPECT_GE(clock.now() - entry.second.put_at, hours(12));
          }
          return gone;
        });
      }
    }
    if (step % 50 == 0) {
      std::set<Address> listed;
      for (const auto& object : store.list(kAcme, std::nullopt, 1000)) listed.insert(object.address);
      ASSERT_EQ(listed.size(), model.size());
      for (const auto& [address, known] : model) ASSERT_TRUE(listed.contains(address));
      ASSERT_TRUE(store.scrub(kAcme).damaged.empty());
    }
  }
}

}  // namespace
}  // namespace falaj::blob
