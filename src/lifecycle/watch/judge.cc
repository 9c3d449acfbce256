// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/judge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace falaj::watch {

Judge::Seen Judge::see(const char* test, const std::string& name, const Block& block, double p, bool matters,
                       const std::function<Finding()>& tell) {
  auto& state = tests_[fmt::format("{} {}", test, name)];
  const auto length = static_cast<std::int64_t>(block.windows);
  const auto every = tests_.find(kEveryTest);
  const auto clear_from = std::max(state.clear_from, every == tests_.end() ? 0 : every->second.clear_from);
  const Seen seen{stats::chance_at_all(p, block.windows, static_cast<std::uint64_t>(horizon_), family_),
                  block.number >= clear_from};
  if (seen.counts && matters && seen.chance <= level_) {
    Finding one = tell();
    one.column = name;
    one.test = test;
    one.window = newest_;
    one.windows = state.found ? std::min(state.found->windows, length) : length;
    one.since_us = state.found ? state.found->since_us : block.from_us;
    one.score = std::log10(level_ / std::max(seen.chance, kLeastChance));
    one.p = p;
    const bool from_the_first = block.number == 0 && length <= kFirstWindows;
    if (one.kind == "drift" && (state.found ? state.found->kind == "skew" : from_the_first)) one.kind = "skew";
    // What a shorter block shows is told by it from now on.
    if (!state.found || length <= state.found->windows) state.found = std::move(one);
    state.quiet = 0;
    return seen;
  }
  if (!state.found || length != state.found->windows) return seen;
  state.quiet = p > kOrdinary || !matters ? state.quiet + 1 : 0;
  if (state.quiet * length < kQuietWindows) return seen;
  state.found.reset();
  state.quiet = 0;
  state.clear_from = newest_ + 1;
  return seen;
}

}  // namespace falaj::watch
