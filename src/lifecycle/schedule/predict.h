// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
  static constexpr std::size_t kRemembered = 60;  // jobs of a user
  struct Past {
    std::size_t name;
    int tasks;
    Micros limit;
    double seconds;
  };
  // The last of a user's jobs in a ring, and their places in it from the shortest to the longest run: jobs are guessed
  // as often as they end, and putting one in order costs less than ordering all.
  struct History {
    std::vector<Past> ring;
    std::size_t newest = 0;
    std::vector<std::uint8_t> by_seconds;
  };
  std::unordered_map<std::string, History> past_;
};

}  // namespace falaj::schedule
