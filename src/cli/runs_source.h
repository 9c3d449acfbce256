// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/process.h"

namespace falaj::cli {

// Where a run comes from. What is not known is empty.
struct Source {
  std::vector<std::string> command;
  std::string directory, host, user, system;
  std::int64_t cpus = 0, memory_bytes = 0;
  std::string commit, branch, repository;  // of the git work tree around the directory
  bool dirty = false;                      // and what its diff to the commit is
  std::string diff;
};

Source source_of(sys::Processes& processes, const sys::Clock& clock, std::vector<std::string> command);
json::object to_json(const Source& source);  // without the diff
json::array to_tags(const Source& source);   // as MLflow's clients name them, and ours for the rest

// What `pip freeze` says for the Python of the command, else of the PATH; nothing when there is none.
std::optional<std::string> packages_of(sys::Processes& processes, const sys::Clock& clock,
                                       const std::vector<std::string>& command);

// Words as a shell would take them.
std::string shell_text(const std::vector<std::string>& words);
// "https://user:secret@host/x" without what stands before the '@'.
std::string without_secret(const std::string& url);

// The environment of this process, for a child.
std::vector<std::string> own_environment();

}  // namespace falaj::cli
