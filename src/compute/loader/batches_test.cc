// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/batches.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "foundation/sys/testing.h"

namespace falaj::loader {
namespace {

constexpr Layout kLayout{3, 2};

// Row i holds i everywhere.
std::unique_ptr<Packed> counted(sys::Files& files, std::size_t n) {
  auto packed = std::make_unique<Packed>(files, kLayout);
  RowBlock block;
  for (std::size_t first = 0; first < n; first += 1000) {
    const auto rows = std::min<std::size_t>(1000, n - first);
    block.resize(kLayout, rows);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto v = static_cast<float>(first + i);
      for (std::size_t k = 0; k < 3; ++k) block.numbers[i * 3 + k] = v + static_cast<float>(k);
      for (std::size_t k = 0; k < 2; ++k) block.ids[i * 2 + k] = static_cast<std::int32_t>(first + i + k);
      block.labels[i] = block.weights[i] = block.groups[i] = v;
    }
    packed->append(block);
  }
  return packed;
}

std::vector<std::vector<float>> labels_of(const Packed& rows, const BatchOptions& options, std::uint64_t epoch,
                                          std::size_t from = 0) {
  const sys::RealClock clock;
  Batches batches(rows, options, epoch, from, clock);
  std::vector<std::vector<float>> out;
  while (const auto* batch = batches.next()) {
    for (std::size_t i = 0; i < batch->rows; ++i) {
      const auto v = batch->labels[i];
      EXPECT_EQ(batch->numbers[i * 3 + 2], v + 2);
      EXPECT_EQ(batch->ids[i * 2 + 1], static_cast<std::int32_t>(v) + 1);
      EXPECT_EQ(batch->weights[i], v);
    }
    out.push_back(batch->labels);
  }
  return out;
}

class BatchesTest : public ::testing::Test {
 protected:
  sys::TempDir directory_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(directory_.path());
};

TEST_F(BatchesTest, AnEpochSeesEveryRowOnceInAnOrderOfItsOwn) {
  for (const std::size_t n : {1UL, 511UL, 512UL, 5'000UL, 100'003UL}) {
    const auto rows = counted(*files_, n);
    const BatchOptions options{1, 0, 1, 9, true};
    std::vector<float> first, second;
    for (const auto& b : labels_of(*rows, options, 0)) first.insert(first.end(), b.begin(), b.end());
    for (const auto& b : labels_of(*rows, options, 1)) second.insert(second.end(), b.begin(), b.end());
    EXPECT_EQ(std::set<float>(first.begin(), first.end()).size(), n);
    EXPECT_EQ(first.size(), n);
    EXPECT_EQ(std::set<float>(second.begin(), second.end()).size(), n);
    if (n > 10) {
      EXPECT_NE(first, second);
    }
  }
}

// What does not fill a step is left out of an epoch, and is other rows in the next.
TEST_F(BatchesTest, NoRowIsLeftOutOfEveryEpoch) {
  constexpr std::size_t kRows = 3 * 1024 + 300;
  const auto rows = counted(*files_, kRows);
  for (const bool neighbours : {false, true}) {
    BatchOptions options{1024, 0, 1, 9, true};
    options.neighbours = neighbours;
    std::set<float> seen;
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
      std::set<float> now;
      for (const auto& batch : labels_of(*rows, options, epoch)) now.insert(batch.begin(), batch.end());
      EXPECT_EQ(now.size(), 3 * 1024U);
      seen.insert(now.begin(), now.end());
    }
    EXPECT_EQ(seen.size(), kRows) << "neighbours " << neighbours;
  }
}

TEST_F(BatchesTest, NeighboursStaySideBySide) {
  const auto rows = counted(*files_, 5'000);
  BatchOptions options{500, 0, 1, 9, true};
  options.neighbours = true;
  std::size_t breaks = 0;
  float last = -1;
  for (const auto& batch : labels_of(*rows, options, 1))
    for (const float v : batch) breaks += v != last + 1 && last != 4'999, last = v;
  EXPECT_LE(breaks, 10U) << "one a block";
}

TEST(GroupWord, TellsManyGroupsApart) {
  for (const std::int64_t n :
       {std::int64_t{1}, std::int64_t{1} << 23, std::int64_t{1} << 24, std::int64_t{2'000'000'000}})
    EXPECT_LT(group_word(n), group_word(n + 1)) << n;
}

TEST_F(BatchesTest, GoingOnAtAStepIsTheRestOfTheEpoch) {
  const auto rows = counted(*files_, 100'003);
  const BatchOptions options{700, 0, 1, 5, true};
  const auto all = labels_of(*rows, options, 3);
  ASSERT_EQ(all.size(), steps_of(100'003, options));
  for (const std::size_t from : {0UL, 1UL, 46UL, 47UL, 100UL, all.size() - 1, all.size()}) {
    const auto rest = labels_of(*rows, options, 3, from);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + static_cast<std::ptrdiff_t>(from), all.end()));
  }
}

TEST_F(BatchesTest, RanksShareOutTheSameSteps) {
  const auto rows = counted(*files_, 40'000);
  const auto whole = labels_of(*rows, {256, 0, 1, 5, true}, 2);
  std::vector<std::vector<std::vector<float>>> of_ranks;
  for (std::size_t rank = 0; rank < 3; ++rank) of_ranks.push_back(labels_of(*rows, {256, rank, 3, 5, true}, 2));
  for (std::size_t step = 0; step < whole.size(); ++step) {
    std::vector<float> joined;
    for (const auto& of : of_ranks) joined.insert(joined.end(), of[step].begin(), of[step].end());
    EXPECT_EQ(joined, whole[step]);
  }
}

TEST_F(BatchesTest, InOrderWhenAsked) {
  const auto rows = counted(*files_, 2'000);
  float expected = 0;
  for (const auto& batch : labels_of(*rows, {100, 0, 1, 5, false}, 0))
    for (const float v : batch) EXPECT_EQ(v, expected++);
  EXPECT_EQ(expected, 2'000);
}

TEST_F(BatchesTest, LeavingEarlyEndsTheThread) {
  const auto rows = counted(*files_, 50'000);
  const sys::RealClock clock;
  Batches batches(*rows, {10, 0, 1, 5, true}, 0, 0, clock);
  EXPECT_EQ(batches.next()->rows, 10U);
}

}  // namespace
}  // namespace falaj::loader
