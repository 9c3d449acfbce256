// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace falaj::expr {

inline constexpr std::int64_t kMicrosPerSecond = 1'000'000, kMicrosPerMinute = 60 * kMicrosPerSecond,
                              kMicrosPerHour = 60 * kMicrosPerMinute, kMicrosPerDay = 24 * kMicrosPerHour;

// Rounds down, also below zero: the last microsecond of 1969 is in 1969.
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) { return a % b + (a % b < 0 ? b : 0); }

// The day of a time, UTC, proleptic Gregorian. std::chrono knows the years up to 32767 and a timestamp reaches nearly
// ten times as far, but the calendar repeats every 400 years, weekdays too: we ask about the same day of the cycle that
// began in 1970.
class Date {
 public:
  constexpr explicit Date(std::int64_t unix_us) {
    constexpr std::int64_t kCycleDays = 146'097;
    const std::int64_t days = floor_div(unix_us, kMicrosPerDay);
    cycle_ = floor_div(days, kCycleDays);
    day_ = std::chrono::sys_days(std::chrono::days(floor_mod(days, kCycleDays)));
    date_ = day_;
  }
  constexpr std::int64_t year() const { return static_cast<int>(date_.year()) + 400 * cycle_; }
  constexpr std::int64_t month() const { return static_cast<unsigned>(date_.month()); }
  constexpr std::int64_t day() const { return static_cast<unsigned>(date_.day()); }
  constexpr std::int64_t day_of_week() const { return std::chrono::weekday(day_).iso_encoding(); }
  constexpr std::int64_t day_of_year() const {
    return (day_ - std::chrono::sys_days(date_.year() / std::chrono::January / 1)).count() + 1;
  }

 private:
  std::int64_t cycle_ = 0;
  std::chrono::sys_days day_;
  std::chrono::year_month_day date_;
};

}  // namespace falaj::expr
