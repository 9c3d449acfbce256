// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/json.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "foundation/base/error.h"

namespace falaj {
namespace {

constexpr std::size_t kKeptBytesMax = 1 << 20;

// Boost 1.81 reads the last digit of some numbers wrongly, so simdjson reads them, which is faster besides.
json::value to_value(const simdjson::dom::element& in, std::size_t depth) {
  using Type = simdjson::dom::element_type;
  if ((in.is_array() || in.is_object()) && depth == kJsonDepthMax)
    throw Error(Code::invalid, fmt::format("json: nested more than {} deep", kJsonDepthMax));
  switch (in.type()) {
    case Type::ARRAY: {
      const auto array = simdjson::dom::array(in);
      json::array out;
      out.reserve(array.size());
      for (const auto item : array) out.push_back(to_value(item, depth + 1));
      return out;
    }
    case Type::OBJECT: {
      const auto object = simdjson::dom::object(in);
      json::object out;
      out.reserve(object.size());
      for (const auto member : object) out.insert_or_assign(member.key, to_value(member.value, depth + 1));
      return out;
    }
    case Type::STRING:
      return json::value(std::string_view(in));
    case Type::INT64:
      return std::int64_t(in);
    case Type::UINT64:
      return std::uint64_t(in);
    case Type::DOUBLE:
      return double(in);
    case Type::BOOL:
      return bool(in);
    case Type::NULL_VALUE:
      break;
  }
  return nullptr;
}

void write_canonical(std::string& out, const json::value& value) {
  if (const auto* object = value.if_object()) {
    std::vector<const json::key_value_pair*> members;
    for (const auto& member : *object) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->key() < b->key(); });
    out += '{';
    for (const auto* member : members) {
      if (out.back() != '{') out += ',';
      out += json::serialize(json::string_view(member->key()));
      out += ':';
      write_canonical(out, member->value());
    }
    out += '}';
  } else if (const auto* array = value.if_array()) {
    out += '[';
    bool first = true;
    for (const auto& item : *array) {
      if (!first) out += ',';
      first = false;
      write_canonical(out, item);
    }
    out += ']';
  } else {
    out += json::serialize(value);
  }
}

void write_pretty(std::string& out, const json::value& value, std::size_t indent) {
  const auto newline = [&](std::size_t depth) { out.append(1, '\n').append(depth * 2, ' '); };
  if (const auto* object = value.if_object(); object && !object->empty()) {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : *object) {
      if (!first) out += ',';
      first = false;
      newline(indent + 1);
      out += json::serialize(json::string_view(key)) + ": ";
      write_pretty(out, member, indent + 1);
    }
    newline(indent);
    out += '}';
  } else if (const auto* array = value.if_array(); array && !array->empty()) {
    out += '[';
    bool first = true;
    for (const auto& item : *array) {
      if (!first) out += ',';
      first = false;
      newline(indent + 1);
      write_pretty(out, item, indent + 1);
    }
    newline(indent);
    out += ']';
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

json::value parse_json(std::string_view text) {
  thread_local simdjson::dom::parser kept;  // with its memory, unless a large document would make it hold much
  simdjson::dom::parser own;
  simdjson::dom::element root;
  if (!text.empty() &&  // simdjson copies from where empty text is, which may be nowhere
      (text.size() <= kKeptBytesMax ? kept : own).parse(text.data(), text.size()).get(root) == simdjson::SUCCESS)
    return to_value(root, 0);
  // Boost's parser says better what is wrong and where, and takes whole numbers of more than 64 bits.
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::stream_parser parser({}, options);
  json::error_code error;
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used < text.size() && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
    throw Error(Code::invalid, fmt::format("json: something follows the document at byte {}", used));
  if (!error) parser.finish(error);
  if (error) throw Error(Code::invalid, fmt::format("json: {} at byte {}", error.message(), used));
  return parser.release();
}

std::string canonical(const json::value& value) {
  std::string out;
  write_canonical(out, value);
  return out;
}

std::string pretty(const json::value& value) {
  std::string out;
  write_pretty(out, value, 0);
  return out;
}

}  // namespace falaj
