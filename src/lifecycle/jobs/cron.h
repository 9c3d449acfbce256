// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

namespace falaj::jobs {

// When something is due, again and again: "30 6 * * mon-fri" is half past six on workdays. Five fields (minute, hour,
// day of the month, month, day of the week) of *, numbers, names of months and days, ranges a-b, steps /n and lists; or
// @hourly, @daily, @weekly, @monthly, @yearly; or "@every 90s", counted from 1970. Where both days are given, either
// will do. All times are UTC.
class Cron {
 public:
  static Cron parse(std::string_view text);  // throws invalid, saying which field
  // The first time after `unix_us`; nothing when there is none within five years, as for 30 February.
  std::optional<std::int64_t> next(std::int64_t unix_us) const;

 private:
  bool day_matches(int month, int day, int weekday) const;

  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;     // 1 to 31
  std::bitset<13> months_;   // 1 to 12
  std::bitset<7> weekdays_;  // 0 = Sunday
  bool any_day_ = false, any_weekday_ = false;
  std::int64_t every_us_ = 0;  // instead of all of them
};

bool is_cron(std::string_view text);
inline constexpr std::string_view kCronRule =
    "five fields such as '30 6 * * mon-fri', or @hourly, @daily, @weekly, @every 90s";

}  // namespace falaj::jobs
