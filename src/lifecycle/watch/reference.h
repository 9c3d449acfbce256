// SPDX-License-Identifier: Apache-2.0
#pragma once

// What windows are compared with, and how much it differs from itself.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "foundation/stats/calibration.h"
#include "lifecycle/traffic/watched.h"

namespace falaj::watch {

struct ReferenceColumn {
  traffic::ColumnSketch sketch;
  bool time = false;  // moves on by itself: nothing to compare
  // By how much rows are fewer than they seem, as neighbours are alike; of values, and of whether they are missing.
  double effect = 1, missing_effect = 1;
};

struct Reference {
  std::string is;                                 // in words
  std::optional<stats::Calibration> calibration;  // of out_prediction, where there are two classes
  std::map<std::string, ReferenceColumn> columns;
};

// docs/formats/model_reference.md, versions 1 and 2. Throws corrupt.
Reference read_reference(std::string_view text, std::string is);

// Of windows, in the order of time: each is a block.
Reference make_reference(std::span<const traffic::Sketches> windows, std::string is);

}  // namespace falaj::watch
