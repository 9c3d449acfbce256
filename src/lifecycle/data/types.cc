// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/types.h"

namespace falaj::data {

table::Schema DatasetSpec::schema() const {
  table::Schema out;
  for (const auto& column : columns) {
    const auto type = table::parse_type(column.type);
    CHECK(type, "a spec that was decoded has known types");
    out.push_back({column.name, *type, column.nullable});
  }
  return out;
}

std::string_view name(Mode mode) { return mode == Mode::append ? "append" : "overwrite"; }

std::optional<Mode> parse_mode(std::string_view name) {
  if (name == "append") return Mode::append;
  if (name == "overwrite") return Mode::overwrite;
  return std::nullopt;
}

std::string_view name(Format format) {
  switch (format) {
    case Format::csv:
      return "csv";
    case Format::jsonl:
      return "jsonl";
    case Format::parquet:
      return "parquet";
  }
  return "";
}

std::optional<Format> parse_format(std::string_view name) {
  for (const auto format : {Format::csv, Format::jsonl, Format::parquet})
    if (data::name(format) == name) return format;
  return std::nullopt;
}

}  // namespace falaj::data
