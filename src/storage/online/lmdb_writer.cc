// SPDX-License-Identifier: Apache-2.0
#include "storage/online/lmdb_writer.h"

#include <pthread.h>

#include <cerrno>
#include <chrono>

namespace falaj::online {

namespace {

constexpr std::uint64_t kCommitsBetweenReaderChecks = 1024;

// Whose writer this thread is.
thread_local const void* writing_here = nullptr;

// Our own thread must outlive whatever a caller's function throws.
Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Code::internal, std::string("online write failed: ") + error.what());
  } catch (...) {
    return Error(Code::internal, "online write failed with something that is not an exception of ours");
  }
}

}  // namespace

LmdbWriter::LmdbWriter(Environment& environment, Probe& probe, std::size_t waiting_max)
    : environment_(environment), probe_(probe), waiting_max_(waiting_max), thread_([this] { loop(); }) {}

LmdbWriter::~LmdbWriter() {
  {
    Lock lock(mu_);
    stopping_ = true;
    arrived_.notify_all();
  }
  thread_.join();
}

void LmdbWriter::run(const Work& work) {
  CHECK(writing_here != this, "a write inside a write would wait for itself");
  Waiting waiting{&work, std::nullopt};
  {
    Lock lock(mu_);
    if (stopping_) throw Error(Code::cancelled, "online write refused: the store is stopping");
    if (waiting_.size() >= waiting_max_) {
      probe_.writes_refused.Increment();
      throw Error(Code::exhausted, "too many online writes are waiting");
    }
    waiting_.push_back(&waiting);
    probe_.writes_waiting.Set(static_cast<double>(waiting_.size()));
    arrived_.notify_one();
    while (!waiting.done) lock.wait(done_);
  }
  if (waiting.error) throw Error(std::move(*waiting.error));
}

void LmdbWriter::loop() {
  writing_here = this;
  ::pthread_setname_np(::pthread_self(), "online-writer");
  while (true) {
    std::vector<Waiting*> group;
    {
      Lock lock(mu_);
      while (waiting_.empty() && !stopping_) lock.wait(arrived_);
      if (waiting_.empty()) return;
      group.swap(waiting_);
      probe_.writes_waiting.Set(0);
    }
    const auto began = clock_.now();
    run_group(group);
    probe_.commit_seconds.Observe(std::chrono::duration<double>(clock_.now() - began).count());
    probe_.writes_per_commit.Observe(static_cast<double>(group.size()));
    if (++commits_ % kCommitsBetweenReaderChecks == 0) environment_.drop_dead_readers();
    Lock lock(mu_);
    for (auto* waiting : group) waiting->done = true;
    done_.notify_all();
  }
}

void LmdbWriter::run_group(std::span<Waiting* const> group) {
  try {
    run_together(group);
  } catch (...) {
    if (group.size() == 1) {
      group[0]->error = current_error();
      return;
    }
    for (std::size_t i = 0; i < group.size(); ++i) run_group(group.subspan(i, 1));
  }
}

void LmdbWriter::run_together(std::span<Waiting* const> group) {
  int result = try_commit(group);
  while (result == MDB_MAP_FULL) {
    environment_.grow();
    result = try_commit(group);
  }
  must(result, "commit");
}

int LmdbWriter::try_commit(std::span<Waiting* const> group) {
  MDB_txn* txn = nullptr;
  must(mdb_txn_begin(environment_.get(), nullptr, 0, &txn), "begin a write");
  try {
    for (auto* waiting : group)
      if (const int result = (*waiting->work)(txn); result != MDB_SUCCESS) {
        mdb_txn_abort(txn);
        return result;
      }
  } catch (...) {
    mdb_txn_abort(txn);
    throw;
  }
  const int result = mdb_txn_commit(txn);
  if (result != EIO) return result;
  // What the disk holds is unknown then, and going on would acknowledge lost writes.
  CHECK(!environment_.disk_failed(), "the online store's disk took its bytes");
  return ENOSPC;
}

}  // namespace falaj::online
