// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/process.h"

namespace falaj::tests {

// One falaj-train after another as a job would start them (docs/guide/jobs.md), on rows and a recipe of our own, below
// a directory.
class TrainTasks {
 public:
  TrainTasks(std::string binary, std::string directory);

  void write_rows(const std::string& sql);     // of DuckDB; replaces those before
  void write_recipe(const std::string& json);  // a Training's spec
  std::uint64_t row_bytes() const;             // of the file of rows

  struct How {
    std::size_t rank = 0, ranks = 1;
    int port = 0;  // where rank 0 is met
    std::uint64_t attempt = 1;
    std::int64_t memory_bytes = std::int64_t{1} << 30;
    int cpus = 1;
    std::vector<std::string> before = {};  // a command that ends by running what follows it
  };
  // `where` has its outputs, checkpoints, scratch files and logs.
  std::unique_ptr<sys::Child> start(const std::string& where, const How& how);
  void forget(const std::string& where);
  std::string log(const std::string& where, std::size_t rank = 0) const;
  std::string model(const std::string& where) const;  // the bytes of the exported one; "" when there is none
  std::string at(const std::string& where, const std::string& name) const;

 private:
  const std::string binary_, directory_;
  sys::RealProcesses processes_;
};

int free_port();  // that nobody has at this moment

}  // namespace falaj::tests
