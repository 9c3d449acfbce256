// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/loop/loop.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"

namespace falaj::loop {
namespace {

constexpr sql::Migration kLoopMigrations[] = {
    {1, "loop",
     "CREATE TABLE loop_policy(tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,"
     " PRIMARY KEY(tenant, project, name)) CLUSTERED;"
     "CREATE TABLE loop_record(tenant TEXT NOT NULL, project TEXT NOT NULL, id BIGINT NOT NULL, policy TEXT NOT NULL,"
     " at_us BIGINT NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL, alert BIGINT NOT NULL, run TEXT NOT NULL,"
     " PRIMARY KEY(tenant, project, id)) CLUSTERED;"
     "CREATE INDEX loop_record_policy ON loop_record(tenant, project, policy, id)"},
};

constexpr const char* kActor = "system/loop";
constexpr std::size_t kFiringMax = 1000;

const resource::Authorise kAnything = [](std::string_view, const iam::Scope&) { return std::optional<std::string>(); };

resource::Key key_of(const Where& where, const std::string& name) {
  return {kPolicy, where.tenant.str(), where.project.str(), name};
}

std::string scope_of(const Where& where, const std::string& name) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "retrainpolicy", name).str();
}

// Why a gate that lets the run go on without what comes after it said no.
std::optional<std::string> refused_by(const flow::Run& run) {
  if (run.life.phase != flow::RunPhase::succeeded) return std::nullopt;
  for (const auto& instance : run.plan->instances) {
    const auto& step = run.life.steps.at(instance.id);
    const auto* passed = step.outputs.is_object() ? step.outputs.get_object().if_contains("passed") : nullptr;
    if (flow::doing(run.plan->step_of(instance))->kind == "gate" && step.phase == flow::StepPhase::skipped && passed)
      return fmt::format("{}: {}", instance.id, step.why);
  }
  return std::nullopt;
}

PastRecord read_record(const sql::Row& row) {
  return {row.integer(0),
          row.integer(1),
          std::string(row.text(2)),
          {std::string(row.text(3)), std::string(row.text(4)), row.integer(5), std::string(row.text(6))}};
}

}  // namespace

std::span<const sql::Migration> Loop::migrations() { return kLoopMigrations; }

Loop::Loop(Parts parts)
    : parts_(parts),
      begun_(parts.metrics.counter("falaj_loop_runs_total", "Runs of pipelines that policies began.")),
      blocked_(parts.metrics.counter("falaj_loop_blocked_total", "How often broken data kept a policy from learning.")),
      stopped_(parts.metrics.gauge("falaj_loop_stopped", "Policies that wait for a person.")) {}

// ---- what is kept

Loop::Kept Loop::load(sql::Reader& reader, const Where& where, const std::string& name) {
  const auto text = reader.first("SELECT state FROM loop_policy WHERE tenant = ? AND project = ? AND name = ?",
                                 {where.tenant.str(), where.project.str(), name},
                                 [](const sql::Row& row) { return std::string(row.text(0)); });
  if (!text) return {};
  return {decode<State>(parse_json(*text), "a policy's state"), true};
}

void Loop::store(sql::Writer& w, const Where& where, const std::string& name, const State& state,
                 std::span<const Record> records) {
  const auto &tenant = where.tenant.str(), &project = where.project.str();
  const auto before = load(w, where, name);
  const auto text = json::serialize(encode(state));
  w.execute(
      "INSERT INTO loop_policy(tenant, project, name, state) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, project, name) DO"
      " UPDATE SET state = excluded.state",
      {tenant, project, name, text});
  auto id = *w.first("SELECT COALESCE(MAX(id), 0) FROM loop_record WHERE tenant = ? AND project = ?", {tenant, project},
                     [](const sql::Row& row) { return row.integer(0); });
  for (const auto& record : records)
    w.execute(
        "INSERT INTO loop_record(tenant, project, id, policy, at_us, what, why, alert, run) VALUES (?, ?, ?, ?, ?, ?, "
        "?,"
        " ?, ?)",
        {tenant, project, ++id, name, parts_.clock.wall().count(), record.what, record.why, record.alert, record.run});
  std::optional<Digest> was;
  if (before.there) was = crypto::sha256(json::serialize(encode(before.state)));
  w.record({scope_of(where, name), was, crypto::sha256(text)});
}

// ---- looking

Facts Loop::facts_of(const Where& where, const PolicySpec& spec, const State& state) {
  Facts out;
  out.now_us = parts_.clock.wall().count();
  alerts::ListAlerts which;
  which.limit = kFiringMax;
  for (const auto& alert : parts_.alerts.list({where.tenant.str(), where.project.str()}, which))
    if (alert.phase == alerts::Phase::firing)
      out.firing.push_back({alert.number, alert.rule, alert.about.text, alert.fired_us});
  if (!state.run.empty()) {
    const auto run = parts_.flow.runs().find(where, state.run);
    out.run_phase = flow::has_ended(run.life.phase) ? std::string(flow::name_of(run.life.phase))
                    : run.life.stop.empty()         ? "running"
                                                    : "stopping";
    out.run_why = run.life.why;
    if (const auto refused = refused_by(run)) {
      out.run_phase = "refused";
      out.run_why = *refused;
    }
  }
  if (spec.endpoint.empty()) return out;
  const auto endpoint = decode<serving::EndpointSpec>(
      parts_.resources.get({"Endpoint", where.tenant.str(), where.project.str(), spec.endpoint}).resource.spec,
      "endpoint");
  if (!endpoint.canary) return out;
  const auto has_canary = [&](const serving::Served& served) {
    return std::any_of(served.variants.begin(), served.variants.end(),
                       [&](const auto& v) { return v.name == endpoint.canary->variant && v.weight > 0; });
  };
  for (const auto& served : parts_.endpoints.history(where, spec.endpoint, serving::kPastMax))
    if (!served.variants.empty() && !has_canary(served)) {
      out.before = served.number;
      break;
    }
  return out;
}

void Loop::look_at(const Where& where, const std::string& name, const PolicySpec& spec) {
  auto kept = parts_.database.read([&](sql::Reader& reader) { return load(reader, where, name); });
  auto state = kept.state;
  carry_out(where, name, spec, state);  // what was decided and not yet done
  const auto decision = decide(name, spec, state, facts_of(where, spec, state));
  json::array said;
  for (const auto& record : decision.records) {
    said.push_back(json::object{{"what", record.what}, {"why", record.why}});
    if (record.what == "begun") begun_.Increment();
    if (record.what == "blocked") blocked_.Increment();
    log::info("loop", {{"policy", name}, {"what", record.what}, {"why", record.why}});
  }
  if (!(decision.state == state) || !decision.records.empty())
    parts_.database.write({kActor, "retrainpolicy.decide", scope_of(where, name), "", "ok", json::serialize(said)},
                          [&](sql::Writer& w) { store(w, where, name, decision.state, decision.records); });
  state = decision.state;
  if (!decision.cancel.empty()) {
    try {
      parts_.flow.cancel(where, decision.cancel, decision.cancel_why,
                         {kActor, std::string(flow::kCancelRun), scope_of(where, name), ""});
    } catch (const Error& e) {  // it has ended meanwhile
      if (e.code() != Code::conflict) throw;
    }
  }
  carry_out(where, name, spec, state);
}

void Loop::carry_out(const Where& where, const std::string& name, const PolicySpec& spec, State& state) {
  std::vector<Record> records;
  const auto before = state;
  if (state.go_back > 0) {
    try {
      parts_.endpoints.rollback(where, spec.endpoint, state.go_back,
                                {kActor, "endpoint.rollback", scope_of(where, name), ""}, kAnything);
    } catch (const Error& e) {
      if (e.code() != Code::conflict && e.code() != Code::not_found) throw;
      records.push_back({"not_rolled_back", e.what(), state.blocked, ""});
    }
    state.go_back = 0;
  }
  if (!state.key.empty() && state.run.empty()) {
    json::object parameters;
    for (const auto& [parameter, value] : spec.parameters) parameters[parameter] = value;
    try {
      state.run =
          parts_.flow.start(where, spec.pipeline, parameters, {{"policy", name}, {"alert", state.cause}}, state.key)
              .facts.id;
    } catch (const Error& e) {
      if (e.code() == Code::unavailable || e.code() == Code::deadline) throw;  // the next look tries again
      state.key.clear();
      state.cool_until_us = parts_.clock.wall().count() + spec.cool_down_us;
      state.stopped = fmt::format("pipeline {} could not begin: {}", spec.pipeline, e.what());
      records.push_back({"stopped", state.stopped, state.cause, ""});
    }
  }
  if (state == before) return;
  parts_.database.write({kActor, "retrainpolicy.act", scope_of(where, name), ""},
                        [&](sql::Writer& w) { store(w, where, name, state, records); });
}

void Loop::look() {
  Lock lock(looking_);
  resource::ListOptions options;
  options.limit = 1000;
  std::int64_t stopped = 0;
  do {
    const auto page = parts_.resources.list(kPolicy, options, kAnything);
    for (const auto& stored : page.items) {
      const auto& metadata = stored.resource.metadata;
      const Where where{TenantName{metadata.tenant}, ProjectName{metadata.project}};
      const auto spec = decode<PolicySpec>(stored.resource.spec, "retrain policy");
      try {
        if (!spec.suspended) look_at(where, metadata.name, spec);
      } catch (const Error& e) {
        log::warn("loop_not_looked", {{"policy", scope_of(where, metadata.name)}, {"why", e.what()}});
      }
      // Not the policy itself, which may be gone by now.
      const auto kept = parts_.database.read([&](sql::Reader& r) { return load(r, where, metadata.name); });
      stopped += kept.state.stopped.empty() ? 0 : 1;
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  stopped_.Set(static_cast<double>(stopped));
}

// ---- asking

PolicyView Loop::policy(const Where& where, const std::string& name) {
  const auto stored = parts_.resources.get(key_of(where, name));
  PolicyView out{name, decode<PolicySpec>(stored.resource.spec, "retrain policy"), {}};
  out.state = parts_.database.read([&](sql::Reader& reader) { return load(reader, where, name).state; });
  return out;
}

std::vector<PolicyView> Loop::policies(const Where& where) {
  std::vector<PolicyView> out;
  resource::ListOptions options;
  options.tenant = where.tenant.str();
  options.project = where.project.str();
  options.limit = 1000;
  for (const auto& stored : parts_.resources.list(kPolicy, options, kAnything).items)
    out.push_back(policy(where, stored.resource.metadata.name));
  return out;
}

std::vector<PastRecord> Loop::history(const Where& where, const std::string& policy, std::size_t limit) {
  return parts_.database.read([&](sql::Reader& reader) {
    const auto &tenant = where.tenant.str(), &project = where.project.str();
    const auto most = static_cast<std::int64_t>(limit);
    return policy.empty() ? reader.all(
                                "SELECT id, at_us, policy, what, why, alert, run FROM loop_record WHERE tenant = ? AND"
                                " project = ? ORDER BY id DESC LIMIT ?",
                                {tenant, project, most}, read_record)
                          : reader.all(
                                "SELECT id, at_us, policy, what, why, alert, run FROM loop_record WHERE tenant = ? AND"
                                " project = ? AND policy = ? ORDER BY id DESC LIMIT ?",
                                {tenant, project, policy, most}, read_record);
  });
}

std::string Loop::explain(const Where& where, const std::string& name) {
  const auto view = policy(where, name);
  if (view.spec.suspended) return "nothing: it is suspended";
  return loop::explain(name, view.spec, view.state, facts_of(where, view.spec, view.state));
}

std::size_t Loop::forget(std::int64_t before_us) {
  const auto old = parts_.database.read([&](sql::Reader& r) {
    return r.first("SELECT COUNT(*) FROM loop_record WHERE at_us < ?", {before_us},
                   [](const sql::Row& row) { return row.integer(0); });
  });
  if (old.value_or(0) == 0) return 0;
  const auto went = parts_.database.write({kActor, "retrainpolicy.forget", "/", ""}, [&](sql::Writer& w) {
    return w.execute("DELETE FROM loop_record WHERE at_us < ?", {before_us});
  });
  return static_cast<std::size_t>(went);
}

PolicyView Loop::resume(const Where& where, const std::string& name, const sql::Act& act) {
  Lock lock(looking_);
  auto view = policy(where, name);
  if (view.state.stopped.empty()) throw Error(Code::conflict, fmt::format("policy {} did not stop", name));
  let_go_on(view.state);
  const Record record{"resumed", fmt::format("by {}", act.actor), 0, ""};
  parts_.database.write(act, [&](sql::Writer& w) { store(w, where, name, view.state, std::span(&record, 1)); });
  return view;
}

std::vector<alerts::Signal> Loop::stopped(const alerts::Where& where) {
  std::vector<alerts::Signal> out;
  if (where.project.empty()) return out;
  for (const auto& view : policies({TenantName{where.tenant}, ProjectName{where.project}})) {
    auto why = view.state.stopped;
    if (why.empty() && view.spec.when_failed == "page" && view.state.failures > 0)
      why = fmt::format("{} of its runs failed one after the other", view.state.failures);
    if (!why.empty()) out.push_back({"retrainpolicy/" + view.name, {{"policy", view.name}}, 1, why, 0});
  }
  return out;
}

}  // namespace falaj::loop
