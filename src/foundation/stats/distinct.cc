// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/distinct.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "foundation/stats/wire.h"

namespace falaj::stats {

namespace {

// One 64 x 64 -> 128 bit product, folded: every bit of both reaches every bit of the answer.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t word(const std::byte* at, std::size_t bytes) {
  std::uint64_t v = 0;
  for (std::size_t i = 0; i < bytes; ++i) v |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return v;
}

// Ertl's sigma and tau: what registers at zero and at the top add to the harmonic mean.
double sigma(double x) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  double sum = x, before = -1;
  for (double y = 1; sum != before; y += y) {
    x *= x;
    before = sum;
    sum += x * y;
  }
  return sum;
}
double tau(double x) {
  if (x == 0 || x == 1) return 0;
  double sum = 1 - x, before = -1;
  for (double y = 1; sum != before;) {
    x = std::sqrt(x);
    before = sum;
    y *= 0.5;
    sum -= (1 - x) * (1 - x) * y;
  }
  return sum / 3;
}

}  // namespace

std::uint64_t hash64(BytesView bytes) {
  constexpr std::uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xbf58476d1ce4e5b9, kC = 0x94d049bb133111eb;
  std::uint64_t h = fold(bytes.size() ^ kA, kB);
  for (; bytes.size() > 8; bytes = bytes.subspan(8)) h = fold(h ^ word(bytes.data(), 8) ^ kB, kA);
  h = fold(h ^ word(bytes.data(), bytes.size()) ^ kC, kB);
  return fold(h ^ kA, kC);
}

void Distinct::add(std::uint64_t hash) {
  const auto index = static_cast<std::uint32_t>(hash >> (64 - kBits));
  const std::uint64_t rest = hash << kBits;
  raise(index, static_cast<std::uint8_t>(rest == 0 ? kRankMax : static_cast<unsigned>(std::countl_zero(rest)) + 1));
}

void Distinct::raise(std::uint32_t index, std::uint8_t rank) {
  if (!dense_.empty()) {
    dense_[index] = std::max(dense_[index], rank);
    return;
  }
  const auto at = std::lower_bound(sparse_.begin(), sparse_.end(), index << 8);
  if (at != sparse_.end() && *at >> 8 == index) {
    *at = std::max(*at, index << 8 | rank);
    return;
  }
  sparse_.insert(at, index << 8 | rank);
  if (sparse_.size() > kSparseMax) make_dense();
}

void Distinct::make_dense() {
  dense_.assign(kRegisters, 0);
  for (const auto entry : sparse_) dense_[entry >> 8] = static_cast<std::uint8_t>(entry);
  sparse_ = {};
}

void Distinct::merge(const Distinct& other) {
  for (const auto entry : other.sparse_) raise(entry >> 8, static_cast<std::uint8_t>(entry));
  if (other.dense_.empty()) return;
  if (dense_.empty()) make_dense();
  for (std::size_t i = 0; i < kRegisters; ++i) dense_[i] = std::max(dense_[i], other.dense_[i]);
}

double Distinct::estimate() const {
  std::array<std::uint32_t, kRankMax + 1> registers_at{};  // by rank
  for (const auto rank : dense_) ++registers_at[rank];
  for (const auto entry : sparse_) ++registers_at[entry & 0xff];
  if (dense_.empty()) registers_at[0] = static_cast<std::uint32_t>(kRegisters - sparse_.size());
  constexpr double m = kRegisters;
  double z = m * tau(1 - registers_at[kRankMax] / m);
  for (unsigned rank = kRankMax - 1; rank >= 1; --rank) z = 0.5 * (z + registers_at[rank]);
  z += m * sigma(registers_at[0] / m);
  return m * m / (2 * std::log(2.0) * z);
}

void Distinct::encode(ByteWriter& out) const {
  out.u32(static_cast<std::uint32_t>(dense_.empty() ? sparse_.size() : kRegisters));
  for (const auto entry : sparse_) out.u32(entry);
  out.raw(std::as_bytes(std::span(dense_)));
}

Distinct Distinct::decode(ByteReader& in) {
  Distinct d;
  const std::size_t count = in.u32();
  if (count == kRegisters) {
    const auto ranks = in.raw(kRegisters);
    d.dense_.resize(kRegisters);
    std::memcpy(d.dense_.data(), ranks.data(), kRegisters);
    must_be(std::all_of(d.dense_.begin(), d.dense_.end(), [](auto rank) { return rank <= kRankMax; }), "a rank");
    return d;
  }
  must_be(count <= kSparseMax, "its size");
  for (std::size_t i = 0; i < count; ++i) {
    const auto entry = in.u32();
    must_be(entry >> 8 < kRegisters && (entry & 0xff) >= 1 && (entry & 0xff) <= kRankMax, "an entry");
    must_be(d.sparse_.empty() || d.sparse_.back() >> 8 < entry >> 8, "its order");
    d.sparse_.push_back(entry);
  }
  return d;
}

}  // namespace falaj::stats
