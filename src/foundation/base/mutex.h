// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

// Lock annotations: nothing on g++, read by clang's -Wthread-safety.
#if defined(__clang__)
#define FALAJ_ANNOTATE(x) __attribute__((x))
#else
#define FALAJ_ANNOTATE(x)
#endif
#define GUARDED_BY(mutex) FALAJ_ANNOTATE(guarded_by(mutex))
#define REQUIRES(...) FALAJ_ANNOTATE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) FALAJ_ANNOTATE(locks_excluded(__VA_ARGS__))

namespace falaj {

class FALAJ_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() FALAJ_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void unlock() FALAJ_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

// Holds a Mutex for a scope, and waits on a condition with it.
class FALAJ_ANNOTATE(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) FALAJ_ANNOTATE(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~Lock() FALAJ_ANNOTATE(release_capability()) = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Spell waits as `while (!condition) lock.wait(cv);`: the analysis then sees the condition read under the lock.
  void wait(std::condition_variable& changed) { changed.wait(lock_); }
  template <class Duration>
  std::cv_status wait_for(std::condition_variable& changed, Duration d) {
    return changed.wait_for(lock_, d);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace falaj
