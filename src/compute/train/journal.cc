// SPDX-License-Identifier: Apache-2.0
#include "compute/train/journal.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

constexpr sys::Micros kEvery = std::chrono::seconds(3), kEveryOnTerminal = std::chrono::milliseconds(100);
constexpr int kBar = 24;

std::string left_text(double seconds) {
  if (!std::isfinite(seconds)) return "";
  const auto s = static_cast<long>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s left", s) : fmt::format("{} min {} s left", s / 60, s % 60);
}

}  // namespace

Journal::Journal(const std::string& metrics_file, const sys::Clock& clock) : clock_(clock), terminal_(isatty(1) != 0) {
  if (metrics_file.empty()) return;
  read(metrics_file);
  file_ = std::fopen(metrics_file.c_str(), "ae");
  if (!file_) throw Error(Code::unavailable, fmt::format("cannot append to '{}'", metrics_file));
  if (half_a_line_) append_text("\n");
}

// What an earlier attempt told.
void Journal::read(const std::string& metrics_file) {
  std::ifstream in(metrics_file);
  for (std::string line; std::getline(in, line);) {
    half_a_line_ = in.eof();
    try {
      const auto value = parse_json(line);
      const auto* of = value.is_object() ? value.get_object().if_contains("metrics") : nullptr;
      const auto* step = of && of->is_object() ? value.get_object().if_contains("step") : nullptr;
      if (!step || !step->is_int64() || of->get_object().empty()) continue;
      auto& last = told_[std::string(of->get_object().begin()->key())];
      last = std::max(last, static_cast<std::size_t>(step->get_int64()));
    } catch (const Error&) {  // half a line
    }
  }
}

Journal::~Journal() {
  if (open_line_) std::fputs("\n", stdout);
  if (file_) std::fclose(file_);
}

void Journal::say(std::string_view line) {
  if (open_line_) std::fputs("\n", stdout);
  open_line_ = false;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Journal::append(const json::object& line) {
  if (!file_) return;
  append_text(json::serialize(line) + "\n");  // at once, or a reader could see half of it
}

void Journal::append_text(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Error(Code::exhausted, "metrics cannot be written: is the disk full?");
}

void Journal::parameters(const json::object& values) { append({{"params", values}}); }

void Journal::metrics(std::size_t step, const std::vector<std::pair<std::string, double>>& values) {
  json::object of;
  for (const auto& [name, value] : values)
    if (std::isfinite(value)) of[name] = value;
  append({{"step", step}, {"time_ms", clock_.wall().count() / 1000}, {"metrics", std::move(of)}});
}

void Journal::step(std::size_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (const auto found = told_.find(values.empty() ? "" : values[0].first);
      found != told_.end() && step <= found->second)
    return;
  metrics(step, values);
}

void Journal::begin(std::string_view what) {
  began_ = clock_.now();
  shown_ = sys::Micros(0);
  ended_ = false;
  if (!terminal_) say(fmt::format("{} ...", what));
}

void Journal::progress(std::string_view what, double done, std::string_view more) {
  const auto now = clock_.now();
  if (now - shown_ < (terminal_ ? kEveryOnTerminal : kEvery) && done < 1) return;
  if (!terminal_ && shown_ == sys::Micros(0) && done < 1 && now - began_ < kEvery) return;
  if (ended_) return;
  ended_ = done >= 1;
  shown_ = now;
  const double spent = std::chrono::duration<double>(now - began_).count();
  const auto left = done > 0 && done < 1 ? left_text(spent / done * (1 - done)) : fmt::format("{:.1f} s", spent);
  if (!terminal_) {
    say(fmt::format("{} {:3.0f} %  {}  {}", what, done * 100, more, left));
    return;
  }
  const auto full = static_cast<std::size_t>(std::lround(std::min(done, 1.0) * kBar));
  fmt::print("\r\033[K{:<10} [{}{}] {:3.0f} %  {}  {}", what, std::string(full, '#'), std::string(kBar - full, ' '),
             done * 100, more, left);
  std::fflush(stdout);
  open_line_ = done < 1;
  if (done >= 1) std::fputs("\n", stdout);
}

}  // namespace falaj::train
