// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: what a view's features are over all entities.
#pragma once

#include <vector>

#include "foundation/stats/moments.h"
#include "foundation/stats/quantiles.h"
#include "lifecycle/features/definitions.h"
#include "lifecycle/features/online_tables.h"
#include "lifecycle/lookup/record.h"

namespace falaj::features {

class Measuring {
 public:
  explicit Measuring(const lookup::View& view);
  void add(const lookup::Part& part, std::int64_t as_of_us);
  // `before`: what the full pass before measured, to compare with.
  std::vector<Measured> result(const std::vector<Measured>& before) const;

 private:
  struct Feature {
    std::string name;
    bool number = false;
    std::int64_t nulls = 0;
    stats::Moments moments;
    stats::Quantiles quantiles;
  };
  void add(Feature& feature, std::optional<double> value);

  const lookup::View& view_;
  std::int64_t entities_ = 0;
  std::vector<Feature> features_;  // of the newest row, then windows
};

}  // namespace falaj::features
