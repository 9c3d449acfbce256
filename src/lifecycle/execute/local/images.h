// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/loop.h"

namespace falaj::execute::local {

// Root file systems for attempts. A directory is one as it is; an OCI layout is unpacked once, by a process of its own,
// into a directory named by the image's digest, and used again. Not thread-safe.
class Images {
 public:
  Images(Loop& loop, std::string directory) : loop_(loop), directory_(std::move(directory)) {}
  ~Images();
  Images(const Images&) = delete;
  Images& operator=(const Images&) = delete;

  // Calls `ready`, now or later, with the directory, or with "" and what is wrong with the image.
  using Ready = std::function<void(const std::string& root, const std::string& problem)>;
  void want(const std::string& image, const void* who, Ready ready);
  void cancel(const void* who);

 private:
  struct Waiting {
    const void* who;
    Ready ready;
  };
  struct Unpacking {
    sys::Descriptor outcome;  // what went wrong, or nothing
    std::vector<Waiting> waiting;
  };
  void begin(const std::string& image, const std::string& root, Unpacking& unpacking);
  void finish(const std::string& root);

  Loop& loop_;
  const std::string directory_;
  std::map<std::string, Unpacking> unpacking_;  // by root
};

}  // namespace falaj::execute::local
