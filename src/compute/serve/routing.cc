// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/routing.h"

#include <cmath>
#include <concepts>
#include <cstring>

#include <fmt/format.h>

#include "compute/protocol/tensors.h"

namespace falaj::serve {
namespace {

constexpr double kWholeMost = 9'007'199'254'740'992.0;  // 2^53: up to here every whole number is a double

// A whole number is written as one, also where it came as a real; what JSON cannot say is nothing.
template <class T>
std::string text_of_number(T value) {
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(value)) return "";
    if (std::trunc(value) == value && std::abs(static_cast<double>(value)) < kWholeMost)
      return std::to_string(static_cast<std::int64_t>(value));
    return fmt::format("{}", value);
  } else {
    return std::to_string(value);
  }
}

// The sixteen bits of a half or of the upper half of a float, as that number.
float wide(graph::Element element, std::uint16_t bits) {
  if (element == graph::Element::bfloat16) {
    const auto whole = static_cast<std::uint32_t>(bits) << 16;
    float out = 0;
    std::memcpy(&out, &whole, sizeof out);
    return out;
  }
  const int exponent = bits >> 10 & 0x1f;
  const float fraction = static_cast<float>(bits & 0x3ff) / 1024.0f;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0x1f) return std::nanf("");
  return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0f + fraction, exponent - 15));
}

std::string text_of_first(const protocol::Input& input) {
  using graph::Element;
  if (input.element == Element::text) return input.texts.empty() ? "" : input.texts.front();
  if (input.bytes.size() < graph::bytes_of(input.element)) return "";
  if (input.element == Element::boolean) return input.bytes[0] == std::byte{0} ? "false" : "true";
  if (input.element == Element::float16 || input.element == Element::bfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, input.bytes.data(), sizeof bits);
    return text_of_number(wide(input.element, bits));
  }
  return protocol::with_type(input.element, [&](auto value) {
    std::memcpy(&value, input.bytes.data(), sizeof value);
    return text_of_number(value);
  });
}

std::string text_of_first(const json::value& value) {
  const auto* at = &value;
  while (at->is_array() && !at->get_array().empty()) at = &at->get_array()[0];
  if (at->is_string()) return std::string(at->get_string());
  if (at->is_bool()) return at->get_bool() ? "true" : "false";
  if (at->is_int64()) return text_of_number(at->get_int64());
  if (at->is_uint64()) return text_of_number(at->get_uint64());
  if (at->is_double()) return text_of_number(at->get_double());
  return "";
}

}  // namespace

std::string sticky_key(const protocol::Ask& ask, std::string_view name) {
  for (const auto& input : ask.inputs)
    if (input.name == name) return text_of_first(input);
  return "";
}

std::string sticky_key(const protocol::Predict& ask, std::string_view field) {
  if (ask.rows.empty() || !ask.rows[0].is_object()) return "";
  const auto* value = ask.rows[0].get_object().if_contains(field);
  return value ? text_of_first(*value) : "";
}

const ServedVariant* variant_by_version(const ServedEndpoint& endpoint, std::string_view version) {
  const ServedVariant* out = nullptr;
  for (const auto& variant : endpoint.variants) {
    if (variant.plan.name == version) return &variant;
    if (variant.plan.shadow || variant.version_text != version) continue;
    if (!out || variant.plan.weight > out->plan.weight) out = &variant;
  }
  return out;
}

const ServedVariant* main_variant(const ServedEndpoint& endpoint) {
  const ServedVariant* out = nullptr;
  for (const auto& variant : endpoint.variants)
    if (!variant.plan.shadow && (!out || variant.plan.weight > out->plan.weight)) out = &variant;
  return out;
}

}  // namespace falaj::serve
