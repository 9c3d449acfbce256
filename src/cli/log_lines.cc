// SPDX-License-Identifier: Apache-2.0
#include "cli/log_lines.h"

#include <utility>

namespace falaj::cli {
namespace {

constexpr std::size_t kLineMax = 64 << 10;

}  // namespace

void LogLines::add(std::string line, std::string& out) {
  if (line.find(search_) == std::string::npos) return;
  if (tail_ == 0 || caught_up_) {
    out += line;
    return;
  }
  last_.push_back(std::move(line));
  if (last_.size() > tail_) last_.pop_front();
}

std::string LogLines::take(std::string_view text) {
  if (search_.empty() && (tail_ == 0 || caught_up_)) return std::exchange(open_, {}) + std::string(text);
  std::string out;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto piece = text.substr(0, end == std::string_view::npos ? end : end + 1);
    text.remove_prefix(piece.size());
    open_ += piece;
    if (end != std::string_view::npos || open_.size() >= kLineMax) add(std::exchange(open_, {}), out);
  }
  return out;
}

std::string LogLines::caught_up() {
  if (std::exchange(caught_up_, true)) return {};
  std::string out;
  for (const auto& line : std::exchange(last_, {})) out += line;
  return out;
}

std::string LogLines::end() {
  std::string out;
  if (!open_.empty()) add(std::exchange(open_, {}), out);
  return out + caught_up();
}

}  // namespace falaj::cli
