// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/source.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/types.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::models {

namespace {

constexpr std::string_view kRule =
    "source: mlflow-artifacts:/<experiment>/<run>/artifacts/<path>, "
    "mlflow-artifacts:/<experiment>/models/<model id>/artifacts, runs:/<run>/<path>, models:/<model id> or "
    "models:/<name>/<version>, of this project";

[[noreturn]] void refuse() { throw Error(Code::invalid, std::string(kRule)); }

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_run_id(std::string_view text) { return text.size() == 32 && is_hex(text); }
bool is_model_id(std::string_view text) { return text.starts_with("m-") && is_run_id(text.substr(2)); }

std::optional<std::int64_t> number_of(std::string_view text) {
  if (text.empty() || text.size() > 18 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return parse_int(text);
}

std::string rest_of(const std::vector<std::string_view>& parts, std::size_t from) {
  std::string path;
  for (std::size_t i = from; i < parts.size(); ++i) path += (i == from ? "" : "/") + std::string(parts[i]);
  return path;
}

// <experiment>/<run>/artifacts[/path] or <experiment>/models/<model id>/artifacts[/path]
Source of_artifacts(const std::vector<std::string_view>& parts) {
  Source source;
  if (parts.size() < 3) refuse();
  source.experiment = number_of(parts[0]);
  if (!source.experiment) refuse();
  if (is_run_id(parts[1]) && parts[2] == "artifacts") {
    source.id = parts[1];
    source.path = rest_of(parts, 3);
  } else if (parts.size() >= 4 && parts[1] == "models" && is_model_id(parts[2]) && parts[3] == "artifacts") {
    source.kind = Source::Kind::logged_model;
    source.id = parts[2];
    source.path = rest_of(parts, 4);
  } else {
    refuse();
  }
  return source;
}

}  // namespace

Source parse_source(std::string_view text) {
  if (text.size() > kSourceMax) refuse();
  const auto colon = text.find(":/");
  if (colon == std::string_view::npos) refuse();
  const auto scheme = text.substr(0, colon);
  const auto path = track::checked_artifact_path(text.substr(colon + 2));  // no host: "//host" is not relative
  const auto parts = split(path, '/');
  if (scheme == "mlflow-artifacts") return of_artifacts(parts);
  if (scheme == "runs") {
    if (!is_run_id(parts[0])) refuse();
    return {Source::Kind::run, std::string(parts[0]), {}, 0, rest_of(parts, 1)};
  }
  if (scheme == "models") {
    if (parts.size() == 1 && is_model_id(parts[0]))
      return {Source::Kind::logged_model, std::string(parts[0]), {}, 0, ""};
    if (parts.size() == 2)
      if (const auto number = number_of(parts[1]))
        return {Source::Kind::version, std::string(parts[0]), {}, *number, ""};
  }
  refuse();
}

}  // namespace falaj::models
