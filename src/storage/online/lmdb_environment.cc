// SPDX-License-Identifier: Apache-2.0
#include "storage/online/lmdb_environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::online {

namespace {

Code code_of(int result) {
  switch (result) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
    case MDB_READERS_FULL:
      return Code::exhausted;
    case ENOENT:
      return Code::not_found;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_PANIC:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
      return Code::corrupt;
    default:
      return Code::unavailable;
  }
}

// LMDB takes the number of the last commit, then copies the root from one of two pages that commits write in turn. A
// thread that is stopped in between for two commits copies the root of a later one, whose bytes need not be on disk
// yet: the next read could be of an earlier moment. Nothing of that kind happened if at most one commit was begun
// since.
bool was_overtaken(MDB_env* env, MDB_txn* txn) {
  MDB_envinfo info{};
  mdb_env_info(env, &info);
  return info.me_last_txnid > mdb_txn_id(txn) + 1;
}

// The directories open in this process.
struct Places {
  Mutex mu;
  std::set<std::string> open GUARDED_BY(mu);
  static Places& all() {
    static Places places;
    return places;
  }
};

// Makes the directory when it is to be written, and takes it for this process.
std::string take_place(const std::string& directory, Environment::Mode mode) {
  std::error_code failed;
  if (mode == Environment::Mode::write) {
    if (std::filesystem::create_directories(directory, failed) && !failed)
      std::filesystem::permissions(directory, std::filesystem::perms::owner_all, failed);
  }
  auto place = failed ? std::filesystem::path() : std::filesystem::canonical(directory, failed);
  if (failed) throw_lmdb(failed.value(), "open its directory");
  Lock lock(Places::all().mu);
  if (!Places::all().open.insert(place).second)
    throw Error(Code::exists, "this process has the online store open already");
  return place;
}

}  // namespace

void throw_lmdb(int result, const char* doing) {
  throw Error(code_of(result), std::string("online store: ") + doing + ": " + mdb_strerror(result));
}

Environment::Environment(const std::string& directory, const LmdbOptions& options, Mode mode)
    : options_(options), place_(take_place(directory, mode)) {
  const bool writes = mode == Mode::write;
  try {
    must(mdb_env_create(&env_), "begin");
    must(mdb_env_set_maxreaders(env_, options.readers_max), "set the number of readers");
    if (writes) {
      struct stat data {};
      const bool there = ::stat((directory + "/data.mdb").c_str(), &data) == 0;
      const std::uint64_t twice = there ? 2 * static_cast<std::uint64_t>(data.st_size) : 0;
      must(mdb_env_set_mapsize(env_, std::min(options.map_bytes_max, std::max(options.map_bytes_first, twice))),
           "size its map");
    }
    // NOTLS: a transaction belongs to whoever holds it. NORDAHEAD: rows are read here and there.
    const unsigned flags = MDB_NOTLS | MDB_NORDAHEAD | (writes ? 0U : static_cast<unsigned>(MDB_RDONLY));
    must(mdb_env_open(env_, directory.c_str(), flags, 0600), "open");
    if (writes) data_ = sys::Descriptor(::open((directory + "/data.mdb").c_str(), O_RDONLY | O_CLOEXEC));
    drop_dead_readers();
    MDB_txn* txn = nullptr;
    must(mdb_txn_begin(env_, nullptr, writes ? 0 : MDB_RDONLY, &txn), "open its table");
    if (const int result = mdb_dbi_open(txn, nullptr, 0, &table_); result != MDB_SUCCESS) {
      mdb_txn_abort(txn);
      throw_lmdb(result, "open its table");
    }
    must(mdb_txn_commit(txn), "open its table");
  } catch (...) {
    close();
    throw;
  }
}

Environment::~Environment() {
  {
    Lock lock(mu_);
    CHECK(reading_ == 0, "snapshots end before the store they are of");
  }
  close();
}

void Environment::close() {
  Lock lock(mu_);
  for (auto* txn : idle_) mdb_txn_abort(txn);
  if (env_) mdb_env_close(env_);
  Lock places(Places::all().mu);
  Places::all().open.erase(place_);
}

bool Environment::disk_failed() const { return ::fdatasync(data_.get()) != 0; }

MDB_txn* Environment::begin_read() {
  while (true) {
    MDB_txn* txn = nullptr;
    {
      Lock lock(mu_);
      while (resizing_) lock.wait(changed_);
      ++reading_;
      if (!idle_.empty()) {
        txn = idle_.back();
        idle_.pop_back();
      }
    }
    int result = txn ? mdb_txn_renew(txn) : mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    while (result == MDB_SUCCESS && was_overtaken(env_, txn)) {
      mdb_txn_reset(txn);
      result = mdb_txn_renew(txn);
    }
    if (result == MDB_SUCCESS) return txn;
    {
      Lock lock(mu_);
      if (txn) idle_.push_back(txn);  // one that could not be renewed is still reset
      if (--reading_ == 0) changed_.notify_all();
    }
    if (result != MDB_MAP_RESIZED) throw_lmdb(result, "begin a read");
    resize(Resize::to_what_others_made);
  }
}

void Environment::end_read(MDB_txn* txn) {
  mdb_txn_reset(txn);
  Lock lock(mu_);
  idle_.push_back(txn);
  if (--reading_ == 0 && resizing_) changed_.notify_all();
}

void Environment::grow() {
  drop_dead_readers();
  resize(Resize::twice);
}

void Environment::resize(Resize how) {
  Lock lock(mu_);
  while (resizing_) lock.wait(changed_);
  resizing_ = true;
  int result = MDB_SUCCESS;
  bool waited_enough = false;
  while (reading_ > 0 && !waited_enough)
    waited_enough = lock.wait_for(changed_, options_.grow_wait_max) == std::cv_status::timeout;
  const bool alone = reading_ == 0;
  MDB_envinfo info{};
  mdb_env_info(env_, &info);
  const bool at_limit = how == Resize::twice && info.me_mapsize >= options_.map_bytes_max;
  std::uint64_t size = 0;  // LMDB takes it for "as others made it"
  if (how == Resize::twice) size = std::min<std::uint64_t>(options_.map_bytes_max, 2 * info.me_mapsize);
  if (alone && !at_limit) result = mdb_env_set_mapsize(env_, size);
  resizing_ = false;
  changed_.notify_all();
  if (!alone) throw Error(Code::exhausted, "online store: a snapshot is held for too long for its map to grow");
  if (at_limit) throw Error(Code::exhausted, "online store: its map has reached its limit");
  must(result, "grow its map");
  if (size > 0) log::info("online_map_grew", {{"bytes", size}});
}

void Environment::drop_dead_readers() {
  int dead = 0;
  must(mdb_reader_check(env_, &dead), "look for dead readers");
  if (dead > 0) log::warn("online_dead_readers_dropped", {{"readers", dead}});
}

}  // namespace falaj::online
