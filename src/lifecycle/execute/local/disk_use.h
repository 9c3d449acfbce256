// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace falaj::execute::local {

// Bytes on disk beneath `directory`, each file once however many names it has, and of files without a name that
// `processes` still hold open or mapped on the same file system. Stops counting above `enough`. Links are not followed.
// What is too deep to be looked at counts as `enough`.
std::int64_t disk_use(const std::string& directory, const std::vector<pid_t>& processes, std::int64_t enough);

}  // namespace falaj::execute::local
