// SPDX-License-Identifier: Apache-2.0
#include "compute/train/checkpoint_writer.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "foundation/base/error.h"
#include "foundation/base/testing.h"
#include "foundation/sys/faulty_files.h"
#include "foundation/sys/testing.h"

namespace falaj::train {
namespace {

Checkpoint small_checkpoint(std::uint64_t number) {
  Checkpoint out;
  out.number = number;
  out.parts["weights"] = to_bytes(std::to_string(number));
  return out;
}

class CheckpointWriterTest : public ::testing::Test {
 protected:
  sys::TempDir directory_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(directory_.path());
};

TEST_F(CheckpointWriterTest, WhileOneIsWrittenTheNewestWaits) {
  std::promise<void> began, go;
  std::atomic<int> creates = 0;
  sys::FaultyFiles slow(*files_, [&](sys::FileCall call, const std::string&) {
    if (call == sys::FileCall::create && creates++ == 0) {
      began.set_value();
      go.get_future().wait();
    }
    return false;
  });
  Checkpoints checkpoints(slow, "", 10);
  {
    CheckpointWriter writer(checkpoints);
    writer.save(small_checkpoint(1));
    began.get_future().wait();
    for (const std::uint64_t n : {2, 3, 4}) writer.save(small_checkpoint(n));  // none of them waits for the disk
    go.set_value();
    writer.finish();
    EXPECT_EQ(Checkpoints(*files_, "", 10).numbers(), (std::vector<std::uint64_t>{1, 4}));
    writer.save(small_checkpoint(5));
  }
  EXPECT_EQ(Checkpoints(*files_, "", 10).numbers(), (std::vector<std::uint64_t>{1, 4, 5}));  // who goes waits for it
}

TEST_F(CheckpointWriterTest, WhatFailedIsSaidOnceAndTheNextIsTried) {
  std::atomic<bool> fails = true;
  sys::FaultyFiles faulty(*files_, [&](sys::FileCall, const std::string&) { return fails.load(); });
  Checkpoints checkpoints(faulty, "", 10);
  CheckpointWriter writer(checkpoints);
  writer.save(small_checkpoint(1));
  EXPECT_ERROR(writer.finish(), Code::unavailable);
  fails = false;
  writer.save(small_checkpoint(2));
  writer.finish();
  EXPECT_EQ(checkpoints.newest().value().number, 2U);
}

}  // namespace
}  // namespace falaj::train
