// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "compute/graph/tensor.h"
#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

// Tensors that lie in somebody else's memory: what a request brought, and what a model made of it.
namespace falaj::infer {

// The sizes of a tensor, without an allocation.
class Shape {
 public:
  static constexpr std::size_t kRankMax = 16;

  Shape() = default;
  // Requires: at most kRankMax sizes. What came from outside is counted first.
  explicit Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<std::uint32_t>(sizes.size())) {
    CHECK(sizes.size() <= kRankMax, "a tensor has at most 16 sizes");
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  }
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  Shape(const Shape& other) : rank_(other.rank_) { std::copy_n(other.sizes_.begin(), rank_, sizes_.begin()); }
  Shape& operator=(const Shape& other) {
    rank_ = other.rank_;
    std::copy_n(other.sizes_.begin(), rank_, sizes_.begin());
    return *this;
  }

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t at) const { return sizes_[at]; }
  std::int64_t& operator[](std::size_t at) { return sizes_[at]; }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), rank_}; }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.sizes_.begin(), a.sizes_.begin() + a.rank_, b.sizes_.begin());
  }

 private:
  std::uint32_t rank_ = 0;
  std::array<std::int64_t, kRankMax> sizes_;  // the first rank_ of them are set
};

// Whoever made the view says how long what it shows stays there.
struct TensorView {
  graph::Element element = graph::Element::float32;
  Shape shape;
  BytesView bytes;                          // numbers in row-major order, little-endian; empty for text
  std::span<const std::string_view> texts;  // empty for the rest

  static TensorView of(const graph::Tensor& tensor, std::span<const std::string_view> texts = {}) {
    return {tensor.element, Shape(tensor.sizes), tensor.bytes, texts};
  }
  template <class T>
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // `count` rows from `first` on. Requires: the tensor has a first size, and those rows.
  TensorView rows(std::size_t first, std::size_t count) const;
};

graph::Tensor copy_of(const TensorView& view);
void copy_into(graph::Tensor& to, const TensorView& view);  // using its memory again

}  // namespace falaj::infer
