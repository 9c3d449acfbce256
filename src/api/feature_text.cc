// SPDX-License-Identifier: Apache-2.0
#include "api/feature_text.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "lifecycle/lookup/values.h"

namespace falaj::api {
namespace {

constexpr std::size_t kCellBytes = 48;  // of a value, its status and its time; an estimate

void append_whole(std::string& out, std::int64_t value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}

// Always with a point or an exponent: readers that tell whole numbers from others see one kind in one feature.
void append_real(std::string& out, double value) {
  constexpr double kWholeMax = 1e15;
  if (value == std::trunc(value) && std::abs(value) < kWholeMax && !(value == 0 && std::signbit(value))) {
    append_whole(out, static_cast<std::int64_t>(value));
    out += ".0";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<std::size_t>(end - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, done, i - done);
    done = i + 1;
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
  }
  out.append(text, done);
  out += '"';
}

FeatureText::FeatureText(const features::Selection& wanted, std::size_t entities, const Words& words)
    : words_(words), entities_(entities) {
  for (const auto& view : wanted)
    for (const auto& place : view.places) types_.push_back(place.type);
  time_texts_.resize(entities);
}

void FeatureText::begin() {
  constexpr std::size_t kValueBytes = 10;
  values_.assign(types_.size(), {});
  if (entities_ > 1)
    for (auto& values : values_) values.reserve(entities_ * kValueBytes);
  statuses_.assign(types_.size() * entities_, online::Status::missing);
  event_us_.assign(types_.size() * entities_, 0);
}

void FeatureText::add(std::size_t feature, std::size_t entity, const features::FeatureCell& cell) {
  auto& values = values_[feature];
  if (entity > 0) values += ',';
  append_value(values, cell, types_[feature]);
  statuses_[feature * entities_ + entity] = cell.status;
  event_us_[feature * entities_ + entity] = cell.event_us;
}

void FeatureText::append_value(std::string& out, const features::FeatureCell& cell, online::Type type) const {
  if (cell.status != online::Status::present) {
    out += "null";
    return;
  }
  switch (type) {
    case online::Type::boolean:
      out += cell.whole ? "true" : "false";
      break;
    case online::Type::float32:
    case online::Type::float64:
      if (std::isfinite(cell.real))
        append_real(out, cell.real);
      else
        out += "null";
      break;
    case online::Type::text:
      append_json_text(out, cell.text);
      break;
    case online::Type::bytes:
      append_json_text(out, to_base64(as_bytes(cell.text)));
      break;
    case online::Type::date:
      out += '"';
      lookup::append_date(out, cell.whole);
      out += '"';
      break;
    case online::Type::timestamp:
      if (words_.times_are_seconds) {
        append_whole(out, cell.whole / 1'000'000);
        break;
      }
      out += '"';
      lookup::append_time(out, cell.whole);
      out += '"';
      break;
    default:
      append_whole(out, cell.whole);
  }
}

void FeatureText::append_values(std::string& out, std::size_t feature) const {
  out += '[';
  out += values_[feature];
  out += ']';
}

void FeatureText::append_statuses(std::string& out, std::size_t feature) const {
  out += '[';
  for (std::size_t e = 0; e < entities_; ++e) {
    out += e ? ",\"" : "\"";
    out += words_.statuses[static_cast<std::size_t>(statuses_[feature * entities_ + e])];
    out += '"';
  }
  out += ']';
}

void FeatureText::append_times(std::string& out, std::size_t feature) {
  out += '[';
  for (std::size_t e = 0; e < entities_; ++e) {
    const auto us = event_us_[feature * entities_ + e];
    out += e ? ",\"" : "\"";
    if (us == 0) {
      const bool present = statuses_[feature * entities_ + e] == online::Status::present;
      out += present ? words_.time_of_windows : words_.no_time;
    } else {
      auto& known = time_texts_[e];
      if (known.us != us) {
        known.us = us;
        known.text.clear();
        lookup::append_time(known.text, us);
      }
      out += known.text;
    }
    out += '"';
  }
  out += ']';
}

std::size_t FeatureText::bytes() const {
  std::size_t out = types_.size() * entities_ * kCellBytes;
  for (const auto& values : values_) out += values.size();
  return out;
}

}  // namespace falaj::api
