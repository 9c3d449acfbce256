// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many rows a step of `batch: auto` takes. Pure; what it is told comes from network.cc.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "foundation/base/bytes.h"

namespace falaj::train {

// What a step takes in memory: measured with two numbers of rows.
struct StepMemory {
  std::size_t rows = 0;
  std::int64_t bytes = 0;
};

// The most rows, a power of two, whose step fits beside what is there already; at least 1, and few enough that an epoch
// has steps. `row_bytes`: of a row while it waits.
std::size_t largest_batch(StepMemory small, StepMemory large, std::size_t row_bytes, std::int64_t memory_bytes,
                          std::size_t rows);

// How much gradients of single rows differ from their mean: the number of rows beyond which a larger batch hardly tells
// more of where to go (McCandlish and others, 2018, "An Empirical Model of Large-Batch Training").
class NoiseScale {
 public:
  // Squared norms of the gradient of `rows` rows, and the mean of those of its two halves.
  void add(double of_whole, double of_halves, std::size_t rows);
  std::optional<double> rows() const;  // nothing before enough is known

  void encode(ByteWriter& out) const;
  static NoiseScale decode(ByteReader& in);

 private:
  double noise_ = 0, signal_ = 0;  // running means
  std::uint64_t count_ = 0;
};

inline constexpr std::size_t kBatchUsual = 1024;  // what learning rates are given for

// The next epoch's batch: doubled while gradients are noisier than that.
std::size_t next_batch(std::size_t batch, const NoiseScale& noise, std::size_t largest);

// By how much the learning rate is changed: larger steps with more rows, as far as each optimiser bears it.
double rate_factor(std::string_view optimiser, std::size_t batch);

}  // namespace falaj::train
