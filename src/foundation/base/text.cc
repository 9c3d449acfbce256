// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <numeric>

#include <fmt/format.h>

namespace falaj {
namespace {

bool alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

struct NamedUnit {
  std::string_view name;
  std::int64_t factor;
};

// A non-negative decimal number followed by one of `units`; nothing on overflow or an unknown unit.
std::optional<std::int64_t> parse_with_unit(std::string_view text, std::span<const NamedUnit> units) {
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const auto number = parse_int(text.substr(0, digits));
  if (!number) return std::nullopt;
  const auto unit = trim(text.substr(digits));
  for (const auto& u : units) {
    std::int64_t out = 0;
    if (u.name == unit && !__builtin_mul_overflow(*number, u.factor, &out)) return out;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

bool is_utf8(std::string_view text) {
  std::size_t i = 0;
  const auto at = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  while (i < text.size()) {
    const unsigned c = at(i);
    const std::size_t more = c < 0x80 ? 0 : (c >> 5) == 6 ? 1 : (c >> 4) == 14 ? 2 : (c >> 3) == 30 ? 3 : 4;
    if (more == 4 || i + more >= text.size() + (more == 0 ? 1 : 0)) return false;
    std::uint32_t point = more == 0 ? c : c & (0x3FU >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      if ((at(i + k) >> 6) != 2) return false;
      point = (point << 6) | (at(i + k) & 0x3F);
    }
    constexpr std::array<std::uint32_t, 4> kSmallest = {0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[more] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    i += more + 1;
  }
  return true;
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > 63 || !alphanumeric(text.front()) || !alphanumeric(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.size() > 64) return std::nullopt;
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const std::size_t d = edit_distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  static constexpr NamedUnit kUnits[] = {{"", 1},           {"B", 1},           {"KB", 1000},
                                         {"MB", 1000000},   {"GB", 1000000000}, {"TB", 1000000000000},
                                         {"KiB", 1 << 10},  {"MiB", 1 << 20},   {"GiB", 1LL << 30},
                                         {"TiB", 1LL << 40}};
  return parse_with_unit(text, kUnits);
}

std::optional<std::int64_t> parse_duration_us(std::string_view text) {
  static constexpr NamedUnit kUnits[] = {{"us", 1},       {"ms", 1000},        {"s", 1000000},
                                         {"m", 60000000}, {"h", 3600000000LL}, {"d", 86400000000LL}};
  return parse_with_unit(text, kUnits);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double v = static_cast<double>(bytes) / 1024;
  std::size_t u = 0;
  while (v >= 1024 && u + 1 < kUnits.size()) v /= 1024, ++u;
  return fmt::format("{:.{}f} {}", v, v < 10 ? 1 : 0, kUnits[u]);
}

std::string format_duration_us(std::int64_t us) {
  const double v = static_cast<double>(us);
  const double a = std::fabs(v);
  if (a < 1e3) return fmt::format("{} us", us);
  if (a < 1e6) return fmt::format("{:.1f} ms", v / 1e3);
  if (a < 120e6) return fmt::format("{:.1f} s", v / 1e6);
  if (a < 7200e6) return fmt::format("{:.0f} m", v / 60e6);
  if (a < 172800e6) return fmt::format("{:.0f} h", v / 3600e6);
  return fmt::format("{:.0f} d", v / 86400e6);
}

std::string format_time(std::int64_t unix_us) {
  const std::int64_t ms = unix_us >= 0 ? unix_us / 1000 : (unix_us - 999) / 1000;
  const std::int64_t part = ((ms % 1000) + 1000) % 1000;
  const std::time_t seconds = (ms - part) / 1000;
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                     t.tm_min, t.tm_sec, part);
}

std::optional<std::int64_t> parse_time(std::string_view text) {
  // YYYY-MM-DDTHH:MM:SS[.fraction](Z|+HH:MM|-HH:MM)
  const auto number = [&](std::size_t at, std::size_t n) -> std::optional<int> {
    if (at + n > text.size()) return std::nullopt;
    for (std::size_t i = at; i < at + n; ++i)
      if (text[i] < '0' || text[i] > '9') return std::nullopt;
    return static_cast<int>(*parse_int(text.substr(at, n)));
  };
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') return std::nullopt;
  if (text[10] != 'T' && text[10] != ' ') return std::nullopt;
  const auto year = number(0, 4), month = number(5, 2), day = number(8, 2), hour = number(11, 2),
             minute = number(14, 2), second = number(17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*month < 1 || *month > 12 || *day < 1 || *day > 31 || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  std::size_t at = 19;
  std::int64_t micros = 0;
  if (text[at] == '.') {
    std::int64_t scale = 100000;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, scale /= 10)
      micros += (text[at] - '0') * scale;
  }
  std::int64_t offset_s = 0;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
    const auto h = number(at + 1, 2), m = number(at + 4, 2);
    if (!h || !m || at + 6 != text.size()) return std::nullopt;
    offset_s = (*h * 3600 + *m * 60) * (text[at] == '+' ? 1 : -1);
  } else if (at + 1 != text.size() || text[at] != 'Z') {
    return std::nullopt;
  }
  std::tm t{};
  t.tm_year = *year - 1900;
  t.tm_mon = *month - 1;
  t.tm_mday = *day;
  t.tm_hour = *hour;
  t.tm_min = *minute;
  t.tm_sec = *second;
  const std::time_t seconds = timegm(&t);
  if (t.tm_mday != *day) return std::nullopt;  // the 30th of February
  return (static_cast<std::int64_t>(seconds) - offset_s) * 1000000 + micros;
}

}  // namespace falaj
