// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "compute/serve/dial.h"
#include "foundation/base/metrics.h"
#include "storage/online/store.h"

namespace falaj::serve {

// The online store as a worker reaches it. Files of this machine are opened before it confines itself, and it may open
// nothing afterwards: it reads on through what is open. Connections to Redis are made by its supervisor.
class OnlineStore {
 public:
  // `directory` "": there are no files here; those that cannot be opened are as none. `dialled` is null where there is
  // no Redis either; else it outlives this.
  OnlineStore(std::string directory, Dialled* dialled);
  // Of the store that is meant: by what its keys in Redis begin with, "" for files. Null: not reached from here. One
  // thread at a time.
  std::shared_ptr<online::Reader> reader(const std::string& key_prefix);
  // Whether other files are at the place than those that were there: only a new process can open them. Thread-safe.
  bool was_replaced() const;

 private:
  using File = std::pair<std::uint64_t, std::uint64_t>;  // device and number; zeros: none
  File file_now() const;

  const std::string directory_;
  const File file_;
  Dialled* const dialled_;
  std::shared_ptr<online::Reader> files_;
  Metrics metrics_;  // of Redis' connections
  std::pair<std::string, std::shared_ptr<online::Reader>> redis_;
};

}  // namespace falaj::serve
