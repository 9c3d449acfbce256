// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/keep_rules.h"

#include <algorithm>
#include <map>

#include "foundation/base/text.h"
#include "governance/resource/kinds/retention_policy.h"

namespace falaj::jobs {
namespace {

constexpr std::string_view kJobPath = "job/";

// What is behind "job/" in a pattern that speaks of jobs of the project.
std::optional<std::string> job_pattern(std::string_view pattern, const std::string& prefix) {
  if (!pattern.starts_with(prefix)) return std::nullopt;
  pattern.remove_prefix(prefix.size());
  if (!pattern.starts_with(kJobPath)) return std::nullopt;
  return std::string(pattern.substr(kJobPath.size()));
}

}  // namespace

std::vector<std::pair<Where, std::vector<KeepRule>>> keep_rules(resource::Resources& resources,
                                                                const iam::Snapshot& snapshot) {
  std::map<std::pair<std::string, std::string>, std::vector<KeepRule>> found;
  const auto add = [&](const std::string& tenant, const std::string& project, const std::string& prefix,
                       const resource::RetentionPolicySpec& spec) {
    KeepRule rule{{}, spec.keep_us};
    for (const auto& pattern : spec.resources)
      if (auto name = job_pattern(pattern, prefix)) rule.names.push_back(std::move(*name));
    if (!rule.names.empty()) found[{tenant, project}].push_back(std::move(rule));
  };
  if (!resources.registry().find("RetentionPolicy")) return {};
  resource::ListOptions options{"", "", "", "", 1000};
  do {
    const auto page =
        resources.list("RetentionPolicy", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) {
      const auto& m = stored.resource.metadata;
      const auto spec = decode<resource::RetentionPolicySpec>(stored.resource.spec, "retention policy");
      if (spec.then != "delete") continue;
      if (!m.project.empty()) {
        add(m.tenant, m.project, "", spec);
        continue;
      }
      for (const auto& entry : snapshot.all<iam::Project>())
        if (const auto& project = entry.second; project.tenant == m.tenant)
          add(m.tenant, project.name, "p/" + project.name + "/", spec);
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  std::vector<std::pair<Where, std::vector<KeepRule>>> out;
  for (auto& [key, rules] : found) out.push_back({Where{{key.first}, {key.second}}, std::move(rules)});
  return out;
}

bool is_due(const std::vector<KeepRule>& rules, const Record& record, std::int64_t now_us) {
  std::int64_t keep = -1;
  for (const auto& rule : rules)
    if (std::any_of(rule.names.begin(), rule.names.end(),
                    [&](const auto& pattern) { return matches_glob(pattern, record.name); }))
      keep = std::max(keep, rule.keep_us);
  return keep >= 0 && record.life.ended_us > 0 && record.life.ended_us + keep <= now_us;
}

}  // namespace falaj::jobs
