// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to online: LMDB's environment, its read transactions and the size of its map.

#include <lmdb.h>

#include <condition_variable>
#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/descriptor.h"
#include "storage/online/store.h"

namespace falaj::online {

[[noreturn]] void throw_lmdb(int result, const char* doing);
inline void must(int result, const char* doing) {
  if (result != MDB_SUCCESS) throw_lmdb(result, doing);
}
inline MDB_val value_of(BytesView bytes) { return {bytes.size(), const_cast<std::byte*>(bytes.data())}; }
inline BytesView bytes_of(const MDB_val& value) {
  return {static_cast<const std::byte*>(value.mv_data), value.mv_size};
}

// Read transactions keep their place in the table of readers and are used again, which is ten times cheaper than making
// one. The map can change its size only while nobody reads: growing waits for those who do, and they for it.
// Thread-safe.
class Environment {
 public:
  enum class Mode { read, write };
  // Throws exists when this process has it open already: LMDB's locks do not bear that.
  Environment(const std::string& directory, const LmdbOptions& options, Mode mode);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  MDB_env* get() const { return env_; }
  MDB_dbi table() const { return table_; }

  MDB_txn* begin_read();  // throws exhausted when there are too many
  void end_read(MDB_txn* txn);

  // Doubles the map. Throws exhausted at its limit, or when a snapshot is held for too long. Requires: no write
  // transaction.
  void grow();
  // After LMDB answered a commit with EIO, which it does for a disk that failed and for one that is full.
  bool disk_failed() const;
  void drop_dead_readers();  // of processes that were killed: they would keep old pages for ever

 private:
  enum class Resize { to_what_others_made, twice };
  void resize(Resize how);
  void close();

  const LmdbOptions options_;
  const std::string place_;  // the directory by its one name
  MDB_env* env_ = nullptr;
  sys::Descriptor data_;  // the data file once more: the kernel tells every descriptor of a failed write back
  MDB_dbi table_ = 0;

  Mutex mu_;
  std::condition_variable changed_;
  std::vector<MDB_txn*> idle_ GUARDED_BY(mu_);
  std::size_t reading_ GUARDED_BY(mu_) = 0;
  bool resizing_ GUARDED_BY(mu_) = false;
};

}  // namespace falaj::online
