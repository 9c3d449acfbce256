// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the tests of everything that reads or writes features online.

#include <memory>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "storage/online/store.h"

namespace falaj::online {

// A throw-away server of this object alone: a socket in a temporary directory, no network, nothing kept on disk unless
// asked for. Requires: has_redis().
class RedisServer {
 public:
  enum class Keeps { nothing, every_write };
  explicit RedisServer(Keeps keeps = Keeps::nothing);
  ~RedisServer() { kill(); }
  static RedisServer& shared();  // started at first use
  void kill();                   // at once, in the middle of what it does
  void start();
  RedisOptions options() const;

 private:
  const Keeps keeps_;
  sys::TempDir directory_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> server_;
};
bool has_redis();  // says so on standard error where it is not installed

// An empty store, gone with this object.
class Scratch {
 public:
  virtual ~Scratch() = default;
  virtual Store& store() = 0;
};
std::unique_ptr<Scratch> make_scratch(const std::string& engine);
std::vector<std::string> engines();  // "lmdb", and "redis" where it is installed

}  // namespace falaj::online
