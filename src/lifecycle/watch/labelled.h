// SPDX-License-Identifier: Apache-2.0
#pragma once

// Labels beside the predictions that they are of.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/watch/kind.h"
#include "lifecycle/watch/stream.h"

namespace falaj::watch {

// A label, as it came.
struct CameLabel {
  std::int64_t number = 0, version = 0, predicted_us = 0;
  std::string prediction, variant;
  double value = 0;
};

struct Labelled {
  std::int64_t at_us = 0;  // when it was, by the input that says so, or by the answer
  double label = 0;
  std::vector<double> answer;
};

// Of each label what was predicted, as the newest version of the endpoint's log has it; nothing where it has not.
// `why_not`: what is wrong with the log itself.
std::vector<std::optional<Labelled>> join(data::Datasets& datasets, const Where& where, const std::string& endpoint,
                                          const PerformanceSpec& spec, const std::vector<CameLabel>& labels,
                                          std::string* why_not);

Bytes encode_labelled(const std::vector<Labelled>& rows);
std::vector<Labelled> decode_labelled(BytesView bytes);  // throws corrupt

}  // namespace falaj::watch
