// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/files.h"

namespace falaj::table {

// What all spill files of a workspace share: a key that is nowhere but in memory, and a budget.
struct SpillBudget {
  explicit SpillBudget(std::uint64_t max) : bytes_max(max) {}
  const crypto::Key key = crypto::Key::random();
  const std::uint64_t bytes_max;
  std::atomic<std::uint64_t> bytes{0};
};

// A scratch file in which every write is sealed on its own and is read back as it was written: the same place, the
// same length. That is how an engine spills its buffers, so nothing more general is needed. Thread-safe.
class SpillFile {
 public:
  SpillFile(sys::Files& files, std::shared_ptr<SpillBudget> budget);
  ~SpillFile();
  void write(std::uint64_t offset, BytesView plain);                // exhausted when the budget is used up
  void read(std::uint64_t offset, std::span<std::byte> out) const;  // corrupt unless written so
  std::uint64_t size() const;                                       // end of the furthest write
  void truncate(std::uint64_t size);

 private:
  struct Piece {
    std::uint64_t at = 0;  // in the scratch file
    std::uint64_t plain_bytes = 0, sealed_bytes = 0;
  };
  const std::unique_ptr<sys::ScratchFile> file_;
  const std::shared_ptr<SpillBudget> budget_;

  mutable Mutex mu_;
  std::map<std::uint64_t, Piece> pieces_ GUARDED_BY(mu_);             // by their place
  std::multimap<std::uint64_t, std::uint64_t> free_ GUARDED_BY(mu_);  // sealed bytes -> where
  std::uint64_t end_ GUARDED_BY(mu_) = 0;                             // of the scratch file
};

}  // namespace falaj::table
