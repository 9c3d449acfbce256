// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/merkle.h"

#include <algorithm>
#include <bit>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::audit {

namespace {

constexpr std::byte kLeaf[] = {std::byte{0}};
constexpr std::byte kNode[] = {std::byte{1}};

}  // namespace

Digest leaf_hash(BytesView record) { return crypto::sha256({kLeaf, record}); }

Digest node_hash(const Digest& left, const Digest& right) {
  std::array<std::byte, 65> message;
  message[0] = kNode[0];
  std::copy(left.bytes.begin(), left.bytes.end(), message.begin() + 1);
  std::copy(right.bytes.begin(), right.bytes.end(), message.begin() + 33);
  return crypto::sha256(BytesView(message));
}

Digest empty_root() { return crypto::sha256(BytesView()); }

std::uint64_t split_point(std::uint64_t size) { return std::bit_floor(size - 1); }

Frontier::Frontier(std::uint64_t size, std::span<const Digest> hashes) : size_(size), count_(hashes.size()) {
  if (static_cast<int>(hashes.size()) != std::popcount(size))
    throw Error(Code::corrupt, "the audit log's frontier does not fit its size");
  std::copy(hashes.begin(), hashes.end(), hashes_.begin());
}

Digest Frontier::root() const {
  if (count_ == 0) return empty_root();
  Digest root = hashes_[count_ - 1];
  for (std::size_t i = count_ - 1; i-- > 0;) root = node_hash(hashes_[i], root);
  return root;
}

std::vector<Digest> inclusion_path(std::uint64_t index, std::uint64_t size, const SubtreeHash& subtree) {
  CHECK(index < size, "a leaf of the tree");
  std::vector<Digest> path;
  std::uint64_t begin = 0, end = size;
  while (end - begin > 1) {
    const auto middle = begin + split_point(end - begin);
    if (index < middle) {
      path.push_back(subtree(middle, end));
      end = middle;
    } else {
      path.push_back(subtree(begin, middle));
      begin = middle;
    }
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<Digest> consistency_path(std::uint64_t first, std::uint64_t second, const SubtreeHash& subtree) {
  CHECK(first > 0 && first <= second, "an earlier size of the tree");
  std::vector<Digest> path;
  std::uint64_t begin = 0, end = second;
  while (end != first) {
    const auto middle = begin + split_point(end - begin);
    if (first <= middle) {
      path.push_back(subtree(middle, end));
      end = middle;
    } else {
      path.push_back(subtree(begin, middle));
      begin = middle;
    }
  }
  // When the whole first tree is one of the nodes, whoever checks knows its hash: it is the first root.
  if (begin != 0) path.push_back(subtree(begin, end));
  std::reverse(path.begin(), path.end());
  return path;
}

std::optional<Digest> root_of_inclusion(const Digest& leaf, std::uint64_t index, std::uint64_t size,
                                        std::span<const Digest> path) {
  if (index >= size) return std::nullopt;
  auto node = index, last = size - 1;  // RFC 9162, 2.1.3.2
  Digest root = leaf;
  for (const auto& sibling : path) {
    if (last == 0) return std::nullopt;
    if ((node & 1) || node == last) {
      root = node_hash(sibling, root);
      while (!(node & 1) && node != 0) node >>= 1, last >>= 1;
    } else {
      root = node_hash(root, sibling);
    }
    node >>= 1, last >>= 1;
  }
  if (last != 0) return std::nullopt;
  return root;
}

bool is_consistent(std::uint64_t first, const Digest& first_root, std::uint64_t second, const Digest& second_root,
                   std::span<const Digest> path) {
  if (first == 0 || first > second) return false;
  if (first == second) return path.empty() && first_root == second_root;
  std::vector<Digest> nodes(path.begin(), path.end());  // RFC 9162, 2.1.4.2
  if (std::has_single_bit(first)) nodes.insert(nodes.begin(), first_root);
  if (nodes.empty()) return false;
  auto node = first - 1, last = second - 1;
  while (node & 1) node >>= 1, last >>= 1;
  Digest old_root = nodes[0], new_root = nodes[0];
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    if (last == 0) return false;
    if ((node & 1) || node == last) {
      old_root = node_hash(nodes[i], old_root);
      new_root = node_hash(nodes[i], new_root);
      while (!(node & 1) && node != 0) node >>= 1, last >>= 1;
    } else {
      new_root = node_hash(new_root, nodes[i]);
    }
    node >>= 1, last >>= 1;
  }
  return last == 0 && old_root == first_root && new_root == second_root;
}

}  // namespace falaj::audit
