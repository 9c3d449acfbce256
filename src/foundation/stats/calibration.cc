// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/calibration.h"

#include <algorithm>
#include <cmath>

#include "foundation/stats/wire.h"

namespace falaj::stats {

namespace {
constexpr std::size_t kStepsMax = 1000;
}

Calibration Calibration::learn(std::vector<std::pair<double, bool>> scored) {
  std::erase_if(scored, [](const auto& one) { return !std::isfinite(one.first); });
  std::sort(scored.begin(), scored.end());
  struct Pool {
    double count, scores, positives;
    double share() const { return positives / count; }
  };
  std::vector<Pool> pools;
  const std::size_t at_once = std::max<std::size_t>(1, scored.size() / kStepsMax);  // so that there are not too many
  for (std::size_t i = 0; i < scored.size(); i += at_once) {
    Pool pool{0, 0, 0};
    for (std::size_t k = i; k < std::min(scored.size(), i + at_once); ++k) {
      ++pool.count;
      pool.scores += scored[k].first;
      pool.positives += scored[k].second ? 1 : 0;
    }
    while (!pools.empty() && pools.back().share() >= pool.share()) {
      pool.count += pools.back().count;
      pool.scores += pools.back().scores;
      pool.positives += pools.back().positives;
      pools.pop_back();
    }
    pools.push_back(pool);
  }
  Calibration out;
  for (const Pool& pool : pools) out.steps_.push_back({pool.scores / pool.count, pool.share()});
  return out;
}

double Calibration::of(double score) const {
  if (steps_.empty()) return 0.5;
  const auto above = std::upper_bound(steps_.begin(), steps_.end(), score,
                                      [](double value, const Step& step) { return value < step.score; });
  if (above == steps_.begin()) return above->share;
  if (above == steps_.end()) return steps_.back().share;
  const Step &low = *(above - 1), &high = *above;
  const double part = high.score > low.score ? (score - low.score) / (high.score - low.score) : 0;
  return low.share + part * (high.share - low.share);
}

void Calibration::encode(ByteWriter& out) const {
  out.u32(static_cast<std::uint32_t>(steps_.size()));
  for (const Step& step : steps_) {
    put_real(out, step.score);
    put_real(out, step.share);
  }
}

Calibration Calibration::decode(ByteReader& in) {
  Calibration out;
  const std::size_t size = in.u32();
  must_be(size <= in.left() / 16 && size <= 2 * kStepsMax, "its size");
  for (std::size_t i = 0; i < size; ++i) {
    const double score = get_real(in), share = get_real(in);
    must_be(std::isfinite(score) && share >= 0 && share <= 1, "a step");
    must_be(i == 0 || (score >= out.steps_.back().score && share >= out.steps_.back().share), "their order");
    out.steps_.push_back({score, share});
  }
  return out;
}

Expected expected(const Calibration& calibration, const Quantiles& scores) {
  Expected out;
  if (scores.count() == 0) return out;
  double all = 0, positives = 0, right = 0, spread = 0;
  double ordered = 0, negatives_below = 0;  // pairs of which the positive has the higher score; equal ones count half
  const auto sorted = scores.sorted();
  for (std::size_t i = 0; i < sorted.size();) {
    double here_positive = 0, here_negative = 0;
    const double value = sorted[i].value, share = calibration.of(value);
    for (; i < sorted.size() && sorted[i].value == value; ++i) {
      const double weight = static_cast<double>(sorted[i].weight);
      here_positive += weight * share;
      here_negative += weight * (1 - share);
    }
    all += here_positive + here_negative;
    positives += here_positive;
    right += std::max(here_positive, here_negative);
    spread += here_positive * (1 - share);
    ordered += here_positive * (negatives_below + here_negative / 2);
    negatives_below += here_negative;
  }
  out.positives = positives / all;
  out.accuracy = right / all;
  out.accuracy_error = std::sqrt(spread) / all;
  if (positives <= 0 || negatives_below <= 0) return out;
  const double a = out.auc = ordered / (positives * negatives_below);
  const double two_positives = a / (2 - a), two_negatives = 2 * a * a / (1 + a);  // both are on the right side of one
  out.auc_error = std::sqrt(std::max(0.0, a * (1 - a) + (positives - 1) * (two_positives - a * a) +
                                              (negatives_below - 1) * (two_negatives - a * a)) /
                            (positives * negatives_below));
  return out;
}

}  // namespace falaj::stats
