// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <tuple>
#include <unordered_map>

#include "lifecycle/schedule/state.h"

namespace falaj::schedule {

// How crowded it is, seen by one waiting job.
struct Crowd {
  double ahead = 0;  // work that comes before it, in seconds of the whole cluster
  double share = 0;  // the part of the cluster it needs
  double run = 0;    // seconds it probably runs
};
Crowd crowd(const State& state, const Job& job, Micros now);

// How long a job will wait, from how long those waited, or wait already, that lately found it as crowded.
//
// Those that still wait count for as long as they have (Kaplan and Meier 1958): when a crowd forms, those that have
// started say that waits are short, and only those that have not know better.
//
// The times given are then kept honest by their own record: the more of them were late than should have been, the
// longer the next ones, and the shorter when fewer were. So in the long run nine of ten start by the time given for
// nine of ten, whatever the jobs are like (conformal prediction online: Gibbs and Candes 2021; its integral term:
// Angelopoulos, Candes and Tibshirani 2023). That one is late is known when its time has passed, not when it starts.
class StartForecast {
 public:
  Guess tell(JobId job, const Crowd& crowd, Micros now);  // how long it will wait, as it begins to
  void started(JobId job, Micros now);                    // one never told of: nothing
  void gone(JobId job);                                   // it will never start
  bool knows_enough() const;                              // before that, what tell says is not worth showing

 private:
  struct Past {
    double ahead, share, run;  // logarithms
    Micros told{0};
    Micros waited = kNever;  // kNever: it still does
    bool gone = false;
  };
  struct Band {
    double part;        // of the jobs that should start in time
    double excess = 0;  // late ones beyond the part that may be
    double judged = 0;

    double stretched(double seconds) const;
    void judge(bool late);
  };
  struct Told {
    Micros at{0};
    std::uint64_t number = 0;  // how many were told before it
    Micros p50{0}, p90{0};     // when it should have started
    bool judged50 = false, judged90 = false;
  };

  void judge_late(Micros now);
  Past* past_of(const Told& told);  // nullptr: forgotten
  void forget_oldest();
  Guess from_past(const Crowd& crowd, Micros now) const;

  std::deque<Past> past_;  // in the order told
  std::uint64_t forgotten_ = 0;
  std::size_t starts_ = 0;  // of those in past_
  Band half_{0.5}, nine_of_ten_{0.9};
  std::unordered_map<JobId, Told> told_;           // those that wait
  std::set<std::tuple<Micros, JobId, bool>> due_;  // when, who, whether nine of ten should have started by then
};

}  // namespace falaj::schedule
