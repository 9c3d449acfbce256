// SPDX-License-Identifier: Apache-2.0
#pragma once

// How well a model probably does before labels come: a model that knows how sure it may be says by its scores how often
// it is wrong.

#include <span>
#include <utility>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/stats/quantiles.h"

namespace falaj::stats {

// What share of those with a score is positive, learned where labels are known: the non-decreasing step function that
// is nearest (pool adjacent violators).
class Calibration {
 public:
  static Calibration learn(std::vector<std::pair<double, bool>> scored);
  double of(double score) const;  // between 0 and 1; between two steps it goes straight from one to the other
  std::size_t steps() const { return steps_.size(); }

  void encode(ByteWriter& out) const;
  static Calibration decode(ByteReader& in);  // throws corrupt

 private:
  struct Step {
    double score = 0, share = 0;  // the mean of its scores
  };
  std::vector<Step> steps_;
};

// Expected of scores whose labels are not known, if calibration still holds: inputs may have changed, what they mean
// may not.
struct Expected {
  double positives = 0;  // share
  double accuracy = 0;   // of calling positive what is more likely to be
  double auc = 0.5;
  // Standard errors: by how much the labels of so many independent rows differ from it by chance alone. Of the area it
  // is Hanley and McNeil's (1982).
  double accuracy_error = 0, auc_error = 0.5;
};
Expected expected(const Calibration& calibration, const Quantiles& scores);

}  // namespace falaj::stats
