// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace falaj::serve {

// What this process is doing, in memory that outlives it: when it crashes, the model that was at work is known.
// Each is a digest, or begins with 0.
struct CrashNote {
  static constexpr std::size_t kThreads = 512, kDigest = 64;
  using Name = char[kDigest];
  Name running[kThreads];  // by thread: lanes from the first on, others from the last
  Name loading;
  Name crashed;  // left by the handler of the signal that ended it

  // Of the `place`-th thread that is no lane; null when there are too many, or nobody reads it.
  static Name* of_other(CrashNote* note, std::size_t place) {
    return note && place < kThreads / 2 ? &note->running[kThreads - 1 - place] : nullptr;
  }
};

// Says for a while, on this thread, which model is at work.
class AtWork {
 public:
  AtWork(CrashNote::Name* at, std::string_view digest);
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  // From now on a signal that ends this process leaves the name of what its thread was doing, also where its stack is
  // what ran out.
  static void leave_names_in(CrashNote& note);

 private:
  static void on_crash(int number);
  CrashNote::Name* const at_;
};

}  // namespace falaj::serve
