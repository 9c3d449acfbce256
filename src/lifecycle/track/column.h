// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "lifecycle/track/filter.h"

namespace falaj::track {

// Which value of a run: an attribute by its name in the filter language ("stage" too), or a param, tag or metric.
struct ColumnKey {
  Entity entity = Entity::attribute;
  std::string key;
  friend auto operator<=>(const ColumnKey&, const ColumnKey&) = default;
};

// Texts, each kept once and known by a number from 1 on; 0 is none.
class Texts {
 public:
  std::uint32_t code_of(std::string_view text);  // made when missing
  std::string_view operator[](std::uint32_t code) const {
    return {bytes_.data() + ends_[code - 1], ends_[code] - ends_[code - 1]};
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(ends_.size() - 1); }
  std::size_t bytes() const {
    return bytes_.capacity() + ends_.capacity() * sizeof(std::size_t) + slots_.capacity() * sizeof(std::uint32_t);
  }

 private:
  std::uint32_t* slot_of(std::string_view text);
  void grow();

  std::vector<char> bytes_;
  std::vector<std::size_t> ends_{0};
  std::vector<std::uint32_t> slots_;  // codes by hash; 0 = free
};

// One value of every run of an experiment, by the run's place in it. Text is kept once for each distinct value.
class Column {
 public:
  enum class Type { number, text };
  explicit Column(Type type) : type_(type) {}
  static Type type_of(const ColumnKey& key);

  void set(std::size_t place, double value);
  void set(std::size_t place, std::string_view value);
  void clear(std::size_t place);

  bool has(std::size_t place) const {
    return place < size() && (type_ == Type::text ? codes_[place] != 0 : has_[place]);
  }
  double number(std::size_t place) const { return numbers_[place]; }
  std::string_view text(std::size_t place) const { return texts_[codes_[place]]; }
  std::size_t size() const { return type_ == Type::text ? codes_.size() : numbers_.size(); }
  std::size_t count() const;  // of values
  std::size_t bytes() const;
  Type type() const { return type_; }

  // Clears in `keep` every place whose value does not match.
  void filter(const Comparison& comparison, std::vector<bool>& keep) const;
  // By value, missing last and NaN before it, whichever the direction. <0, 0, >0.
  int compare(std::size_t a, const Column& other, std::size_t b, bool ascending) const;

  // The values of kImagePlaces places, the first of them `first`, as bytes; and back into a column. An image is
  //   u8 version 1, u8 type, a bit for each place, then
  //   numbers: 8 bytes for each value        texts: u32 count, each with its length, then a u16 for each value
  // Throws corrupt.
  static constexpr std::size_t kImagePlaces = 1024;
  Bytes image(std::size_t first) const;
  void read_image(std::size_t first, BytesView image);

 private:
  const Type type_;
  std::vector<double> numbers_;
  std::vector<bool> has_;
  std::vector<std::uint32_t> codes_;  // into texts_; 0 = no value
  Texts texts_;
};

}  // namespace falaj::track
