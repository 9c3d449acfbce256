// SPDX-License-Identifier: Apache-2.0
#pragma once

// What windows are compared with, and how much it differs from itself.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "foundation/stats/calibration.h"
#include "foundation/stats/outcomes.h"
#include "foundation/stats/row_sample.h"
#include "lifecycle/traffic/watched.h"
#include "lifecycle/watch/together.h"

namespace falaj::watch {

struct ReferenceColumn {
  traffic::ColumnSketch sketch;
  stats::Ordered ordered;  // its numbers, sorted once for all windows
  bool time = false;       // moves on by itself: nothing to compare
  // By how much rows are fewer than they seem, as neighbours are alike; of values, and of whether they are missing.
  double effect = 1, missing_effect = 1;
};

// How well a model did.
struct PerformanceReference {
  std::string is;  // when that was, in words, such as "when it was tested"
  stats::Outcomes outcomes;
  stats::OutcomeEffects effects;
};

struct Reference {
  std::string is;                                 // in words
  std::optional<stats::Calibration> calibration;  // of out_prediction, where there are two classes
  std::map<std::string, ReferenceColumn> columns;
  std::optional<PerformanceReference> performance;
  stats::RowSample rows;                  // whole ones, in the order of time; none where nobody asked for them
  std::optional<ReferenceRows> together;  // the same, ready to be compared (prepare_together)
};

// docs/formats/model_reference.md, versions 1 to 3. Throws corrupt.
Reference read_reference(std::string_view text, std::string is);

// Of windows, in the order of time: each is a block.
inline constexpr std::uint32_t kReferenceRows = 4'000;
Reference make_reference(std::span<const traffic::Sketches> windows, std::string is,
                         std::span<const stats::RowSample> rows = {});

}  // namespace falaj::watch
