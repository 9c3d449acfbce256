// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/sys/clock.h"

namespace falaj::train {

// Where a process stands in its gang: what every task of a job is told (docs/guide/jobs.md).
struct GangPlace {
  std::size_t rank = 0, ranks = 1;
  std::string address;  // of rank 0, where all meet
  int port = 0;
  std::string name;  // of the job and the attempt: those of an old attempt never meet those of a new one
  sys::Micros silence = std::chrono::seconds(5);     // after which a rank is taken for lost
  sys::Micros patience = std::chrono::minutes(2);    // with one that is there and does not come
  std::function<void(const std::string& why)> lost;  // by any thread, when the gang has broken; does not return
};

// The processes that train one model together. Everybody calls the same functions in the same order; each waits for
// all. A rank that dies, is stopped or cannot be reached is noticed within seconds, whatever anybody is waiting for;
// nothing can go on then, and GangPlace::lost ends the process. One thread at a time.
class Gang {
 public:
  // Returns when all ranks are there. Throws unavailable when they do not come.
  Gang(GangPlace place, const sys::Clock& clock);
  ~Gang();

  std::size_t rank() const;
  std::size_t ranks() const;

  Bytes share(Bytes mine);            // what rank 0 gives, to all; it may take its time
  void sum(std::span<float> values);  // over all ranks, in place; the same bits everywhere, and every time
  // The same while other work goes on: the values are to be left alone until finish().
  void begin_sum(std::span<float> values);
  void finish();
  void meet();   // returns when all are here; they may take their time
  void leave();  // the last call of all: from here on, who ends is not missed

  sys::Micros waited() const;  // in finish() and sum(), so far

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::train
