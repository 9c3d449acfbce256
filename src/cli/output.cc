// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <algorithm>
#include <clocale>
#include <cmath>
#include <cwchar>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/base/yaml.h"

namespace falaj::cli {
namespace {

std::string shown(const json::value& value, Column::As as) {
  if (value.is_null()) return "-";
  if (value.is_uint64()) return shown(json::value(value.to_number<std::int64_t>()), as);
  if (const auto* number = value.if_int64()) {
    switch (as) {
      case Column::As::bytes:
        return *number < 0 ? "-" : format_bytes(static_cast<std::uint64_t>(*number));
      case Column::As::time:
        return *number == 0 ? "never" : format_time(*number);
      case Column::As::duration:
        return format_duration_us(*number);
      default:
        return std::to_string(*number);
    }
  }
  if (const auto* number = value.if_double()) {
    const bool small = *number != 0 && std::abs(*number) < 1;  // a share, a level: what there is of it counts
    return small ? fmt::format("{:.2g}", *number) : fmt::format("{:.1f}", *number);
  }
  if (const auto* text = value.if_string()) {
    if (text->empty()) return "-";
    return std::string(*text).substr(0, as == Column::As::digest ? 12 : std::string::npos);
  }
  if (const auto* list = value.if_array()) {
    std::vector<std::string> parts;
    for (const auto& item : *list) parts.push_back(shown(item, as));
    return parts.empty() ? "-" : join(parts, ", ");
  }
  if (const auto* object = value.if_object()) {
    std::vector<std::string> parts;
    for (const auto& [key, item] : *object)
      parts.push_back(fmt::format("{}={}", std::string_view(key), shown(item, as)));
    return parts.empty() ? "-" : join(parts, ", ");
  }
  return json::serialize(value);
}

void pad(std::string& line, std::string_view text, std::size_t width) {
  line += text;
  const std::size_t used = display_width(text);
  if (used < width) line.append(width - used, ' ');
}

}  // namespace

void Output::raw(std::string_view text) const { std::fwrite(text.data(), 1, text.size(), out_); }

void Output::line(std::string_view text) const {
  if (for_people()) raw(std::string(text) + "\n");
}

void Output::value(const json::value& value) const {
  raw(format_ == Format::yaml ? to_yaml(value) : pretty(value) + "\n");
}

void Output::table(const json::array& items, const std::vector<Column>& columns) const {
  if (!for_people()) return value(items);
  if (items.empty()) return line("none");
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& column : columns) rows[0].emplace_back(column.title);
  for (const auto& item : items) {
    auto& row = rows.emplace_back();
    for (const auto& column : columns) row.push_back(harmless(shown(at_path(item, column.path), column.as)));
  }
  std::vector<std::size_t> widths(columns.size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  for (const auto& row : rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      pad(text, row[i], i + 1 < row.size() ? widths[i] + 2 : 0);
    }
    line(text);
  }
}

void Output::details(const json::value& object, const std::vector<Column>& rows) const {
  if (!for_people()) return value(object);
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, display_width(row.title));
  for (const auto& row : rows) {
    std::string text;
    pad(text, row.title, width + 2);
    line(text + harmless(shown(at_path(object, row.path), row.as)));
  }
}

std::string harmless(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0)
      ++i;  // U+0080 to U+009F: ESC and a letter, in one character
    else if (byte >= 0x20 && byte != 0x7F) {
      out += text[i];
      continue;
    }
    out += '?';
  }
  return out;
}

const json::value& at_path(const json::value& value, std::string_view path) {
  static const json::value kNull;
  const json::value* at = &value;
  for (const auto key : split(path, '.')) {
    const auto* object = at->if_object();
    at = object ? object->if_contains(key) : nullptr;
    if (!at) return kNull;
  }
  return *at;
}

std::size_t display_width(std::string_view utf8) {
  static const bool kLocale = std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
  if (!kLocale) return utf8.size();
  std::mbstate_t state{};
  std::size_t width = 0;
  while (!utf8.empty()) {
    wchar_t c = 0;
    const std::size_t used = std::mbrtowc(&c, utf8.data(), utf8.size(), &state);
    if (used == 0 || used > utf8.size()) return width + utf8.size();
    width += static_cast<std::size_t>(std::max(0, wcwidth(c)));
    utf8.remove_prefix(used);
  }
  return width;
}

int exit_status(Code code) {
  switch (code) {
    case Code::internal:
    case Code::corrupt:
      return 1;
    case Code::invalid:
      return 2;
    case Code::not_found:
      return 3;
    case Code::exists:
    case Code::conflict:
      return 4;
    case Code::denied:
      return 5;
    case Code::unauthenticated:
      return 6;
    case Code::exhausted:
    case Code::unavailable:
      return 7;
    case Code::deadline:
      return 8;
    case Code::cancelled:
      return 9;
  }
  return 1;
}

}  // namespace falaj::cli
