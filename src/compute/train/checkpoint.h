// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/sys/files.h"

namespace falaj::train {

// Everything that going on needs, by name: weights, optimiser, position, random states, what was learned of the data.
struct Checkpoint {
  std::uint64_t number = 0;  // rises with progress
  std::map<std::string, Bytes> parts;
};

// The checkpoints of one task, in a directory that the next attempt finds again. A checkpoint is there wholly and with
// its digest, or not at all: a kill, a full disk or a broken block at any moment leaves the one before it. One thread
// at a time.
class Checkpoints {
 public:
  // `prefix` tells the tasks of a gang apart.
  Checkpoints(sys::Files& files, std::string prefix, std::size_t keep);

  void save(const Checkpoint& checkpoint);  // on disk when it returns; then drops what is older than the last `keep`
  std::optional<Checkpoint> newest();       // the newest that is what was saved; damaged ones are passed over and said
  // Of a gang only what all ranks have is of use: the newest of exactly this number.
  std::optional<Checkpoint> load(std::uint64_t number);
  std::vector<std::uint64_t> numbers();  // that are there, rising

 private:
  std::string name_of(std::uint64_t number) const;
  void write(const Checkpoint& checkpoint);

  sys::Files& files_;
  const std::string prefix_;
  const std::size_t keep_;
};

}  // namespace falaj::train
