// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "compute/train/model.h"
#include "compute/train/parity.h"
#include "compute/train/score.h"

namespace falaj::train {

struct Slice {
  std::string column, value;
  std::size_t rows = 0;
  Score score;
};

// Everything that is said of a finished training.
struct Result {
  std::string name, model;         // which model it is, in words
  std::vector<std::string> notes;  // why it was chosen, what was noticed
  std::vector<Named> scores;       // on the test rows
  std::vector<Slice> slices;       // by the deciding metric
  std::vector<Model::Importance> importance;
  Parity parity;
  std::vector<float> predictions, labels, groups;  // of the test rows; groups of a ranking
};

// One HTML file with everything in it: no script, no picture, no font from elsewhere.
std::string report_html(const Problem& problem, const Result& result);

}  // namespace falaj::train
