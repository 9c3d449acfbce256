// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {
constexpr sys::Micros kRedraw{100'000};    // on a terminal
constexpr sys::Micros kReport{5'000'000};  // elsewhere
constexpr std::size_t kBarWidth = 30;
constexpr std::chrono::milliseconds kAskEvery(200);
}  // namespace

Progress::Progress(std::string what, std::uint64_t total, Unit unit, const sys::Clock& clock, bool quiet)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      clock_(clock),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      started_(clock.now()),
      drawn_(started_) {}

Progress::~Progress() { finish(); }

void Progress::add(std::uint64_t more) {
  done_ += more;
  if (clock_.now() - drawn_ >= (terminal_ ? kRedraw : kReport)) draw(false);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  // Work that was over before the first drawing needs none; a line that was the last one is not said twice.
  if (drew_ && (terminal_ || said_ != done_)) draw(true);
}

void Progress::draw(bool last) {
  drawn_ = clock_.now();
  if (quiet_) return;
  drew_ = true;
  said_ = done_;
  const auto amount = [&](std::uint64_t v) { return unit_ == Unit::bytes ? format_bytes(v) : std::to_string(v); };
  const double seconds = std::max(1e-6, static_cast<double>((drawn_ - started_).count()) / 1e6);
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(done_) / seconds);
  std::string text;
  if (total_ > 0) {
    const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const auto filled = static_cast<std::size_t>(share * kBarWidth);
    if (terminal_)
      text = fmt::format("{} [{}{}] {:3.0f}%  {} of {}", what_, std::string(filled, '#'),
                         std::string(kBarWidth - filled, '.'), share * 100, amount(done_), amount(total_));
    else
      text = fmt::format("{}: {:.0f}%, {} of {}", what_, share * 100, amount(done_), amount(total_));
    if (!last && share > 0 && share < 1)
      text += fmt::format(", {}/s, {} left", amount(rate),
                          format_duration_us(static_cast<std::int64_t>(seconds * (1 / share - 1) * 1e6)));
  } else {
    text = fmt::format("{}: {}, {}/s", what_, amount(done_), amount(rate));
  }
  if (terminal_)
    fmt::print(stderr, "\r\033[K{}{}", text, last ? "\n" : "");
  else
    fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
}

json::value with_progress(std::string what, const sys::Clock& clock, bool quiet,
                          const std::function<json::value()>& call, const std::function<double()>& done) {
  auto working = std::async(std::launch::async, call);
  Progress progress(std::move(what), 100, Progress::Unit::items, clock, quiet);
  std::uint64_t shown = 0;
  while (working.wait_for(kAskEvery) != std::future_status::ready) {
    try {
      const auto percent = static_cast<std::uint64_t>(std::clamp(done(), 0.0, 1.0) * 100);
      if (percent > shown) progress.add(percent - shown);
      shown = std::max(shown, percent);
    } catch (const Error&) {
    }
  }
  auto answer = working.get();
  progress.add(100 - shown);
  return answer;
}

}  // namespace falaj::cli
