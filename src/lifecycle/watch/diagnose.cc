// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/diagnose.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "foundation/stats/distance.h"

namespace falaj::watch {
namespace {

using stats::Quantiles;

constexpr std::uint64_t kPointsMax = 4'096;

// What was sent = factor x what was meant + offset.
struct Mistake {
  double factor, offset;
  std::string_view words;
};

constexpr Mistake kMistakes[] = {
    {1.609344, 0, "kilometres sent where there were miles?"},
    {1 / 1.609344, 0, "miles sent where there were kilometres?"},
    {0.3048, 0, "metres sent where there were feet?"},
    {1 / 0.3048, 0, "feet sent where there were metres?"},
    {2.54, 0, "centimetres sent where there were inches?"},
    {1 / 2.54, 0, "inches sent where there were centimetres?"},
    {0.45359237, 0, "kilograms sent where there were pounds?"},
    {1 / 0.45359237, 0, "pounds sent where there were kilograms?"},
    {1.852, 0, "kilometres an hour sent where there were knots?"},
    {1 / 1.852, 0, "knots sent where there were kilometres an hour?"},
    {3.6, 0, "kilometres an hour sent where there were metres a second?"},
    {1 / 3.6, 0, "metres a second sent where there were kilometres an hour?"},
    {60, 0, "seconds sent where there were minutes, or minutes for hours?"},
    {1.0 / 60, 0, "minutes sent where there were seconds, or hours for minutes?"},
    {3600, 0, "seconds sent where there were hours?"},
    {1.0 / 3600, 0, "hours sent where there were seconds?"},
    {24, 0, "hours sent where there were days?"},
    {1.0 / 24, 0, "days sent where there were hours?"},
    {100, 0, "percent or cents sent where there were shares or whole ones?"},
    {0.01, 0, "shares or whole ones sent where there were percent or cents?"},
    {1000, 0, "thousandths sent, such as metres for kilometres or milliseconds for seconds?"},
    {0.001, 0, "thousands sent, such as kilometres for metres or seconds for milliseconds?"},
    {1e6, 0, "millionths sent, such as microseconds for seconds?"},
    {1e-6, 0, "millions sent, such as seconds for microseconds?"},
    {1.8, 32, "degrees Fahrenheit sent where there were degrees Celsius?"},
    {1 / 1.8, -32 / 1.8, "degrees Celsius sent where there were degrees Fahrenheit?"},
    {1, 273.15, "kelvin sent where there were degrees Celsius?"},
    {1, -273.15, "degrees Celsius sent where there were kelvin?"},
    {-1, 0, "the sign turned round?"},
};

// The largest gap of ranks after the mistake is taken back.
double gap_without(const stats::Ordered& reference, const Quantiles& window, double factor, double offset) {
  Quantiles meant(4'096);
  const double points = static_cast<double>(std::min<std::uint64_t>(window.count(), kPointsMax));
  double below = 0, told = 0;  // of the window's values, of the points that stand for them
  for (const auto& [value, weight] : window.sorted()) {
    below += static_cast<double>(weight);
    for (; told + 0.5 <= below / static_cast<double>(window.count()) * points; ++told)
      meant.add((value - offset) / factor);
  }
  return stats::ks(reference, meant);
}

std::string told(double factor, double offset) {
  if (factor == -1) return "looks turned round, x to -x";
  if (offset == 0) return fmt::format("looks multiplied by {:.4g}", factor);
  if (factor == 1) return fmt::format("looks shifted by {:+.4g}", offset);
  return fmt::format("looks multiplied by {:.4g} and shifted by {:+.4g}", factor, offset);
}

}  // namespace

std::optional<Diagnosis> diagnose(const Quantiles& reference, const Quantiles& window, double tolerance) {
  if (reference.count() == 0 || window.count() == 0 || reference.min() == reference.max()) return std::nullopt;
  const stats::Ordered ordered(reference);
  const double before = stats::ks(ordered, window);
  if (before <= tolerance) return std::nullopt;
  double best = tolerance;
  const Mistake* mistake = nullptr;
  for (const auto& one : kMistakes)
    if (const double gap = gap_without(ordered, window, one.factor, one.offset); gap <= best) {
      best = gap;
      mistake = &one;
    }
  if (mistake) return Diagnosis{fmt::format("{}: {}", told(mistake->factor, mistake->offset), mistake->words), true};
  const double was = reference.quantile(0.5), is = window.quantile(0.5);
  double factor = 1, offset = is - was;
  double gap = gap_without(ordered, window, 1, offset);
  if (was * is > 0)
    if (const double scaled = gap_without(ordered, window, is / was, 0); scaled < gap)
      gap = scaled, factor = is / was, offset = 0;
  if (gap > tolerance || (factor == 1 && offset == 0)) return std::nullopt;
  return Diagnosis{told(factor, offset) + ", and is otherwise as before", false};
}

}  // namespace falaj::watch
