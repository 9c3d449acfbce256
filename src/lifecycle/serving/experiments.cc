// SPDX-License-Identifier: Apache-2.0
// variants compared by what became of their predictions, and shares that follow

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::serving {
namespace {

constexpr std::int64_t kBanditEveryUs = 60'000'000;

const resource::Authorise kByTheBandit = [](std::string_view, const iam::Scope&) {
  return std::optional<std::string>();
};

// What labels are counted for; while this stays the same the counts go on.
std::string counted_for(const EndpointSpec& spec, const traffic::Endpoint& planned, std::int64_t created_us) {
  std::string out;
  if (spec.experiment) out = fmt::format("{} against {}", spec.experiment->metric, spec.experiment->baseline);
  if (spec.canary && spec.canary->metric_drop_max) out += " canary " + canary_text(*spec.canary, planned);
  return fmt::format("{} of the endpoint made at {}", out, created_us);
}

}  // namespace

void Endpoints::count(const resource::Stored& stored, const EndpointSpec& spec) {
  if (!spec.experiment && !(spec.canary && spec.canary->metric_drop_max)) return;
  const auto endpoint = planned(stored);
  if (!endpoint) return;
  const auto rule = counted_for(spec, *endpoint, stored.created_us);
  const auto& metadata = stored.resource.metadata;
  const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
  parts_.predictions.count_for(where, metadata.name, rule, stored.at_us);
  for (const auto& report : reports())
    for (const auto& one : report.variants)
      if (one.tenant == metadata.tenant && one.project == metadata.project && one.endpoint == metadata.name)
        parts_.predictions.expose(where, metadata.name, one.variant, one.version, report.server, one.rows);
}

// Variants that answer, each by the version that it serves now.
std::vector<traffic::Arm> Endpoints::arms(const resource::Stored& stored, const EndpointSpec& spec,
                                          std::int64_t* since_us) {
  const auto& metadata = stored.resource.metadata;
  const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
  const auto counted = parts_.predictions.counted(where, metadata.name);
  if (since_us) *since_us = counted.since_us;
  const auto now = current();
  std::vector<traffic::Arm> out;
  for (const auto& endpoint : now.plan->endpoints) {
    if (endpoint.tenant != metadata.tenant || endpoint.project != metadata.project || endpoint.name != metadata.name)
      continue;
    for (const auto& variant : endpoint.variants) {
      const auto declared = std::find_if(spec.variants.begin(), spec.variants.end(),
                                         [&](const VariantSpec& v) { return v.name == variant.name; });
      if (variant.shadow || declared == spec.variants.end()) continue;
      traffic::Arm arm{variant.name, 0, {}};
      if (const auto found = counted.versions.find({variant.name, variant.version}); found != counted.versions.end()) {
        arm.exposures = found->second.exposures;
        arm.labels = found->second.labels;
      }
      out.push_back(std::move(arm));
    }
  }
  return out;
}

ExperimentSeen Endpoints::experiment(const Where& where, const std::string& endpoint) {
  const auto stored = parts_.resources.get({"Endpoint", where.tenant.str(), where.project.str(), endpoint});
  const auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
  if (!spec.experiment)
    throw Error(Code::conflict, fmt::format("endpoint {} has no experiment: declare spec.experiment, such as "
                                            "{{metric: conversion, baseline: {}}}",
                                            endpoint, spec.variants.front().name));
  count(stored, spec);
  ExperimentSeen out;
  out.rule = *spec.experiment;
  out.arms = traffic::look(out.rule, arms(stored, spec, &out.since_us));
  return out;
}

void Endpoints::follow_bandit(const resource::Stored& stored, EndpointSpec spec) {
  const auto scope = stored.resource.key().scope().str();
  const auto now = parts_.clock.wall().count();
  {
    Lock lock(mu_);
    auto& last = bandits_[scope];
    if (now - last < kBanditEveryUs) return;
    last = now;
  }
  const auto known = arms(stored, spec, nullptr);
  if (known.size() < 2) return;
  const auto shares = traffic::bandit_shares(*spec.experiment, known, static_cast<std::uint64_t>(now));
  double total = 0, given = 0;
  for (const auto& variant : spec.variants) total += variant.shadow ? 0 : variant.weight;
  for (const auto& [name, share] : shares) given += share;
  bool differs = false;
  std::string why = "bandit:";
  for (auto& variant : spec.variants) {
    const auto share = shares.find(variant.name);
    if (variant.shadow || share == shares.end()) continue;
    const double percent = 100 * share->second / given;
    differs |= std::abs(percent - 100 * variant.weight / total) >= 1;
    variant.weight = share->second;
    why += fmt::format("{} {} {:.0f} %", why.back() == ':' ? "" : ",", variant.name, percent);
  }
  if (!differs) return;
  log::info("bandit", {{"endpoint", scope}, {"why", why}});
  declare(stored, spec, {"system/bandit", "endpoint.bandit", scope, ""}, kByTheBandit, why);
}

}  // namespace falaj::serving
