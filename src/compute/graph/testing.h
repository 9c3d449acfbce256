// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/tensor.h"
#include "compute/graph/transform.h"

namespace falaj::graph {

// Random values of a column, with everything that makes trouble among them: missing ones, infinities, huge ones, zeros,
// categories never seen, text that is not text.
class RandomColumns {
 public:
  RandomColumns(std::vector<Column> columns, std::uint64_t seed) : columns_(std::move(columns)), random_(seed) {}

  // Replaces what was there. `strange` adds what fitting did not see.
  void fill(std::size_t rows, bool strange);
  Batch batch() const;
  std::vector<Tensor> tensors() const;  // the same, as inputs of a model: [rows, 1]

 private:
  struct Held {
    std::vector<double> reals;
    std::vector<float> floats;
    std::vector<std::int64_t> whole;
    std::vector<std::uint8_t> booleans;
    std::deque<std::string> texts;
    std::vector<std::string_view> views;
  };
  void fill_one(const Column& column, Held& held, bool strange);
  double chance() { return std::uniform_real_distribution<>()(random_); }
  double real(bool strange);
  std::int64_t time_us();

  std::vector<Column> columns_;
  std::mt19937_64 random_;
  std::size_t rows_ = 0;
  std::vector<Held> held_;
};

}  // namespace falaj::graph
