// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::cli {

enum class Format { table, json, yaml };

// One column of a table: its title and where the value stands in each item ("metadata.name").
struct Column {
  std::string_view title;
  std::string_view path;
  enum class As { text, bytes, time, duration, digest } as = As::text;
};

// Where answers go. With -o json or yaml the server's answer is printed as it is; else a table or "key: value" lines.
class Output {
 public:
  Output(std::FILE* out, Format format) : out_(out), format_(format) {}
  Format format() const { return format_; }
  bool for_people() const { return format_ == Format::table; }

  void value(const json::value& value) const;  // json or yaml
  void table(const json::array& items, const std::vector<Column>& columns) const;
  void details(const json::value& object, const std::vector<Column>& rows) const;
  void line(std::string_view text) const;  // only for people; nothing otherwise
  void raw(std::string_view text) const;

 private:
  std::FILE* out_;
  Format format_;
};

// The value at "a.b.c", or null.
const json::value& at_path(const json::value& value, std::string_view path);
// The text with '?' for each control character: what others named must not drive the reader's terminal.
std::string harmless(std::string_view text);
// Counts columns of a terminal, so that names in any script line up.
std::size_t display_width(std::string_view utf8);

// What a program ends with for each code; also in docs/guide/cli.md.
int exit_status(Code code);

}  // namespace falaj::cli
