// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/random.h"

namespace falaj::serve {

// Segments of the prediction log on their way to the control plane: files, so that neither its absence nor our end
// loses them; of so many bytes at most. A segment's name is its own for ever. Thread-safe.
class Spool {
 public:
  static constexpr std::uint64_t kBytesMax = std::uint64_t{256} << 20;

  // What an earlier one left in the directory is there.
  Spool(sys::Files& files, const sys::Clock& clock, sys::Random& random, std::uint64_t bytes_max = kBytesMax);

  bool put(const json::value& segment);  // on disk when it returns; false: full, and it is not taken
  // The oldest, and those after it of the same endpoint and columns, of about so many bytes; each with its "segment".
  // Empty when there is none.
  std::vector<json::object> oldest(std::uint64_t bytes_max);
  void remove(const json::object& segment);
  std::uint64_t bytes() const;

 private:
  std::optional<json::object> read(const std::string& name);
  void forget(const std::string& name);

  sys::Files& files_;
  const std::uint64_t bytes_max_;
  const std::string prefix_;  // later than those of programs before us

  mutable Mutex mu_;                                            // guards everything below
  std::map<std::string, std::uint64_t> names_ GUARDED_BY(mu_);  // with their bytes
  std::uint64_t bytes_ GUARDED_BY(mu_) = 0;
  std::uint64_t next_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::serve
