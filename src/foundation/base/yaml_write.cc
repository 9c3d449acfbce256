// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/yaml.h"

namespace falaj {
namespace {

// The reader takes "key:" only when the key is this near; longer ones are written as "? key".
constexpr std::size_t kShortKeyBytes = 500;

// Letters first and nothing that YAML reads as syntax or as anything but text: few forms, all certain.
bool is_plain(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inside = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || std::string_view("_-./@+=*").find(c) != std::string_view::npos;
  };
  if (text.empty() || text.size() > 200 || (!letter(text[0]) && text[0] != '/' && text[0] != '_')) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool single_space = text[i] == ' ' && i + 1 < text.size() && text[i + 1] != ' ';
    if (!inside(text[i]) && !single_space) return false;
  }
  for (const std::string_view word : {"null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE",
                                      "yes",  "Yes",  "YES",  "no",   "No",   "NO",   "on",    "On",    "ON",
                                      "off",  "Off",  "OFF",  "y",    "Y",    "n",    "N"})  // the last two lines for
                                                                                             // readers of YAML 1.1
    if (text == word) return false;
  return true;
}

std::string text_scalar(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
          out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  return out + '"';
}

std::string scalar(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return text_scalar(value.get_string());
    case json::kind::array:
      return "[]";
    case json::kind::object:
      return "{}";
    case json::kind::double_: {
      CHECK(std::isfinite(value.get_double()), "JSON numbers are finite");
      std::string out = fmt::format("{}", value.get_double());
      if (out.find_first_of(".e") == std::string::npos) out += ".0";  // or it would come back as a whole number
      return out;
    }
    default:
      return json::serialize(value);
  }
}

bool is_block(const json::value& value) {
  if (const auto* object = value.if_object()) return !object->empty();
  const auto* array = value.if_array();
  return array && !array->empty();
}

// Writes a block whose first line stands where `out` ends, after `indent` columns.
void write_block(std::string& out, const json::value& value, std::size_t indent) {
  bool first = true;
  const auto begin_line = [&] {
    if (!first) out.append(indent, ' ');
    first = false;
  };
  const auto write_below = [&](const json::value& item) {
    out.append("\n").append(indent + 2, ' ');
    write_block(out, item, indent + 2);
  };
  if (const auto* object = value.if_object()) {
    for (const auto& [key, item] : *object) {
      begin_line();
      const std::string name = text_scalar(key);
      if (name.size() > kShortKeyBytes) {
        out.append("? ").append(name).append("\n").append(indent, ' ');
        out += ":";
      } else {
        out += name + ":";
      }
      if (is_block(item))
        write_below(item);
      else
        out += " " + scalar(item) + "\n";
    }
    return;
  }
  for (const auto& item : value.get_array()) {
    begin_line();
    out += "- ";
    if (is_block(item))
      write_block(out, item, indent + 2);
    else
      out += scalar(item) + "\n";
  }
}

}  // namespace

std::string to_yaml(const json::value& value) {
  if (!is_block(value)) return scalar(value) + "\n";
  std::string out;
  write_block(out, value, 0);
  return out;
}

}  // namespace falaj
