// SPDX-License-Identifier: Apache-2.0
#pragma once

// The Merkle tree of RFC 9162 (section 2.1), SHA-256. Pure. Throughout, a tree of `size` leaves is the one over leaves
// 0..size-1, and [begin, end) is the subtree that RFC calls D[begin:end].

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::audit {

Digest leaf_hash(BytesView record);                         // H(0x00 || record)
Digest node_hash(const Digest& left, const Digest& right);  // H(0x01 || left || right)
Digest empty_root();                                        // H()
std::uint64_t split_point(std::uint64_t size);              // the largest power of two below `size`; Requires: size > 1

// All that is needed to append: the roots of the complete subtrees that the tree is made of, largest first.
class Frontier {
 public:
  Frontier() = default;
  // Requires: one hash for each one-bit of `size`; throws corrupt otherwise.
  Frontier(std::uint64_t size, std::span<const Digest> hashes);

  // Like adding one to a binary number: each carry joins two subtrees of one size. Tells `joined` of each subtree of
  // 2^height leaves that this completes.
  template <class F>
  void push(const Digest& leaf, F joined) {
    Digest carry = leaf;
    int height = 0;
    for (auto bits = size_; bits & 1; bits >>= 1) {
      carry = node_hash(hashes_[--count_], carry);
      joined(++height, carry);
    }
    hashes_[count_++] = carry;
    ++size_;
  }
  void push(const Digest& leaf) {
    push(leaf, [](int, const Digest&) {});
  }
  std::uint64_t size() const { return size_; }
  std::span<const Digest> hashes() const { return {hashes_.data(), count_}; }
  Digest root() const;

 private:
  std::uint64_t size_ = 0;
  std::size_t count_ = 0;
  std::array<Digest, 64> hashes_{};
};

// The hash of the subtree [begin, end), from wherever it is kept.
using SubtreeHash = std::function<Digest(std::uint64_t begin, std::uint64_t end)>;

// The hashes that lead from leaf `index` to the root. Requires: index < size.
std::vector<Digest> inclusion_path(std::uint64_t index, std::uint64_t size, const SubtreeHash& subtree);
// The hashes that prove that the tree of `second` leaves begins with the tree of `first`. Requires: 0 < first <=
// second.
std::vector<Digest> consistency_path(std::uint64_t first, std::uint64_t second, const SubtreeHash& subtree);

// The root that leaf and path give; nothing when the path has not the right length or index >= size.
std::optional<Digest> root_of_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size,
                                        std::span<const Digest> path);
bool is_consistent(std::uint64_t first, const Digest& first_root, std::uint64_t second, const Digest& second_root,
                   std::span<const Digest> path);

}  // namespace falaj::audit
