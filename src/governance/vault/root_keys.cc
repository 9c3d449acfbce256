// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/root_keys.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"

namespace falaj::vault {
namespace {

constexpr std::string_view kMagic = "falaj root keys 1\n";
constexpr std::size_t kFileBytesMax = 64 * 1024;
constexpr std::size_t kPassphraseSaltBytes = 16;
// What an altered file may make the key derivation take.
constexpr std::uint64_t kMemoryBytesMin = 8192, kMemoryBytesMax = std::uint64_t{1} << 30;
constexpr std::uint32_t kPassesMax = 64;
enum class KeyLock : std::uint8_t { none = 0, passphrase = 1 };

}  // namespace

Bytes RootKeys::encode() const {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(roots_.size()));
  for (const auto& root : roots_) {
    out.u32(root.version);
    out.raw(root.key.view());
  }
  out.raw(platform_.view());
  return out.take();
}

RootKeys RootKeys::decode(BytesView plain) {
  ByteReader in(plain);
  std::vector<Root> roots;
  for (std::uint32_t n = in.u32(); n > 0; --n) {
    const std::uint32_t version = in.u32();
    roots.push_back({version, crypto::Key::from(in.raw(crypto::Key::kBytes))});
  }
  crypto::Key platform = crypto::Key::from(in.raw(crypto::Key::kBytes));
  in.expect_end();
  if (roots.empty()) throw Error(Code::corrupt, "root key file: holds no key");
  return RootKeys(std::move(roots), std::move(platform));
}

RootKeys RootKeys::open(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase,
                        crypto::PasswordCost cost) {
  const auto there = files.stat(name);
  if (!there) {
    std::vector<Root> roots;
    roots.push_back({1, crypto::Key::random()});
    RootKeys made(std::move(roots), crypto::Key::random());
    made.save(files, name, passphrase, cost);
    return made;
  }
  if (there->others_may_read)
    throw Error(Code::denied, "others may read the root key file: make it readable by its owner only (chmod 600)");
  if (there->bytes > kFileBytesMax) throw Error(Code::corrupt, "root key file: too long to be one of ours");
  const Bytes text = files.read_all(name, kFileBytesMax);
  ByteReader in(text);
  if (as_text(in.raw(kMagic.size())) != kMagic) throw Error(Code::corrupt, "root key file: not one of ours");
  const auto lock = static_cast<KeyLock>(in.u8());
  if (lock == KeyLock::none) {
    const auto plain = in.blob();
    const auto before = BytesView(text).first(text.size() - in.left());
    const auto sum = in.raw(sizeof(Digest));
    in.expect_end();
    const Digest wanted = crypto::sha256(before);
    if (!std::equal(sum.begin(), sum.end(), wanted.bytes.begin()))
      throw Error(Code::corrupt, "root key file: its checksum is wrong: it was altered or damaged");
    RootKeys keys = decode(plain);
    if (passphrase) keys.save(files, name, passphrase, cost);  // a passphrase that was set later locks it from now on
    return keys;
  }
  if (lock != KeyLock::passphrase) throw Error(Code::corrupt, "root key file: unknown kind of lock");
  if (!passphrase) throw Error(Code::denied, "the root key is locked by a passphrase: set keys.passphrase");
  const auto salt = in.raw(kPassphraseSaltBytes);
  const crypto::PasswordCost stored{in.u64(), in.u32()};
  const auto head = BytesView(text).first(text.size() - in.left());
  const auto sealed = in.blob();
  in.expect_end();
  if (stored.memory_bytes < kMemoryBytesMin || stored.memory_bytes > kMemoryBytesMax || stored.passes == 0 ||
      stored.passes > kPassesMax)
    throw Error(Code::corrupt, "root key file: the cost of its passphrase is out of range: it was altered or damaged");
  const auto key = crypto::key_from_passphrase(*passphrase, salt, stored);
  Bytes plain;
  try {
    plain = crypto::open(key, head, sealed);
  } catch (const Error&) {
    throw Error(Code::denied, "the passphrase does not unlock the root key, or its file was altered");
  }
  return decode(plain);
}

void RootKeys::save(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase,
                    crypto::PasswordCost cost) const {
  ByteWriter out;
  out.raw(as_bytes(kMagic));
  if (!passphrase) {
    out.u8(static_cast<std::uint8_t>(KeyLock::none));
    out.blob(encode());
    out.raw(crypto::sha256(out.bytes()).view());
  } else {
    const auto salt = crypto::Key::random();
    const auto salt_bytes = salt.view().first(kPassphraseSaltBytes);
    out.u8(static_cast<std::uint8_t>(KeyLock::passphrase));
    out.raw(salt_bytes);
    out.u64(cost.memory_bytes);
    out.u32(cost.passes);
    out.blob(crypto::seal(crypto::key_from_passphrase(*passphrase, salt_bytes, cost), out.bytes(), encode()));
  }
  files.write_all(name, out.bytes());
}

crypto::Key RootKeys::platform_key(std::string_view purpose) const { return crypto::derive(platform_, {}, purpose); }

std::uint32_t RootKeys::add_root() {
  const std::uint32_t version = roots_.back().version + 1;
  roots_.push_back({version, crypto::Key::random()});
  return version;
}

void RootKeys::keep_only(std::size_t nth_newest) {
  std::vector<Root> kept;
  kept.push_back(std::move(roots_[roots_.size() - 1 - nth_newest]));
  roots_ = std::move(kept);
}

}  // namespace falaj::vault
