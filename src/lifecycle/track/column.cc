// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/column.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "foundation/base/error.h"

namespace falaj::track {

namespace {

constexpr std::uint8_t kImageVersion = 1;
constexpr std::size_t kMaskBytes = Column::kImagePlaces / 8;

[[noreturn]] void refuse_image(const char* why) {
  throw Error(Code::corrupt, std::string("an image of a column ") + why);
}

// The places that an image has a value for, from 0.
std::vector<std::uint16_t> places_of(BytesView mask) {
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i < mask.size(); ++i)
    for (auto bits = std::to_integer<unsigned>(mask[i]); bits != 0; bits &= bits - 1)
      out.push_back(static_cast<std::uint16_t>(i * 8 + static_cast<std::size_t>(std::countr_zero(bits))));
  return out;
}

template <class T>
T little_endian(const std::byte* from) {
  T out = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) out = static_cast<T>(out | static_cast<T>(from[i]) << (8 * i));
  return out;
}

}  // namespace

std::uint32_t* Texts::slot_of(std::string_view text) {
  const auto mask = slots_.size() - 1;
  for (auto at = std::hash<std::string_view>()(text) & mask;; at = (at + 1) & mask)
    if (slots_[at] == 0 || (*this)[slots_[at]] == text) return &slots_[at];
}

void Texts::grow() {
  slots_.assign(std::max<std::size_t>(16, slots_.size() * 2), 0);
  for (std::uint32_t code = 1; code <= count(); ++code) *slot_of((*this)[code]) = code;
}

std::uint32_t Texts::code_of(std::string_view text) {
  if (2 * (count() + std::size_t{1}) > slots_.size()) grow();
  auto* slot = slot_of(text);
  if (*slot == 0) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    ends_.push_back(bytes_.size());
    *slot = count();
  }
  return *slot;
}

Column::Type Column::type_of(const ColumnKey& key) {
  const bool number = key.entity == Entity::metric ||
                      (key.entity == Entity::attribute && (key.key == "start_time" || key.key == "end_time"));
  return number ? Type::number : Type::text;
}

void Column::set(std::size_t place, double value) {
  if (place >= numbers_.size()) {
    numbers_.resize(place + 1);
    has_.resize(place + 1);
  }
  numbers_[place] = value;
  has_[place] = true;
}

void Column::set(std::size_t place, std::string_view value) {
  if (place >= codes_.size()) codes_.resize(place + 1);
  codes_[place] = texts_.code_of(value);
}

void Column::clear(std::size_t place) {
  if (place >= size()) return;
  if (type_ == Type::text)
    codes_[place] = 0;
  else
    has_[place] = false;
}

std::size_t Column::count() const {
  if (type_ == Type::number) return static_cast<std::size_t>(std::count(has_.begin(), has_.end(), true));
  return codes_.size() - static_cast<std::size_t>(std::count(codes_.begin(), codes_.end(), 0u));
}

std::size_t Column::bytes() const {
  return numbers_.capacity() * sizeof(double) + has_.capacity() / 8 + codes_.capacity() * sizeof(std::uint32_t) +
         texts_.bytes();
}

void Column::filter(const Comparison& comparison, std::vector<bool>& keep) const {
  if (comparison.op == Op::is_null || comparison.op == Op::is_not_null) {
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (has(i) == (comparison.op == Op::is_null)) keep[i] = false;
    return;
  }
  if (type_ == Type::number) {
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i] && !(has(i) && matches(comparison, numbers_[i]))) keep[i] = false;
    return;
  }
  // Each distinct text is compared once.
  std::vector<bool> good(texts_.count() + std::size_t{1});
  for (std::uint32_t code = 1; code <= texts_.count(); ++code) good[code] = matches(comparison, texts_[code]);
  for (std::size_t i = 0; i < keep.size(); ++i)
    if (keep[i] && !(i < codes_.size() && good[codes_[i]])) keep[i] = false;
}

int Column::compare(std::size_t a, const Column& other, std::size_t b, bool ascending) const {
  const bool has_a = has(a), has_b = other.has(b);
  if (!has_a || !has_b) return static_cast<int>(has_b) - static_cast<int>(has_a);
  if (type_ == Type::text) {
    if (this == &other && codes_[a] == codes_[b]) return 0;
    const int order = text(a).compare(other.text(b));
    return ascending ? order : -order;
  }
  const double x = number(a), y = other.number(b);
  if (std::isnan(x) || std::isnan(y)) return static_cast<int>(std::isnan(x)) - static_cast<int>(std::isnan(y));
  const int order = x < y ? -1 : x > y ? 1 : 0;
  return ascending ? order : -order;
}

Bytes Column::image(std::size_t first) const {
  Bytes mask(kMaskBytes);
  for (std::size_t i = 0; i < kImagePlaces; ++i)
    if (has(first + i)) mask[i / 8] |= static_cast<std::byte>(1u << (i % 8));
  ByteWriter out;
  out.u8(kImageVersion);
  out.u8(type_ == Type::text ? 1 : 0);
  out.raw(mask);
  if (type_ == Type::number) {
    for (const auto place : places_of(mask)) out.u64(std::bit_cast<std::uint64_t>(numbers_[first + place]));
    return out.take();
  }
  Texts texts;  // only those that are used here
  std::vector<std::uint16_t> codes;
  for (const auto place : places_of(mask))
    codes.push_back(static_cast<std::uint16_t>(texts.code_of(text(first + place)) - 1));
  out.u32(texts.count());
  for (std::uint32_t code = 1; code <= texts.count(); ++code) out.text(texts[code]);
  for (const auto code : codes) {
    out.u8(static_cast<std::uint8_t>(code));
    out.u8(static_cast<std::uint8_t>(code >> 8));
  }
  return out.take();
}

void Column::read_image(std::size_t first, BytesView image) {
  ByteReader in(image);
  if (in.u8() != kImageVersion) refuse_image("is of a version that this program does not know");
  if (in.u8() != (type_ == Type::text ? 1 : 0)) refuse_image("is of another type");
  const auto places = places_of(in.raw(kMaskBytes));
  if (places.empty()) return in.expect_end();
  if (first + places.back() >= size()) {
    if (type_ == Type::text) {
      codes_.resize(first + places.back() + std::size_t{1});
    } else {
      numbers_.resize(first + places.back() + std::size_t{1});
      has_.resize(numbers_.size());
    }
  }
  if (type_ == Type::number) {
    const auto values = in.raw(places.size() * sizeof(double));
    for (std::size_t i = 0; i < places.size(); ++i) {
      numbers_[first + places[i]] = std::bit_cast<double>(little_endian<std::uint64_t>(values.data() + 8 * i));
      has_[first + places[i]] = true;
    }
    return in.expect_end();
  }
  const auto texts = in.u32();
  if (texts > places.size()) refuse_image("has more texts than values");
  std::vector<std::uint32_t> codes(texts);
  for (auto& code : codes) code = texts_.code_of(as_text(in.blob()));
  const auto values = in.raw(places.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto code = little_endian<std::uint16_t>(values.data() + 2 * i);
    if (code >= codes.size()) refuse_image("has a value without a text");
    codes_[first + places[i]] = codes[code];
  }
  in.expect_end();
}

}  // namespace falaj::track
