// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <optional>
#include <thread>

#include "compute/train/checkpoint.h"
#include "foundation/base/mutex.h"

namespace falaj::train {

// Saves checkpoints on a thread of its own, so that training goes on while one is written. One is written at a time; of
// those that come meanwhile only the newest waits. For one caller at a time.
class CheckpointWriter {
 public:
  // Requires: until this is gone, nobody else uses `checkpoints`.
  explicit CheckpointWriter(Checkpoints& checkpoints);
  ~CheckpointWriter();  // after what was begun is on disk

  void save(Checkpoint checkpoint);  // returns at once. Throws what an earlier one failed with
  void finish();                     // returns when the last one is on disk. Throws what one failed with

 private:
  void run();
  void throw_failure() REQUIRES(mu_);

  Checkpoints& checkpoints_;
  Mutex mu_;
  std::condition_variable changed_;
  std::optional<Checkpoint> waiting_ GUARDED_BY(mu_);
  bool writing_ GUARDED_BY(mu_) = false, ending_ GUARDED_BY(mu_) = false;
  std::exception_ptr failure_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace falaj::train
