// SPDX-License-Identifier: Apache-2.0
#pragma once

// Columns together: whether whole rows of a window could be rows of the reference. Some changes show in no column by
// itself, such as two that no longer rise together.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "foundation/stats/row_sample.h"
#include "foundation/stats/together.h"

namespace falaj::watch {

// Rows of the reference, ready to be compared. A text is told by how often the reference has it: 0 where it never does.
class ReferenceRows {
 public:
  using Wanted = std::function<bool(const std::string& column)>;
  // `sample`: in the order of time. Where there are texts, every other row says how often they are, and the rest are
  // compared: rows that chose their own numbers would look more familiar than any others.
  ReferenceRows(const stats::RowSample& sample, const Wanted& wanted);

  std::size_t count() const { return rows().count(); }
  bool has(const std::string& column) const { return place_.contains(column); }
  // By how much rows are fewer than they seem, as neighbours are alike, for either test.
  double classifier_effect() const { return classifier_effect_; }
  double kernel_effect() const { return kernel_effect_; }

  struct Apart {
    double classifier_p = 1, kernel_p = 1;
    double area = 0.5;        // under the classifier's curve
    std::size_t columns = 0;  // that were compared: those that both have
    std::string most;         // what differs most, in words
  };
  Apart compare(const stats::RowSample& window, const Wanted& wanted) const;

 private:
  stats::Rows rows() const { return {values_, columns_.size()}; }
  double encoded(std::size_t column, double value) const;
  void learn_effects();

  std::vector<stats::RowSample::Column> columns_;
  std::map<std::string, std::size_t> place_;
  std::vector<std::map<double, double>> shares_;  // of texts, by their code
  std::vector<double> values_;
  double classifier_effect_ = 1, kernel_effect_ = 1;
};

}  // namespace falaj::watch
