// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>

#include "lifecycle/schedule/state.h"

namespace falaj::schedule {

// How crowded it is, seen by one waiting job.
struct Crowd {
  double ahead = 0;  // work that comes before it, in seconds of the whole cluster
  double share = 0;  // the part of the cluster it needs
  double run = 0;    // seconds it probably runs
};
Crowd crowd(const State& state, const Job& job, Micros now);

// How long jobs will wait, from how long jobs waited that found it as crowded. The band is kept honest by its own
// record: when fewer than nine of ten started by the time given for nine of ten, later bands are wider, and narrower
// when more did (adaptive conformal inference, Gibbs and Candes 2021).
class StartForecast {
 public:
  Guess guess(const Crowd& crowd) const;  // of the wait
  // It still waits though nine of ten should have started by now. Said at that moment, not when it starts at last:
  // those that wait longest would otherwise be learned from last.
  void overdue();
  // It was told `told` and started after `waited`.
  void learn(const Crowd& crowd, Micros waited, const Guess& told, bool was_overdue = false);
  bool knows_enough() const;  // before that, what guess says is not worth showing

 private:
  struct Past {
    double ahead, share, run;  // logarithms
    double waited;
  };
  std::deque<Past> past_;
  double level50_ = 0.5;
  double level90_ = 0.9;
};

}  // namespace falaj::schedule
