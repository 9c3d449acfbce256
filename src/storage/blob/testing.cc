// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/testing.h"

#include <algorithm>
#include <cstring>

#include "foundation/base/error.h"

namespace falaj::blob {

VersionedKey FixedKeys::newest(const TenantName& tenant) {
  std::uint32_t newest = 0;
  {
    Lock lock(mu_);
    newest = newest_.try_emplace(tenant, 1).first->second;
  }
  return {newest, version(tenant, newest)};
}

crypto::Key FixedKeys::version(const TenantName& tenant, std::uint32_t version) {
  {
    Lock lock(mu_);
    const auto newest = newest_.try_emplace(tenant, 1).first->second;
    if (version == 0 || version > newest || version <= forgotten_up_to_[tenant]) {
      throw Error(Code::not_found, "no such version of the tenant's key");
    }
  }
  return crypto::derive(crypto::Key::from(Bytes(32, std::byte{1})), as_bytes(tenant.value),
                        "version " + std::to_string(version));
}

crypto::Key FixedKeys::address_key(const TenantName& tenant) {
  return crypto::derive(crypto::Key::from(Bytes(32, std::byte{1})), as_bytes(tenant.value), "address");
}

void FixedKeys::rotate(const TenantName& tenant) {
  Lock lock(mu_);
  ++newest_.try_emplace(tenant, 1).first->second;
}

void FixedKeys::forget(const TenantName& tenant, std::uint32_t version) {
  Lock lock(mu_);
  forgotten_up_to_[tenant] = version;
}

namespace {
std::uint64_t mixed(std::uint64_t z) {  // SplitMix64: random access into a stream of random words
  z *= 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}
void fill(std::span<std::byte> out, std::uint64_t seed, std::uint64_t at) {
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t word = mixed(mixed(seed) + (at + i) / 8 + 1);
    const std::size_t from = (at + i) % 8;
    const std::size_t n = std::min<std::size_t>(8 - from, out.size() - i);
    std::memcpy(out.data() + i, reinterpret_cast<const char*>(&word) + from, n);
    i += n;
  }
}
}  // namespace

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  fill(bytes, seed, 0);
  return bytes;
}

Source random_source(std::uint64_t size, std::uint64_t seed) {
  return [size, seed, at = std::uint64_t{0}](std::span<std::byte> out) mutable {
    const auto part = out.first(std::min<std::uint64_t>(out.size(), size - at));
    fill(part, seed, at);
    at += part.size();
    return part.size();
  };
}

}  // namespace falaj::blob
