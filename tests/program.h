// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/process.h"

namespace falaj::tests {

// A `falaj up` under test: its own data directory, a port from the kernel, ready when made.
class Program {
 public:
  // `binary` is the falaj program; `log` gets what it writes. Throws when it does not come up.
  Program(std::string binary, std::string data, std::string log, std::vector<std::string> more_arguments = {});
  ~Program();
  void kill();  // -9, and gone when it returns
  void stop();  // SIGTERM, and gone when it returns
  void start();
  int pid() const { return child_->pid(); }
  const std::string& url() const { return url_; }
  std::string token() const;  // of the admin

 private:
  const std::string binary_, data_, log_;
  const std::vector<std::string> more_arguments_;
  std::string url_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> child_;
};

void pause(std::uint64_t micros);                // lets what runs go on for so long
std::string read_text(const std::string& path);  // "" when it is not there
// Our environment's entry, or `otherwise`.
std::string environment(const char* name, const std::string& otherwise);

}  // namespace falaj::tests
