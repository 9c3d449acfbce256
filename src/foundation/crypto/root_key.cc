// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/root_key.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "foundation/base/error.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

namespace {

// Magic and form; then in clear: the key and the beginning of its digest; locked: cost, salt and the wrapped key.
constexpr std::array<std::byte, 4> kMagic = {std::byte{'F'}, std::byte{'R'}, std::byte{'K'}, std::byte{1}};
enum class Form : std::uint8_t { clear = 0, locked = 1 };
constexpr std::size_t kCheckBytes = 8, kPassphraseSaltBytes = 16;
constexpr std::string_view kContext = "falaj root key v1";
constexpr PasswordCost kCostMax{.memory_bytes = std::size_t{2} << 30, .passes = 100};

// The cost is bound too: argon2 rounds it, so two costs may give one key.
Bytes bound(PasswordCost cost) {
  ByteWriter out;
  out.text(kContext);
  out.u64(cost.memory_bytes);
  out.u32(cost.passes);
  return out.take();
}

ByteWriter begin(Form form) {
  ByteWriter out;
  out.raw(kMagic);
  out.u8(static_cast<std::uint8_t>(form));
  return out;
}

Key open_clear(ByteReader& in) {
  Key root = Key::from(in.raw(Key::kBytes));
  const auto check = in.raw(kCheckBytes);
  in.expect_end();
  if (!equal_in_constant_time(sha256(root.view()).view().first(kCheckBytes), check)) {
    throw Error(Code::corrupt, "the root key's file is damaged");
  }
  return root;
}

Key open_locked(ByteReader& in, std::string_view passphrase) {
  PasswordCost cost;
  cost.memory_bytes = in.u64();
  cost.passes = in.u32();
  if (cost.memory_bytes > kCostMax.memory_bytes || cost.passes > kCostMax.passes) {
    throw Error(Code::corrupt, "the root key's file is damaged: it would cost too much to open");
  }
  const auto salt = in.raw(kPassphraseSaltBytes);
  const auto wrapped = in.raw(kWrappedKeyBytes);
  in.expect_end();
  try {
    return unwrap_key(key_from_passphrase(passphrase, salt, cost), wrapped, bound(cost));
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) throw;
    throw Error(Code::denied, "the passphrase does not open the root key");
  }
}

}  // namespace

Bytes encode_root_key(const Key& root) {
  ByteWriter out = begin(Form::clear);
  out.raw(root.view());
  out.raw(sha256(root.view()).view().first(kCheckBytes));
  return out.take();
}

Bytes lock_root_key(const Key& root, std::string_view passphrase, PasswordCost cost) {
  std::array<std::byte, kPassphraseSaltBytes> salt;
  must(RAND_bytes(raw(salt), static_cast<int>(salt.size())) == 1, "make a salt");
  ByteWriter out = begin(Form::locked);
  out.u64(cost.memory_bytes);
  out.u32(cost.passes);
  out.raw(salt);
  out.raw(wrap_key(key_from_passphrase(passphrase, salt, cost), root, bound(cost)));
  return out.take();
}

Key open_root_key(BytesView file, std::optional<std::string_view> passphrase) {
  ByteReader in(file);
  if (!std::ranges::equal(in.raw(kMagic.size()), kMagic)) throw Error(Code::corrupt, "not a root key's file");
  const std::uint8_t form = in.u8();
  if (form > static_cast<std::uint8_t>(Form::locked)) throw Error(Code::corrupt, "not a root key's file");
  const bool locked = form == static_cast<std::uint8_t>(Form::locked);
  if (locked != passphrase.has_value()) {
    throw Error(Code::invalid, locked ? "the root key is locked: a passphrase is needed"
                                      : "the root key is not locked: a passphrase would protect nothing");
  }
  return locked ? open_locked(in, *passphrase) : open_clear(in);
}

}  // namespace falaj::crypto
