// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "foundation/base/testing.h"
#include "storage/blob/manifest.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

crypto::Key key_of(std::uint32_t version) { return crypto::Key::from(Bytes(32, static_cast<std::byte>(version))); }
BlockId id_of(Kind kind, std::uint8_t n = 1) { return {kUae, kAcme, kind, {{std::byte{n}}}}; }

TEST(Block, ComesBackAtEverySizePackedOrNot) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20, kBodyBytesMax}) {
    for (const Bytes& body : {random_bytes(size, size), Bytes(size, std::byte{'a'})}) {
      const Bytes block = seal_block(id_of(Kind::chunk), 3, key_of(3), body);
      EXPECT_LE(block.size(), kBlockBytesMax);
      EXPECT_EQ(parse_block_header(block).key_version, 3U);
      EXPECT_EQ(open_block(id_of(Kind::chunk), key_of, block), body);
    }
  }
}

TEST(Block, SaysWhetherItIsPacked) {
  EXPECT_TRUE(parse_block_header(seal_block(id_of(Kind::chunk), 1, key_of(1), Bytes(1 << 20))).packed);
  EXPECT_FALSE(parse_block_header(seal_block(id_of(Kind::chunk), 1, key_of(1), random_bytes(1 << 20, 1))).packed);
}

TEST(Block, OpensOnlyAsWhatItIs) {
  const Bytes block = seal_block(id_of(Kind::chunk), 1, key_of(1), random_bytes(100, 1));
  const ZoneName eu{"eu"};
  const TenantName other{"other"};
  EXPECT_ERROR(open_block(id_of(Kind::list), key_of, block), Code::corrupt);
  EXPECT_ERROR(open_block(id_of(Kind::chunk, 2), key_of, block), Code::corrupt);
  EXPECT_ERROR(open_block({eu, kAcme, Kind::chunk, id_of(Kind::chunk).address}, key_of, block), Code::corrupt);
  EXPECT_ERROR(open_block({kUae, other, Kind::chunk, id_of(Kind::chunk).address}, key_of, block), Code::corrupt);
  const auto wrong_key = [](std::uint32_t) { return key_of(9); };
  EXPECT_ERROR(open_block(id_of(Kind::chunk), wrong_key, block), Code::corrupt);
}

TEST(Block, IsRewrappedWithoutTouchingTheBody) {
  const Bytes body = random_bytes(100'000, 1), block = seal_block(id_of(Kind::object), 1, key_of(1), body);
  const Bytes rewrapped = rewrap_block(id_of(Kind::object), key_of, 2, block);
  EXPECT_EQ(parse_block_header(rewrapped).key_version, 2U);
  EXPECT_TRUE(std::equal(block.begin() + kBlockHeaderBytes, block.end(), rewrapped.begin() + kBlockHeaderBytes,
                         rewrapped.end()));
  const auto only_new = [](std::uint32_t version) {
    if (version != 2) throw Error(Code::not_found, "gone");
    return key_of(version);
  };
  EXPECT_EQ(open_block(id_of(Kind::object), only_new, rewrapped), body);
}

// Written by the first version of the format; it must be readable for ever.
TEST(Block, OpensTheGoldenFile) {
  std::ifstream in(FALAJ_TESTDATA "/block_v1.bin", std::ios::binary);
  const std::string block((std::istreambuf_iterator<char>(in)), {});
  ASSERT_FALSE(block.empty());
  const Manifest manifest = parse_manifest(open_block(id_of(Kind::object), key_of, as_bytes(block)));
  EXPECT_EQ(as_text(manifest.bytes), "the first object of all");
  EXPECT_EQ(manifest.size, 23U);
}

TEST(Manifest, RefusesWhatDoesNotAddUp) {
  const Digest digest{};
  Manifest chunks{Manifest::Form::chunks, 700'000, digest, {}, {{300'000, digest}, {400'000, digest}}};
  EXPECT_EQ(parse_manifest(encode(chunks)).parts, chunks.parts);
  chunks.size += 1;
  EXPECT_ERROR(parse_manifest(encode(chunks)), Code::corrupt);
  chunks.parts = {{kChunkBytesMax + 1, digest}};
  chunks.size = kChunkBytesMax + 1;
  EXPECT_ERROR(parse_manifest(encode(chunks)), Code::corrupt);
  chunks.parts = {};
  chunks.size = 0;
  EXPECT_ERROR(parse_manifest(encode(chunks)), Code::corrupt);
  chunks.parts = {{std::uint64_t{1} << 63, digest}, {std::uint64_t{1} << 63, digest}};  // the sum wraps to 0
  EXPECT_ERROR(parse_manifest(encode(chunks)), Code::corrupt);
  Manifest inlined{Manifest::Form::inlined, kInlineBytesMax + 1, digest, Bytes(kInlineBytesMax + 1), {}};
  EXPECT_ERROR(parse_manifest(encode(inlined)), Code::corrupt);
  EXPECT_ERROR(parse_manifest({}), Code::corrupt);
  std::vector<Part> too_many(kListEntries + 1, {1, digest});
  EXPECT_ERROR(parse_list(encode_list(too_many)), Code::corrupt);
  too_many.pop_back();
  EXPECT_EQ(parse_list(encode_list(too_many)).size(), kListEntries);
}

}  // namespace
}  // namespace falaj::blob
