// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "storage/blob/manifest.h"
#include "storage/blob/memory_backend.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

const ZoneName kEu{"eu"};

class StoreTest : public testing::Test {
 protected:
  Stored put(BytesView bytes) { return store_.put(kAcme, source_of(bytes)); }
  Bytes get(const Address& address, std::uint64_t offset = 0, std::uint64_t length = Backend::kToTheEnd) {
    return store_.get(kReader, address, offset, length)->read_all();
  }
  std::uint64_t held() {
    std::uint64_t sum = 0;
    for (const auto& info : backend_.list("", "", 1'000'000)) sum += info.bytes;
    return sum;
  }

  sys::SimClock clock_;
  MemoryBackend backend_{clock_};
  FixedKeys keys_;
  Metrics metrics_;
  Store store_{kUae, backend_, keys_, clock_, metrics_};
};

TEST_F(StoreTest, GivesBackWhatWasPutAtEverySize) {
  std::uint64_t seed = 10;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kInlineBytesMax - 1,
                                 kInlineBytesMax, kInlineBytesMax + 1, kChunkBytesMax, std::size_t{10'000'019}}) {
    SCOPED_TRACE(size);
    const Bytes bytes = random_bytes(size, ++seed);
    const Stored stored = put(bytes);
    EXPECT_EQ(stored.info.size, size);
    EXPECT_EQ(get(stored.info.address), bytes);
    EXPECT_EQ(store_.stat(kReader, stored.info.address), stored.info);
    EXPECT_TRUE(store_.exists(kReader, stored.info.address));
    EXPECT_EQ(put(bytes).info, stored.info) << "the same bytes have the same address";
    ContentHasher hasher;
    hasher.update(bytes);
    EXPECT_EQ(hasher.finish(), stored.info.content);
  }
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(StoreTest, GivesAnyRange) {
  const Bytes bytes = random_bytes(9'000'001, 1);
  const Address large = put(bytes).info.address;
  const Address small = put(BytesView(bytes).first(1000)).info.address;
  sys::SimRandom random(5);
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t offset = random.below(bytes.size() + 10), length = random.below(3'000'000);
    const auto from = std::min<std::uint64_t>(offset, bytes.size());
    const auto part = BytesView(bytes).subspan(from, std::min<std::uint64_t>(length, bytes.size() - from));
    ASSERT_EQ(get(large, offset, length), Bytes(part.begin(), part.end())) << offset << " " << length;
  }
  EXPECT_EQ(get(small, 990, 100), Bytes(bytes.begin() + 990, bytes.begin() + 1000));
  EXPECT_EQ(get(small, 1000, 1), Bytes());
  EXPECT_EQ(get(large, 0, 0), Bytes());
}

TEST_F(StoreTest, KnownContentStoresNothing) {
  const Bytes bytes = random_bytes(6'000'000, 1);
  const Stored first = put(bytes);
  EXPECT_EQ(first.new_bytes, held());
  const auto before = backend_.list("", "", 1000);
  EXPECT_EQ(put(bytes).new_bytes, 0U);
  EXPECT_EQ(backend_.list("", "", 1000).size(), before.size());
  Bytes longer = bytes;
  const Bytes more = random_bytes(60'000, 2);
  longer.insert(longer.end(), more.begin(), more.end());
  EXPECT_LT(put(longer).new_bytes, 60'000 + kChunkBytesMax);
}

TEST_F(StoreTest, PacksWhatGetsSmallerAndOnlyThat) {
  std::string text;
  while (text.size() < 5'000'000) text += "line " + std::to_string(text.size()) + " of a log\n";
  const Stored stored = put(as_bytes(text));
  EXPECT_LT(stored.new_bytes, text.size() / 3);
  EXPECT_EQ(as_text(get(stored.info.address)), text);
  const Stored random = put(random_bytes(5'000'000, 1));
  EXPECT_LT(random.new_bytes, 5'000'000 * 1.01);
}

TEST_F(StoreTest, TenantsShareNothing) {
  const Bytes bytes = random_bytes(3'000'000, 1);
  const Stored acme = put(bytes);
  const Stored other = store_.put(kOther, source_of(bytes));
  EXPECT_NE(acme.info.address, other.info.address);
  EXPECT_EQ(acme.info.content, other.info.content);
  EXPECT_EQ(other.new_bytes, acme.new_bytes);
  EXPECT_ERROR(store_.get({kOther, kUae}, acme.info.address), Code::not_found);
  EXPECT_ERROR(store_.stat({kOther, kUae}, acme.info.address), Code::not_found);
  EXPECT_FALSE(store_.exists({kOther, kUae}, acme.info.address));
}

TEST_F(StoreTest, NamesNothingAfterTenantsOrZones) {
  put(random_bytes(1'000'000, 1));
  for (const auto& info : backend_.list("", "", 1000)) {
    EXPECT_EQ(info.name.find("acme"), std::string::npos);
    const Bytes bytes = backend_.get(info.name, 0, Backend::kToTheEnd);
    EXPECT_EQ(as_text(bytes).find("acme"), std::string::npos);
  }
}

TEST_F(StoreTest, LetsNothingOutOfTheZoneWithoutAGrant) {
  const Address address = put(random_bytes(100, 1)).info.address;
  const std::int64_t later = clock_.wall().count() + 1000;
  const auto with = [&](TransferGrant grant) { return store_.get({kAcme, kEu, &grant}, address)->read_all(); };
  EXPECT_ERROR(store_.get({kAcme, kEu}, address), Code::denied);
  EXPECT_ERROR(store_.stat({kAcme, kEu}, address), Code::denied);
  EXPECT_ERROR(store_.exists({kAcme, kEu}, address), Code::denied);
  EXPECT_EQ(with({kUae, kEu, kAcme, address, later}), random_bytes(100, 1));
  EXPECT_EQ(with({kUae, kEu, kAcme, std::nullopt, later}), random_bytes(100, 1));
  EXPECT_ERROR(with({kUae, kEu, kAcme, Address{}, later}), Code::denied);
  EXPECT_ERROR(with({kUae, kEu, kOther, address, later}), Code::denied);
  EXPECT_ERROR(with({kUae, kUae, kAcme, address, later}), Code::denied);
  EXPECT_ERROR(with({kEu, kEu, kAcme, address, later}), Code::denied);
  EXPECT_ERROR(with({kUae, kEu, kAcme, address, clock_.wall().count()}), Code::denied);
}

TEST_F(StoreTest, AnObjectOfOneZoneDoesNotOpenInAnother) {
  const Address address = put(random_bytes(100, 1)).info.address;
  Store eu(kEu, backend_, keys_, clock_, metrics_);  // the same backend and keys, another zone
  EXPECT_ERROR(eu.get({kAcme, kEu}, address), Code::not_found);
}

TEST_F(StoreTest, PutManyIsLikeManyPuts) {
  std::vector<Bytes> contents;
  std::vector<Source> sources;
  for (std::uint64_t i = 0; i < 50; ++i) contents.push_back(random_bytes(i % 7 == 0 ? 1'500'000 : i * 100, i));
  contents.push_back(contents[3]);
  for (const auto& content : contents) sources.push_back(source_of(content));
  const auto stored = store_.put_many(kAcme, sources);
  ASSERT_EQ(stored.size(), contents.size());
  for (std::size_t i = 0; i < contents.size(); ++i) {
    EXPECT_EQ(get(stored[i].info.address), contents[i]);
    EXPECT_EQ(put(contents[i]).info, stored[i].info);
  }
  EXPECT_EQ(store_.list(kAcme, std::nullopt, 1000).size(), contents.size() - 1);
  EXPECT_TRUE(store_.put_many(kAcme, {}).empty());
}

TEST_F(StoreTest, ListsInPages) {
  std::set<Address> all;
  for (std::uint64_t i = 0; i < 25; ++i) all.insert(put(random_bytes(10 + i, i)).info.address);
  std::vector<Address> listed;
  std::optional<Address> after;
  for (;;) {
    const auto page = store_.list(kAcme, after, 7);
    if (page.empty()) break;
    EXPECT_LE(page.size(), 7U);
    for (const auto& object : page) listed.push_back(object.address);
    after = listed.back();
  }
  EXPECT_EQ(listed, std::vector<Address>(all.begin(), all.end()));
  EXPECT_TRUE(store_.list(kOther, std::nullopt, 7).empty());
}

TEST_F(StoreTest, RefusesAnObjectAboveTheLimit) {
  Store small(kUae, backend_, keys_, clock_, metrics_, {.threads = 0, .object_bytes_max = 2'000'000});
  EXPECT_EQ(small.put(kAcme, random_source(2'000'000, 1)).info.size, 2'000'000U);
  EXPECT_ERROR(small.put(kAcme, random_source(2'000'001, 1)), Code::exhausted);
}

TEST_F(StoreTest, PassesOnWhatASourceThrows) {
  int calls = 0;
  const Source broken = [&](std::span<std::byte> out) -> std::size_t {
    if (++calls > 100) throw Error(Code::cancelled, "the client went away");
    return std::min<std::size_t>(out.size(), 50'000);
  };
  EXPECT_ERROR(store_.put(kAcme, broken), Code::cancelled);
  EXPECT_TRUE(store_.list(kAcme, std::nullopt, 10).empty());
}

TEST_F(StoreTest, RotatedKeysReadOldObjectsAndRewrapNeedsThemNoMore) {
  const Bytes bytes = random_bytes(3'000'000, 1);
  const Address old_address = put(bytes).info.address;
  keys_.rotate(kAcme);
  EXPECT_EQ(get(old_address), bytes);
  EXPECT_EQ(put(bytes).new_bytes, 0U) << "rotation does not change addresses";
  const Address new_address = put(random_bytes(1000, 2)).info.address;
  const std::uint64_t blocks = backend_.list("", "", 1000).size();
  EXPECT_EQ(store_.rewrap(kAcme), blocks - 1);
  EXPECT_EQ(store_.rewrap(kAcme), 0U);
  keys_.forget(kAcme, 1);
  EXPECT_EQ(get(old_address), bytes);
  EXPECT_EQ(get(new_address), random_bytes(1000, 2));
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(StoreTest, AForgottenKeyShredsWhatItWrapped) {
  const Address address = put(random_bytes(1000, 1)).info.address;
  keys_.rotate(kAcme);
  keys_.forget(kAcme, 1);
  EXPECT_ERROR(get(address), Code::corrupt);
}

TEST_F(StoreTest, AnObjectMayHaveManyLists) {
  Store store(kUae, backend_, keys_, clock_, metrics_, {.list_entries = 3});
  for (const std::size_t size : {3'000'000, 9'000'000, 20'000'000}) {
    const Bytes bytes = random_bytes(size, size);
    const Address address = store.put(kAcme, source_of(bytes)).info.address;
    EXPECT_EQ(get(address), bytes);
    EXPECT_EQ(put(bytes).info.address, address) << "the address is that of the content, however it is listed";
    EXPECT_EQ(get(address, size - 10), Bytes(bytes.end() - 10, bytes.end()));
    for (std::size_t at = 0; at < size; at += 777'777) {
      ASSERT_EQ(get(address, at, 3),
                Bytes(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at) + 3));
    }
  }
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(StoreTest, ConcurrentPutsOfTheSameContentAgree) {
  const Bytes bytes = random_bytes(5'000'000, 1), small = random_bytes(500, 2);
  std::vector<std::thread> threads;
  std::vector<Address> large(6), little(6);
  for (std::size_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      large[i] = put(bytes).info.address;
      little[i] = put(small).info.address;
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(large[i], large[0]);
    EXPECT_EQ(little[i], little[0]);
  }
  EXPECT_EQ(get(large[0]), bytes);
  EXPECT_EQ(get(little[0]), small);
  EXPECT_TRUE(store_.scrub(kAcme).damaged.empty());
}

TEST_F(StoreTest, AFailingBackendFailsThePutAndNothingElse) {
  const Bytes bytes = random_bytes(4'000'000, 1);
  for (int nth = 1;; ++nth) {
    MemoryBackend memory(clock_);
    std::atomic<int> calls{0};
    FaultyBackend faulty(memory, [&](BackendCall, const std::string&) { return ++calls == nth; });
    Store store(kUae, faulty, keys_, clock_, metrics_);
    bool failed = false;
    try {
      store.put(kAcme, source_of(bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unavailable);
      failed = true;
    }
    calls = 1'000'000;
    const Stored again = store.put(kAcme, source_of(bytes));
    EXPECT_EQ(store.get(kReader, again.info.address)->read_all(), bytes);
    if (!failed) break;
    ASSERT_LT(nth, 100);
  }
}

}  // namespace
}  // namespace falaj::blob
