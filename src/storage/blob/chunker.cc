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

std::uint64_t rolled(std::uint64_t hash, std::byte next) {
  return (hash << 1) + kGear[static_cast<std::uint8_t>(next)];
}

// Looks for a cut in `bytes`; returns the bytes up to and with the one that cuts, or nothing and `hash` is that at the
// end. Each step waits for the one before, so two halves are hashed side by side: the hash depends on a window only.
// Requires: the window before `bytes` went into `hash`.
std::optional<std::size_t> scan(BytesView bytes, std::uint64_t mask, std::uint64_t& hash) {
  constexpr std::size_t kLane = 2048;
  std::uint64_t h = hash;
  std::size_t at = 0;
  for (; at + 2 * kLane <= bytes.size(); at += 2 * kLane) {
    const std::byte* const first = bytes.data() + at;
    const std::byte* const second = first + kLane;
    std::uint64_t g = 0;
    for (std::size_t i = kLane - kWindow; i < kLane; ++i) g = rolled(g, first[i]);
    std::size_t cut_in_second = 0;
    for (std::size_t i = 0; i < kLane; ++i) {
      h = rolled(h, first[i]);
      g = rolled(g, second[i]);
      if ((h & mask) == 0) [[unlikely]]
        return at + i + 1;
      if ((g & mask) == 0 && cut_in_second == 0) [[unlikely]]
        cut_in_second = i + 1;
    }
    if (cut_in_second > 0) return at + kLane + cut_in_second;
    h = g;
  }
  for (; at < bytes.size(); ++at) {
    h = rolled(h, bytes[at]);
    if ((h & mask) == 0) return at + 1;
  }
  hash = h;
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> Chunker::next(BytesView piece) {
  std::size_t used = 0;
  // Advances through the part of the chunk that ends at size `until`; true when there was a cut in it.
  const auto through = [&](std::size_t until, std::uint64_t mask) {
    if (size_ >= until) return false;
    const auto part = piece.subspan(used, std::min(piece.size() - used, until - size_));
    const auto cut = scan(part, mask, hash_);
    used += cut.value_or(part.size());
    size_ += cut.value_or(part.size());
    return cut.has_value();
  };
  // Nothing before the smallest size can cut: only the last window of it must be hashed.
  const std::size_t skipped =
      size_ < kChunkBytesMin - kWindow ? std::min(piece.size(), kChunkBytesMin - kWindow - size_) : std::size_t{0};
  used += skipped;
  size_ += skipped;
  for (; size_ < kChunkBytesMin && used < piece.size(); ++size_, ++used) {
    hash_ = rolled(hash_, piece[used]);
  }
  const bool cut = through(kChunkBytesAverage, kHard) || through(kChunkBytesMax, kEasy) || size_ == kChunkBytesMax;
  if (!cut) return std::nullopt;
  reset();
  return used;
}

}  // namespace falaj::blob
