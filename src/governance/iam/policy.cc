// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/policy.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::iam {
namespace {

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches_glob(p, text); });
}

bool speaks_of(const Rule& rule, std::string_view action, std::string_view resource) {
  return matches_any(rule.actions, action) && !matches_any(rule.except, action) &&
         matches_any(rule.resources, resource);
}

// Lets maps keyed by std::string be asked with views, without making a string.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

std::vector<Role> make_built_in_roles() {
  // Who may do what, and how much of it, is for administrators to declare.
  const std::vector<std::string> administered = {
      "tenant.*",        "project.*", "zone.*",           "role.*",        "rolebinding.*",
      "user.*",          "group.*",   "serviceaccount.*", "quota.*",       "retentionpolicy.*",
      "transfergrant.*", "token.*",   "session.*",        "certificate.*", "key.*",
      "audit.*",         "backup.*"};
  const std::vector<std::string> confidential = {"audit.*",       "secret.*", "token.*", "session.*",
                                                 "certificate.*", "key.*",    "backup.*"};
  const Rule read{Effect::allow, {"*.read", "*.list"}, confidential, {"*"}};
  const Rule make{Effect::allow, {"*.create", "*.update", "*.write"}, administered, {"*"}};
  const Rule run{
      Effect::allow, {"*.delete", "*.run", "*.cancel", "*.maintain", "*.gc", "*.scrub"}, administered, {"*"}};
  const Rule call{Effect::allow, {"endpoint.infer", "endpoint.label"}, {}, {"*"}};
  const Rule back_up{Effect::allow, {"backup.create", "backup.read", "backup.list", "backup.run"}, {}, {"*"}};
  const Rule inspect{Effect::allow, {"audit.*", "*.read", "*.list"}, {"secret.*", "key.*"}, {"*"}};
  return {{"viewer", {read}},
          {"caller", {call}},
          {"server", {{Effect::allow, {"serving.follow"}, {}, {"*"}}}},
          {"developer", {read, make, call}},
          {"operator", {read, make, run, call, back_up}},
          {"auditor", {inspect}},
          {"admin", {{Effect::allow, {"*"}, {}, {"*"}}}}};
}

}  // namespace

std::span<const Role> built_in_roles() {
  static const std::vector<Role> roles = make_built_in_roles();
  return roles;
}

bool is_built_in_role(std::string_view name) {
  const auto roles = built_in_roles();
  return std::any_of(roles.begin(), roles.end(), [&](const Role& r) { return r.name == name; });
}

struct Policy::Index {
  struct Grant {
    const Binding* binding;
    const Role* role;  // null when the binding names a role that does not exist
  };
  struct Held {
    TextMap<std::vector<Grant>> by_scope;
    bool may_forbid = false;  // most subjects hold no rule that forbids: the first pass is then skipped
  };
  TextMap<Held> by_subject;
};

Policy::Policy(std::vector<Role> roles, std::vector<Binding> bindings)
    : roles_(std::move(roles)), bindings_(std::move(bindings)), index_(std::make_unique<Index>()) {
  const auto built_in = built_in_roles();
  roles_.insert(roles_.end(), built_in.begin(), built_in.end());
  TextMap<const Role*> by_name;
  for (const auto& role : roles_) by_name[role.name] = &role;  // a built-in role keeps its name
  for (const auto& binding : bindings_) {
    const auto found = by_name.find(binding.role);
    const Role* role = found == by_name.end() ? nullptr : found->second;
    const bool may_forbid = !role || std::any_of(role->rules.begin(), role->rules.end(),
                                                 [](const Rule& r) { return r.effect == Effect::forbid; });
    for (const auto& subject : binding.subjects) {
      auto& held = index_->by_subject[subject];
      held.by_scope[binding.scope.str()].push_back({&binding, role});
      held.may_forbid |= may_forbid;
    }
  }
}

Policy::~Policy() = default;

Decision decide(const Policy& policy, const Principal& principal, std::string_view action, const Scope& resource) {
  using Held = Policy::Index::Held;
  const auto& by_subject = policy.index_->by_subject;
  const auto chain = resource.chain();

  // The first binding among those `held` that speaks with `effect`.
  const auto find = [&](const Held& held, Effect effect) -> const Binding* {
    for (const auto scope : chain) {
      const auto grants = held.by_scope.find(scope);
      if (grants == held.by_scope.end()) continue;
      const auto below = relative(scope, resource.str());
      for (const auto& grant : grants->second) {
        if (!grant.role) {
          if (effect == Effect::forbid) return grant.binding;  // what it was meant to forbid is unknown
          continue;
        }
        for (const auto& rule : grant.role->rules)
          if (rule.effect == effect && speaks_of(rule, action, below)) return grant.binding;
      }
    }
    return nullptr;
  };
  const auto held_by = [&](std::string_view subject) -> const Held* {
    const auto found = by_subject.find(subject);
    return found == by_subject.end() ? nullptr : &found->second;
  };

  const Held* own = held_by(principal.str());
  const Binding* allowing = nullptr;
  const auto consult = [&](const Held* held) -> const Binding* {  // returns what forbids
    if (!held) return nullptr;
    if (held->may_forbid)
      if (const auto* binding = find(*held, Effect::forbid)) return binding;
    if (!allowing) allowing = find(*held, Effect::allow);
    return nullptr;
  };
  if (const auto* forbidding = consult(own)) return {false, forbidding};
  for (const auto& group : principal.groups)
    if (const auto* forbidding = consult(held_by(group))) return {false, forbidding};
  return {allowing != nullptr, allowing};
}

std::string explain(const Decision& decision, const Principal& principal, std::string_view action,
                    const Scope& resource) {
  if (!decision.by) return fmt::format("no role grants {} on {} to {}", action, resource.str(), principal.str());
  return fmt::format("role {} (binding {} at {}) {} {} on {} to {}", decision.by->role, decision.by->name,
                     decision.by->scope.str(), decision.allowed ? "allows" : "forbids", action, resource.str(),
                     principal.str());
}

bool admits(std::span<const Restriction> restrictions, std::string_view action, const Scope& resource) {
  return restrictions.empty() || std::any_of(restrictions.begin(), restrictions.end(), [&](const Restriction& r) {
           return r.scope.contains(resource) && matches_any(r.actions, action);
         });
}

}  // namespace falaj::iam
