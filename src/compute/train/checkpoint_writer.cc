// SPDX-License-Identifier: Apache-2.0
#include "compute/train/checkpoint_writer.h"

#include <utility>

namespace falaj::train {

CheckpointWriter::CheckpointWriter(Checkpoints& checkpoints) : checkpoints_(checkpoints), thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    Lock lock(mu_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void CheckpointWriter::save(Checkpoint checkpoint) {
  Lock lock(mu_);
  throw_failure();
  waiting_ = std::move(checkpoint);
  changed_.notify_all();
}

void CheckpointWriter::finish() {
  Lock lock(mu_);
  while (waiting_ || writing_) lock.wait(changed_);
  throw_failure();
}

void CheckpointWriter::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointWriter::run() {
  for (;;) {
    Checkpoint next;
    {
      Lock lock(mu_);
      while (!waiting_ && !ending_) lock.wait(changed_);
      if (!waiting_) return;
      next = std::move(*waiting_);
      waiting_.reset();
      writing_ = true;
    }
    std::exception_ptr thrown;
    try {
      checkpoints_.save(next);
    } catch (...) {
      thrown = std::current_exception();
    }
    Lock lock(mu_);
    if (thrown) failure_ = thrown;
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace falaj::train
