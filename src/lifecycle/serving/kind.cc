// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/serving/kind.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::serving {
namespace {

void check_variant(const VariantSpec& variant, const std::string& at, Faults& faults) {
  if (variant.version.has_value() == !variant.alias.empty())
    faults.push_back({at, "needs either a version or an alias"});
  if (variant.shadow && variant.match)
    faults.push_back({at + ".match", "a shadow answers nobody, so nothing is for it"});
}

void check_canary(const EndpointSpec& spec, const traffic::CanaryRule& canary, Faults& faults) {
  const auto same = [&](const VariantSpec& v) { return v.name == canary.variant && !v.shadow; };
  if (std::none_of(spec.variants.begin(), spec.variants.end(), same))
    faults.push_back({"spec.canary.variant", fmt::format("there is no variant '{}' that answers", canary.variant)});
  double before = 0;
  for (const auto step : canary.steps) {
    if (step <= before || step > 100) faults.push_back({"spec.canary.steps", "must grow, up to 100"});
    before = step;
  }
  if (canary.steps.empty() || canary.steps.back() != 100)
    faults.push_back({"spec.canary.steps", "the last must be 100: then it has taken over"});
}

void check_experiment(const EndpointSpec& spec, const traffic::ExperimentRule& rule, Faults& faults) {
  const auto same = [&](const VariantSpec& v) { return v.name == rule.baseline && !v.shadow; };
  if (std::none_of(spec.variants.begin(), spec.variants.end(), same))
    faults.push_back({"spec.experiment.baseline", fmt::format("there is no variant '{}' that answers", rule.baseline)});
  if (!(rule.effect > 0)) faults.push_back({"spec.experiment.effect", "must be more than 0"});
  if (!(rule.confidence >= 0.5) || !(rule.confidence < 1))
    faults.push_back({"spec.experiment.confidence", "must be at least 0.5 and less than 1, such as 0.95"});
  if (rule.bandit && spec.canary)
    faults.push_back({"spec.experiment.bandit", "a canary and a bandit would both set the shares: one of them"});
}

void check_schedule(const EndpointSpec& spec, Faults& faults) {
  for (std::size_t i = 0; i < spec.schedule.size(); ++i) {
    const auto at = fmt::format("spec.schedule[{}]", i);
    if (!parse_time(spec.schedule[i].at))
      faults.push_back(
          {at + ".at", fmt::format("must be a time such as 2026-12-01T08:00:00Z, not '{}'", spec.schedule[i].at)});
    for (const auto& [name, weight] : spec.schedule[i].weights) {
      const auto same = [&, called = name](const VariantSpec& v) { return v.name == called && !v.shadow; };
      if (std::none_of(spec.variants.begin(), spec.variants.end(), same))
        faults.push_back({at + ".weights", fmt::format("there is no variant '{}' that answers", name)});
      if (!(weight >= 0) || weight > 1'000'000)
        faults.push_back({at + ".weights", fmt::format("{}: must be from 0 to 1000000", name)});
    }
  }
}

void check_endpoint(const resource::World&, const resource::Metadata& metadata, const EndpointSpec& spec,
                    Faults& faults) {
  std::set<std::string> names;
  bool answers = false;
  for (std::size_t i = 0; i < spec.variants.size(); ++i) {
    const auto& variant = spec.variants[i];
    const auto at = fmt::format("spec.variants[{}]", i);
    if (!names.insert(variant.name).second)
      faults.push_back({at + ".name", fmt::format("'{}' is there twice", variant.name)});
    check_variant(variant, at, faults);
    answers |= !variant.shadow && variant.weight > 0;
  }
  if (!answers) faults.push_back({"spec.variants", "one that is no shadow must have a weight above 0"});
  if (spec.canary) check_canary(spec, *spec.canary, faults);
  if (spec.experiment) check_experiment(spec, *spec.experiment, faults);
  check_schedule(spec, faults);
  if ((spec.log || spec.experiment) && metadata.name.size() > kLoggedNameMax)
    faults.push_back({"metadata.name", fmt::format("an endpoint with a log or an experiment has at most {} characters, "
                                                   "as its datasets are called after it",
                                                   kLoggedNameMax)});
  if (!spec.sticky.empty() && !spec.sticky.starts_with("header:") && !spec.sticky.starts_with("input:"))
    faults.push_back({"spec.sticky", "must be header:NAME or input:NAME"});
}

std::vector<resource::Reference> service_of(const resource::World&, const resource::Metadata& metadata,
                                            const EndpointSpec& spec) {
  if (!spec.features) return {};
  return {{{"FeatureService", metadata.tenant, metadata.project, spec.features->service}, "spec.features.service"}};
}

}  // namespace

resource::Kind endpoint_kind() {
  return resource::make_kind(resource::KindOf<EndpointSpec>{"Endpoint",
                                                            "endpoints",
                                                            "Models behind one address, and how they share it.",
                                                            {.project = true},
                                                            check_endpoint,
                                                            service_of,
                                                            {}});
}

}  // namespace falaj::serving
