// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/prediction.h"

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::traffic {
namespace {

constexpr std::size_t kPredictionNameMax = 200;

[[noreturn]] void refuse_name(std::string_view text) {
  throw Error(Code::invalid, fmt::format("not the name of a prediction: '{}'; answers say it as x-falaj-prediction-id",
                                         is_utf8(text) ? text.substr(0, kPredictionNameMax) : "(no text)"));
}

}  // namespace

std::string format_prediction(const PredictionName& name) {
  auto out = fmt::format("{}:{}:{}:{}", format_id(name.id), name.variant, name.version, name.revision);
  if (name.row > 0) out += fmt::format(":{}", name.row);
  return out;
}

PredictionName parse_prediction(std::string_view text) {
  if (text.size() > kPredictionNameMax) refuse_name(text);
  const auto parts = split(text, ':');
  if (parts.size() < 4 || parts.size() > 5) refuse_name(text);
  PredictionName out;
  try {
    out.id = parse_id(parts[0]);
  } catch (const Error&) {
    refuse_name(text);
  }
  out.variant = parts[1];
  const auto version = parse_int(parts[2]), revision = parse_int(parts[3]);
  const auto row = parts.size() == 5 ? parse_int(parts[4]) : std::optional<std::int64_t>(0);
  if (!is_name(out.variant) || !version || *version < 0 || !revision || *revision < 0 || !row || *row < 0)
    refuse_name(text);
  out.version = *version;
  out.revision = *revision;
  out.row = *row;
  if (format_prediction(out) != text) refuse_name(text);  // one spelling each: a name is what labels are known by
  return out;
}

}  // namespace falaj::traffic
