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

// How a gang came to its end before its work was done.
struct Broken {
  std::string why;
  std::string gang;  // which one it was: GangPlace::before of those who meet again
};

// Where a process stands in its gang: what every task of a job is told (docs/guide/jobs.md).
struct GangPlace {
  std::size_t task = 0, tasks = 1;
  bool gpu = false;        // each has one
  std::size_t spares = 0;  // so many of the tasks stand by, and take the place of one that is lost
  std::string address;     // of task 0, where all meet
  int port = 0;
  std::string name;    // of the job and the attempt: those of an old attempt never meet those of a new one
  std::string before;  // the gang that broke, when this one takes its place
  sys::Micros silence = std::chrono::seconds(5);   // after which a rank is taken for lost
  sys::Micros patience = std::chrono::minutes(2);  // with one that is there and does not come
  std::function<bool()> must_stop;                 // looked at while others are waited for; may be empty
  std::function<void(const Broken&)> lost;         // by any thread, when the gang has broken; does not return
};

// The processes that train one model together. Everybody calls the same functions in the same order; each waits for
// all. A rank that dies, is stopped or cannot be reached is noticed within seconds, whatever anybody is waiting for;
// nothing can go on then, and GangPlace::lost ends the process or starts it anew. One thread at a time.
//
// Who comes first is in: ranks are given by whoever holds the place where all meet, which is task 0, and after a loss
// whoever is the first to take it. Each gang has a word of its own, without which nobody is heard: one of an older gang
// that comes back late can only stand by.
class Gang {
 public:
  // Returns when all ranks are there. Throws unavailable when they do not come, cancelled when must_stop() said so.
  Gang(GangPlace place, const sys::Clock& clock);
  ~Gang();

  bool is_spare() const;  // all it can do is to stand by
  std::size_t rank() const;
  std::size_t ranks() const;

  Bytes share(Bytes mine);            // what rank 0 gives, to all; it may take its time
  void sum(std::span<float> values);  // over all ranks, in place; the same bits everywhere, and every time
  // Each of the values is one rank's and 0 elsewhere: all have all of them, bit by bit.
  void unite(std::span<float> values);
  // The same while other work goes on: what is given is to be left alone until finish().
  void begin_sum(std::span<float> values);
  void begin_sum_on_gpu(std::span<float> values);               // which lie there; by NCCL where it is built in
  void begin_gather(BytesView mine, std::span<std::byte> all);  // in the order of ranks
  void begin_send(std::size_t to, int tag, std::span<const float> values);
  void finish();
  // What begin_send() or send() gave, with this tag and of this length.
  void send(std::size_t to, int tag, std::span<const float> values);
  void receive(std::size_t from, int tag, std::span<float> values);
  std::size_t receive_any(int tag, std::span<float> values);  // and who it was

  void meet();   // returns when all are here; they may take their time
  void leave();  // the last call of all that work: from here on, who ends is not missed

  // With spares, all but rank 0 stand by until what is left to do alone is done: it may be theirs to do again.
  void stand_by();
  void over();  // rank 0's: it is done

  sys::Micros waited() const;  // for others, so far

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::train
