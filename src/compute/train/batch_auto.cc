// SPDX-License-Identifier: Apache-2.0
#include "compute/train/batch_auto.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace falaj::train {
namespace {

constexpr double kShare = 0.4;   // of the memory: the engine that read the rows may have a half
constexpr double kMargin = 1.5;  // for what kernels take for themselves
constexpr std::size_t kWaiting = 6, kLargest = 65'536, kStepsMin = 20;
constexpr std::uint64_t kNoiseMin = 10;
constexpr double kNoiseDecay = 0.9;

}  // namespace

std::size_t largest_batch(StepMemory small, StepMemory large, std::size_t row_bytes, std::int64_t memory_bytes,
                          std::size_t rows) {
  const double of_row =
      std::max(1.0, static_cast<double>(large.bytes - small.bytes) / static_cast<double>(large.rows - small.rows)) *
          kMargin +
      static_cast<double>(row_bytes * kWaiting);
  const double fixed = std::max(0.0, static_cast<double>(small.bytes) - of_row * static_cast<double>(small.rows));
  const double room = static_cast<double>(memory_bytes) * kShare - fixed;
  const auto fits = static_cast<std::size_t>(std::max(1.0, room / of_row));
  return std::bit_floor(std::min({fits, kLargest, std::max<std::size_t>(rows / kStepsMin, 1)}));
}

void NoiseScale::add(double of_whole, double of_halves, std::size_t rows) {
  // E|g of n rows|^2 = |G|^2 + noise / n, for n = rows and for n = rows / 2.
  const double signal = 2 * of_whole - of_halves, noise = (of_halves - of_whole) * static_cast<double>(rows);
  if (!std::isfinite(signal) || !std::isfinite(noise)) return;
  ++count_;
  const double weight = std::max(1 - kNoiseDecay, 1 / static_cast<double>(count_));
  signal_ += (signal - signal_) * weight;
  noise_ += (noise - noise_) * weight;
}

std::optional<double> NoiseScale::rows() const {
  if (count_ < kNoiseMin || noise_ <= 0) return std::nullopt;
  return signal_ > 0 ? noise_ / signal_ : std::numeric_limits<double>::infinity();
}

void NoiseScale::encode(ByteWriter& out) const {
  out.u64(std::bit_cast<std::uint64_t>(noise_));
  out.u64(std::bit_cast<std::uint64_t>(signal_));
  out.u64(count_);
}

NoiseScale NoiseScale::decode(ByteReader& in) {
  NoiseScale out;
  out.noise_ = std::bit_cast<double>(in.u64());
  out.signal_ = std::bit_cast<double>(in.u64());
  out.count_ = in.u64();
  return out;
}

std::size_t next_batch(std::size_t batch, const NoiseScale& noise, std::size_t largest) {
  const auto wanted = noise.rows();
  if (!wanted || *wanted < 2 * static_cast<double>(batch)) return batch;
  return std::max(batch, std::min(2 * batch, largest));
}

double rate_factor(std::string_view optimiser, std::size_t batch) {
  const double more = static_cast<double>(batch) / static_cast<double>(kBatchUsual);
  return optimiser == "sgd" ? more : std::sqrt(more);
}

}  // namespace falaj::train
