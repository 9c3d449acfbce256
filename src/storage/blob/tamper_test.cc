// SPDX-License-Identifier: Apache-2.0
// Whatever somebody with write access to the backend does to it is found, by whom reads and by the scrubber.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "foundation/base/testing.h"
#include "storage/blob/block.h"
#include "storage/blob/memory_backend.h"
#include "storage/blob/store.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

class Tampered : public testing::Test {
 protected:
  void SetUp() override {
    large_ = store_.put(kAcme, source_of(bytes_)).info.address;
    small_ = store_.put(kAcme, source_of(BytesView(bytes_).first(1000))).info.address;
    for (const auto& info : backend_.list("", "", 1000)) names_.push_back(info.name);
    for (const auto& name : names_) originals_[name] = backend_.get(name, 0, Backend::kToTheEnd);
    ASSERT_TRUE(store().scrub(kAcme).damaged.empty());
  }
  // A fresh one each time: it must not rely on what it saw before.
  Store& store() {
    fresh_ = std::make_unique<Store>(kUae, backend_, keys_, clock_, metrics_, StoreOptions{.list_entries = 2});
    return *fresh_;
  }
  void write(const std::string& name, BytesView bytes) { backend_.put(name, bytes, Durable::now, Existing::replace); }
  void restore() {
    for (const auto& [name, bytes] : originals_) write(name, bytes);
  }
  bool reads_whole(const Address& address) {
    try {
      (void)store().get({kAcme, kUae}, address)->read_all();
      return true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::corrupt || error.code() == Code::not_found) << error.what();
      return false;
    }
  }
  // The scrubber names the block, no object that needs it can be read, and putting the content again repairs it.
  void expect_found(const std::string& name, const std::string& what) {
    SCOPED_TRACE(name + ": " + what);
    const auto damaged = store().scrub(kAcme).damaged;
    EXPECT_TRUE(std::any_of(damaged.begin(), damaged.end(), [&](const Damage& d) { return d.name == name; }));
    EXPECT_FALSE(reads_whole(large_) && reads_whole(small_));
  }
  // Places in a block, one of each kind: every field of the header, and of the sealed stream behind it the magic, salt,
  // commitment, the first, a middle and the last chunk, and their tags.
  std::vector<std::size_t> places(const Bytes& block) const {
    std::vector<std::size_t> at = {0, 3, 4, 5, 6, 7, 8, 11, 12, 15};  // clear fields
    for (const std::size_t wrapped : {0, 3, 4, 35, 36, 67, 68, 99, 100, 115}) at.push_back(16 + wrapped);
    for (const std::size_t sealed : {0, 3, 4, 35, 36, 67, 68}) at.push_back(kBlockHeaderBytes + sealed);
    constexpr std::size_t kChunk = crypto::kSealChunkBytes + crypto::kSealTagBytes;
    for (std::size_t from = kBlockHeaderBytes + 68; from < block.size(); from += kChunk) {
      const std::size_t end = std::min(block.size(), from + kChunk);
      at.insert(at.end(), {from, (from + end) / 2, end - 17, end - 16, end - 1});
    }
    return at;
  }

  const Bytes bytes_ = random_bytes(3'500'000, 1);
  sys::SimClock clock_;
  MemoryBackend backend_{clock_};
  FixedKeys keys_;
  Metrics metrics_;
  Store store_{kUae, backend_, keys_, clock_, metrics_, {.list_entries = 2}};
  std::unique_ptr<Store> fresh_;
  Address large_, small_;
  std::vector<std::string> names_;
  std::map<std::string, Bytes> originals_;
};

TEST_F(Tampered, EveryFlippedByteOfEveryKindIsFoundAndNamed) {
  std::size_t tried = 0;
  std::set<char> kinds;
  for (const auto& name : names_) {
    const Bytes original = originals_[name];
    const char kind = name[name.find('/') + 1];
    if (!kinds.insert(kind).second && original.size() > 100'000) continue;  // one large block of a kind is enough
    for (const std::size_t at : places(original)) {
      Bytes damaged = original;
      damaged[at] ^= std::byte{0x01};
      write(name, damaged);
      expect_found(name, "byte " + std::to_string(at));
      ++tried;
    }
    write(name, original);
  }
  EXPECT_EQ(kinds, (std::set<char>{'c', 'l', 'o'}));
  EXPECT_GT(tried, 150U);
}

TEST_F(Tampered, EveryTruncationIsFoundAndNamed) {
  for (const auto& name : names_) {
    const Bytes original = originals_[name];
    std::vector<std::size_t> sizes = {0,
                                      1,
                                      15,
                                      16,
                                      kBlockHeaderBytes - 1,
                                      kBlockHeaderBytes,
                                      kBlockHeaderBytes + 67,
                                      kBlockHeaderBytes + 68,
                                      original.size() - 17,
                                      original.size() - 16,
                                      original.size() - 1};
    for (const std::size_t size : sizes) {
      write(name, BytesView(original).first(size));
      expect_found(name, "cut to " + std::to_string(size));
    }
    Bytes longer = original;
    longer.push_back(std::byte{0});
    write(name, longer);
    expect_found(name, "a byte more");
    write(name, original);
  }
}

TEST_F(Tampered, SwappedAndRenamedBlocksAreFound) {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string &a = names_[i], &b = names_[(i + 1) % names_.size()];
    write(a, originals_[b]);
    write(b, originals_[a]);
    expect_found(a, "swapped");
    expect_found(b, "swapped");
    restore();
  }
  // Under a name that nothing refers to.
  const std::string stray = names_[0].substr(0, names_[0].rfind('/') + 1) + std::string(64, 'a');
  write(stray, originals_[names_[0]]);
  const auto damaged = store().scrub(kAcme).damaged;
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].name, stray);
}

TEST_F(Tampered, AMissingBlockIsFoundAndNamed) {
  for (const auto& name : names_) {
    if (name.find("/o/") != std::string::npos) continue;  // without its record an object is not damaged but not there
    backend_.remove(name);
    expect_found(name, "missing");
    restore();
  }
  store().remove(kAcme, small_);
  EXPECT_ERROR(store().get({kAcme, kUae}, small_), Code::not_found);
}

TEST_F(Tampered, AnotherTenantsBlocksAreRefused) {
  const Address theirs = store().put(kOther, source_of(BytesView(bytes_).first(1000))).info.address;
  std::string their_name;
  for (const auto& info : backend_.list("", "", 1000)) {
    if (info.name.ends_with(theirs.hex())) their_name = info.name;
  }
  const auto mine =
      std::find_if(names_.begin(), names_.end(), [&](const auto& n) { return n.ends_with(small_.hex()); });
  ASSERT_NE(mine, names_.end());
  write(*mine, backend_.get(their_name, 0, Backend::kToTheEnd));
  expect_found(*mine, "another tenant's");
}

TEST_F(Tampered, AnOlderBlockOfTheSameNameIsTheSame) {
  // Content-addressed: rolling a block back can only bring back the same content.
  const std::string name = names_.back();
  keys_.rotate(kAcme);
  store().rewrap(kAcme);
  write(name, originals_[name]);
  EXPECT_TRUE(store().scrub(kAcme).damaged.empty());
}

TEST_F(Tampered, PuttingTheContentAgainRepairs) {
  for (const auto& name : names_) {
    Bytes damaged = originals_[name];
    damaged[damaged.size() / 2] ^= std::byte{1};
    write(name, damaged);
  }
  EXPECT_EQ(store().scrub(kAcme).damaged.size(), names_.size());
  Store& again = store();
  again.put(kAcme, source_of(bytes_));
  again.put(kAcme, source_of(BytesView(bytes_).first(1000)));
  EXPECT_TRUE(store().scrub(kAcme).damaged.empty());
  EXPECT_TRUE(reads_whole(large_) && reads_whole(small_));
}

}  // namespace
}  // namespace falaj::blob
