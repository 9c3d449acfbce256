// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/match.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::tests {
namespace {

bool matches_from(std::string_view pattern, std::string_view line, Captures& captures) {
  const auto open = pattern.find('<');
  if (open == std::string_view::npos) return pattern == line;
  if (!line.starts_with(pattern.substr(0, open))) return false;
  line.remove_prefix(open);
  pattern.remove_prefix(open);
  const bool any = pattern.starts_with("<*>");
  const auto close = pattern.find('>');
  if ((!any && !pattern.starts_with("<$")) || close == std::string_view::npos) {  // a plain '<'
    if (!line.starts_with('<')) return false;
    return matches_from(pattern.substr(1), line.substr(1), captures);
  }
  const auto rest = pattern.substr(close + 1);
  const std::string name(any ? "" : pattern.substr(2, close - 2));
  for (std::size_t n = line.size() + 1; n-- > 0;) {
    const auto text = line.substr(0, n);
    if (!any && (text.empty() || text.find(' ') != std::string_view::npos)) continue;
    if (!any && captures.contains(name) && captures[name] != text) continue;
    Captures trial = captures;
    if (!any) trial[name] = text;
    if (matches_from(rest, line.substr(n), trial)) {
      captures = std::move(trial);
      return true;
    }
  }
  return false;
}

bool matches_all(const std::vector<std::string>& patterns, std::size_t p, const std::vector<std::string>& lines,
                 std::size_t l, Captures& captures, std::size_t& farthest) {
  farthest = std::max(farthest, l);
  if (p == patterns.size()) return l == lines.size();
  if (patterns[p] == "...") {
    for (std::size_t k = l; k <= lines.size(); ++k)
      if (matches_all(patterns, p + 1, lines, k, captures, farthest)) return true;
    return false;
  }
  if (l == lines.size()) return false;
  Captures trial = captures;
  if (!matches_line(patterns[p], lines[l], trial) || !matches_all(patterns, p + 1, lines, l + 1, trial, farthest))
    return false;
  captures = std::move(trial);
  return true;
}

}  // namespace

bool matches_line(std::string_view pattern, std::string_view line, Captures& captures) {
  return matches_from(pattern, line, captures);
}

std::optional<std::string> difference(const std::vector<std::string>& patterns, const std::vector<std::string>& lines,
                                      Captures& captures) {
  std::size_t farthest = 0;
  if (matches_all(patterns, 0, lines, 0, captures, farthest)) return std::nullopt;
  std::string text = "expected:\n";
  for (const auto& p : patterns) text += "    " + p + "\n";
  text += "got:\n";
  for (std::size_t i = 0; i < lines.size(); ++i) text += fmt::format("  {} {}\n", i == farthest ? '>' : ' ', lines[i]);
  return text;
}

}  // namespace falaj::tests
