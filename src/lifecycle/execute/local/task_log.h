// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a task writes, kept in segments: files named "<rank>.<offset of the first byte>" (sixteen hexadecimal digits) in
// one directory per attempt. Beyond a limit the oldest segment is dropped. Who reads needs nobody's help.

#include <cstdint>
#include <deque>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

// Not thread-safe. Never fails: bytes that the disk does not take are dropped, and counted as if written.
class TaskLog {
 public:
  TaskLog(std::string directory, int rank, std::int64_t bytes_max);  // the directory is made when something is written
  void write(BytesView bytes);

 private:
  bool open_segment();
  void drop_oldest();
  std::string segment_path(std::int64_t first) const;

  const std::string directory_;
  const int rank_;
  const std::int64_t bytes_max_, segment_bytes_;
  sys::Descriptor file_;
  std::deque<std::int64_t> firsts_;  // of the segments there are
  std::int64_t offset_ = 0;          // of the next byte
};

// From `offset`, or from the first byte there is when that was dropped. `ended` is left false. A directory that does
// not exist is a log in which nothing was written.
LogPage read_task_log(const std::string& directory, int rank, std::int64_t offset, std::int64_t bytes_max);

}  // namespace falaj::execute::local
