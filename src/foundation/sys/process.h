// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::sys {

struct Command {
  std::vector<std::string> argv;         // argv[0] is looked up on our PATH unless it has a slash; no shell ever
  std::vector<std::string> environment;  // "K=V"; the whole of it, nothing is inherited
  std::string directory;                 // "" keeps ours
  std::string stdout_file, stderr_file;  // appended to, made with mode 0600; "" goes to ours
  int stdout_descriptor = -1, stderr_descriptor = -1;  // instead of a file; the caller's, and stay open here
  bool keeps_input = false;                            // its standard input is ours, not an empty one
  bool dies_with_parent = true;  // killed when the Processes that started it, or this whole process, is gone
};

struct Exit {
  int status = 0;  // exit status, when signal is 0
  int signal = 0;
  friend bool operator==(const Exit&, const Exit&) = default;
};

// What a process took, with those of its own children that it waited for.
struct Usage {
  Micros cpu{0};
  std::uint64_t memory_peak_bytes = 0;
};

// A started process, leader of its own process group. Dropping it while it runs kills its group and reaps it.
// Thread-safe.
class Child {
 public:
  virtual ~Child() = default;
  virtual int pid() const = 0;
  virtual void signal(int number) = 0;  // to its whole process group; nothing if its end has been seen by wait
  virtual std::optional<Exit> wait(Micros at_most) = 0;
  virtual Usage usage() const { return {}; }  // known once wait has seen its end
};

// Starts processes. Thread-safe. A child has an empty standard input unless it keeps ours, default signal handling and
// no descriptor of ours above 2. Errors: not_found (no such program, or not one we may run), invalid (a bad command),
// unavailable.
class Processes {
 public:
  virtual ~Processes() = default;
  virtual std::unique_ptr<Child> start(const Command& command) = 0;
};

// Has a thread of its own that starts the children: the kernel ties "dies with parent" to the starting thread, and
// callers' threads come and go.
class RealProcesses final : public Processes {
 public:
  RealProcesses();
  ~RealProcesses() override;
  std::unique_ptr<Child> start(const Command& command) override;

 private:
  class Starter;
  std::unique_ptr<Starter> starter_;
};

}  // namespace falaj::sys
