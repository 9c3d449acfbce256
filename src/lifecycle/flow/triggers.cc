// SPDX-License-Identifier: Apache-2.0
// What begins runs of pipelines without a person.

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/key.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/jobs/schedules.h"

namespace falaj::flow {
namespace {

constexpr std::size_t kLookedAtOnce = 100, kForgottenAtOnce = 100;
constexpr std::string_view kSignedWith = "sha256=";

Where where_of(const resource::Metadata& m) { return {TenantName::parse(m.tenant), ProjectName::parse(m.project)}; }

// What a trigger looks for by itself, as the pipeline's cursor is called; "" = it is called.
std::string listens_to(const TriggerSpec& one) {
  if (one.cron) return "cron " + *one.cron;
  if (!one.dataset.empty()) return "dataset " + one.dataset;
  if (one.promotion) return fmt::format("promotion {}@{}", one.promotion->model, one.promotion->alias);
  if (one.alert) return "alert " + one.alert->rule;
  return "";
}

// Parameters that a trigger gives, with what it tells of itself filled in.
json::object given_by(const TriggerSpec& trigger, const json::object& facts) {
  json::object out;
  for (const auto& [name, value] : trigger.parameters)
    out[name] = fill(value, [&](const Reference& reference) -> json::value {
      const auto* found = facts.if_contains(reference.path.back());
      if (!found) throw Error(Code::invalid, fmt::format("this trigger tells no '{}'", reference.text()));
      return *found;
    });
  return out;
}

}  // namespace

std::size_t Flow::run_triggers() {
  std::size_t many = 0;
  const auto now = parts_.clock.wall().count();
  resource::ListOptions options{"", "", "", "", 1000};
  do {
    const auto page =
        parts_.resources.list("Pipeline", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) {
      const auto spec = decode<PipelineSpec>(stored.resource.spec, "pipeline");
      if (spec.suspended) continue;
      if (!broken(where_of(stored.resource.metadata), spec).empty()) continue;  // what happened meanwhile waits
      for (std::size_t i = 0; i < spec.triggers.size(); ++i) {
        try {
          many += trigger(stored, spec, i, now);
        } catch (const Error& e) {
          log::warn("trigger_failed", {{"pipeline", stored.resource.key().scope().str()}, {"why", e.what()}});
        }
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return many;
}

// How many runs were begun.
std::size_t Flow::trigger(const resource::Stored& stored, const PipelineSpec& spec, std::size_t which,
                          std::int64_t now_us) {
  const auto where = where_of(stored.resource.metadata);
  const auto& one = spec.triggers[which];
  auto cursor = listens_to(one);
  if (cursor.empty()) return 0;
  // Each of several that listen to the same sees all of it.
  const auto same = std::count_if(spec.triggers.begin(), spec.triggers.begin() + static_cast<std::ptrdiff_t>(which),
                                  [&](const TriggerSpec& before) { return listens_to(before) == cursor; });
  if (same > 0) cursor += fmt::format(" #{}", same + 1);
  const auto seen = store_.cursor(where, stored.resource.metadata.name, cursor);
  // What was before the pipeline was declared begins nothing; one declared again begins anew.
  const auto not_before_us = seen || same == 0 ? stored.created_us : stored.at_us;
  auto causes = happened(stored, one, seen, not_before_us, now_us);
  if (spec.when_busy == "skip" && causes.size() > 1) causes.erase(causes.begin(), causes.end() - 1);
  std::size_t many = 0;
  for (const auto& cause : causes) many += begin_triggered(stored, spec, one, cause, cursor) ? 1 : 0;
  return many;
}

// What was not seen yet, oldest first.
std::vector<Flow::Happened> Flow::happened(const resource::Stored& stored, const TriggerSpec& one,
                                           std::optional<std::int64_t> seen, std::int64_t not_before_us,
                                           std::int64_t now_us) {
  const auto where = where_of(stored.resource.metadata);
  const auto after_us = std::max(seen.value_or(0), not_before_us);
  std::vector<Happened> out;
  if (one.cron) {  // of several times the last counts
    if (const auto at = jobs::due(jobs::Cron::parse(*one.cron), after_us, now_us))
      out.push_back({*at, {{"trigger", "cron"}, {"time", format_time(*at)}}});
    return out;
  }
  if (one.alert) {
    for (const auto& event : parts_.alerts.fired_after({where.tenant.str(), where.project.str()}, one.alert->rule,
                                                       seen.value_or(0), not_before_us, kLookedAtOnce))
      out.push_back({event.id,
                     {{"trigger", "alert"},
                      {"alert", event.alert},
                      {"rule", event.rule},
                      {"subject", event.about.subject},
                      {"severity", event.about.severity},
                      {"text", event.about.text}}});
    return out;
  }
  try {
    const auto newest = one.dataset.empty() ? std::nullopt : parts_.datasets.dataset(where, one.dataset).newest;
    if (newest && newest->created_us > after_us)
      for (const auto& version : parts_.datasets.versions(where, one.dataset, INT64_MAX, kLookedAtOnce)) {
        if (version.created_us <= after_us) break;
        if (version.erased) continue;
        out.push_back({version.created_us,
                       {{"trigger", "dataset"},
                        {"dataset", fmt::format("{}@{}", one.dataset, version.number)},
                        {"name", one.dataset},
                        {"version", version.number}}});
      }
    if (one.promotion)
      for (const auto& change : parts_.promotions.alias_changes(where, one.promotion->model, kLookedAtOnce)) {
        if (change.at_us <= after_us) break;
        if (change.alias != one.promotion->alias || !change.version) continue;
        out.push_back({change.at_us,
                       {{"trigger", "promotion"},
                        {"model", one.promotion->model},
                        {"alias", one.promotion->alias},
                        {"version", *change.version}}});
      }
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;  // it may come
  }
  std::reverse(out.begin(), out.end());  // they were told newest first
  return out;
}

// The run and that its cause was seen are one write; the key makes it one run even where that write was seen twice.
bool Flow::begin_triggered(const resource::Stored& stored, const PipelineSpec& spec, const TriggerSpec& one,
                           const Happened& cause, const std::string& cursor) {
  const auto where = where_of(stored.resource.metadata);
  const auto& name = stored.resource.metadata.name;
  const auto scope = stored.resource.key().scope().str();
  const auto skip = [&](std::string_view why) {
    log::warn("trigger_skipped", {{"pipeline", scope}, {"why", why}});
    parts_.database.write(
        {"system/flow", "pipeline.skip", scope, "", "ok", json::serialize(json::object{{"why", why}})},
        [&](sql::Writer& w) { store_.set_cursor(w, where, name, cursor, cause.number); });
    return false;
  };
  const auto busy = parts_.database.read([&](sql::Reader& r) { return store_.under_way(r, where, name); });
  if (spec.when_busy == "skip" && busy.first + busy.second >= spec.concurrency)
    return skip("the one before has not ended");
  if (busy.first >= static_cast<std::int64_t>(kQueuedMax)) return skip("too many wait already");
  try {
    auto run = make_run(where, {name, given_by(one, cause.facts), cause.facts, "", "", true, ""}, stored);
    parts_.database.write({"system/flow", std::string(kStartRun), run.scope().str(), "", "ok",
                           json::serialize(json::object{{"pipeline", name}, {"cause", cause.facts}})},
                          [&](sql::Writer& w) {
                            auto copy = run;
                            store_.insert(w, copy, fmt::format("{} {}", cursor, cause.number));
                            store_.set_cursor(w, where, name, cursor, cause.number);
                          });
    probe_.started.Increment();
    return true;
  } catch (const Error& e) {
    if (e.retryable()) throw;
    return skip(e.what());
  }
}

std::size_t Flow::forget() {
  const auto now = parts_.clock.wall().count();
  std::size_t many = 0;
  for (const auto& old : store_.with_old(now - kDayUs)) {
    const auto& where = old.first;
    const auto& name = old.second;
    auto keep = kKeepUs;
    try {
      const auto stored = parts_.resources.get({"Pipeline", where.tenant.str(), where.project.str(), name});
      keep = decode<PipelineSpec>(stored.resource.spec, "pipeline").keep_us;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;  // of one that is no more the default counts
    }
    const auto scope = iam::Scope::of(where.tenant.str(), where.project.str(), "pipeline", name).str();
    while (store_.has_old(where, name, now - keep))  // nothing is written when there is nothing
      many += parts_.database.write({"system/flow", "pipelinerun.forget", scope, ""}, [&](sql::Writer& w) {
        return store_.forget(w, where, name, now - keep, kForgottenAtOnce);
      });
  }
  if (store_.has_old_kept(now - kKeepUs))
    parts_.database.write({"system/flow", "pipeline.forget_kept", "/", ""},
                          [&](sql::Writer& w) { store_.forget_kept(w, now - kKeepUs); });
  return many;
}

std::optional<Run> Flow::pushed(const Where& where, const std::string& pipeline, const std::string& signature,
                                std::string_view body, const std::function<std::string(const std::string&)>& reveal) {
  const Error refused(Code::denied, "the call is not signed by whoever this pipeline listens to");
  std::optional<resource::Stored> stored;
  try {
    stored = parts_.resources.get({"Pipeline", where.tenant.str(), where.project.str(), pipeline});
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    throw refused;  // who does not know the secret is not told what there is
  }
  const auto spec = decode<PipelineSpec>(stored->resource.spec, "pipeline");
  std::vector<const TriggerSpec*> heard;
  for (const auto& one : spec.triggers) {
    if (!one.push) continue;
    std::string secret;
    try {
      secret = reveal(one.push->secret);
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      continue;
    }
    const auto wanted = std::string(kSignedWith) + crypto::hmac_sha256(as_bytes(secret), as_bytes(body)).hex();
    if (!secret.empty() && crypto::equal_in_constant_time(as_bytes(wanted), as_bytes(signature))) heard.push_back(&one);
  }
  if (heard.empty()) throw refused;
  json::object facts{{"trigger", "push"}};
  const auto event = parse_json(body);
  const auto text = [&](std::string_view key) -> std::string {
    const auto* found = event.is_object() ? event.get_object().if_contains(key) : nullptr;
    return found && found->is_string() ? std::string(found->get_string()).substr(0, 250) : "";
  };
  const auto ref = text("ref");
  const auto branch = ref.starts_with("refs/heads/") ? ref.substr(11) : ref;
  facts["branch"] = branch;
  facts["commit"] = text("after");
  const auto match = std::find_if(heard.begin(), heard.end(), [&](const TriggerSpec* one) {
    return one->push->branch.empty() || one->push->branch == branch;
  });
  if (spec.suspended || match == heard.end()) return std::nullopt;
  // The same call again, also by somebody who overheard it, has the same bytes, which are all that is signed: it is the
  // same run.
  const auto key = std::string(kPushKey) + crypto::sha256(body).hex();
  return start(where, {pipeline, given_by(**match, facts), facts, key, "", true, ""});
}

}  // namespace falaj::flow
