// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "governance/iam/principal.h"
#include "governance/iam/scope.h"

namespace falaj::iam {

// Whether a principal may do something: a function of values. Nothing is allowed unless a rule allows it, a rule that
// forbids wins over every rule that allows, and what cannot be decided is denied.

enum class Effect { allow, forbid };

// In patterns '*' stands for any run of characters, '/' and '.' included.
struct Rule {
  Effect effect = Effect::allow;
  std::vector<std::string> actions;            // "project.read", "blob.*", "*.list", "*"
  std::vector<std::string> except;             // actions the rule does not speak of after all
  std::vector<std::string> resources = {"*"};  // paths relative to the scope of the binding: "blob/raw-*", "p/flights*"
  friend bool operator==(const Rule&, const Rule&) = default;
};

struct Role {
  std::string name;  // "viewer" of the platform, "acme/curator" of a tenant
  std::vector<Rule> rules;
  friend bool operator==(const Role&, const Role&) = default;
};

// Gives a role to subjects, for a scope and everything below it.
struct Binding {
  std::string name;
  std::string role;
  std::vector<std::string> subjects;  // as is_subject
  Scope scope;
  friend bool operator==(const Binding&, const Binding&) = default;
};

// viewer, caller (of endpoints), server (that serves them), developer, operator, auditor, admin. None of them forbids,
// so holding two never takes anything away.
std::span<const Role> built_in_roles();
bool is_built_in_role(std::string_view name);

// Roles and bindings indexed by subject and scope. Immutable, so any number of threads may ask it.
class Policy {
 public:
  Policy(std::vector<Role> roles, std::vector<Binding> bindings);  // besides the built-in roles
  ~Policy();
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  const std::vector<Role>& roles() const { return roles_; }  // the built-in ones included
  const std::vector<Binding>& bindings() const { return bindings_; }

 private:
  friend struct Decision decide(const Policy&, const Principal&, std::string_view, const Scope&);
  struct Index;
  std::vector<Role> roles_;
  std::vector<Binding> bindings_;
  std::unique_ptr<Index> index_;
};

// The answer, and the binding that gave it (of the Policy asked; nothing when no rule speaks).
struct Decision {
  bool allowed = false;
  const Binding* by = nullptr;
};

Decision decide(const Policy& policy, const Principal& principal, std::string_view action, const Scope& resource);

// "role viewer (binding all-read at /t/acme) allows blob.read on /t/acme/p/flights to user/ada",
// "no role grants blob.write on /t/acme/p/flights to user/ada".
std::string explain(const Decision& decision, const Principal& principal, std::string_view action,
                    const Scope& resource);

// A token may be worth less than its principal: then at least one of its restrictions must admit the action as well.
struct Restriction {
  std::vector<std::string> actions = {"*"};
  Scope scope;
  friend bool operator==(const Restriction&, const Restriction&) = default;
};
bool admits(std::span<const Restriction> restrictions, std::string_view action, const Scope& resource);

}  // namespace falaj::iam
