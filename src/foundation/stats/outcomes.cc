// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/outcomes.h"

#include <algorithm>
#include <cmath>

#include "foundation/base/error.h"
#include "foundation/stats/blocks.h"
#include "foundation/stats/drift.h"
#include "foundation/stats/wire.h"

namespace falaj::stats {

namespace {

constexpr double kLeastProbability = 1e-7;  // a float can come no closer to 1
constexpr double kTwoSided95 = 1.959964;
constexpr double kSumTolerance = 1e-3;  // probabilities of all classes add up to 1, nearly
constexpr std::uint64_t kFewest = 10;   // positives, and negatives, that say something of the area under the curve

// How unlike a share `b` a sample with share `a` is (Kullback and Leibler's divergence of two coins).
double unlike(double a, double b) {
  const auto part = [](double x, double y) { return x <= 0 ? 0 : x * std::log(x / y); };
  return part(a, b) + part(1 - a, 1 - b);
}

// Of each value, the share of `others` below it, ties counting half: their mean, and the variance of that mean.
struct Placed {
  double mean = 0, variance = 0;
};
Placed placed(const std::vector<Quantiles::Weighted>& values, double count,
              const std::vector<Quantiles::Weighted>& others, double of_others) {
  std::size_t at = 0;
  double below = 0, sum = 0, squares = 0;
  for (const auto& [value, weight] : values) {
    while (at < others.size() && others[at].value < value) below += static_cast<double>(others[at++].weight);
    double ties = 0;
    for (auto i = at; i < others.size() && others[i].value == value; ++i) ties += static_cast<double>(others[i].weight);
    const double place = (below + ties / 2) / of_others, many = static_cast<double>(weight);
    sum += place * many;
    squares += place * place * many;
  }
  const double mean = sum / count;
  return {mean, std::max(0.0, squares / count - mean * mean) / (count - 1)};
}

Metric mean_metric(std::string_view name, const Moments& of, double effect) {
  const double error = kTwoSided95 * std::sqrt(of.variance() * effect / static_cast<double>(of.count()));
  return {name, of.mean(), std::max(0.0, of.mean() - error), of.mean() + error, false};
}

// Wilson's bounds: they stay between 0 and 1, and say something of none in a hundred.
Metric accuracy_of(const Moments& wrong, double effect) {
  const double n = static_cast<double>(wrong.count()) / effect, share = 1 - wrong.mean(),
               square = kTwoSided95 * kTwoSided95;
  const double middle = (share + square / (2 * n)) / (1 + square / n),
               half = kTwoSided95 * std::sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n);
  return {"accuracy", share, std::max(0.0, middle - half), std::min(1.0, middle + half), true};
}

}  // namespace

std::string_view name(Task task) { return kTasks[static_cast<std::size_t>(task)]; }

std::optional<Task> parse_task(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kTasks); ++i)
    if (kTasks[i] == text) return static_cast<Task>(i);
  return std::nullopt;
}

std::optional<double> Outcomes::add(std::span<const double> answer, double label) {
  const bool finite = std::all_of(answer.begin(), answer.end(), [](double v) { return std::isfinite(v); });
  if (answer.empty() || !finite || !std::isfinite(label)) return std::nullopt;
  if (task_ == Task::regression) return answer.size() == 1 ? add_number(answer[0], label) : std::nullopt;
  return add_class(answer, label);
}

std::optional<double> Outcomes::add_number(double answer, double label) {
  const double off = std::abs(answer - label);
  if (!std::isfinite(off * off)) return std::nullopt;
  loss_.add(off);
  losses_.add(off);
  second_.add(off * off);
  return off;
}

std::optional<double> Outcomes::add_class(std::span<const double> answer, double label) {
  double all = 0, squares = 0;
  for (const double p : answer) {
    if (p < 0 || p > 1 + kSumTolerance) return std::nullopt;
    all += p;
    squares += p * p;
  }
  const bool binary = task_ == Task::binary;
  if (binary ? answer.size() != 1 : std::abs(all - 1) > kSumTolerance) return std::nullopt;
  const auto classes = binary ? 2.0 : static_cast<double>(answer.size());
  if (label < 0 || label >= classes || label != std::floor(label)) return std::nullopt;
  const auto which = static_cast<std::size_t>(label);
  const double said = binary ? (which == 1 ? answer[0] : 1 - answer[0]) : answer[which];
  const double loss = binary ? (1 - said) * (1 - said) : std::min(1.0, (squares - 2 * said + 1) / 2);
  const auto likeliest =
      binary ? std::size_t{answer[0] >= 0.5}
             : static_cast<std::size_t>(std::max_element(answer.begin(), answer.end()) - answer.begin());
  wrong_.add(likeliest == which ? 0 : 1);
  loss_.add(loss);
  losses_.add(loss);
  second_.add(-std::log(std::clamp(said, kLeastProbability, 1.0)));
  if (binary) (which == 1 ? positives_ : negatives_).add(answer[0]);
  return loss;
}

void Outcomes::merge(const Outcomes& other) {
  CHECK(task_ == other.task_, "outcomes of one task");
  wrong_.merge(other.wrong_);
  loss_.merge(other.loss_);
  second_.merge(other.second_);
  losses_.merge(other.losses_);
  positives_.merge(other.positives_);
  negatives_.merge(other.negatives_);
}

std::optional<Outcomes::Auc> Outcomes::auc() const {
  if (positives_.count() < 2 || negatives_.count() < 2) return std::nullopt;
  const double p = static_cast<double>(positives_.count()), n = static_cast<double>(negatives_.count());
  const auto positive = positives_.sorted(), negative = negatives_.sorted();
  const auto of_positives = placed(positive, p, negative, n), of_negatives = placed(negative, n, positive, p);
  return Auc{of_positives.mean, of_positives.variance + of_negatives.variance,
             std::min(positives_.count(), negatives_.count())};
}

void Outcomes::encode(ByteWriter& out) const {
  out.u8(static_cast<std::uint8_t>(task_));
  for (const auto* moments : {&wrong_, &loss_, &second_}) moments->encode(out);
  for (const auto* sketch : {&losses_, &positives_, &negatives_}) sketch->encode(out);
}

Outcomes Outcomes::decode(ByteReader& in) {
  const auto task = in.u8();
  must_be(task < std::size(kTasks), "its task");
  Outcomes out(static_cast<Task>(task));
  for (auto* moments : {&out.wrong_, &out.loss_, &out.second_}) *moments = Moments::decode(in);
  for (auto* sketch : {&out.losses_, &out.positives_, &out.negatives_}) *sketch = Quantiles::decode(in);
  const auto count = out.count();
  const bool binary = out.task_ == Task::binary, regression = out.task_ == Task::regression;
  must_be(out.losses_.count() == count && out.second_.count() == count, "its counts");
  must_be(out.wrong_.count() == (regression ? 0 : count), "its mistakes");
  must_be(out.positives_.count() + out.negatives_.count() == (binary ? count : 0), "its classes");
  if (count == 0) return out;
  for (const auto* moments : {&out.loss_, &out.second_})
    must_be(std::isfinite(moments->mean()) && std::isfinite(moments->variance()) && moments->min() >= 0, "its losses");
  must_be(out.losses_.min() >= 0 && std::isfinite(out.losses_.max()), "its losses");
  must_be(regression || (out.loss_.max() <= 1 && out.losses_.max() <= 1), "its losses");
  must_be(regression || (out.wrong_.min() >= 0 && out.wrong_.max() <= 1 && std::isfinite(out.wrong_.variance())),
          "its mistakes");
  return out;
}

OutcomeEffects effects_of(const std::vector<Outcomes>& consecutive) {
  if (consecutive.empty()) return {};
  Outcomes whole(consecutive[0].task());
  for (const auto& piece : consecutive) whole.merge(piece);
  const double all = static_cast<double>(whole.count());
  const auto count = [](const Outcomes& piece) { return static_cast<double>(piece.count()); };
  const auto join = [](Outcomes a, const Outcomes& b) {
    a.merge(b);
    return a;
  };
  const auto effect = [&](const auto& ratio) { return design_effect(scales_of(consecutive, join, ratio, count)); };
  const auto of_mean = [&](const Moments& (Outcomes::*which)() const) {
    const auto& known = (whole.*which)();
    if (!(known.variance() > 0)) return 1.0;
    return effect([&](const Outcomes& piece) {
      const double off = (piece.*which)().mean() - known.mean();
      return off * off * count(piece) / (known.variance() * outside_of(count(piece), all));
    });
  };
  OutcomeEffects out{of_mean(&Outcomes::wrong), of_mean(&Outcomes::loss), 1};
  if (const auto known = whole.auc()) {
    out.auc = effect([&](const Outcomes& piece) {
      const auto here = piece.auc();
      if (!here || !(here->variance > 0) || here->fewer < kFewest) return 1.0;
      const double off = here->value - known->value;
      return off * off / (here->variance * outside_of(count(piece), all));
    });
  }
  return out;
}

std::vector<Metric> metrics(const Outcomes& outcomes, const OutcomeEffects& effects) {
  std::vector<Metric> out;
  if (outcomes.count() == 0) return out;
  if (outcomes.task() == Task::regression) {
    out.push_back(mean_metric("mae", outcomes.loss(), effects.loss));
    const auto squared = mean_metric("rmse", outcomes.second(), effects.loss);
    out.push_back({"rmse", std::sqrt(squared.value), std::sqrt(squared.low), std::sqrt(squared.high), false});
    return out;
  }
  out.push_back(accuracy_of(outcomes.wrong(), effects.wrong));
  if (const auto auc = outcomes.auc()) {
    const double error = kTwoSided95 * std::sqrt(auc->variance * effects.auc);
    out.push_back({"auc", auc->value, std::max(0.0, auc->value - error), std::min(1.0, auc->value + error), true});
  }
  out.push_back(mean_metric("brier", outcomes.loss(), effects.loss));
  out.push_back(mean_metric("log_loss", outcomes.second(), effects.loss));
  return out;
}

double mean_above_p(const Quantiles& of, double mean, double count) {
  if (of.count() == 0) return 1;
  const auto values = of.sorted();
  const double all = static_cast<double>(of.count());
  double middle = 0;
  for (const auto& [value, weight] : values) middle += value * static_cast<double>(weight) / all;
  if (mean <= middle) return 1;
  if (mean > of.max()) return 0;
  // The logarithm of E exp(t (x - mean)) has its least where its slope is 0; the slope grows with t. Newton's steps,
  // halving where they leave what is known to hold the place.
  const double scale = 1 / std::max(of.max() - of.min(), 1e-300);
  double low = 0, high = 600, t = 1, least = 0;
  for (int i = 0; i < 60 && high - low > 1e-6 * high; ++i) {
    double sum = 0, first = 0, second = 0;
    for (const auto& [value, weight] : values) {
      const double off = (value - mean) * scale, part = static_cast<double>(weight) / all * std::exp(t * off);
      sum += part;
      first += part * off;
      second += part * off * off;
    }
    least = std::min(least, std::log(sum));
    const double slope = first / sum, curve = second / sum - slope * slope;
    (slope < 0 ? low : high) = t;
    const double next = curve > 0 ? t - slope / curve : -1;
    if (std::abs(next - t) < 1e-6 * t) break;
    t = next > low && next < high ? next : high < 600 ? (low + high) / 2 : std::min(600.0, 2 * t);
  }
  return std::exp(count * least);
}

double share_above_p(std::uint64_t was, std::uint64_t of, std::uint64_t is, std::uint64_t of_window, double effect,
                     double level) {
  if (of == 0 || of_window == 0) return 1;
  const double known = static_cast<double>(of) / effect, seen = static_cast<double>(of_window) / effect;
  const double before = static_cast<double>(was) / static_cast<double>(of),
               now = static_cast<double>(is) / static_cast<double>(of_window);
  double low = before, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (known * unlike(before, middle) < -std::log(level) ? low : high) = middle;
  }
  return now <= high ? 1 : std::exp(-seen * unlike(now, high));
}

std::optional<double> worse_p(std::string_view metric, const Outcomes& was, const Outcomes& is,
                              const OutcomeEffects& effects, double level) {
  if (was.count() == 0 || is.count() == 0) return std::nullopt;
  if (metric == "accuracy") {
    const auto marks = [](const Moments& of) {
      return static_cast<std::uint64_t>(std::llround(of.mean() * static_cast<double>(of.count())));
    };
    return share_above_p(marks(was.wrong()), was.count(), marks(is.wrong()), is.count(), effects.wrong, level);
  }
  if (metric == "brier" || metric == "mae") {
    const double slack =
        normal_z(level) * std::sqrt(was.loss().variance() * effects.loss / static_cast<double>(was.count()));
    return mean_above_p(was.losses(), is.loss().mean() - slack, static_cast<double>(is.count()) / effects.loss);
  }
  if (metric != "auc") return std::nullopt;
  const auto before = was.auc(), now = is.auc();
  if (!before || !now || before->fewer < kFewest || now->fewer < kFewest) return std::nullopt;
  const double error = std::sqrt((before->variance + now->variance) * effects.auc);
  if (!(error > 0) || now->value >= before->value) return 1;
  return student_p((before->value - now->value) / error, static_cast<double>(now->fewer - 1) / effects.auc) / 2;
}

}  // namespace falaj::stats
