// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/merkle.h"

#include <random>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"

namespace falaj::audit {
namespace {

// The definition of RFC 9162, 2.1.1, with nothing clever in it.
Digest naive(std::span<const Digest> leaves) {
  if (leaves.empty()) return crypto::sha256("");
  if (leaves.size() == 1) return leaves[0];
  std::size_t k = 1;
  while (k * 2 < leaves.size()) k *= 2;
  const auto left = naive(leaves.first(k)), right = naive(leaves.subspan(k));
  const std::byte one[] = {std::byte{1}};
  return crypto::sha256({one, left.view(), right.view()});
}

std::vector<Digest> make_leaves(std::size_t n) {
  std::vector<Digest> leaves;
  for (std::size_t i = 0; i < n; ++i) leaves.push_back(leaf_hash(as_bytes(std::to_string(i))));
  return leaves;
}
SubtreeHash over(const std::vector<Digest>& leaves) {
  return [&](std::uint64_t begin, std::uint64_t end) { return naive(std::span(leaves).subspan(begin, end - begin)); };
}

TEST(Merkle, GivesTheRootsOfTheReferenceVectors) {
  const char* entries[] = {
      "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"};
  const char* roots[] = {"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                         "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                         "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                         "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
                         "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
                         "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
                         "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
                         "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"};
  Frontier frontier;
  EXPECT_EQ(frontier.root().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  for (std::size_t i = 0; i < 8; ++i) {
    frontier.push(leaf_hash(from_hex(entries[i])));
    EXPECT_EQ(frontier.root().hex(), roots[i]);
  }
}

TEST(Frontier, GivesTheRootOfTheDefinitionAtEverySize) {
  const auto leaves = make_leaves(600);
  Frontier frontier;
  for (std::size_t n = 0; n <= leaves.size(); ++n) {
    ASSERT_EQ(frontier.size(), n);
    ASSERT_EQ(frontier.root(), naive(std::span(leaves).first(n))) << n;
    const Frontier again(frontier.size(), frontier.hashes());
    ASSERT_EQ(again.root(), frontier.root());
    if (n < leaves.size()) frontier.push(leaves[n]);
  }
}

TEST(Frontier, GivesTheRootOfTheDefinitionAtRandomSizes) {
  const unsigned seed = 20241;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto leaves = make_leaves(5000);
  for (int round = 0; round < 20; ++round) {
    const auto n = random() % leaves.size();
    Frontier frontier;
    for (std::size_t i = 0; i < n; ++i) frontier.push(leaves[i]);
    EXPECT_EQ(frontier.root(), naive(std::span(leaves).first(n))) << n;
  }
}

TEST(Frontier, TellsOfEachSubtreeItCompletes) {
  const auto leaves = make_leaves(300);
  Frontier frontier;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    frontier.push(leaves[i], [&](int height, const Digest& hash) {
      const std::size_t span = std::size_t{1} << height;
      EXPECT_EQ((i + 1) % span, 0u);
      EXPECT_EQ(hash, naive(std::span(leaves).subspan(i + 1 - span, span)));
    });
}

TEST(Frontier, RefusesHashesThatDoNotFitTheSize) {
  const auto leaves = make_leaves(2);
  EXPECT_ERROR(Frontier(4, leaves), Code::corrupt);
}

TEST(Merkle, ProvesEveryLeafOfEverySmallTree) {
  const auto leaves = make_leaves(70);
  for (std::uint64_t size = 1; size <= leaves.size(); ++size) {
    const auto root = naive(std::span(leaves).first(size));
    for (std::uint64_t index = 0; index < size; ++index) {
      auto path = inclusion_path(index, size, over(leaves));
      ASSERT_EQ(root_of_inclusion(leaves[index], index, size, path), root) << index << " of " << size;
      ASSERT_NE(root_of_inclusion(leaves[index], index + 1, size, path), root);
      ASSERT_NE(root_of_inclusion(leaves[(index + 1) % leaves.size()], index, size, path), root);
      path.push_back(root);
      ASSERT_NE(root_of_inclusion(leaves[index], index, size, path), root);
      path.pop_back();
      if (path.empty()) continue;
      path[index % path.size()].bytes[index % 32] ^= std::byte{1};
      ASSERT_NE(root_of_inclusion(leaves[index], index, size, path), root);
      path.pop_back();
      ASSERT_NE(root_of_inclusion(leaves[index], index, size, path), root);
    }
  }
}

TEST(Merkle, ProvesThatEverySmallTreeBeginsWithEverySmallerOne) {
  const auto leaves = make_leaves(66);
  std::vector<Digest> roots;
  for (std::size_t n = 0; n <= leaves.size(); ++n) roots.push_back(naive(std::span(leaves).first(n)));
  for (std::uint64_t second = 1; second <= leaves.size(); ++second)
    for (std::uint64_t first = 1; first <= second; ++first) {
      auto path = consistency_path(first, second, over(leaves));
      ASSERT_TRUE(is_consistent(first, roots[first], second, roots[second], path)) << first << " " << second;
      if (first < second) {
        ASSERT_FALSE(is_consistent(first, roots[first - 1], second, roots[second], path));
        ASSERT_FALSE(is_consistent(first, roots[first], second, roots[second - 1], path));
      }
      path.push_back(roots[0]);
      ASSERT_FALSE(is_consistent(first, roots[first], second, roots[second], path));
      path.pop_back();
      if (path.empty()) continue;
      path[first % path.size()].bytes[second % 32] ^= std::byte{1};
      ASSERT_FALSE(is_consistent(first, roots[first], second, roots[second], path));
    }
  EXPECT_FALSE(is_consistent(0, roots[0], 3, roots[3], {}));
  EXPECT_FALSE(is_consistent(4, roots[4], 3, roots[3], {}));
}

}  // namespace
}  // namespace falaj::audit
