// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/testing.h"

#include <cmath>
#include <limits>

namespace falaj::graph {

double RandomColumns::real(bool strange) {
  constexpr double kStrange[] = {INFINITY, -INFINITY, 1e300, -1e300, 1e39, 1e18, -1e18, 1e-300, -0.0, 0.0};
  if (strange && chance() < 0.02) return kStrange[random_() % std::size(kStrange)];
  if (chance() < 0.1) return 0;
  return std::exp(3 * std::normal_distribution<>()(random_)) * (chance() < 0.3 ? -1 : 1);
}

std::int64_t RandomColumns::time_us() {
  const auto day = std::int64_t{86'400'000'000};
  const std::int64_t time = static_cast<std::int64_t>(random_() % (60'000ULL * 86'400'000'000ULL)) - 20'000 * day;
  return chance() < 0.1 ? time / day * day - static_cast<std::int64_t>(random_() % 2)
                        : time;  // midnight, and just before
}

void RandomColumns::fill_one(const Column& column, Held& held, bool strange) {
  const Element element = column.element();
  for (std::size_t row = 0; row < rows_; ++row) {
    const bool missing = column.nullable && chance() < 0.1;
    double value = 0;
    switch (column.kind) {
      case Kind::float64:
      case Kind::float32:
        value = real(strange);
        break;
      case Kind::int64:
        value = static_cast<double>(static_cast<std::int64_t>(std::pow(chance(), 3) * 40) - (strange ? 10 : 5));
        if (column.nullable && chance() < 0.05) value *= 1e17;
        if (column.nullable && strange && chance() < 0.05) value *= 1e25;  // no integer any more
        break;
      case Kind::boolean:
        value = chance() < 0.3;
        break;
      case Kind::timestamp:
        value = static_cast<double>(time_us());
        break;
      case Kind::text: {
        constexpr std::string_view kOdd[] = {"\xff\xfe", "é", "a b", "'", "other"};
        const auto number = static_cast<int>(std::pow(chance(), 3) * (strange ? 80 : 60));
        held.texts.push_back(missing                      ? ""
                             : strange && chance() < 0.02 ? std::string("x\0y", 3)
                             : number < 5                 ? std::string(kOdd[number])
                                                          : "city " + std::to_string(number));
        held.views.push_back(held.texts.back());
        continue;
      }
    }
    if (missing) value = std::numeric_limits<double>::quiet_NaN();
    if (element == Element::float64) held.reals.push_back(value);
    if (element == Element::float32) held.floats.push_back(static_cast<float>(value));
    if (element == Element::int64) held.whole.push_back(static_cast<std::int64_t>(value));
    if (element == Element::boolean) held.booleans.push_back(value != 0);
  }
}

void RandomColumns::fill(std::size_t rows, bool strange) {
  rows_ = rows;
  held_.clear();
  held_.resize(columns_.size());
  for (std::size_t at = 0; at < columns_.size(); ++at) fill_one(columns_[at], held_[at], strange);
}

Batch RandomColumns::batch() const {
  Batch out{rows_, {}};
  for (std::size_t at = 0; at < columns_.size(); ++at) {
    const auto& held = held_[at];
    switch (columns_[at].element()) {
      case Element::float64:
        out.columns.emplace_back(std::span<const double>(held.reals));
        break;
      case Element::float32:
        out.columns.emplace_back(std::span<const float>(held.floats));
        break;
      case Element::int64:
        out.columns.emplace_back(std::span<const std::int64_t>(held.whole));
        break;
      case Element::boolean:
        out.columns.emplace_back(std::span<const std::uint8_t>(held.booleans));
        break;
      default:
        out.columns.emplace_back(std::span<const std::string_view>(held.views));
    }
  }
  return out;
}

std::vector<Tensor> RandomColumns::tensors() const {
  std::vector<Tensor> out;
  const Sizes sizes = {static_cast<std::int64_t>(rows_), 1};
  for (std::size_t at = 0; at < columns_.size(); ++at) {
    const auto& held = held_[at];
    switch (columns_[at].element()) {
      case Element::float64:
        out.push_back(Tensor::of(sizes, held.reals));
        break;
      case Element::float32:
        out.push_back(Tensor::of(sizes, held.floats));
        break;
      case Element::int64:
        out.push_back(Tensor::of(sizes, held.whole));
        break;
      case Element::boolean:
        out.push_back(Tensor::of_boolean(sizes, held.booleans));
        break;
      default:
        out.push_back(Tensor::of_text(sizes, {held.texts.begin(), held.texts.end()}));
    }
  }
  return out;
}

}  // namespace falaj::graph
