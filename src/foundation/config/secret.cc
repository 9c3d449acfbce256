// SPDX-License-Identifier: Apache-2.0
#include "foundation/config/secret.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::config {
namespace {
constexpr std::string_view kFile = "file:";
constexpr std::string_view kVariable = "env:";
}  // namespace

bool is_secret_reference(std::string_view text) {
  return (text.starts_with(kFile) && text.size() > kFile.size()) ||
         (text.starts_with(kVariable) && text.size() > kVariable.size());
}

std::string resolve_secret(std::string_view reference, const std::vector<std::string>& environment,
                           const std::function<std::string(const std::string& path)>& read_file) {
  // The text itself may be a secret somebody pasted in: it is not shown.
  if (!is_secret_reference(reference))
    throw Error(Code::invalid, "reading a secret: a reference file:PATH or env:NAME expected");
  if (reference.starts_with(kFile)) {
    std::string secret = read_file(std::string(reference.substr(kFile.size())));
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    return secret;
  }
  const std::string name = fmt::format("{}=", reference.substr(kVariable.size()));
  for (const auto& variable : environment)
    if (variable.starts_with(name)) return variable.substr(name.size());
  throw Error(Code::not_found, fmt::format("reading a secret: not set: {}", reference));
}

}  // namespace falaj::config
