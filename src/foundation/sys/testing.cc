// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/testing.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "foundation/base/error.h"

namespace falaj::sys {

TempDir::TempDir() : path_((std::filesystem::temp_directory_path() / "falaj-test-XXXXXX").string()) {
  CHECK(::mkdtemp(path_.data()) != nullptr, "no temporary directory can be made");
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::uint64_t peak_memory_bytes(const std::function<void()>& work) {
  std::fflush(nullptr);
  const auto child = ::fork();
  CHECK(child >= 0, "no process can be made");
  if (child == 0) {
    int status = 0;
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      status = 1;
    }
    ::_exit(status);
  }
  int status = 0;
  rusage used{};
  CHECK(::wait4(child, &status, 0, &used) == child && status == 0, "what was to be measured ends well");
  return static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
}

}  // namespace falaj::sys
