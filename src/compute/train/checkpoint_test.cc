// SPDX-License-Identifier: Apache-2.0
#include "compute/train/checkpoint.h"

#include <gtest/gtest.h>

#include "foundation/base/error.h"
#include "foundation/sys/faulty_files.h"
#include "foundation/sys/testing.h"

namespace falaj::train {
namespace {

Checkpoint numbered(std::uint64_t number) {
  Checkpoint out;
  out.number = number;
  const auto text = "weights of " + std::to_string(number);
  out.parts["weights"] = Bytes(as_bytes(text).begin(), as_bytes(text).end());
  out.parts["empty"] = {};
  out.parts["large"] = Bytes(3 << 20, std::byte{static_cast<std::uint8_t>(number)});
  return out;
}

class CheckpointTest : public ::testing::Test {
 protected:
  sys::TempDir directory_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(directory_.path());
};

TEST_F(CheckpointTest, TheNewestIsWhatWasSaved) {
  Checkpoints checkpoints(*files_, "0-", 2);
  EXPECT_FALSE(checkpoints.newest());
  for (const std::uint64_t n : {1, 2, 10}) checkpoints.save(numbered(n));
  const auto found = checkpoints.newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, 10U);
  EXPECT_EQ(found->parts, numbered(10).parts);
  EXPECT_EQ(checkpoints.numbers(), (std::vector<std::uint64_t>{2, 10}));  // of the three two were kept
  EXPECT_FALSE(Checkpoints(*files_, "1-", 2).newest());                   // another task's
}

TEST_F(CheckpointTest, ADamagedOneIsPassedOver) {
  Checkpoints checkpoints(*files_, "", 3);
  checkpoints.save(numbered(1));
  checkpoints.save(numbered(2));
  const std::string name = "000000000002.checkpoint";
  const auto whole = files_->read_all(name, 1 << 30);
  for (const std::size_t at : {std::size_t{0}, std::size_t{20}, std::size_t{40}, whole.size() / 2, whole.size() - 1}) {
    auto changed = whole;
    changed[at] ^= std::byte{1};
    files_->write_all(name, changed);
    ASSERT_TRUE(checkpoints.newest()) << at;
    EXPECT_EQ(checkpoints.newest()->number, 1U) << at;
    files_->write_all(name, BytesView(whole).first(at));
    EXPECT_EQ(checkpoints.newest()->number, 1U) << "cut at " << at;
  }
  files_->write_all(name, whole);
  EXPECT_EQ(checkpoints.newest()->number, 2U);
}

TEST_F(CheckpointTest, NoFailureLeavesLessThanTheOneBefore) {
  Checkpoints(*files_, "", 1).save(numbered(1));
  std::uint64_t tried = 0;
  for (std::uint64_t n = 1;; ++n) {
    sys::FaultyFiles faulty(*files_, sys::FaultyFiles::nth(n));
    try {
      Checkpoints(faulty, "", 1).save(numbered(n + 1));
    } catch (const Error&) {
    }
    const auto found = Checkpoints(*files_, "", 1).newest();
    ASSERT_TRUE(found) << "call " << n;
    EXPECT_EQ(found->parts, numbered(found->number).parts);
    if (faulty.failures() == 0) break;
    ++tried;
  }
  EXPECT_GT(tried, 5U);
}

}  // namespace
}  // namespace falaj::train
