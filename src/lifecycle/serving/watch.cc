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

bool is_of(const traffic::Endpoint& endpoint, const VariantReport& one) {
  return one.tenant == endpoint.tenant && one.project == endpoint.project && one.endpoint == endpoint.name;
}

bool is_planned(const traffic::Endpoint& endpoint, const VariantReport& one) {
  return std::any_of(endpoint.variants.begin(), endpoint.variants.end(),
                     [&](const traffic::Variant& v) { return v.name == one.variant && v.version == one.version; });
}

}  // namespace

std::string canary_text(const traffic::CanaryRule& rule, const traffic::Endpoint& planned) {
  std::int64_t version = 0;
  for (const auto& variant : planned.variants)
    if (variant.name == rule.variant) version = variant.version;
  return fmt::format("{} of version {}", json::serialize(encode(rule)), version);
}

// The rule as it was when the step began, for which version, the step, and what servers had counted by then. Another
// rule or version begins anew.
struct Endpoints::Canary {
  std::string rule;
  traffic::CanaryState state;
  std::vector<traffic::Tally> began;
};

// The endpoint in the plan as it is declared now; nothing while the plan is still that of an earlier revision.
std::optional<traffic::Endpoint> Endpoints::planned(const resource::Stored& stored) {
  const auto& metadata = stored.resource.metadata;
  const auto now = current();
  for (const auto& endpoint : now.plan->endpoints)
    if (endpoint.tenant == metadata.tenant && endpoint.project == metadata.project && endpoint.name == metadata.name &&
        endpoint.revision == stored.revision)
      return endpoint;
  return std::nullopt;
}

// Of the versions that are meant to be served: servers that have not followed yet speak of others.
std::vector<traffic::Tally> Endpoints::tallies(const traffic::Endpoint& endpoint) const {
  std::vector<traffic::Tally> out;
  for (const auto& report : reports())
    for (const auto& one : report.variants)
      if (is_of(endpoint, one) && is_planned(endpoint, one))
        out.push_back({report.server, one.variant, one.version, one.requests, one.failures, one.latency});
  return out;
}

std::pair<traffic::Observed, traffic::Observed> Endpoints::observed(const traffic::Endpoint& endpoint,
                                                                    const traffic::CanaryRule& rule,
                                                                    const traffic::Tallies& began) const {
  std::pair<traffic::Observed, traffic::Observed> out;
  const auto side = [&](const std::string& variant) -> traffic::Observed& {
    return variant == rule.variant ? out.first : out.second;
  };
  if (rule.metric_drop_max) {
    const Where where{TenantName::parse(endpoint.tenant), ProjectName::parse(endpoint.project)};
    const auto counted = parts_.predictions.counted(where, endpoint.name);
    for (const auto& variant : endpoint.variants) {
      const auto found = counted.versions.find({variant.name, variant.version});
      if (found == counted.versions.end()) continue;
      auto& labels = side(variant.name).labels;
      labels.count += found->second.labels.count;
      labels.sum += found->second.labels.sum;
      labels.sum_of_squares += found->second.labels.sum_of_squares;
    }
  }
  for (const auto& tally : tallies(endpoint)) began.add_growth(side(tally.variant).counted, tally);
  for (const auto& report : reports())
    for (const auto& one : report.variants) {
      if (!is_of(endpoint, one) || !is_planned(endpoint, one)) continue;
      auto& sum = side(one.variant);
      sum.broken |= one.state == "failed" || one.state == "quarantined";
      if (!rule.shift_max || one.outputs.empty()) continue;
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

std::optional<Endpoints::Canary> Endpoints::kept_canary(const resource::Metadata& metadata) const {
  return parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT rule, step, since_us, others_p99_us, began FROM serving_canary_step WHERE tenant = ? AND project = ? "
        "AND endpoint = ?",
        {metadata.tenant, metadata.project, metadata.name}, [](const sql::Row& row) {
          return Canary{std::string(row.text(0)),
                        {row.integer(1), row.integer(2), static_cast<double>(row.integer(3))},
                        decode<std::vector<traffic::Tally>>(parse_json(row.text(4)), "what a canary began with")};
        });
  });
}

// Nothing: there is none any more.
void Endpoints::keep_canary(const resource::Stored& stored, const std::optional<Canary>& canary) {
  const auto& metadata = stored.resource.metadata;
  const auto scope = stored.resource.key().scope().str();
  parts_.database.write({"system/canary", "endpoint.canary_step", scope, ""}, [&](sql::Writer& w) {
    w.execute("DELETE FROM serving_canary_step WHERE tenant = ? AND project = ? AND endpoint = ?",
              {metadata.tenant, metadata.project, metadata.name});
    if (!canary) return;
    w.execute(
        "INSERT INTO serving_canary_step(tenant, project, endpoint, rule, step, since_us, others_p99_us, began) VALUES "
        "(?, ?, ?, ?, ?, ?, ?, ?)",
        {metadata.tenant, metadata.project, metadata.name, canary->rule, canary->state.step, canary->state.since_us,
         static_cast<std::int64_t>(canary->state.others_p99_us), json::serialize(encode(canary->began))});
  });
}

void Endpoints::watch_canary(const resource::Stored& stored, const EndpointSpec& spec) {
  using What = traffic::CanaryDecision::What;
  const auto endpoint = planned(stored);
  const auto& rule = *spec.canary;
  const auto is_it = [&](const traffic::Variant& v) { return v.name == rule.variant; };
  if (!endpoint || std::none_of(endpoint->variants.begin(), endpoint->variants.end(), is_it)) return;  // not yet
  const auto text = canary_text(rule, *endpoint);
  const auto now = parts_.clock.wall().count();
  const auto share = [&](std::int64_t step) { return rule.steps[static_cast<std::size_t>(step)]; };
  auto kept = kept_canary(stored.resource.metadata);
  if (!kept || kept->rule != text) {
    const auto before = observed(*endpoint, rule, traffic::Tallies({})).second;
    keep_canary(stored, Canary{text, {0, now, traffic::others_p99_us(rule, {}, before)}, tallies(*endpoint)});
    set_share(stored, spec, share(0), false, fmt::format("canary {}: begins with {} %", rule.variant, share(0)));
    return;
  }
  meet_servers(stored, *endpoint, *kept);
  const auto seen = observed(*endpoint, rule, traffic::Tallies(kept->began));
  const auto decision = traffic::decide(rule, kept->state, now, seen.first, seen.second);
  const auto next = kept->state.step + 1;
  switch (decision.what) {
    case What::wait:
      return;
    case What::advance:
      keep_canary(
          stored,
          Canary{text, {next, now, traffic::others_p99_us(rule, kept->state, seen.second)}, tallies(*endpoint)});
      set_share(stored, spec, share(next), false,
                fmt::format("canary {}: {} %, as {}", rule.variant, share(next), decision.why));
      return;
    // Forgotten first: a kill in between makes it begin anew, not go on where another ended.
    case What::promote:
      keep_canary(stored, std::nullopt);
      set_share(stored, spec, 100, true, fmt::format("canary {}: has taken over, as {}", rule.variant, decision.why));
      return;
    case What::roll_back:
      keep_canary(stored, std::nullopt);
      set_share(stored, spec, 0, true, fmt::format("canary {}: rolled back, as {}", rule.variant, decision.why));
      return;
  }
}

// What a server counted before it was first heard of, as after a start of ours, is not of this step.
void Endpoints::meet_servers(const resource::Stored& stored, const traffic::Endpoint& endpoint, Canary& canary) {
  const traffic::Tallies known(canary.began);
  bool met = false;
  for (auto& tally : tallies(endpoint)) {
    if (known.knows_server(tally.server)) continue;
    canary.began.push_back(std::move(tally));
    met = true;
  }
  if (met) keep_canary(stored, canary);
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

// A version that took its server down answers nobody any more: what was served before does. A canary that did is taken
// back by its own rule.
bool Endpoints::rescue(const resource::Stored& stored, const EndpointSpec& spec) {
  const auto& metadata = stored.resource.metadata;
  const auto endpoint = planned(stored);
  if (!endpoint) return false;
  std::set<std::string> bad;
  std::string whom;
  for (const auto& report : reports())
    for (const auto& one : report.variants)
      for (const auto& variant : endpoint->variants)
        if (one.state == "quarantined" && is_of(*endpoint, one) && one.variant == variant.name &&
            one.version == variant.version && !variant.shadow && variant.weight > 0) {
          bad.insert(variant.sha256);
          if (!spec.canary || variant.name != spec.canary->variant) whom = variant.name;
        }
  if (whom.empty()) return false;
  const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
  for (const auto& past : history(where, metadata.name, kPastMax)) {
    const auto is_bad = [&](const traffic::Variant& v) { return bad.contains(v.sha256); };
    if (past.variants.empty() || std::any_of(past.variants.begin(), past.variants.end(), is_bad)) continue;
    const auto scope = stored.resource.key().scope().str();
    const auto why = fmt::format("back to state {}, as {} crashed its server", past.number, whom);
    log::warn("endpoint_rescued", {{"endpoint", scope}, {"why", why}});
    restore(where, metadata.name, past, {"system/serving", "endpoint.rollback", scope, ""}, kByItself, why);
    return true;
  }
  return false;
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
        if (rescue(stored, spec)) continue;
        if (spec.canary) watch_canary(stored, spec);
        if (spec.experiment && spec.experiment->bandit) follow_bandit(stored, spec);
      } catch (const Error& e) {  // somebody changed it meanwhile: looked at again
        log::warn("endpoint_not_watched", {{"endpoint", stored.resource.key().scope().str()}, {"why", e.what()}});
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
}

}  // namespace falaj::serving
