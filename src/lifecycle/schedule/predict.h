// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lifecycle/schedule/model.h"

namespace falaj::schedule {

// What is known of a job before it runs that says something about how long it will.
struct JobFacts {
  std::string user;
  std::string name;  // of the job or its command; "" = unknown
  int tasks = 1;
  Micros limit = kNever;
};

// Guesses run times from those of the same user's jobs before. Each of them counts, the more the newer it is and the
// more it is alike (same name, same limit, same number of tasks), so that a guess exists after one job and sharpens
// with every further one. The limit itself counts a little: it is all that is known of a new user.
class Predictor {
 public:
  Guess guess(const JobFacts& facts) const;
  void learn(const JobFacts& facts, Micros ran);

 private:
  struct Past {
    std::size_t name;
    int tasks;
    Micros limit;
    double seconds;
  };
  std::unordered_map<std::string, std::deque<Past>> past_;  // newest last
};

}  // namespace falaj::schedule
