// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace falaj::stats {

// What is known of one of two things that are compared.
struct Sample {
  std::uint64_t count = 0;
  double sum = 0, sum_of_squares = 0;
  void add(double value) { ++count, sum += value, sum_of_squares += value * value; }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  double variance() const;  // of one value; 0 below two of them
};

// Compares the means of two streams and may be looked at after every value: whatever the number of looks, the chance
// that p ever falls below a level while the means are equal is at most that level, and the chance that `low`..`high`
// ever misses the true difference is at most 1 - confidence (asymptotically, by the mixture sequential probability
// ratio test of Robbins; Johari, Pekelis and Walsh, "Always valid inference", 2015). Below `kCountMin` values of either
// it says nothing: p 1, and no bounds.
class SequentialTest {
 public:
  static constexpr std::uint64_t kCountMin = 100;

  // `effect`: the difference that is worth finding; it decides how soon small or large ones are found, never validity.
  SequentialTest(double effect, double confidence);

  struct Seen {
    double difference = 0, low = 0, high = 0;  // of the means, b - a
    double p = 1;                              // the least so far
    bool bounded = false;                      // whether low and high say something
  };
  // Both samples from their beginning; called as often as wanted, with samples that only grow.
  Seen look(const Sample& a, const Sample& b);

 private:
  const double prior_variance_, confidence_;
  double p_ = 1;
};

}  // namespace falaj::stats
