// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "governance/vault/vault.h"

namespace falaj::track {

// Files of runs and models are objects in the vault, under names that begin with '@' and so cannot be made, changed or
// removed as plain blobs. A path is relative, with '/' between elements.
std::string run_artifact(std::string_view run_id, std::string_view path);
std::string model_artifact(std::string_view model_id, std::string_view path);

// A path as it may be stored: no empty, "." or ".." element even after decoding it again and again, no backslash, no
// control character, no '#'. Throws invalid; returns it without a trailing slash.
std::string checked_artifact_path(std::string_view path);

struct ArtifactInfo {
  std::string path;  // the last element only
  bool directory = false;
  std::uint64_t bytes = 0;
};
// What is directly below a directory; nothing for a file and for what is not there. `root` as run_artifact gives it.
std::vector<ArtifactInfo> list_artifacts(vault::Vault& vault, const vault::Where& where, const std::string& root);
// A file, or a directory with all below it; how many files went.
std::size_t remove_artifacts(vault::Vault& vault, const vault::Where& where, const std::string& root,
                             const sql::Act& act);

}  // namespace falaj::track
