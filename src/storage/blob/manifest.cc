// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/manifest.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::blob {

namespace {

[[noreturn]] void manifest_damaged(const char* what) {
  throw Error(Code::corrupt, std::string("an object's record is damaged: ") + what);
}

void put_parts(ByteWriter& out, const std::vector<Part>& parts) {
  out.u32(static_cast<std::uint32_t>(parts.size()));
  for (const auto& part : parts) {
    out.u64(part.bytes);
    out.raw(part.digest.view());
  }
}

std::vector<Part> take_parts(ByteReader& in, std::size_t most) {
  constexpr std::size_t kPartBytes = 8 + sizeof(Digest);
  const std::uint32_t count = in.u32();
  if (count == 0 || count > most || in.left() != count * kPartBytes)
    manifest_damaged("a list has another length than it says");
  std::vector<Part> parts(count);
  for (auto& part : parts) {
    part.bytes = in.u64();
    if (part.bytes == 0) manifest_damaged("a part is empty");
    std::ranges::copy(in.raw(sizeof(Digest)), part.digest.bytes.begin());
  }
  return parts;
}

// Throws when a part is too large or they do not add up; `limit` keeps the sum from wrapping.
void check_sum(const std::vector<Part>& parts, std::uint64_t limit, std::uint64_t size) {
  std::uint64_t sum = 0;
  for (const auto& part : parts) {
    if (part.bytes > limit) manifest_damaged("a part is too large");
    sum += part.bytes;
  }
  if (sum != size) manifest_damaged("the parts do not add up to the whole");
}

}  // namespace

Bytes encode(const Manifest& manifest) {
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(manifest.form));
  out.u64(manifest.size);
  out.raw(manifest.content.view());
  if (manifest.form == Manifest::Form::inlined) {
    out.raw(manifest.bytes);
  } else {
    put_parts(out, manifest.parts);
  }
  return out.take();
}

Manifest parse_manifest(BytesView body) {
  ByteReader in(body);
  Manifest manifest;
  const std::uint8_t form = in.u8();
  if (form < 1 || form > 3) manifest_damaged("no such form");
  manifest.form = static_cast<Manifest::Form>(form);
  manifest.size = in.u64();
  std::ranges::copy(in.raw(sizeof(Digest)), manifest.content.bytes.begin());
  if (manifest.form == Manifest::Form::inlined) {
    if (in.left() != manifest.size || in.left() > kInlineBytesMax) manifest_damaged("it has another size than it says");
    const auto bytes = in.raw(in.left());
    manifest.bytes.assign(bytes.begin(), bytes.end());
  } else if (manifest.form == Manifest::Form::chunks) {
    manifest.parts = take_parts(in, kListEntries);
    check_sum(manifest.parts, kChunkBytesMax, manifest.size);
  } else {
    manifest.parts = take_parts(in, kListsMax);
    check_sum(manifest.parts, kListEntries * kChunkBytesMax, manifest.size);
  }
  in.expect_end();
  return manifest;
}

Bytes encode_list(const std::vector<Part>& chunks) {
  ByteWriter out;
  put_parts(out, chunks);
  return out.take();
}

std::vector<Part> parse_list(BytesView body) {
  ByteReader in(body);
  auto parts = take_parts(in, kListEntries);
  for (const auto& part : parts) {
    if (part.bytes > kChunkBytesMax) manifest_damaged("a chunk is too large");
  }
  return parts;
}

Digest address_of(const crypto::Key& address_key, Kind kind, const Digest& digest) {
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(kind));
  out.raw(digest.view());
  return crypto::hmac_sha256(address_key, out.bytes());
}

namespace {
constexpr std::string_view kContentPrefix = "falaj content v1";
}

ContentDigest::ContentDigest() { hash_.update(as_bytes(kContentPrefix)); }

void ContentDigest::add(const Part& chunk) {
  hash_.update(chunk.digest.view());
  size_ += chunk.bytes;
}

Digest ContentDigest::finish() {
  ByteWriter size;
  size.u64(size_);
  hash_.update(size.bytes());
  const Digest digest = hash_.finish();
  *this = ContentDigest();
  return digest;
}

void ContentHasher::update(BytesView bytes) {
  while (!bytes.empty()) {
    const auto cut = chunker_.next(bytes);
    const auto part = bytes.first(cut.value_or(bytes.size()));
    chunk_.update(part);
    chunk_bytes_ += part.size();
    bytes = bytes.subspan(part.size());
    if (cut) end_chunk();
  }
}

void ContentHasher::end_chunk() {
  content_.add({chunk_bytes_, chunk_.finish()});
  chunk_bytes_ = 0;
}

Digest ContentHasher::finish() {
  if (chunk_bytes_ > 0) end_chunk();
  chunker_.reset();
  return content_.finish();
}

}  // namespace falaj::blob
