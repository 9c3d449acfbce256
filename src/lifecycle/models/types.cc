// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/types.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/names.h"

namespace falaj::models {

namespace {

constexpr std::string_view kStageNames[] = {"None", "Staging", "Production", "Archived"};

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string_view name(Stage stage) { return kStageNames[static_cast<std::size_t>(stage)]; }

std::optional<Stage> parse_stage(std::string_view text) {
  const auto wanted = lower(text);
  for (std::size_t i = 0; i < std::size(kStageNames); ++i)
    if (lower(kStageNames[i]) == wanted) return static_cast<Stage>(i);
  return std::nullopt;
}

std::string artifact_uri(const Version& version) {
  return fmt::format("mlflow-artifacts:/{}/{}/{}", kVersionsRoot, version.model_row, version.number);
}

std::optional<VersionPath> parse_version_path(std::string_view after_root) {
  const auto first = after_root.find('/');
  if (first == std::string_view::npos) return std::nullopt;
  const auto second = after_root.find('/', first + 1);
  const auto row = after_root.substr(0, first);
  const auto number = after_root.substr(first + 1, second == std::string_view::npos ? second : second - first - 1);
  if (!is_digits(row) || !is_digits(number)) return std::nullopt;
  const auto row_value = parse_int(row), number_value = parse_int(number);
  if (!row_value || !number_value) return std::nullopt;
  return VersionPath{*row_value, *number_value,
                     second == std::string_view::npos ? "" : std::string(after_root.substr(second + 1))};
}

void check_model_name(std::string_view name) {
  if (trim(name).empty()) throw Error(Code::invalid, "name: a registered model needs one");
  track::check_length("name", name, kNameMax);
  const bool bad = std::any_of(name.begin(), name.end(),
                               [](unsigned char c) { return c == '/' || c == ':' || c < 0x20 || c == 0x7F; });
  if (bad || !is_utf8(name) || name.size() > kNameBytesMax)
    throw Error(Code::invalid, "name: a registered model's name has no '/', ':' or control characters");
  if (name == "." || name == "..") throw Error(Code::invalid, "name: '.' and '..' mean something elsewhere");
}

void check_alias(std::string_view alias) {
  track::check_length("alias", alias, kAliasMax);
  const bool good = !alias.empty() && is_utf8(alias) && std::all_of(alias.begin(), alias.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c >= 0x80;
  });
  if (!good) throw Error(Code::invalid, "alias: letters, digits, '_' and '-'");
  const auto folded = lower(alias);
  if (folded == "latest" || (folded.front() == 'v' && is_digits(std::string_view(folded).substr(1))))
    throw Error(Code::invalid, fmt::format("alias: 'latest' and 'v<number>' are reserved: '{}'", alias));
}

void check_tag(const KeyValue& tag) {
  track::check_key("key", tag.key);
  track::check_length("value", tag.value, kTagMax);
}

void check_description(std::string_view description) {
  track::check_length("description", description, kDescriptionMax);
}

}  // namespace falaj::models
