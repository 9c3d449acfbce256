// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::sys {

struct Command {
  std::vector<std::string> argv;         // argv[0] is looked up on PATH unless it has a slash; no shell ever
  std::vector<std::string> environment;  // "K=V"; the whole of it, nothing is inherited
  std::string directory;                 // "" keeps ours
  std::string stdout_file, stderr_file;  // appended to; "" goes to ours
  bool dies_with_parent = true;
};

struct Exit {
  int status = 0;  // exit status, when signal is 0
  int signal = 0;
};

// A started process. Dropping it while it runs kills and reaps it.
class Child {
 public:
  virtual ~Child() = default;
  virtual int pid() const = 0;
  virtual void signal(int number) = 0;  // to its whole process group; nothing if it ended
  virtual std::optional<Exit> wait(Micros at_most) = 0;
};

// Starts processes. Thread-safe. Only descriptors 0 to 2 are inherited. Errors: not_found (no such program), unavailable.
class Processes {
 public:
  virtual ~Processes() = default;
  virtual std::unique_ptr<Child> start(const Command& command) = 0;
};
class RealProcesses final : public Processes {
 public:
  std::unique_ptr<Child> start(const Command& command) override;
};

}  // namespace falaj::sys
