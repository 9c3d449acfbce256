// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/images.h"

#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "compute/loader/batches.h"
#include "foundation/sys/testing.h"

namespace falaj::loader {
namespace {

std::string changed(const Image& image, const Change& change, const std::string& pixels) {
  std::string out(image.bytes(), '?');
  change.apply(image, reinterpret_cast<const std::uint8_t*>(pixels.data()),
               reinterpret_cast<std::uint8_t*>(out.data()));
  for (auto& c : out)
    if (c == 0) c = '.';
  return out;
}

TEST(Change, MovesAndMirrors) {
  const Image grey{"", 2, 3, 1}, two{"", 1, 3, 2};
  EXPECT_EQ(changed(grey, {0, 0, false}, "abcdef"), "abcdef");
  EXPECT_EQ(changed(grey, {1, 0, false}, "abcdef"), "...abc");
  EXPECT_EQ(changed(grey, {-1, 0, false}, "abcdef"), "def...");
  EXPECT_EQ(changed(grey, {0, 1, false}, "abcdef"), ".ab.de");
  EXPECT_EQ(changed(grey, {0, -2, false}, "abcdef"), "c..f..");
  EXPECT_EQ(changed(grey, {0, 0, true}, "abcdef"), "cbafed");
  EXPECT_EQ(changed(grey, {0, 1, true}, "abcdef"), ".cb.fe");
  EXPECT_EQ(changed(two, {0, 0, true}, "aAbBcC"), "cCbBaA");
  EXPECT_EQ(changed(two, {0, 1, false}, "aAbBcC"), "..aAbB");
  EXPECT_EQ(changed({"", 1, 1, 1}, {2, -2, true}, "a"), ".");  // moved out altogether
}

TEST(Change, AllAreDrawnAndTheSameOnesAgain) {
  std::set<std::tuple<int, int, bool>> seen;
  for (std::uint64_t place = 0; place < 2000; ++place) {
    const auto one = Change::drawn(1, 2, place), again = Change::drawn(1, 2, place);
    EXPECT_EQ(std::tuple(one.down, one.right, one.mirrored), std::tuple(again.down, again.right, again.mirrored));
    seen.emplace(one.down, one.right, one.mirrored);
  }
  EXPECT_EQ(seen.size(), 5U * 5 * 2);
}

// Whichever rank has a row: it is changed in the same way.
TEST(Change, RanksSeeWhatOneWouldSee) {
  const sys::TempDir directory;
  const auto files = sys::open_files(directory.path());
  const Image image{"image", 4, 4, 1};
  Packed rows(*files, {0, 0, image.bytes()});
  RowBlock block;
  block.resize(rows.layout(), 64);
  for (std::size_t i = 0; i < block.pixels.size(); ++i) block.pixels[i] = static_cast<std::uint8_t>(i * 37 + i / 16);
  rows.append(block);
  const sys::RealClock clock;
  const auto seen = [&](std::size_t rank, std::size_t ranks) {
    Batches batches(rows, {16, rank, ranks, 7, true, image}, 3, 0, clock);
    std::vector<std::vector<std::uint8_t>> out;
    while (const auto* batch = batches.next()) out.push_back(batch->pixels);
    return out;
  };
  const auto all = seen(0, 1), first = seen(0, 2), second = seen(1, 2);
  ASSERT_EQ(all.size(), 4U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto both = first[i];
    both.insert(both.end(), second[i].begin(), second[i].end());
    EXPECT_EQ(both, all[i]) << i;
  }
}

}  // namespace
}  // namespace falaj::loader
