// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/retention.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "governance/resource/kinds/retention_policy.h"
#include "lifecycle/models/removal.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/removal.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

constexpr std::size_t kPage = 500;
constexpr std::int64_t kCollectEveryUs = std::int64_t{24} * 3600 * 1'000'000;
constexpr std::string_view kAfterOwned = "@\xf4\x8f\xbf\xbf";  // sorts behind the names that runs and models own

struct Policy {
  std::string name, tenant, project;  // project "": of the whole tenant
  resource::RetentionPolicySpec spec;
};

std::vector<Policy> policies_in(resource::Resources& resources, const iam::Scope& scope) {
  std::vector<Policy> out;
  resource::ListOptions options;
  options.tenant = scope.tenant();  // those of a tenant speak of its projects too
  options.limit = 1000;
  do {
    const auto page =
        resources.list("RetentionPolicy", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) {
      const auto& meta = stored.resource.metadata;
      if (!scope.project().empty() && !meta.project.empty() && meta.project != scope.project()) continue;
      out.push_back({fmt::format("{}/{}{}", meta.tenant, meta.project.empty() ? "" : meta.project + "/", meta.name),
                     meta.tenant, meta.project,
                     decode<resource::RetentionPolicySpec>(stored.resource.spec, "RetentionPolicy")});
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

std::vector<RetentionRule> rules_for(const std::vector<Policy>& policies, const Where& where) {
  std::vector<RetentionRule> out;
  for (const auto& policy : policies) {
    if (policy.tenant != where.tenant.str() || (!policy.project.empty() && policy.project != where.project.str()))
      continue;
    out.push_back({policy.name, policy.project.empty() ? fmt::format("p/{}/", where.project.str()) : "",
                   policy.spec.resources, policy.spec.keep_us, policy.spec.then == "archive"});
  }
  return out;
}

// Whether any rule could speak of paths that begin so: what no rule means is not even read.
bool speak_of(std::span<const RetentionRule> rules, bool archive, std::initializer_list<std::string_view> beginnings) {
  for (const auto& rule : rules) {
    if (rule.archive != archive) continue;
    for (const auto& pattern : rule.resources) {
      const auto fixed = std::string_view(pattern).substr(0, pattern.find('*'));
      for (const auto beginning : beginnings) {
        const auto path = fmt::format("{}{}", rule.prefix, beginning);
        if (fixed.starts_with(path) || std::string_view(path).starts_with(fixed)) return true;
      }
    }
  }
  return false;
}

struct RunAt {
  std::int64_t experiment = 0, place = 0;
  std::string run_id, experiment_name;
  std::int64_t changed_us = 0;
};
RunAt read_run_at(const sql::Row& row) {
  return {row.integer(0), row.integer(1), std::string(row.text(2)), std::string(row.text(3)), row.integer(4) * 1000};
}

// One pass over one project.
class Sweep {
 public:
  Sweep(const Retention::Parts& parts, const Retention::Asked& asked, std::int64_t now_us, RetentionReport& report,
        Where where, std::vector<RetentionRule> rules)
      : parts_(parts),
        asked_(asked),
        now_us_(now_us),
        report_(report),
        where_(std::move(where)),
        rules_(std::move(rules)) {}

  void run() {
    if (speak_of(rules_, true, {"run/", "experiment/"})) archive_runs();
    if (speak_of(rules_, false, {"run/", "experiment/"})) remove_runs();
    if (speak_of(rules_, false, {"logged-model/", "experiment/"})) remove_models();
    if (speak_of(rules_, false, {"experiment/"})) remove_experiments();
    if (speak_of(rules_, false, {"blob/"})) remove_blobs();
  }

 private:
  bool may_go_on() {
    const auto done = report_.archived_runs + report_.removed_runs + report_.removed_experiments +
                      report_.removed_models + report_.removed_blobs;
    if (!report_.more && done < static_cast<std::int64_t>(kRetentionPerPass) && asked_.go_on()) return true;
    report_.more = true;
    return false;
  }
  sql::Act act(std::string_view verb, const std::string& resource, json::object details) const {
    return {asked_.actor, std::string(verb), resource, asked_.request_id, "ok", json::serialize(details)};
  }
  std::string resource_of(std::string_view kind, std::string_view id) const {
    return track::scope_of(where_, kind, id);
  }
  RetentionReport::OfPolicy& tally(const RetentionRule& rule) {
    for (auto& line : report_.by_policy)
      if (line.policy == rule.policy) return line;
    return report_.by_policy.emplace_back(RetentionReport::OfPolicy{rule.policy, 0, 0, 0});
  }
  void keep(const std::string& resource, const RetentionRule& rule, const std::string& why) {
    if (!kept_.insert(resource).second) return;  // said before: as a run, and again as one of its experiment
    report_.kept += 1;
    if (report_.reasons.size() < kRetentionReasons) report_.reasons.push_back({resource, rule.policy, why});
  }
  void count(const RetentionRule& rule, std::int64_t& what, std::int64_t files, std::int64_t bytes) {
    ++what;
    report_.files += files;
    report_.bytes += bytes;
    tally(rule).removed += 1;
    tally(rule).bytes += bytes;
  }
  // Runs `remove`; false when the thing stays after all: somebody was quicker, or began to need it.
  template <class F>
  bool try_to(const std::string& resource, const RetentionRule& rule, F&& remove) {
    try {
      remove();
      return true;
    } catch (const Error& e) {
      if (e.code() == Code::conflict) keep(resource, rule, e.what());
      if (e.code() != Code::conflict && e.code() != Code::not_found) throw;
      return false;
    }
  }
  std::function<void(sql::Reader&)> unless_needed(const Thing& thing) const {
    return [this, thing](sql::Reader& r) {
      if (const auto why = why_kept(r, where_, thing)) throw Error(Code::conflict, *why);
    };
  }
  std::optional<std::string> needed(const Thing& thing) const {
    return parts_.database.read([&](sql::Reader& r) { return why_kept(r, where_, thing); });
  }

  // Calls `see` for every run of the project in that stage.
  template <class F>
  void each_run(sql::Query page, F&& see) {
    std::int64_t experiment = -1, place = -1;
    for (;;) {
      const auto runs = parts_.database.read([&](sql::Reader& r) {
        return r.all(page,
                     {where_.tenant.str(), where_.project.str(), experiment, place, static_cast<std::int64_t>(kPage)},
                     read_run_at);
      });
      for (const auto& run : runs) {
        if (!may_go_on()) return;
        see(run);
      }
      if (runs.size() < kPage) return;
      experiment = runs.back().experiment;
      place = runs.back().place;
    }
  }
  static Candidate candidate_of(const RunAt& run, bool deleted) {
    return {{"run/" + run.run_id, fmt::format("experiment/{}/run/{}", run.experiment_name, run.run_id)},
            deleted,
            run.changed_us};
  }

  // A run that has not ended is never put away: nobody knows whether it still works.
  void archive_runs() {
    each_run(
        "SELECT r.experiment, r.place, r.run_id, e.name, CASE WHEN r.end_ms > r.changed_ms THEN r.end_ms ELSE"
        " r.changed_ms END FROM track_run r JOIN track_experiment e ON e.id = r.experiment WHERE e.tenant = ? AND"
        " e.project = ? AND (r.experiment, r.place) > (?, ?) AND r.stage = 'active' AND r.status NOT IN ('RUNNING',"
        " 'SCHEDULED') ORDER BY r.experiment, r.place LIMIT ?",
        [&](const RunAt& run) {
          const auto* rule = due(rules_, candidate_of(run, false), now_us_);
          if (!rule) return;
          const auto resource = resource_of("run", run.run_id);
          if (const auto why = needed({Thing::Kind::run, run.run_id})) return keep(resource, *rule, *why);
          if (!asked_.dry_run && !try_to(resource, *rule, [&] {
                parts_.track.set_run_stage(where_, run.run_id, track::Stage::deleted,
                                           act("run.delete", resource, {{"policy", rule->policy}}));
              }))
            return;
          report_.archived_runs += 1;
          tally(*rule).archived += 1;
        });
  }

  void remove_runs() {
    each_run(
        "SELECT r.experiment, r.place, r.run_id, e.name, r.changed_ms FROM track_run r JOIN track_experiment e ON"
        " e.id = r.experiment WHERE e.tenant = ? AND e.project = ? AND (r.experiment, r.place) > (?, ?) AND"
        " r.stage = 'deleted' ORDER BY r.experiment, r.place LIMIT ?",
        [&](const RunAt& run) {
          if (const auto* rule = due(rules_, candidate_of(run, true), now_us_)) remove_run(run, *rule);
        });
  }

  bool remove_run(const RunAt& run, const RetentionRule& rule) {
    const Thing thing{Thing::Kind::run, run.run_id};
    const auto resource = resource_of("run", run.run_id);
    if (counted_.contains(resource)) return true;
    if (const auto why = needed(thing)) return keep(resource, rule, *why), false;
    const auto root = track::run_artifact(run.run_id, "");
    std::int64_t points = 0, bytes = 0;
    const auto files = parts_.database.read([&](sql::Reader& r) {
      r.query(
          "SELECT CAST(COALESCE(SUM(b.points), 0) AS BIGINT), CAST(COALESCE(SUM(LENGTH(b.data)), 0) AS BIGINT) FROM"
          " track_metric m JOIN track_block b ON b.series = m.series WHERE m.experiment = ? AND m.place = ?",
          {run.experiment, run.place}, [&](const sql::Row& row) {
            points = row.integer(0);
            bytes = row.integer(1);
          });
      return parts_.vault.total_below(r, where_, root + "/");
    });
    bytes += static_cast<std::int64_t>(files.bytes);
    if (!asked_.dry_run) {
      const auto what = act("run.remove", resource,
                            {{"policy", rule.policy}, {"points", points}, {"files", files.names}, {"bytes", bytes}});
      if (!try_to(resource, rule, [&] { parts_.track.remove_run(where_, run.run_id, unless_needed(thing), what); }))
        return false;
      track::finish_removal(parts_.database, parts_.vault, {where_, root, resource}, asked_.actor);
    }
    if (asked_.dry_run) counted_.insert(resource);
    count(rule, report_.removed_runs, static_cast<std::int64_t>(files.names), bytes);
    return true;
  }

  struct ModelAt {
    std::int64_t id = 0;
    std::string model_id, experiment_name;
    std::int64_t changed_us = 0;
  };
  static ModelAt read_model_at(const sql::Row& row) {
    return {row.integer(0), std::string(row.text(1)), std::string(row.text(2)), row.integer(3) * 1000};
  }

  void remove_models() {
    std::int64_t after = -1;
    for (;;) {
      const auto models = parts_.database.read([&](sql::Reader& r) {
        return r.all(
            "SELECT m.id, m.model_id, e.name, m.updated_ms FROM track_model m JOIN track_experiment e ON e.id ="
            " m.experiment WHERE e.tenant = ? AND e.project = ? AND m.id > ? AND m.stage = 'deleted' ORDER BY m.id"
            " LIMIT ?",
            {where_.tenant.str(), where_.project.str(), after, static_cast<std::int64_t>(kPage)}, read_model_at);
      });
      for (const auto& model : models) {
        if (!may_go_on()) return;
        const Candidate candidate{{"logged-model/" + model.model_id,
                                   fmt::format("experiment/{}/logged-model/{}", model.experiment_name, model.model_id)},
                                  true,
                                  model.changed_us};
        if (const auto* rule = due(rules_, candidate, now_us_)) remove_model(model, *rule);
      }
      if (models.size() < kPage) return;
      after = models.back().id;
    }
  }

  bool remove_model(const ModelAt& model, const RetentionRule& rule) {
    const Thing thing{Thing::Kind::logged_model, model.model_id};
    const auto resource = resource_of("logged-model", model.model_id);
    if (counted_.contains(resource)) return true;
    if (const auto why = needed(thing)) return keep(resource, rule, *why), false;
    const auto root = track::model_artifact(model.model_id, "");
    const auto files =
        parts_.database.read([&](sql::Reader& r) { return parts_.vault.total_below(r, where_, root + "/"); });
    if (!asked_.dry_run) {
      const auto what = act("logged-model.remove", resource,
                            {{"policy", rule.policy}, {"files", files.names}, {"bytes", files.bytes}});
      if (!try_to(resource, rule,
                  [&] { parts_.logged_models.remove_for_good(where_, model.model_id, unless_needed(thing), what); }))
        return false;
      track::finish_removal(parts_.database, parts_.vault, {where_, root, resource}, asked_.actor);
    }
    if (asked_.dry_run) counted_.insert(resource);
    count(rule, report_.removed_models, static_cast<std::int64_t>(files.names), static_cast<std::int64_t>(files.bytes));
    return true;
  }

  struct ExperimentAt {
    std::int64_t id = 0, number = 0;
    std::string name;
    std::int64_t changed_us = 0;
  };

  void remove_experiments() {
    const auto experiments = parts_.database.read([&](sql::Reader& r) {
      return r.all(
          "SELECT id, number, name, updated_ms FROM track_experiment WHERE tenant = ? AND project = ? AND stage ="
          " 'deleted' ORDER BY id",
          {where_.tenant.str(), where_.project.str()}, [](const sql::Row& row) {
            return ExperimentAt{row.integer(0), row.integer(1), std::string(row.text(2)), row.integer(3) * 1000};
          });
    });
    for (const auto& experiment : experiments) {
      if (experiment.number == track::kDefaultExperiment) continue;
      if (!may_go_on()) return;
      const Candidate candidate{{"experiment/" + experiment.name}, true, experiment.changed_us};
      if (const auto* rule = due(rules_, candidate, now_us_)) remove_experiment(experiment, *rule);
    }
  }

  // With everything in it; one thing that is needed keeps the experiment, but not the rest of what is in it.
  void remove_experiment(const ExperimentAt& experiment, const RetentionRule& rule) {
    const auto resource = resource_of("experiment", std::to_string(experiment.number));
    std::string in_use;
    const auto runs = parts_.database.read([&](sql::Reader& r) {
      return r.all(
          "SELECT r.experiment, r.place, r.run_id, e.name, r.changed_ms, r.stage FROM track_run r JOIN"
          " track_experiment e ON e.id = r.experiment WHERE r.experiment = ? ORDER BY r.place LIMIT ?",
          {experiment.id, static_cast<std::int64_t>(kRetentionPerPass)},
          [](const sql::Row& row) { return std::pair(read_run_at(row), row.text(5) == "active"); });
    });
    for (const auto& [run, active] : runs) {
      if (!may_go_on()) return;
      if (active)
        in_use = fmt::format("its run {} is not deleted", run.run_id);
      else if (!remove_run(run, rule))
        in_use = fmt::format("its run {} stays", run.run_id);
    }
    const auto models = parts_.database.read([&](sql::Reader& r) {
      return r.all(
          "SELECT m.id, m.model_id, e.name, m.updated_ms FROM track_model m JOIN track_experiment e ON e.id ="
          " m.experiment WHERE m.experiment = ? ORDER BY m.id LIMIT ?",
          {experiment.id, static_cast<std::int64_t>(kRetentionPerPass)}, read_model_at);
    });
    for (const auto& model : models) {
      if (!may_go_on()) return;
      if (!remove_model(model, rule)) in_use = fmt::format("its logged model {} stays", model.model_id);
    }
    if (!in_use.empty()) return keep(resource, rule, in_use);
    if (!asked_.dry_run && !try_to(resource, rule, [&] {
          parts_.track.remove_experiment(where_, experiment.number,
                                         act("experiment.remove", resource, {{"policy", rule.policy}}));
        }))
      return;
    count(rule, report_.removed_experiments, 0, 0);
  }

  void remove_blobs() {
    for (std::string after;;) {
      const auto entries = parts_.vault.list(where_, "", after, kPage);
      for (const auto& entry : entries) {
        after = entry.name;
        if (entry.name.starts_with('@')) {
          after = kAfterOwned;
          break;
        }
        if (!may_go_on()) return;
        if (const auto* rule = due(rules_, {{"blob/" + entry.name}, true, entry.created_us}, now_us_))
          remove_blob(entry, *rule);
      }
      if (entries.empty()) return;
    }
  }

  void remove_blob(const vault::Entry& entry, const RetentionRule& rule) {
    const auto resource = resource_of("blob", entry.name);
    if (!try_to(resource, rule, [&] {
          const auto now = parts_.vault.info(where_, entry.name);
          if (!now.pins.empty()) throw Error(Code::conflict, fmt::format("it is pinned: {}", now.pins.front()));
          if (!asked_.dry_run)
            parts_.vault.remove(where_, entry.name,
                                act("blob.delete", resource, {{"policy", rule.policy}, {"bytes", entry.bytes}}));
        }))
      return;
    count(rule, report_.removed_blobs, 1, static_cast<std::int64_t>(entry.bytes));
  }

  const Retention::Parts& parts_;
  const Retention::Asked& asked_;
  const std::int64_t now_us_;
  RetentionReport& report_;
  const Where where_;
  const std::vector<RetentionRule> rules_;
  std::unordered_set<std::string> kept_;
  std::unordered_set<std::string> counted_;  // in a dry run, where what is gone is still there
};

void note(Metrics& metrics, const RetentionReport& report) {
  const auto removed = [&](const char* kind, std::int64_t many) {
    metrics
        .counter("falaj_retention_removed_total", "Things that retention policies removed for good, by kind.",
                 {{"kind", kind}})
        .Increment(static_cast<double>(many));
  };
  removed("run", report.removed_runs);
  removed("experiment", report.removed_experiments);
  removed("logged_model", report.removed_models);
  removed("blob", report.removed_blobs);
  metrics.counter("falaj_retention_archived_total", "Runs that retention policies put away.")
      .Increment(static_cast<double>(report.archived_runs));
  metrics.counter("falaj_retention_freed_bytes_total", "Bytes that the store gave back after passes of retention.")
      .Increment(static_cast<double>(report.freed_bytes.value_or(0)));
  metrics.gauge("falaj_retention_kept", "Things that were due in the last pass but are still needed.")
      .Set(static_cast<double>(report.kept));
  metrics.gauge("falaj_retention_last_pass_seconds", "When the last pass of retention was, in seconds since 1970.")
      .Set(static_cast<double>(report.at_us) / 1e6);
}

}  // namespace

const RetentionRule* due(std::span<const RetentionRule> rules, const Candidate& candidate, std::int64_t now_us) {
  const RetentionRule* longest = nullptr;
  for (const auto& rule : rules) {
    if (rule.archive == candidate.deleted || (longest && longest->keep_us >= rule.keep_us)) continue;
    const bool meant = std::any_of(rule.resources.begin(), rule.resources.end(), [&](const std::string& pattern) {
      return std::any_of(candidate.paths.begin(), candidate.paths.end(),
                         [&](const std::string& path) { return matches_glob(pattern, rule.prefix + path); });
    });
    if (meant) longest = &rule;
  }
  return longest && now_us - candidate.changed_us > longest->keep_us ? longest : nullptr;
}

RetentionReport Retention::pass(std::int64_t now_us, const Asked& asked) {
  RetentionReport report;
  report.at_us = now_us;
  report.dry_run = asked.dry_run;
  const auto policies = policies_in(parts_.resources, asked.scope);
  report.policies = static_cast<std::int64_t>(policies.size());
  // What was removed already, by whomever, goes whole whether or not there is a policy.
  if (!asked.dry_run) track::finish_removals(parts_.database, parts_.vault, asked.actor);
  if (policies.empty()) return report;
  const auto snapshot = parts_.directory.snapshot();
  for (const auto& [key, project] : snapshot->all<iam::Project>()) {
    Where where{TenantName::parse(project.tenant), ProjectName::parse(project.name)};
    if (!asked.scope.contains(where.scope())) continue;
    auto rules = rules_for(policies, where);
    if (!rules.empty()) Sweep(parts_, asked, now_us, report, std::move(where), std::move(rules)).run();
  }
  if (asked.dry_run) return report;

  const bool whole = asked.scope == iam::Scope();
  auto collected_us = parts_.database.read([](sql::Reader& r) {
    return r.first("SELECT collected_us FROM retention_pass WHERE id = 1", {},
                   [](const sql::Row& row) { return row.integer(0); });
  });
  const auto removed = report.removed_runs + report.removed_models + report.removed_blobs;
  if (whole && (removed > 0 || !collected_us || now_us - *collected_us >= kCollectEveryUs)) {
    try {
      report.freed_bytes =
          static_cast<std::int64_t>(parts_.vault.collect({asked.actor, "blob.gc", "/", asked.request_id}).bytes);
      collected_us = now_us;
    } catch (const Error& e) {
      if (e.code() != Code::conflict) throw;  // a backup is under way: the next pass collects
      collected_us = 0;
    }
  }
  note(parts_.metrics, report);
  const auto text = json::serialize(encode(report));
  parts_.database.write({asked.actor, "retention.pass", asked.scope.str(), asked.request_id, "ok", text},
                        [&](sql::Writer& w) {
                          if (!whole) return;
                          w.execute(
                              "INSERT INTO retention_pass(id, at_us, collected_us, report) VALUES (1, ?, ?, ?) ON"
                              " CONFLICT (id) DO UPDATE SET at_us = excluded.at_us, collected_us ="
                              " excluded.collected_us, report = excluded.report",
                              {now_us, collected_us.value_or(0), text});
                        });
  log::info("retention_pass", {{"scope", asked.scope.str()},
                               {"archived", report.archived_runs},
                               {"removed", removed + report.removed_experiments},
                               {"bytes", report.bytes},
                               {"freed_bytes", report.freed_bytes.value_or(0)},
                               {"kept", report.kept}});
  return report;
}

std::optional<RetentionReport> Retention::last() {
  return parts_.database.read([](sql::Reader& r) {
    return r.first("SELECT report FROM retention_pass WHERE id = 1", {}, [](const sql::Row& row) {
      return decode<RetentionReport>(parse_json(row.text(0)), "stored report");
    });
  });
}

}  // namespace falaj::models
