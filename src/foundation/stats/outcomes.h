// SPDX-License-Identifier: Apache-2.0
#pragma once

// How well a model did, on predictions of which it is known what became of them: sums and sketches that can be put
// together, what follows from them, and whether it is worse than it was.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/stats/moments.h"
#include "foundation/stats/quantiles.h"

namespace falaj::stats {

enum class Task : std::uint8_t { binary, classes, regression };
inline constexpr std::string_view kTasks[] = {"binary", "classes", "regression"};
std::string_view name(Task task);
std::optional<Task> parse_task(std::string_view name);

class Outcomes {
 public:
  explicit Outcomes(Task task = Task::binary) : task_(task) {}

  // `answer`: the probability of class 1; those of all classes; or a number. `label`: 0 or 1; which class, from 0; or
  // a number. Returns what was lost by it: Brier's score, 0 to 1, of classes, the distance of numbers. Nothing, and it
  // does not count, where the two cannot be compared.
  std::optional<double> add(std::span<const double> answer, double label);
  void merge(const Outcomes& other);  // Requires: of the same task

  Task task() const { return task_; }
  std::uint64_t count() const { return loss_.count(); }
  const Moments& wrong() const { return wrong_; }    // 1 where the likeliest class was another; of classes
  const Moments& loss() const { return loss_; }      // what add() returns
  const Moments& second() const { return second_; }  // the logarithmic loss of classes, the squared one of numbers
  const Quantiles& losses() const { return losses_; }
  // By the scores of positives and negatives; of binary ones. With DeLong's variance. Nothing below two of either.
  struct Auc {
    double value = 0, variance = 0;
    std::uint64_t fewer = 0;  // of positives and negatives
  };
  std::optional<Auc> auc() const;

  void encode(ByteWriter& out) const;
  static Outcomes decode(ByteReader& in);  // throws corrupt
  friend bool operator==(const Outcomes&, const Outcomes&) = default;

 private:
  static constexpr std::uint32_t kPoints = 1'024;
  std::optional<double> add_number(double answer, double label);
  std::optional<double> add_class(std::span<const double> answer, double label);

  Task task_;
  Moments wrong_, loss_, second_;
  Quantiles losses_{kPoints}, positives_{kPoints}, negatives_{kPoints};
};

// By how much rows are fewer than they seem, as neighbours are alike (blocks.h).
struct OutcomeEffects {
  double wrong = 1, loss = 1, auc = 1;
};
OutcomeEffects effects_of(const std::vector<Outcomes>& consecutive);

// What is told of a model, with 95 % bounds.
struct Metric {
  std::string_view name;  // accuracy, auc, brier, log_loss; mae, rmse
  double value = 0, low = 0, high = 0;
  bool falls = false;  // when the model gets worse
};
std::vector<Metric> metrics(const Outcomes& outcomes, const OutcomeEffects& effects);

// How likely `is` would be as bad by chance, were the model as good as `was` lets it be (with a chance of `level` it is
// better). Nothing for metrics that decide nothing: where one sure mistake outweighs a thousand answers.
std::optional<double> worse_p(std::string_view metric, const Outcomes& was, const Outcomes& is,
                              const OutcomeEffects& effects, double level);

// A bound of the chance that the mean of so many independent values of this distribution is at least `mean`
// (Chernoff's): it holds far out, where a normal law does not.
double mean_above_p(const Quantiles& of, double mean, double count);
// The same of marks, such as being missing, over the reference's own noise: were the true share as large as `was` of
// `of` rows lets it be with a chance of `level`. Rows are worth 1/effect.
double share_above_p(std::uint64_t was, std::uint64_t of, std::uint64_t is, std::uint64_t of_window, double effect,
                     double level);

}  // namespace falaj::stats
