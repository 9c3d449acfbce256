// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace falaj::loader {

// Chance that depends on three numbers and on nothing else: whoever goes on from a checkpoint draws the same, and no
// library's idea of randomness changes it. SplitMix64 of Steele, Lea and Flood.
class Mix {
 public:
  Mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) : state_(a) {
    state_ = next() ^ b;
    state_ = next() ^ c;
  }
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t limit) {  // limits are far below 2^32, so the bias is, too
    return static_cast<std::size_t>((static_cast<unsigned __int128>(next()) * limit) >> 64);
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace falaj::loader
