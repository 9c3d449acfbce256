// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/testing.h"

#include <stdlib.h>

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

}  // namespace falaj::sys
