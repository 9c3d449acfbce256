// SPDX-License-Identifier: Apache-2.0
// what follows from what servers say: canaries that step or are rolled back, crashes that are taken back

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::serving {
namespace {

const resource::Authorise kByItself = [](std::string_view, const iam::Scope&) { return std::optional<std::string>(); };

traffic::CanaryState read_canary(const sql::Row& row) {
  return {row.integer(1), row.integer(2), row.integer(3), row.integer(4)};
}

}  // namespace

// The rule as it was when the step began, and the step. Another rule begins anew.
struct Endpoints::Canary {
  std::string rule;
  traffic::CanaryState state;
};

std::pair<traffic::Observed, traffic::Observed> Endpoints::observed(const resource::Metadata& metadata,
                                                                    const EndpointSpec& spec) const {
  const auto& variant = spec.canary->variant;
  std::pair<traffic::Observed, traffic::Observed> out;
  if (spec.canary->metric_drop_max) {
    const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
    const auto counted = parts_.predictions.counted(where, metadata.name);
    for (const auto& [of, sums] : counted.versions) {
      auto& labels = of.first == variant ? out.first.labels : out.second.labels;
      labels.count += sums.labels.count;
      labels.sum += sums.labels.sum;
      labels.sum_of_squares += sums.labels.sum_of_squares;
    }
  }
  for (const auto& report : reports())
    for (const auto& one : report.variants) {
      if (one.tenant != metadata.tenant || one.project != metadata.project || one.endpoint != metadata.name) continue;
      auto& sum = one.variant == variant ? out.first : out.second;
      sum.requests += one.requests;
      sum.failures += one.failures;
      sum.p99_us = std::max(sum.p99_us, one.p99_us);
      sum.broken |= one.state == "failed" || one.state == "quarantined";
      if (!spec.canary->shift_max || one.outputs.empty()) continue;
      try {
        traffic::merge_into(sum.outputs, traffic::decode_sketches(from_base64(one.outputs)));
      } catch (const Error& e) {
        log::warn("outputs_not_compared", {{"server", report.server}, {"why", e.what()}});
      }
    }
  return out;
}

// Gives the canary so many percent, and the rest to the others in proportion.
void Endpoints::set_share(const resource::Stored& stored, EndpointSpec spec, double percent, bool ends,
                          const std::string& why) {
  const auto name = spec.canary->variant;
  double others = 0, count = 0;
  for (const auto& variant : spec.variants)
    if (!variant.shadow && variant.name != name) others += variant.weight, ++count;
  for (auto& variant : spec.variants) {
    if (variant.shadow) continue;
    if (variant.name == name)
      variant.weight = percent;
    else
      variant.weight = (100 - percent) * (others > 0 ? variant.weight / others : 1 / count);
  }
  if (ends) spec.canary.reset();
  const auto scope = stored.resource.key().scope().str();
  log::info("canary", {{"endpoint", scope}, {"percent", percent}, {"why", why}});
  declare(stored, spec, {"system/canary", "endpoint.canary", scope, ""}, kByItself, why);
}

void Endpoints::watch_canary(const resource::Stored& stored, const EndpointSpec& spec) {
  using What = traffic::CanaryDecision::What;
  const auto& metadata = stored.resource.metadata;
  const auto& rule = *spec.canary;
  const auto text = json::serialize(encode(rule));
  const auto scope = stored.resource.key().scope().str();
  const auto now = parts_.clock.wall().count();
  const auto seen = observed(metadata, spec);
  const auto kept = parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT rule, step, since_us, requests, failures FROM serving_canary WHERE tenant = ? AND project = ? AND "
        "endpoint = ?",
        {metadata.tenant, metadata.project, metadata.name}, [](const sql::Row& row) {
          return Canary{std::string(row.text(0)), read_canary(row)};
        });
  });
  const auto keep = [&](std::int64_t step) {
    parts_.database.write({"system/canary", "endpoint.canary_step", scope, ""}, [&](sql::Writer& w) {
      w.execute("DELETE FROM serving_canary WHERE tenant = ? AND project = ? AND endpoint = ?",
                {metadata.tenant, metadata.project, metadata.name});
      if (step < 0) return;
      w.execute(
          "INSERT INTO serving_canary(tenant, project, endpoint, rule, step, since_us, requests, failures) VALUES (?, "
          "?, ?, ?, ?, ?, ?, ?)",
          {metadata.tenant, metadata.project, metadata.name, text, step, now, seen.first.requests,
           seen.first.failures});
    });
  };
  const auto share = [&](std::int64_t step) { return rule.steps[static_cast<std::size_t>(step)]; };
  if (!kept || kept->rule != text) {
    keep(0);
    set_share(stored, spec, share(0), false, fmt::format("canary {}: begins with {} %", rule.variant, share(0)));
    return;
  }
  const auto decision = traffic::decide(rule, kept->state, now, seen.first, seen.second);
  const auto next = kept->state.step + 1;
  switch (decision.what) {
    case What::wait:
      return;
    case What::advance:
      keep(next);
      set_share(stored, spec, share(next), false,
                fmt::format("canary {}: {} %, as {}", rule.variant, share(next), decision.why));
      return;
    // Forgotten first: a kill in between makes it begin anew, not go on where another ended.
    case What::promote:
      keep(-1);
      set_share(stored, spec, 100, true, fmt::format("canary {}: has taken over, as {}", rule.variant, decision.why));
      return;
    case What::roll_back:
      keep(-1);
      set_share(stored, spec, 0, true, fmt::format("canary {}: rolled back, as {}", rule.variant, decision.why));
      return;
  }
}

// Shares that were to change by now.
bool Endpoints::follow_schedule(const resource::Stored& stored, EndpointSpec spec) {
  const auto now = parts_.clock.wall().count();
  const auto at_us = [](const ScheduledShift& shift) { return parse_time(shift.at).value_or(0); };
  std::stable_sort(spec.schedule.begin(), spec.schedule.end(),
                   [&](const auto& a, const auto& b) { return at_us(a) < at_us(b); });
  std::string why;
  std::erase_if(spec.schedule, [&](const ScheduledShift& shift) {
    if (at_us(shift) > now) return false;
    for (auto& variant : spec.variants)
      if (const auto found = shift.weights.find(variant.name); found != shift.weights.end())
        variant.weight = found->second;
    why = "shares were to be shifted at " + shift.at;
    return true;
  });
  if (why.empty()) return false;
  const auto scope = stored.resource.key().scope().str();
  log::info("scheduled_shift", {{"endpoint", scope}, {"why", why}});
  declare(stored, spec, {"system/schedule", "endpoint.shift", scope, ""}, kByItself, why);
  return true;
}

// A version that took its server down answers nobody any more: what was served before does.
void Endpoints::rescue(const resource::Stored& stored) {
  const auto& metadata = stored.resource.metadata;
  const auto now = current();
  std::set<std::string> bad;
  std::string whom;
  for (const auto& endpoint : now.plan->endpoints) {
    if (endpoint.tenant != metadata.tenant || endpoint.project != metadata.project || endpoint.name != metadata.name)
      continue;
    for (const auto& report : reports())
      for (const auto& one : report.variants)
        for (const auto& variant : endpoint.variants)
          if (one.state == "quarantined" && one.tenant == metadata.tenant && one.project == metadata.project &&
              one.endpoint == metadata.name && one.variant == variant.name && one.version == variant.version &&
              !variant.shadow && variant.weight > 0) {
            bad.insert(variant.sha256);
            whom = variant.name;
          }
  }
  if (bad.empty()) return;
  const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
  for (const auto& past : history(where, metadata.name, kPastMax)) {
    const auto is_bad = [&](const traffic::Variant& v) { return bad.contains(v.sha256); };
    if (past.variants.empty() || std::any_of(past.variants.begin(), past.variants.end(), is_bad)) continue;
    const auto scope = stored.resource.key().scope().str();
    const auto why = fmt::format("back to state {}, as {} crashed its server", past.number, whom);
    log::warn("endpoint_rescued", {{"endpoint", scope}, {"why", why}});
    restore(where, metadata.name, past, {"system/serving", "endpoint.rollback", scope, ""}, kByItself, why);
    return;
  }
}

void Endpoints::watch() {
  resource::ListOptions options;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list("Endpoint", options, kByItself);
    for (const auto& stored : page.items) {
      const auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
      if (spec.stopped) continue;
      try {
        count(stored, spec);
        if (follow_schedule(stored, spec)) continue;  // it is another now: looked at again
        if (spec.canary)
          watch_canary(stored, spec);
        else
          rescue(stored);
        if (spec.experiment && spec.experiment->bandit) follow_bandit(stored, spec);
      } catch (const Error& e) {  // somebody changed it meanwhile: looked at again
        log::warn("endpoint_not_watched", {{"endpoint", stored.resource.key().scope().str()}, {"why", e.what()}});
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
}

}  // namespace falaj::serving
