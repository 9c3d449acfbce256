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

constexpr std::size_t kAliasChangesLooked = 100, kForgottenAtOnce = 100;
constexpr std::string_view kSignedWith = "sha256=";

Where where_of(const resource::Metadata& m) { return {TenantName::parse(m.tenant), ProjectName::parse(m.project)}; }

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
      for (const auto& one : spec.triggers) {
        try {
          many += trigger(stored, spec, one, now);
        } catch (const Error& e) {
          log::warn("trigger_failed", {{"pipeline", stored.resource.key().scope().str()}, {"why", e.what()}});
        }
      }
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return many;
}

// Whether a run was begun.
bool Flow::trigger(const resource::Stored& stored, const PipelineSpec& spec, const TriggerSpec& one,
                   std::int64_t now_us) {
  const auto where = where_of(stored.resource.metadata);
  const auto& name = stored.resource.metadata.name;
  // What was before the pipeline was declared begins nothing; one declared again begins anew.
  const auto seen_of = [&](const std::string& cursor) {
    return std::max(store_.cursor(where, name, cursor).value_or(0), stored.created_us);
  };
  if (one.cron) {
    const auto cursor = "cron " + *one.cron;
    const auto at = jobs::due(jobs::Cron::parse(*one.cron), seen_of(cursor), now_us);
    if (!at) return false;
    return begin_triggered(stored, spec, one, {{"trigger", "cron"}, {"time", format_time(*at)}}, cursor, *at);
  }
  if (!one.dataset.empty()) {
    const auto cursor = "dataset " + one.dataset;
    std::optional<data::Version> newest;
    try {
      newest = parts_.datasets.dataset(where, one.dataset).newest;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;  // it may come
    }
    if (!newest || newest->created_us <= seen_of(cursor)) return false;
    return begin_triggered(stored, spec, one,
                           {{"trigger", "dataset"},
                            {"dataset", fmt::format("{}@{}", one.dataset, newest->number)},
                            {"name", one.dataset},
                            {"version", newest->number}},
                           cursor, newest->created_us);
  }
  if (one.promotion) {
    const auto cursor = fmt::format("promotion {}@{}", one.promotion->model, one.promotion->alias);
    std::vector<models::AliasChange> changes;
    try {
      changes = parts_.promotions.alias_changes(where, one.promotion->model, kAliasChangesLooked);
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
    const auto newest = std::find_if(changes.begin(), changes.end(), [&](const auto& change) {
      return change.alias == one.promotion->alias && change.version;
    });
    if (newest == changes.end() || newest->at_us <= seen_of(cursor)) return false;
    return begin_triggered(stored, spec, one,
                           {{"trigger", "promotion"},
                            {"model", one.promotion->model},
                            {"alias", one.promotion->alias},
                            {"version", *newest->version}},
                           cursor, newest->at_us);
  }
  return false;
}

// The run and that its cause was seen are one write; the key makes it one run even where that write was seen twice.
bool Flow::begin_triggered(const resource::Stored& stored, const PipelineSpec& spec, const TriggerSpec& one,
                           json::object facts, const std::string& cursor, std::int64_t seen) {
  const auto where = where_of(stored.resource.metadata);
  const auto& name = stored.resource.metadata.name;
  const auto scope = stored.resource.key().scope().str();
  const auto skip = [&](std::string_view why) {
    log::warn("trigger_skipped", {{"pipeline", scope}, {"why", why}});
    parts_.database.write(
        {"system/flow", "pipeline.skip", scope, "", "ok", json::serialize(json::object{{"why", why}})},
        [&](sql::Writer& w) { store_.set_cursor(w, where, name, cursor, seen); });
    return false;
  };
  const auto busy = parts_.database.read([&](sql::Reader& r) { return store_.under_way(r, where, name); });
  if (spec.when_busy == "skip" && busy.first + busy.second >= spec.concurrency)
    return skip("the one before has not ended");
  if (busy.first >= static_cast<std::int64_t>(kQueuedMax)) return skip("too many wait already");
  try {
    auto run = make_run(where, {name, given_by(one, facts), facts, "", "", true, ""}, stored);
    parts_.database.write({"system/flow", std::string(kStartRun), run.scope().str(), "", "ok",
                           json::serialize(json::object{{"pipeline", name}, {"cause", facts}})},
                          [&](sql::Writer& w) {
                            auto copy = run;
                            store_.insert(w, copy, fmt::format("{} {}", cursor, seen));
                            store_.set_cursor(w, where, name, cursor, seen);
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
  const TriggerSpec* match = nullptr;
  for (const auto& one : spec.triggers) {
    if (!one.push || match) continue;
    std::string secret;
    try {
      secret = reveal(one.push->secret);
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      continue;
    }
    const auto wanted = std::string(kSignedWith) + crypto::hmac_sha256(as_bytes(secret), as_bytes(body)).hex();
    if (!secret.empty() && crypto::equal_in_constant_time(as_bytes(wanted), as_bytes(signature))) match = &one;
  }
  if (!match) throw refused;
  json::object facts{{"trigger", "push"}};
  const auto event = parse_json(body);
  const auto text = [&](std::string_view key) -> std::string {
    const auto* found = event.is_object() ? event.get_object().if_contains(key) : nullptr;
    return found && found->is_string() ? std::string(found->get_string()).substr(0, 250) : "";
  };
  const auto ref = text("ref");
  facts["branch"] = ref.starts_with("refs/heads/") ? ref.substr(11) : ref;
  facts["commit"] = text("after");
  if (spec.suspended || (!match->push->branch.empty() && words_of(facts.at("branch")) != match->push->branch))
    return std::nullopt;
  // The same call again, also by somebody who overheard it, has the same bytes, which are all that is signed: it is the
  // same run.
  const auto key = std::string(kPushKey) + crypto::sha256(body).hex();
  return start(where, {pipeline, given_by(*match, facts), facts, key, "", true, ""});
}

}  // namespace falaj::flow
