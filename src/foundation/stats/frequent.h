// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::stats {

// The most frequent texts: Misra-Gries counters, of which the smaller half goes when they run out (Anderson et al., "A
// high-performance algorithm for identifying frequent items in data streams", 2017). With n counters and a total of t,
// every count is at most 2t/n too low and never too high, also after merging; whatever is more frequent than that is
// in.
class Frequent {
 public:
  static constexpr std::uint32_t kCountersMax = 65'536;
  static constexpr std::size_t kTextMax = 256;  // longer ones are counted by their beginning

  explicit Frequent(std::uint32_t counters = 512);  // Requires: 2 <= counters <= kCountersMax

  void add(std::string_view text, std::uint64_t times = 1);
  void merge(const Frequent& other);

  std::uint64_t total() const { return total_; }
  std::uint64_t error() const { return error_; }  // true count <= counted + error()
  std::uint64_t counted(std::string_view text) const;
  struct Entry {
    std::string text;
    std::uint64_t counted;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> top(std::size_t most) const;  // most frequent first, then by text
  friend bool operator==(const Frequent&, const Frequent&) = default;

  void encode(ByteWriter& out) const;
  static Frequent decode(ByteReader& in);  // throws corrupt

 private:
  void shrink();

  std::uint32_t counters_;
  std::uint64_t total_ = 0;
  std::uint64_t error_ = 0;
  std::unordered_map<std::string, std::uint64_t> counts_;
};

}  // namespace falaj::stats
