// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/key.h"
#include "storage/blob/block.h"
#include "storage/blob/object.h"

namespace falaj::blob {

// What the bodies of object and list blocks say. Functions of values. docs/formats/blob.md has the layout.

inline constexpr std::size_t kInlineBytesMax = kChunkBytesMin;  // such an object is one block, and one chunk
inline constexpr std::size_t kListEntries = 8192;               // of an object's only list, and of each of several
inline constexpr std::size_t kListsMax = 65'536;

// A chunk of an object, or a list of chunks: its digest, from which its address follows, and the content it stands for.
struct Part {
  std::uint64_t bytes = 0;
  Digest digest;
  friend bool operator==(const Part&, const Part&) = default;
};

struct Manifest {
  enum class Form : std::uint8_t { inlined = 1, chunks = 2, lists = 3 };
  Form form = Form::inlined;
  std::uint64_t size = 0;
  Digest content;
  Bytes bytes;              // inlined
  std::vector<Part> parts;  // chunks or lists
};
Bytes encode(const Manifest& manifest);
Manifest parse_manifest(BytesView body);  // throws corrupt

Bytes encode_list(const std::vector<Part>& chunks);
std::vector<Part> parse_list(BytesView body);  // throws corrupt

// The address of a block of a tenant, from the digest of what it stands for.
Digest address_of(const crypto::Key& address_key, Kind kind, const Digest& digest);

// The digest of a content, from the digests of its chunks.
class ContentDigest {
 public:
  ContentDigest();
  void add(const Part& chunk);
  std::uint64_t size() const { return size_; }
  Digest finish();

 private:
  crypto::Sha256 hash_;
  std::uint64_t size_ = 0;
};

// The same from the bytes: for whoever holds content and wants to know whether it is what an ObjectInfo says.
class ContentHasher {
 public:
  void update(BytesView bytes);
  Digest finish();

 private:
  void end_chunk();
  Chunker chunker_;
  crypto::Sha256 chunk_;
  std::uint64_t chunk_bytes_ = 0;
  ContentDigest content_;
};

}  // namespace falaj::blob
