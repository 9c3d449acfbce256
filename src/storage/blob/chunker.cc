// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/chunker.h"

#include <algorithm>
#include <array>

namespace falaj::blob {

namespace {

// Part of the format: another table would cut, and so name, the same content differently. SplitMix64 from this seed.
constexpr std::uint64_t kGearSeed = 0x66616c616a207631;  // "falaj v1"
constexpr std::array<std::uint64_t, 256> kGear = [] {
  std::array<std::uint64_t, 256> gear{};
  std::uint64_t state = kGearSeed;
  for (auto& g : gear) {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    g = z ^ (z >> 31);
  }
  return gear;
}();

// The top bits depend on all of the last 64 bytes. A chunk is cut where they are all zero: harder below the average,
// easier above it.
constexpr std::uint64_t top_bits(int n) { return ~std::uint64_t{0} << (64 - n); }
constexpr std::uint64_t kHard = top_bits(22), kEasy = top_bits(18);
constexpr std::size_t kWindow = 64;

// Looks for a cut in `bytes`; returns the bytes up to and with the one that cuts, or all of them and `cut` stays false.
std::size_t scan(BytesView bytes, std::uint64_t mask, std::uint64_t& hash, bool& cut) {
  std::uint64_t h = hash;
  const std::byte* const begin = bytes.data();
  const std::byte* const end = begin + bytes.size();
  for (const std::byte* p = begin; p != end; ++p) {
    h = (h << 1) + kGear[static_cast<std::uint8_t>(*p)];
    if ((h & mask) == 0) [[unlikely]] {
      cut = true;
      return static_cast<std::size_t>(p - begin) + 1;
    }
  }
  hash = h;
  return bytes.size();
}

}  // namespace

std::optional<std::size_t> Chunker::next(BytesView piece) {
  std::size_t used = 0;
  // Advances through the part of the chunk that ends at size `until`; true when there was a cut in it.
  const auto through = [&](std::size_t until, std::uint64_t mask) {
    if (size_ >= until) return false;
    bool cut = false;
    const auto part = piece.subspan(used, std::min(piece.size() - used, until - size_));
    const std::size_t n = scan(part, mask, hash_, cut);
    used += n;
    size_ += n;
    return cut;
  };
  // Nothing before the smallest size can cut: only the last window of it must be hashed.
  const std::size_t skipped =
      size_ < kChunkBytesMin - kWindow ? std::min(piece.size(), kChunkBytesMin - kWindow - size_) : std::size_t{0};
  used += skipped;
  size_ += skipped;
  for (; size_ < kChunkBytesMin && used < piece.size(); ++size_, ++used) {
    hash_ = (hash_ << 1) + kGear[static_cast<std::uint8_t>(piece[used])];
  }
  const bool cut = through(kChunkBytesAverage, kHard) || through(kChunkBytesMax, kEasy) || size_ == kChunkBytesMax;
  if (!cut) return std::nullopt;
  reset();
  return used;
}

}  // namespace falaj::blob
