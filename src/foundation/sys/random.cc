// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/random.h"

#include <pthread.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "foundation/base/error.h"

namespace falaj::sys {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t split_mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// How often this process, or one that it came of, was forked into it.
std::uint32_t forks_so_far() {
  static std::atomic<std::uint32_t> forks{0};
  static const int told = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  CHECK(told == 0, "out of memory");
  return forks.load(std::memory_order_relaxed);
}

constexpr int kTimeShift = 16;  // an id's `high` is 48 bits of milliseconds, then 16 random ones

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t value = 0;
  fill(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::uint64_t Random::below(std::uint64_t limit) {
  CHECK(limit > 0, "there is no number below zero");
  // The lowest 2^64 mod limit values would make some remainders likelier than others.
  const std::uint64_t uneven = (0 - limit) % limit;
  std::uint64_t value = next();
  while (value < uneven) value = next();
  return value % limit;
}

void RealRandom::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n > 0, "the kernel gives no random bytes; without them no key is safe");
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

void SimRandom::fill(std::span<std::byte> out) {
  Lock lock(mu_);
  while (!out.empty()) {
    const std::uint64_t word = split_mix(state_);
    const std::size_t n = std::min(out.size(), sizeof word);
    std::memcpy(out.data(), &word, n);
    out = out.subspan(n);
  }
}

IdBits Ids::next() {
  const auto ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall()).count());
  const auto forks = forks_so_far();
  {
    Lock lock(mu_);
    if (left_ > 0 && forks_ == forks) return make(ms);
  }
  Pool fresh;  // filled without the lock: whoever asks may have one of its own
  random_.fill(std::as_writable_bytes(std::span(fresh)));
  Lock lock(mu_);
  pool_ = fresh;
  left_ = kPoolWords;
  forks_ = forks;
  return make(ms);
}

IdBits Ids::make(std::uint64_t ms) {
  const auto first = pool_[--left_], second = pool_[--left_];
  if (ms > last_.high >> kTimeShift) {
    last_ = {(ms << kTimeShift) | (first & ((1U << kTimeShift) - 1)), second};
    return last_;
  }
  // Same millisecond, or the clock went back: a random step up, so that the next id is not last plus one.
  const std::uint64_t step = 1 + (first >> 32);
  last_.low += step;
  if (last_.low < step) ++last_.high;
  return last_;
}

}  // namespace falaj::sys
