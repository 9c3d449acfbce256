// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace falaj::stats {

// How times are counted in a fixed place: 2^kBits buckets for each power of two of microseconds up to 2^31, so that a
// quantile is right to one part in 2^kBits, at most one too high. Below 2^kBits microseconds it is exact.
template <unsigned kBits>
struct TimeBuckets {
  static constexpr std::size_t kSub = std::size_t{1} << kBits, kBuckets = (32 - kBits) * kSub;
  using Tally = std::array<std::uint64_t, kBuckets>;

  static constexpr std::size_t bucket(std::int64_t us) {
    const auto value = static_cast<std::uint64_t>(us < 0 ? 0 : us);
    if (value < kSub) return value;
    const auto power = static_cast<std::size_t>(std::bit_width(value)) - (kBits + 1);  // 0 for kSub..2*kSub-1
    const auto at = (power + 1) * kSub + ((value >> power) & (kSub - 1));
    return at < kBuckets ? at : kBuckets - 1;
  }
  static constexpr std::int64_t top_us(std::size_t bucket) {  // the least value beyond it
    if (bucket < kSub) return static_cast<std::int64_t>(bucket) + 1;
    const auto power = bucket / kSub - 1;
    return static_cast<std::int64_t>((kSub + bucket % kSub + 1) << power);
  }

  // The value below which `share` of the counts lie; 0 when there are none.
  static constexpr double quantile_us(const Tally& counts, double share) {
    std::uint64_t total = 0;
    for (const auto n : counts) total += n;
    if (total == 0) return 0;
    auto left = static_cast<std::int64_t>(share * static_cast<double>(total));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      left -= static_cast<std::int64_t>(counts[i]);
      if (left < 0) return static_cast<double>(top_us(i));
    }
    return static_cast<double>(top_us(counts.size() - 1));
  }
};

}  // namespace falaj::stats
