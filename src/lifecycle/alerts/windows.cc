// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/windows.h"

namespace falaj::alerts {
namespace {

constexpr std::int64_t kPointsOfWindow = 64;  // how finely a window moves
constexpr std::int64_t kTalliesOfWindow = 8;  // the same of tallies, which are large

}  // namespace

Windows::Growth Windows::see(const std::string& name, std::int64_t window_us, double count, std::int64_t now_us) {
  auto [at, is_new] = series_.try_emplace(name);
  auto& series = at->second;
  auto& points = series.points;
  // After a long silence the window begins where it was last seen.
  if (!is_new && series.seen_us <= now_us - window_us) points = {{series.seen_us, series.grown}};
  if (!is_new) series.grown += count < series.count ? count : count - series.count;
  series.count = count;
  series.seen_us = now_us;
  if (points.empty() || now_us - points.back().at_us >= window_us / kPointsOfWindow)
    points.push_back({now_us, series.grown});
  while (points.size() > 1 && points[1].at_us <= now_us - window_us) points.pop_front();
  return {series.grown - points.front().grown, now_us - points.front().at_us};
}

void Windows::forget(std::int64_t before_us) {
  std::erase_if(series_, [&](const auto& entry) { return entry.second.seen_us < before_us; });
}

TimeWindows::Times::Tally TimeWindows::see(const std::string& name, std::int64_t window_us, const Times::Tally& counts,
                                           std::int64_t now_us) {
  auto [at, is_new] = series_.try_emplace(name);
  auto& series = at->second;
  auto& points = series.points;
  if (!is_new && series.seen_us <= now_us - window_us) points = {{series.seen_us, series.grown}};
  bool anew = false;
  for (std::size_t i = 0; i < counts.size(); ++i) anew |= counts[i] < series.counts[i];
  for (std::size_t i = 0; i < counts.size() && !is_new; ++i)
    series.grown[i] += anew ? counts[i] : counts[i] - series.counts[i];
  series.counts = counts;
  series.seen_us = now_us;
  if (points.empty() || now_us - points.back().at_us >= window_us / kTalliesOfWindow)
    points.push_back({now_us, series.grown});
  while (points.size() > 1 && points[1].at_us <= now_us - window_us) points.pop_front();
  Times::Tally out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = series.grown[i] - points.front().grown[i];
  return out;
}

void TimeWindows::forget(std::int64_t before_us) {
  std::erase_if(series_, [&](const auto& entry) { return entry.second.seen_us < before_us; });
}

}  // namespace falaj::alerts
