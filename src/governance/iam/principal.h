// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace falaj::iam {

// Who asks. A user is a person, a service an account for a program, a workload one job while it runs, a certificate a
// machine known by its TLS certificate only.
struct Principal {
  enum class Kind { user, service, workload, certificate };
  Kind kind = Kind::user;
  std::string name;
  std::string tenant;               // "" = of the platform
  std::vector<std::string> groups;  // as subjects: "group/acme/ml"

  // "user/ada", "service/acme/ci": how bindings, tokens and the audit log name it.
  std::string str() const;
  // Reads str() back, without groups; throws invalid.
  static Principal parse(std::string_view text);
  friend bool operator==(const Principal&, const Principal&) = default;
};
std::string_view name(Principal::Kind kind);

// Whom a binding may name: a principal as above, or a group ("group/ops", "group/acme/ml").
bool is_subject(std::string_view text);
inline constexpr std::string_view kSubjectRule =
    "user/NAME, service/NAME, certificate/NAME or group/NAME, with TENANT/ before the name when it belongs to one";

}  // namespace falaj::iam
