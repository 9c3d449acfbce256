// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace falaj::sys {

// A fresh directory (under TMPDIR, else /tmp), removed with all it holds at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The most memory that a process held which did this and nothing else, so that two sides of a comparison can each be
// told of. To be called before there are threads or much memory: the process begins as a copy of this one.
std::uint64_t peak_memory_bytes(const std::function<void()>& work);

}  // namespace falaj::sys
