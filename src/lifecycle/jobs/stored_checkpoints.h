// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <string>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "governance/vault/vault.h"
#include "lifecycle/jobs/record.h"

namespace falaj::jobs {

// Copies of checkpoint directories in the vault: by content, sealed, in the project's zone and in backups. A job whose
// directory is gone, with a disk or because it moved to another executor, goes on from there. What a later copy has in
// common with the one before takes no room. Thread-safe.
class StoredCheckpoints {
 public:
  StoredCheckpoints(vault::Vault& vault, Metrics& metrics);

  // Stores what is in `directory` unless it is what `known` tells of, the answer of the last call; "" at first. A file
  // that is put there by renaming is stored whole.
  std::string store(const Record& record, const std::string& directory, const std::string& known);
  void restore(const Record& record, const std::string& directory);  // into an empty one; nothing when there is none
  void drop(const Record& record);  // once its directory is gone: nothing is stored of it afterwards
  // Of jobs of this project that live no more and whose copy is older. How many files.
  std::size_t sweep(const Where& where, const std::function<bool(JobId)>& is_live, std::int64_t before_us);

 private:
  Mutex& mutex_of(const Record& record);

  vault::Vault& vault_;
  std::array<Mutex, 64> mus_;  // by job: of two copies made at once an older list of files could undo the newer
  Counter &stored_, &stored_bytes_, &restored_;
};

}  // namespace falaj::jobs
