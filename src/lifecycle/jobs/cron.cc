// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/cron.h"

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::jobs {
namespace {

constexpr std::string_view kMonths[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                        "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::string_view kDays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
constexpr int kLookDays = 5 * 366;
constexpr std::int64_t kMinuteUs = 60'000'000, kDayUs = 1440 * kMinuteUs;

struct CronField {
  std::string_view name;
  int low, high;
  std::span<const std::string_view> names;  // of low, low + 1, ...
};
constexpr CronField kFields[] = {{"minute", 0, 59, {}},
                                 {"hour", 0, 23, {}},
                                 {"day of the month", 1, 31, {}},
                                 {"month", 1, 12, kMonths},
                                 {"day of the week", 0, 7, kDays}};

[[noreturn]] void refuse(const CronField& field, std::string_view text) {
  throw Error(Code::invalid, fmt::format("cron: {} must be {} to {}, '*', a range, a step or a list, not '{}'",
                                         field.name, field.low, field.high, text.substr(0, 40)));
}

int number(const CronField& field, std::string_view text) {
  const auto word = lower(text);
  for (std::size_t i = 0; i < field.names.size(); ++i)
    if (field.names[i] == word) return field.low + static_cast<int>(i);
  const auto value = parse_int(text);
  if (!value || *value < field.low || *value > field.high) refuse(field, text);
  return static_cast<int>(*value);
}

// Calls `take` with every number that the field stands for.
template <class F>
void each(const CronField& field, std::string_view text, F take) {
  for (const auto part : split(text, ',')) {
    const auto slash = part.find('/');
    const auto range = part.substr(0, slash);
    int step = 1;
    if (slash != std::string_view::npos) {
      const auto value = parse_int(part.substr(slash + 1));
      if (!value || *value < 1 || *value > 60) refuse(field, part);
      step = static_cast<int>(*value);
    }
    int from = field.low, to = field.high;
    if (range != "*") {
      const auto dash = range.find('-');
      from = number(field, range.substr(0, dash));
      // "5/15" is from 5 to the end, every 15.
      if (dash != std::string_view::npos)
        to = number(field, range.substr(dash + 1));
      else if (slash == std::string_view::npos)
        to = from;
      if (to < from) refuse(field, part);
    }
    for (int i = from; i <= to; i += step) take(i);
  }
}

std::string_view long_form(std::string_view text) {
  if (text == "@hourly") return "0 * * * *";
  if (text == "@daily") return "0 0 * * *";
  if (text == "@weekly") return "0 0 * * 0";
  if (text == "@monthly") return "0 0 1 * *";
  if (text == "@yearly") return "0 0 1 1 *";
  return text;
}

}  // namespace

Cron Cron::parse(std::string_view text) {
  constexpr std::string_view kEvery = "@every ";
  if (trim(text).starts_with(kEvery)) {
    Cron out;
    out.every_us_ = parse_duration_us(trim(trim(text).substr(kEvery.size()))).value_or(0);
    if (out.every_us_ < kMinuteUs / 60 || out.every_us_ > 366 * kDayUs)
      throw Error(Code::invalid, "cron: @every must be followed by a span from 1s to 366d, such as @every 90s");
    return out;
  }
  std::vector<std::string_view> words;
  for (const auto word : split(long_form(trim(text)), ' '))
    if (!word.empty()) words.push_back(word);
  if (words.size() != std::size(kFields))
    throw Error(Code::invalid, fmt::format("cron: must be {}, not '{}'", kCronRule, text.substr(0, 80)));
  Cron out;
  each(kFields[0], words[0], [&](int i) { out.minutes_.set(static_cast<std::size_t>(i)); });
  each(kFields[1], words[1], [&](int i) { out.hours_.set(static_cast<std::size_t>(i)); });
  each(kFields[2], words[2], [&](int i) { out.days_.set(static_cast<std::size_t>(i)); });
  each(kFields[3], words[3], [&](int i) { out.months_.set(static_cast<std::size_t>(i)); });
  each(kFields[4], words[4], [&](int i) { out.weekdays_.set(static_cast<std::size_t>(i % 7)); });  // 7 is Sunday too
  out.any_day_ = words[2] == "*";
  out.any_weekday_ = words[4] == "*";
  return out;
}

bool Cron::day_matches(int month, int day, int weekday) const {
  if (!months_.test(static_cast<std::size_t>(month))) return false;
  const bool by_day = days_.test(static_cast<std::size_t>(day));
  const bool by_weekday = weekdays_.test(static_cast<std::size_t>(weekday));
  if (any_day_) return by_weekday;
  return any_weekday_ ? by_day : by_day || by_weekday;
}

std::optional<std::int64_t> Cron::next(std::int64_t unix_us) const {
  namespace chrono = std::chrono;
  if (every_us_ > 0) return (unix_us / every_us_ + 1) * every_us_;
  std::int64_t at = (unix_us / kMinuteUs + 1) * kMinuteUs;
  for (int i = 0; i < kLookDays; ++i, at = (at / kDayUs + 1) * kDayUs) {
    const chrono::sys_days today{chrono::days(at / kDayUs)};
    const chrono::year_month_day date(today);
    if (!day_matches(static_cast<int>(static_cast<unsigned>(date.month())),
                     static_cast<int>(static_cast<unsigned>(date.day())),
                     static_cast<int>(chrono::weekday(today).c_encoding())))
      continue;
    for (auto minute = at % kDayUs / kMinuteUs; minute < 1440; ++minute)
      if (hours_.test(static_cast<std::size_t>(minute / 60)) && minutes_.test(static_cast<std::size_t>(minute % 60)))
        return at / kDayUs * kDayUs + minute * kMinuteUs;
  }
  return std::nullopt;
}

bool is_cron(std::string_view text) {
  try {
    Cron::parse(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace falaj::jobs
