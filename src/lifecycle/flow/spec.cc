// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/spec.h"

#include <algorithm>

namespace falaj::flow {

std::optional<Doing> doing(const StepSpec& step) {
  const std::optional<json::value> StepSpec::*const bodies[] = {
      &StepSpec::run,   &StepSpec::test, &StepSpec::train,   &StepSpec::sql,    &StepSpec::train_set, &StepSpec::ingest,
      &StepSpec::check, &StepSpec::gate, &StepSpec::promote, &StepSpec::deploy, &StepSpec::approve};
  static_assert(std::size(bodies) == std::size(kStepKinds));
  std::optional<Doing> out;
  for (std::size_t i = 0; i < std::size(bodies); ++i) {
    const auto& body = step.*bodies[i];
    if (!body) continue;
    if (out) return std::nullopt;
    out = Doing{kStepKinds[i], &*body};
  }
  return out;
}

bool is_word(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && text.size() <= 40 && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace falaj::flow
