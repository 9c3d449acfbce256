// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/block.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "foundation/base/error.h"

namespace falaj::blob {

namespace {

constexpr std::array<std::byte, 4> kMagic = {std::byte{'F'}, std::byte{'B'}, std::byte{'K'}, std::byte{1}};
constexpr int kZstdLevel = 1;
constexpr std::size_t kProbeBytes = 64 * 1024;
constexpr std::size_t kPackBytesMin = 256;

[[noreturn]] void damaged(const std::string& what) { throw Error(Code::corrupt, "a stored block is damaged: " + what); }

// What is bound to the body and to the wrapped key: everything but the key's version, which rewrapping changes.
Bytes bound(const BlockId& id, bool packed, std::size_t body_bytes) {
  ByteWriter out;
  out.raw(kMagic);
  out.u8(static_cast<std::uint8_t>(id.kind));
  out.u8(packed ? 1 : 0);
  out.u32(static_cast<std::uint32_t>(body_bytes));
  out.text(id.zone.value);
  out.text(id.tenant.value);
  out.raw(id.address.view());
  return out.take();
}

struct FreeZstd {
  void operator()(ZSTD_CCtx* ctx) const { ZSTD_freeCCtx(ctx); }
  void operator()(ZSTD_DCtx* ctx) const { ZSTD_freeDCtx(ctx); }
};

// Nothing when it would not become a tenth smaller.
std::optional<Bytes> packed(BytesView body) {
  if (body.size() < kPackBytesMin) return std::nullopt;
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeZstd> ctx(ZSTD_createCCtx());
  const auto compress = [&](BytesView part) -> std::optional<Bytes> {
    Bytes out(part.size() - part.size() / 10);  // no room for less gain than wanted
    const std::size_t n = ZSTD_compressCCtx(ctx.get(), out.data(), out.size(), part.data(), part.size(), kZstdLevel);
    if (ZSTD_isError(n)) return std::nullopt;
    out.resize(n);
    return out;
  };
  // Most large content is compressed already (Parquet, images, weights): the beginning tells, for a 16th of the work.
  if (body.size() > 4 * kProbeBytes && !compress(body.first(kProbeBytes))) return std::nullopt;
  return compress(body);
}

Bytes unpacked(BytesView bytes, std::size_t body_bytes) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeZstd> ctx(ZSTD_createDCtx());
  Bytes out(body_bytes);
  const std::size_t n = ZSTD_decompressDCtx(ctx.get(), out.data(), out.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(n) || n != body_bytes) damaged("it does not unpack");
  return out;
}

Bytes header_bytes(Kind kind, bool packed, std::uint32_t version, std::size_t body_bytes, BytesView wrapped_key) {
  ByteWriter out;
  out.raw(kMagic);
  out.u8(static_cast<std::uint8_t>(kind));
  out.u8(packed ? 1 : 0);
  out.u8(0);
  out.u8(0);
  out.u32(version);
  out.u32(static_cast<std::uint32_t>(body_bytes));
  out.raw(wrapped_key);
  return out.take();
}

BlockHeader parse_header_of(const BlockId& id, BytesView block) {
  const BlockHeader header = parse_block_header(block);
  if (header.kind != id.kind) damaged("it is of another kind");
  return header;
}

}  // namespace

BlockHeader parse_block_header(BytesView block) {
  if (block.size() < kBlockHeaderBytes) damaged("it is cut short");
  ByteReader in(block);
  if (!std::ranges::equal(in.raw(kMagic.size()), kMagic)) damaged("not a block of this version");
  BlockHeader header;
  const std::uint8_t kind = in.u8();
  if (kind != 'o' && kind != 'l' && kind != 'c') damaged("no such kind");
  header.kind = static_cast<Kind>(kind);
  const std::uint8_t packing = in.u8();
  if (packing > 1) damaged("no such packing");
  header.packed = packing == 1;
  if (in.u8() != 0 || in.u8() != 0) damaged("reserved bytes are set");
  header.key_version = in.u32();
  header.body_bytes = in.u32();
  if (header.body_bytes > kBodyBytesMax) damaged("it would be too large");
  header.wrapped_key = in.raw(crypto::kWrappedKeyBytes);
  return header;
}

Bytes seal_block(const BlockId& id, std::uint32_t key_version, const crypto::Key& tenant_key, BytesView body) {
  Bytes out;
  seal_block(out, id, key_version, tenant_key, body);
  return out;
}

void seal_block(Bytes& out, const BlockId& id, std::uint32_t key_version, const crypto::Key& tenant_key,
                BytesView body) {
  CHECK(body.size() <= kBodyBytesMax, "a block's body fits");
  const std::optional<Bytes> smaller = packed(body);
  const Bytes bound_to = bound(id, smaller.has_value(), body.size());
  const crypto::Key data_key = crypto::Key::random();
  const Bytes header = header_bytes(id.kind, smaller.has_value(), key_version, body.size(),
                                    crypto::wrap_key(tenant_key, data_key, bound_to));
  const BytesView stored = smaller ? BytesView(*smaller) : body;
  out.assign(header.begin(), header.end());
  out.reserve(header.size() + crypto::sealed_size(stored.size()));
  crypto::seal_onto(out, data_key, bound_to, stored);
}

Bytes open_block(const BlockId& id, const KeyOfVersion& key_of, BytesView block) {
  const BlockHeader header = parse_header_of(id, block);
  const Bytes bound_to = bound(id, header.packed, header.body_bytes);
  const crypto::Key data_key = crypto::unwrap_key(key_of(header.key_version), header.wrapped_key, bound_to);
  Bytes stored = crypto::open(data_key, bound_to, block.subspan(kBlockHeaderBytes));
  if (header.packed) return unpacked(stored, header.body_bytes);
  if (stored.size() != header.body_bytes) damaged("it has another size than it says");
  return stored;
}

Bytes rewrap_block(const BlockId& id, const KeyOfVersion& key_of, std::uint32_t version, BytesView block) {
  const BlockHeader header = parse_header_of(id, block);
  const Bytes bound_to = bound(id, header.packed, header.body_bytes);
  const crypto::Key data_key = crypto::unwrap_key(key_of(header.key_version), header.wrapped_key, bound_to);
  Bytes out = header_bytes(id.kind, header.packed, version, header.body_bytes,
                           crypto::wrap_key(key_of(version), data_key, bound_to));
  const auto body = block.subspan(kBlockHeaderBytes);
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

}  // namespace falaj::blob
