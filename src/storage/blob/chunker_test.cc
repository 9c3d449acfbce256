// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/chunker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "foundation/sys/random.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

std::vector<Bytes> cut(const Bytes& all, std::size_t piece_max = 1 << 20, sys::Random* random = nullptr) {
  Chunker chunker;
  std::vector<Bytes> chunks(1);
  BytesView left = all;
  while (!left.empty()) {
    const auto piece = left.first(std::min(left.size(), random ? 1 + random->below(piece_max) : piece_max));
    const auto end = chunker.next(piece);
    const auto part = piece.first(end.value_or(piece.size()));
    chunks.back().insert(chunks.back().end(), part.begin(), part.end());
    left = left.subspan(part.size());
    if (end) chunks.emplace_back();
  }
  if (chunks.back().empty()) chunks.pop_back();
  return chunks;
}

std::multiset<std::string> digests(const std::vector<Bytes>& chunks) {
  std::multiset<std::string> out;
  for (const auto& chunk : chunks) out.insert(crypto::sha256(chunk).hex());
  return out;
}

// Bytes of `chunks` whose chunk is not among `known`.
std::size_t new_bytes(const std::vector<Bytes>& chunks, const std::multiset<std::string>& known) {
  std::size_t sum = 0;
  for (const auto& chunk : chunks) sum += known.contains(crypto::sha256(chunk).hex()) ? 0 : chunk.size();
  return sum;
}

TEST(Chunker, KeepsSizesWithinBoundsAndNearTheAverage) {
  const auto chunks = cut(random_bytes(200 << 20, 1));
  std::size_t sum = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    sum += chunks[i].size();
    EXPECT_LE(chunks[i].size(), kChunkBytesMax);
    if (i + 1 < chunks.size()) {
      EXPECT_GT(chunks[i].size(), kChunkBytesMin);
    }
  }
  EXPECT_EQ(sum, std::size_t{200} << 20);
  const double average = static_cast<double>(sum) / static_cast<double>(chunks.size());
  EXPECT_NEAR(average / kChunkBytesAverage, 1.0, 0.25);
}

TEST(Chunker, CutsTheSameHoweverTheBytesArrive) {
  const std::uint64_t seed = 42;
  RecordProperty("seed", std::to_string(seed));
  sys::SimRandom random(seed);
  const Bytes all = random_bytes(12 << 20, 2);
  const auto whole = cut(all);
  ASSERT_GT(whole.size(), 5U);
  EXPECT_EQ(cut(all, 12 << 20), whole);
  EXPECT_EQ(cut(all, 4097), whole);
  for (int round = 0; round < 5; ++round) EXPECT_EQ(cut(all, 300'000, &random), whole);
}

TEST(Chunker, CutsMonotonousBytesAtTheLargestSize) {
  const auto chunks = cut(Bytes(10 << 20));
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].size(), kChunkBytesMax);
  EXPECT_EQ(chunks[2].size(), std::size_t{2} << 20);
}

TEST(Chunker, NeverCutsWhatIsSmall) {
  for (const std::size_t size : {std::size_t{1}, kChunkBytesMin - 1, kChunkBytesMin}) {
    EXPECT_EQ(cut(random_bytes(size, 3)).size(), 1U);
  }
}

TEST(Chunker, ChangesOnlyTheChunksAroundAnEdit) {
  const std::uint64_t seed = 7;
  RecordProperty("seed", std::to_string(seed));
  sys::SimRandom random(seed);
  const Bytes all = random_bytes(48 << 20, 4);
  const auto known = digests(cut(all));
  for (int round = 0; round < repeats(8); ++round) {
    Bytes edited = all;
    const auto at = static_cast<std::ptrdiff_t>(random.below(all.size() - 100'000));
    const std::size_t size = 1 + random.below(100'000);
    if (round % 2 == 0) {
      const Bytes inserted = random_bytes(size, 100 + static_cast<std::uint64_t>(round));
      edited.insert(edited.begin() + at, inserted.begin(), inserted.end());
    } else {
      edited.erase(edited.begin() + at, edited.begin() + at + static_cast<std::ptrdiff_t>(size));
    }
    EXPECT_LE(new_bytes(cut(edited), known), size + 3 * kChunkBytesMax) << "at " << at << " size " << size;
  }
  Bytes moved = random_bytes(5'000'001, 5);  // the same content somewhere else
  moved.insert(moved.end(), all.begin(), all.end());
  EXPECT_LE(new_bytes(cut(moved), known), 5'000'001 + 2 * kChunkBytesMax);
}

// The cuts are part of the format: content put by one version must be known to the next.
TEST(Chunker, CutsAsTheFirstVersionDid) {
  std::vector<std::size_t> sizes;
  for (const auto& chunk : cut(random_bytes(6 << 20, 6))) sizes.push_back(chunk.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1102272, 1491998, 1318025, 1744779, 634382}));
}

}  // namespace
}  // namespace falaj::blob
