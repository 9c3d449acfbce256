// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "foundation/stats/time_buckets.h"

namespace falaj::alerts {

// How much counts that only grow have grown within the last while. Pure: for one thread.
class Windows {
 public:
  struct Growth {
    double by = 0;
    std::int64_t over_us = 0;  // of the window, so much is known; 0 = this is the first that is seen of it
    double per_second() const { return over_us > 0 ? by * 1e6 / static_cast<double>(over_us) : 0; }
  };
  // Takes note of a count, which begins at 0 again when what counts is started anew. Counts that are looked at through
  // several windows are several series.
  Growth see(const std::string& series, std::int64_t window_us, double count, std::int64_t now_us);
  void forget(std::int64_t before_us);  // series that were not seen since
  std::size_t size() const { return series_.size(); }

 private:
  struct Point {
    std::int64_t at_us = 0;
    double grown = 0;  // since the series began
  };
  struct Series {
    double count = 0, grown = 0;
    std::int64_t seen_us = 0;
    std::deque<Point> points;
  };
  std::map<std::string, Series> series_;
};

// The same of how long things took.
class TimeWindows {
 public:
  using Times = stats::TimeBuckets<4>;
  // How often it took how long within the window.
  Times::Tally see(const std::string& series, std::int64_t window_us, const Times::Tally& counts, std::int64_t now_us);
  void forget(std::int64_t before_us);

 private:
  struct Point {
    std::int64_t at_us = 0;
    Times::Tally grown{};
  };
  struct Series {
    Times::Tally counts{}, grown{};
    std::int64_t seen_us = 0;
    std::deque<Point> points;
  };
  std::map<std::string, Series> series_;
};

}  // namespace falaj::alerts
