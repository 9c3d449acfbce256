// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/error.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

namespace falaj {
namespace {
constexpr std::array<std::pair<Code, std::string_view>, std::size(kCodes)> kNames = {{
    {Code::invalid, "invalid"},
    {Code::not_found, "not_found"},
    {Code::exists, "exists"},
    {Code::conflict, "conflict"},
    {Code::denied, "denied"},
    {Code::unauthenticated, "unauthenticated"},
    {Code::exhausted, "exhausted"},
    {Code::unavailable, "unavailable"},
    {Code::deadline, "deadline"},
    {Code::cancelled, "cancelled"},
    {Code::corrupt, "corrupt"},
    {Code::internal, "internal"},
}};
}  // namespace

std::string_view name(Code code) {
  for (const auto& [c, text] : kNames)
    if (c == code) return text;
  return "internal";
}

std::optional<Code> parse_code(std::string_view text) {
  for (const auto& [c, n] : kNames)
    if (n == text) return c;
  return std::nullopt;
}

void refuse_if_any(std::string_view doing, std::vector<Fault> faults) {
  if (faults.empty()) return;
  std::string message(doing);
  message += ": ";
  message += faults.front().where.empty() ? faults.front().what
                                          : fmt::format("{}: {}", faults.front().where, faults.front().what);
  if (faults.size() > 1) message += fmt::format(" (and {} more)", faults.size() - 1);
  throw Error(Code::invalid, message, std::move(faults));
}

void check_failed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, message);
  std::abort();
}

}  // namespace falaj
