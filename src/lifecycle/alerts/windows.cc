// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/windows.h"

namespace falaj::alerts {
namespace {

constexpr std::int64_t kPointsOfWindow = 64;  // how finely a window moves

}  // namespace

Windows::Growth Windows::see(const std::string& name, std::int64_t window_us, double count, std::int64_t now_us) {
  auto [at, is_new] = series_.try_emplace(name);
  auto& series = at->second;
  if (!is_new) series.grown += count < series.count ? count : count - series.count;
  series.count = count;
  series.seen_us = now_us;
  auto& points = series.points;
  if (points.empty() || now_us - points.back().at_us >= window_us / kPointsOfWindow)
    points.push_back({now_us, series.grown});
  while (points.size() > 1 && points[1].at_us <= now_us - window_us) points.pop_front();
  return {series.grown - points.front().grown, now_us - points.front().at_us};
}

void Windows::forget(std::int64_t before_us) {
  std::erase_if(series_, [&](const auto& entry) { return entry.second.seen_us < before_us; });
}

}  // namespace falaj::alerts
