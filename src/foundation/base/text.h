// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace falaj {

std::vector<std::string_view> split(std::string_view text, char separator);  // "a,,b" gives three parts
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);
bool is_utf8(std::string_view text);

// A resource's name: 1 to 63 of [a-z0-9._-], beginning and ending with a letter or digit.
bool is_name(std::string_view text);
inline constexpr std::string_view kNameRule =
    "1 to 63 of a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit";

// '*' stands for any run of characters, everything else for itself. Linear in the length of the text times the pattern.
bool matches_glob(std::string_view pattern, std::string_view text);

// The candidate nearest to a misspelt word, when it is near enough to be what was meant.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);

std::optional<std::int64_t> parse_int(std::string_view text);          // the whole text, or nothing
std::optional<std::int64_t> parse_bytes(std::string_view text);        // "64KiB", "10GB", "123"
std::optional<std::int64_t> parse_duration_us(std::string_view text);  // "250ms", "30s", "15m", "12h", "7d"
std::string format_bytes(std::uint64_t bytes);                         // "1.4 GiB"
std::string format_duration_us(std::int64_t us);                       // "1.5 s", "3 d"
std::string format_time(std::int64_t unix_us);                         // RFC 3339, UTC, milliseconds
std::optional<std::int64_t> parse_time(std::string_view rfc3339);      // to unix microseconds

}  // namespace falaj
