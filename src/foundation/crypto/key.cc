// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/key.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

namespace {

// Slots of 32 bytes in pages that are locked (as far as the limit on locked memory allows), left out of core dumps and
// not handed to forked children. Pages are kept for the life of the process. Thread-safe.
class SecretPages {
 public:
  std::byte* take() {
    Lock lock(mu_);
    if (free_.empty()) grow();
    std::byte* slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::byte* slot) {
    OPENSSL_cleanse(slot, Key::kBytes);
    Lock lock(mu_);
    free_.push_back(slot);
  }

 private:
  static constexpr std::size_t kSlabBytes = 16 * 1024;

  void grow() REQUIRES(mu_) {
    void* slab = mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) throw Error(Code::exhausted, "make room for keys: out of memory");
    madvise(slab, kSlabBytes, MADV_DONTDUMP);
    madvise(slab, kSlabBytes, MADV_WIPEONFORK);
    (void)mlock(slab, kSlabBytes);
    total_ += kSlabBytes / Key::kBytes;
    free_.reserve(total_);  // so that giving back never allocates
    for (std::size_t at = 0; at < kSlabBytes; at += Key::kBytes) free_.push_back(static_cast<std::byte*>(slab) + at);
  }

  Mutex mu_;
  std::vector<std::byte*> free_ GUARDED_BY(mu_);
  std::size_t total_ GUARDED_BY(mu_) = 0;
};

SecretPages& secret_pages() {
  static auto* const pages = new SecretPages;  // outlives every static key
  return *pages;
}

}  // namespace

Key::Key() : slot_(secret_pages().take()) {}
Key::~Key() {
  if (slot_) secret_pages().give_back(slot_);
}
Key::Key(Key&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
Key& Key::operator=(Key&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

Key Key::from(BytesView bytes) {
  if (bytes.size() != kBytes) throw Error(Code::corrupt, "a key has 32 bytes, got " + std::to_string(bytes.size()));
  return filled([&](auto out) { std::copy(bytes.begin(), bytes.end(), out.begin()); });
}

Key Key::random() {
  return filled([](auto out) { must(RAND_priv_bytes(raw(out), kBytes) == 1, "make a random key"); });
}

Digest hmac_sha256(BytesView key, std::initializer_list<BytesView> parts) {
  constexpr std::size_t kBlock = 64;
  std::array<std::byte, kBlock> pad{};
  const Digest short_key = key.size() > kBlock ? sha256(key) : Digest{};
  if (key.size() > kBlock) key = short_key.view();
  std::copy(key.begin(), key.end(), pad.begin());

  thread_local Sha256 hash;
  for (auto& b : pad) b ^= std::byte{0x36};
  hash.update(pad);
  for (const auto part : parts) hash.update(part);
  const Digest inner = hash.finish();
  for (auto& b : pad) b ^= std::byte{0x36 ^ 0x5c};
  const Digest outer = sha256({pad, inner.view()});
  OPENSSL_cleanse(pad.data(), pad.size());
  return outer;
}

void hkdf_sha256(BytesView key, BytesView salt, std::initializer_list<BytesView> info, std::span<std::byte> out) {
  CHECK(out.size() <= 255 * sizeof(Digest), "HKDF gives at most 255 blocks");
  Digest extracted = hmac_sha256(salt, {key});
  Bytes joined;
  for (const auto part : info) joined.insert(joined.end(), part.begin(), part.end());
  Digest block;
  BytesView previous;
  for (std::uint8_t n = 1; !out.empty(); ++n) {
    const std::byte counter{n};
    block = hmac_sha256(extracted.view(), {previous, joined, {&counter, 1}});
    const auto part = std::min(out.size(), block.bytes.size());
    std::copy_n(block.bytes.begin(), part, out.begin());
    out = out.subspan(part);
    previous = block.view();
  }
  OPENSSL_cleanse(&extracted, sizeof extracted);
  OPENSSL_cleanse(&block, sizeof block);
}

Digest hmac_sha256(BytesView key, BytesView bytes) { return hmac_sha256(key, {bytes}); }
Digest hmac_sha256(const Key& key, BytesView bytes) { return hmac_sha256(key.view(), {bytes}); }

Key derive(const Key& key, BytesView salt, std::string_view purpose) {
  return Key::filled([&](auto out) { hkdf_sha256(key.view(), salt, {as_bytes(purpose)}, out); });
}

}  // namespace falaj::crypto
