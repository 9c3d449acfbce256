// SPDX-License-Identifier: Apache-2.0
#include "compute/train/profile.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "foundation/base/json.h"

namespace falaj::train {
namespace {

constexpr std::size_t kEventsMax = 200'000;
constexpr std::string_view kOther = "other";

// What a phase that takes most of the time suggests. The order is that of a step.
struct Advice {
  std::string_view phase, says;
};
constexpr Advice kAdvice[] = {
    {"data", "rows come too slowly: more processors, a faster disk for scratch files, or fewer columns"},
    {"forward", "arithmetic is the limit: more processors, or a smaller network"},
    {"backward", "arithmetic is the limit: more processors, or a smaller network"},
    {"grow", "growing trees is the limit: more processors, fewer columns, or less depth"},
    {"communication", "tasks wait for each other: a larger batch, fewer tasks, or a faster network between them"},
    {"optimiser", "moving the weights is the limit: a larger batch, or a smaller network"},
    {"checkpoint", "saving is the limit: checkpoints.every could be longer"},
};

double ms(sys::Micros time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

Profile::Profile(const sys::Clock& clock, bool trace)
    : clock_(clock), trace_(trace), began_(clock.now()), phases_{{kOther}}, entered_(began_) {}

void Profile::enter(std::string_view phase) {
  const auto now = clock_.now();
  phases_[phase_].spent += now - entered_;
  if (trace_ && events_.size() < kEventsMax && now > entered_) events_.push_back({phase_, entered_, now});
  entered_ = now;
  const auto found = std::find_if(phases_.begin(), phases_.end(), [&](const auto& p) { return p.name == phase; });
  phase_ = static_cast<std::size_t>(found - phases_.begin());
  if (found == phases_.end()) phases_.push_back({phase});
}

void Profile::begin() {
  enter(phases_[phase_].name);
  for (auto& phase : phases_) phase.spent = phase.told = sys::Micros(0);
  steps_ = steps_told_ = 0;
}

Profile::Means Profile::since_last() {
  enter(phases_[phase_].name);  // up to now
  Means out;
  if (steps_ == steps_told_) return out;
  const auto steps = static_cast<double>(steps_ - steps_told_);
  steps_told_ = steps_;
  double sum = 0;
  for (const auto& advice : kAdvice) {
    const auto phase =
        std::find_if(phases_.begin(), phases_.end(), [&](const auto& p) { return p.name == advice.phase; });
    if (phase == phases_.end()) continue;
    const double mean = ms(phase->spent - phase->told) / steps;
    phase->told = phase->spent;
    out.emplace_back(fmt::format("{}_ms", phase->name), mean);
    sum += mean;
  }
  out.emplace_back("step_ms", sum);
  return out;
}

std::string Profile::sentence() const {
  if (steps_ == 0) return "";
  const Advice* most = nullptr;
  double all = 0, largest = 0;
  for (const auto& advice : kAdvice)
    for (const auto& phase : phases_) {
      if (phase.name != advice.phase) continue;
      all += ms(phase.spent);
      if (ms(phase.spent) <= largest) continue;
      largest = ms(phase.spent);
      most = &advice;
    }
  if (!most) return "";
  return fmt::format("A step took {:.3g} ms, {:.0f} % of it {}: {}.", all / static_cast<double>(steps_),
                     100 * largest / all, most->phase, most->says);
}

std::string Profile::chrome() {
  enter(phases_[phase_].name);
  json::array events;
  for (const auto& event : events_)
    events.push_back(json::object{{"name", phases_[event.phase].name},
                                  {"ph", "X"},
                                  {"ts", (event.from - began_).count()},
                                  {"dur", (event.to - event.from).count()},
                                  {"pid", 1},
                                  {"tid", 1}});
  return json::serialize(json::object{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

}  // namespace falaj::train
