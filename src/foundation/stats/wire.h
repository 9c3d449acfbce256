// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to stats: what the encodings of all sketches share.

#include <bit>
#include <cmath>
#include <cstdint>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::stats {

// More than anybody counts, and sums of a few of them do not overflow.
inline constexpr std::uint64_t kCountMax = std::uint64_t{1} << 60;

inline void put_real(ByteWriter& out, double v) { out.u64(std::bit_cast<std::uint64_t>(v)); }
inline void must_be(bool ok, const char* what) {
  if (!ok) throw Error(Code::corrupt, std::string("a sketch is not what was written: ") + what);
}
inline double get_real(ByteReader& in) {
  const double v = std::bit_cast<double>(in.u64());
  must_be(!std::isnan(v), "not a number");
  return v;
}
inline std::uint64_t get_count(ByteReader& in) {
  const std::uint64_t n = in.u64();
  must_be(n <= kCountMax, "a count");
  return n;
}

}  // namespace falaj::stats
