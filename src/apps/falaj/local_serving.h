// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "foundation/base/mutex.h"
#include "foundation/sys/process.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::app {

// Keeps a falaj-serve running on this machine as soon as an endpoint is declared. It outlives a killed control plane:
// the next one finds it by its lock. A control plane that stops takes it along.
class LocalServing {
 public:
  struct Options {
    std::string program;
    std::string directory;                 // of the lock, the plan and the models
    std::vector<std::string> settings;     // "key=value"
    std::vector<std::string> environment;  // "NAME=value"; the whole of it
    std::function<void()> prepare;         // before each start
  };
  LocalServing(Options options, serving::Endpoints& endpoints, sys::Processes& processes);
  ~LocalServing();

 private:
  void keep();
  bool wanted();
  bool runs_already() const;  // one that an earlier control plane started
  void start();
  void end();
  bool pause();  // false when stopping

  const Options options_;
  serving::Endpoints& endpoints_;
  sys::Processes& processes_;
  std::unique_ptr<sys::Child> child_;  // the keeping thread's own
  bool complained_ = false;

  Mutex mu_;  // guards stopping_
  std::condition_variable woken_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread keeping_;
};

}  // namespace falaj::app
