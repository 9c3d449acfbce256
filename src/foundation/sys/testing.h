// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace falaj::sys
