// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "compute/infer/session.h"
#include "compute/train/model.h"

namespace falaj::train {

// How far the exported model is from the trained one, on rows that neither learned from.
struct Parity {
  std::size_t rows = 0, made = 0;  // `made` of the rows: with a value that is missing or was never seen
  double largest = 0, mean = 0;    // difference of a prediction
  std::string sentence() const;    // "on 10000 held-out rows at most 2e-07 from the trained model"
};

// Compares the two on raw rows until `rows_max` were: of the test, then of those to stop by, then rows of the test in
// which a value is missing or was never seen. Throws invalid when a prediction differs by more than `tolerance`, naming
// the row.
class ParityCheck {
 public:
  ParityCheck(const infer::Session& session, Rows& rows, double tolerance, std::size_t rows_max)
      : session_(session), rows_(rows), tolerance_(tolerance), rows_max_(rows_max) {}

  bool wants_more() const { return parity_.rows < rows_max_; }
  // `predictions`: of the trained model, of all rows of the part.
  void add(Part part, std::span<const float> predictions);
  void add_made(const graph::Transform& transform, Model& model, sys::Files& scratch);
  Parity result() const;

 private:
  void compare(std::span<const float> exported, std::span<const float> trained, const char* rows, std::size_t first);

  const infer::Session& session_;
  Rows& rows_;
  const double tolerance_;
  const std::size_t rows_max_;
  Parity parity_;
  double sum_ = 0;
};

}  // namespace falaj::train
