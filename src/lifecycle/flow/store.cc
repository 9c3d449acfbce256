// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/store.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::flow {
namespace {

// `life` is the described struct as JSON; what is looked for stands in columns of its own beside it.
constexpr sql::Migration kFlowMigrations[] = {
    {1, "flow",
     "CREATE TABLE flow_run(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, pipeline TEXT NOT NULL,"
     " number BIGINT NOT NULL, start_key TEXT NOT NULL, owner TEXT NOT NULL, cause TEXT NOT NULL,"
     " revision BIGINT NOT NULL, spec TEXT NOT NULL, parameters TEXT NOT NULL, created_us BIGINT NOT NULL,"
     " ended_us BIGINT NOT NULL, phase TEXT NOT NULL, live BIGINT NOT NULL, version BIGINT NOT NULL,"
     " life TEXT NOT NULL) CLUSTERED;"
     "CREATE UNIQUE INDEX flow_run_number ON flow_run(tenant, project, pipeline, number);"
     "CREATE UNIQUE INDEX flow_run_key ON flow_run(tenant, project, pipeline, start_key);"
     "CREATE INDEX flow_run_project ON flow_run(tenant, project, id);"
     "CREATE INDEX flow_run_live ON flow_run(id) WHERE live = 1;"
     "CREATE TABLE flow_wish(run TEXT NOT NULL, number BIGINT NOT NULL, what TEXT NOT NULL, step TEXT NOT NULL,"
     " wished_by TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY(run, number)) CLUSTERED;"
     "CREATE TABLE flow_kept(tenant TEXT NOT NULL, project TEXT NOT NULL, kept_key TEXT NOT NULL,"
     " outputs TEXT NOT NULL, made_by TEXT NOT NULL, at_us BIGINT NOT NULL,"
     " PRIMARY KEY(tenant, project, kept_key)) CLUSTERED;"
     "CREATE TABLE flow_cursor(tenant TEXT NOT NULL, project TEXT NOT NULL, pipeline TEXT NOT NULL,"
     " cause TEXT NOT NULL, seen BIGINT NOT NULL, PRIMARY KEY(tenant, project, pipeline, cause)) CLUSTERED"},
    {2, "flow",
     "CREATE TABLE flow_spent(tenant TEXT NOT NULL, project TEXT NOT NULL, pipeline TEXT NOT NULL,"
     " start_key TEXT NOT NULL, run TEXT NOT NULL, PRIMARY KEY(tenant, project, pipeline, start_key)) CLUSTERED;"
     "CREATE INDEX flow_run_ended ON flow_run(ended_us) WHERE live = 0"},
};

Run read_run(const sql::Row& row) {
  Run out;
  out.facts.id = row.text(0);
  out.where = {TenantName{std::string(row.text(1))}, ProjectName{std::string(row.text(2))}};
  out.facts.pipeline = row.text(3);
  out.facts.number = row.integer(4);
  out.owner = row.text(5);
  out.cause = parse_json(row.text(6));
  out.revision = row.integer(7);
  out.plan = std::make_shared<const Plan>(plan_of(decode<PipelineSpec>(parse_json(row.text(8)), "a stored pipeline")));
  out.facts.parameters = parse_json(row.text(9)).as_object();
  out.created_us = row.integer(10);
  out.facts.started = format_time(out.created_us);
  out.version = row.integer(11);
  out.life = decode<RunLife>(parse_json(row.text(12)), "a stored run of a pipeline");
  return out;
}

Wish read_wish(const sql::Row& row) {
  return {row.integer(0), std::string(row.text(1)), std::string(row.text(2)), std::string(row.text(3)),
          std::string(row.text(4))};
}

// Of a life, as it is stored and as the audit log has it.
Digest digest_of(const std::string& life) { return crypto::sha256(life); }

}  // namespace

std::string Task::id() const { return fmt::format("{}/{}/{}", run, step, attempt); }

iam::Scope Run::scope() const {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "pipelinerun", facts.id);
}

std::span<const sql::Migration> Store::migrations() { return kFlowMigrations; }

std::optional<std::string> Store::insert(sql::Writer& w, Run& run, const std::string& key) const {
  const auto &tenant = run.where.tenant.str(), &project = run.where.project.str();
  const auto text = [](const sql::Row& row) { return std::string(row.text(0)); };
  if (auto there =
          w.first("SELECT id FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ? AND start_key = ?",
                  {tenant, project, run.facts.pipeline, key}, text))
    return there;
  if (const auto spent =
          w.first("SELECT run FROM flow_spent WHERE tenant = ? AND project = ? AND pipeline = ? AND start_key = ?",
                  {tenant, project, run.facts.pipeline, key}, text))
    throw Error(Code::conflict, fmt::format("this began run {}, which is forgotten", *spent));
  run.facts.number =
      *w.first("SELECT COALESCE(MAX(number), 0) + 1 FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ?",
               {tenant, project, run.facts.pipeline}, [](const sql::Row& row) { return row.integer(0); });
  run.version = 1;
  const auto life = json::serialize(encode(run.life));
  w.execute(
      "INSERT INTO flow_run(id, tenant, project, pipeline, number, start_key, owner, cause, revision, spec, parameters,"
      " created_us, ended_us, phase, live, version, life) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 1, ?, ?)",
      {run.facts.id, tenant, project, run.facts.pipeline, run.facts.number, key, run.owner, json::serialize(run.cause),
       run.revision, json::serialize(encode(run.plan->spec)), json::serialize(run.facts.parameters), run.created_us,
       name_of(run.life.phase), run.version, life});
  w.record({run.scope().str(), {}, digest_of(life)});
  return std::nullopt;
}

void Store::write(sql::Writer& w, Run& run) const {
  const auto before = w.first("SELECT life FROM flow_run WHERE id = ? AND version = ?", {run.facts.id, run.version},
                              [](const sql::Row& row) { return digest_of(std::string(row.text(0))); });
  if (!before) throw Error(Code::conflict, fmt::format("run {} was changed meanwhile", run.facts.id));
  const auto life = json::serialize(encode(run.life));
  w.execute("UPDATE flow_run SET phase = ?, live = ?, ended_us = ?, version = ?, life = ? WHERE id = ?",
            {name_of(run.life.phase), std::int64_t{!has_ended(run.life.phase)}, run.life.ended_us, run.version + 1,
             life, run.facts.id});
  w.record({run.scope().str(), *before, digest_of(life)});
}

void Store::wish(sql::Writer& w, const Run& run, const Wish& wish) const {
  const auto [number, many] =
      *w.first("SELECT COALESCE(MAX(number), 0) + 1, COUNT(*) FROM flow_wish WHERE run = ?", {run.facts.id},
               [](const sql::Row& row) { return std::pair(row.integer(0), row.integer(1)); });
  if (many >= static_cast<std::int64_t>(kWishesMax))
    throw Error(Code::exhausted, "more was asked of this run than it has seen to: try again in a moment");
  w.execute("INSERT INTO flow_wish(run, number, what, step, wished_by, why) VALUES (?, ?, ?, ?, ?, ?)",
            {run.facts.id, number, wish.what, wish.step, wish.by, wish.why});
  w.record({run.scope().str(), {}, crypto::sha256(fmt::format("{} {} {}", wish.what, wish.step, wish.why))});
}

void Store::forget_wishes(sql::Writer& w, const std::string& run, std::int64_t up_to) const {
  w.execute("DELETE FROM flow_wish WHERE run = ? AND number <= ?", {run, up_to});
}

void Store::keep(sql::Writer& w, const Where& where, const std::string& key, const Kept& kept) const {
  w.execute(
      "INSERT INTO flow_kept(tenant, project, kept_key, outputs, made_by, at_us) VALUES (?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (tenant, project, kept_key) DO UPDATE SET outputs = excluded.outputs, made_by = excluded.made_by,"
      " at_us = excluded.at_us",
      {where.tenant.str(), where.project.str(), key, json::serialize(kept.outputs), kept.from, kept.at_us});
}

void Store::set_cursor(sql::Writer& w, const Where& where, const std::string& pipeline, const std::string& trigger,
                       std::int64_t seen) const {
  w.execute(
      "INSERT INTO flow_cursor(tenant, project, pipeline, cause, seen) VALUES (?, ?, ?, ?, ?)"
      " ON CONFLICT (tenant, project, pipeline, cause) DO UPDATE SET seen = excluded.seen",
      {where.tenant.str(), where.project.str(), pipeline, trigger, seen});
}

std::vector<Store::Live> Store::live() const {
  return database_.read([&](sql::Reader& r) {
    return r.all("SELECT id, version FROM flow_run WHERE live = 1 ORDER BY id", {}, [](const sql::Row& row) {
      return Live{std::string(row.text(0)), row.integer(1)};
    });
  });
}

Run Store::find(const std::string& id) const {
  auto found = database_.read([&](sql::Reader& r) {
    return r.first(
        "SELECT id, tenant, project, pipeline, number, owner, cause, revision, spec, parameters, created_us, version,"
        " life FROM flow_run WHERE id = ?",
        {id}, read_run);
  });
  if (!found) throw Error(Code::not_found, fmt::format("no run of a pipeline '{}'", id.substr(0, 64)));
  return std::move(*found);
}

Run Store::find(const Where& where, const std::string& id) const {
  auto run = find(id);
  if (run.where.tenant != where.tenant || run.where.project != where.project)
    throw Error(Code::not_found, fmt::format("no run of a pipeline '{}'", id.substr(0, 64)));
  return run;
}

Run Store::numbered(const Where& where, const std::string& pipeline, std::int64_t number) const {
  auto id = database_.read([&](sql::Reader& r) {
    return r.first(
        "SELECT id FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ? AND (number = ? OR ? = 0)"
        " ORDER BY number DESC LIMIT 1",
        {where.tenant.str(), where.project.str(), pipeline, number, number},
        [](const sql::Row& row) { return std::string(row.text(0)); });
  });
  if (!id)
    throw Error(Code::not_found, number == 0 ? fmt::format("pipeline '{}' never ran", pipeline)
                                             : fmt::format("pipeline '{}' has no run {}", pipeline, number));
  return find(*id);
}

std::vector<Run> Store::list(const Where& where, const ListRuns& which) const {
  return database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT id, tenant, project, pipeline, number, owner, cause, revision, spec, parameters, created_us, version,"
        " life FROM flow_run WHERE tenant = ? AND project = ? AND (pipeline = ? OR ? = '') AND (phase = ? OR ? = '')"
        " AND (id < ? OR ? = '') ORDER BY id DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), which.pipeline, which.pipeline, which.phase, which.phase, which.after,
         which.after, static_cast<std::int64_t>(which.limit)},
        read_run);
  });
}

std::map<std::string, std::vector<Wish>> Store::all_wishes() const {
  std::map<std::string, std::vector<Wish>> out;
  database_.read([&](sql::Reader& r) {
    r.query("SELECT number, what, step, wished_by, why, run FROM flow_wish ORDER BY run, number", {},
            [&](const sql::Row& row) { out[std::string(row.text(5))].push_back(read_wish(row)); });
  });
  return out;
}

std::optional<Kept> Store::kept(const Where& where, const std::string& key) const {
  return database_.read([&](sql::Reader& r) {
    return r.first("SELECT outputs, made_by, at_us FROM flow_kept WHERE tenant = ? AND project = ? AND kept_key = ?",
                   {where.tenant.str(), where.project.str(), key}, [](const sql::Row& row) {
                     return Kept{parse_json(row.text(0)), std::string(row.text(1)), row.integer(2)};
                   });
  });
}

std::size_t Store::forget(sql::Writer& w, const Where& where, const std::string& pipeline, std::int64_t before_us,
                          std::size_t most) const {
  const auto &tenant = where.tenant.str(), &project = where.project.str();
  struct Old {
    std::string id, key, life;
  };
  const auto old = w.all(
      "SELECT id, start_key, life FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ? AND live = 0 AND"
      " ended_us < ? AND number < (SELECT MAX(number) FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ?)"
      " ORDER BY number LIMIT ?",
      {tenant, project, pipeline, before_us, tenant, project, pipeline, static_cast<std::int64_t>(most)},
      [](const sql::Row& row) {
        return Old{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2))};
      });
  for (const auto& one : old) {
    if (one.key.starts_with(kPushKey))
      w.execute("INSERT INTO flow_spent(tenant, project, pipeline, start_key, run) VALUES (?, ?, ?, ?, ?)",
                {tenant, project, pipeline, one.key, one.id});
    w.execute("DELETE FROM flow_run WHERE id = ?", {one.id});
    w.record({iam::Scope::of(tenant, project, "pipelinerun", one.id).str(), digest_of(one.life), {}});
  }
  return old.size();
}

bool Store::has_old(const Where& where, const std::string& pipeline, std::int64_t before_us) const {
  return database_.read([&](sql::Reader& r) {
    return r
        .first(
            "SELECT 1 FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ? AND live = 0 AND ended_us < ? AND"
            " number < (SELECT MAX(number) FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ?) LIMIT 1",
            {where.tenant.str(), where.project.str(), pipeline, before_us, where.tenant.str(), where.project.str(),
             pipeline},
            [](const sql::Row& row) { return row.integer(0); })
        .has_value();
  });
}

bool Store::has_old_kept(std::int64_t before_us) const {
  return database_.read([&](sql::Reader& r) {
    return r
        .first("SELECT 1 FROM flow_kept WHERE at_us < ? LIMIT 1", {before_us},
               [](const sql::Row& row) { return row.integer(0); })
        .has_value();
  });
}

std::size_t Store::forget_kept(sql::Writer& w, std::int64_t before_us) const {
  return static_cast<std::size_t>(w.execute("DELETE FROM flow_kept WHERE at_us < ?", {before_us}));
}

std::vector<std::pair<Where, std::string>> Store::with_old(std::int64_t before_us) const {
  return database_.read([&](sql::Reader& r) {
    return r.all("SELECT DISTINCT tenant, project, pipeline FROM flow_run WHERE live = 0 AND ended_us < ?", {before_us},
                 [](const sql::Row& row) {
                   return std::pair(Where{TenantName{std::string(row.text(0))}, ProjectName{std::string(row.text(1))}},
                                    std::string(row.text(2)));
                 });
  });
}

std::optional<std::int64_t> Store::cursor(const Where& where, const std::string& pipeline,
                                          const std::string& trigger) const {
  return database_.read([&](sql::Reader& r) {
    return r.first("SELECT seen FROM flow_cursor WHERE tenant = ? AND project = ? AND pipeline = ? AND cause = ?",
                   {where.tenant.str(), where.project.str(), pipeline, trigger},
                   [](const sql::Row& row) { return row.integer(0); });
  });
}

std::pair<std::int64_t, std::int64_t> Store::under_way(sql::Reader& reader, const Where& where,
                                                       const std::string& pipeline) const {
  std::pair<std::int64_t, std::int64_t> out{0, 0};
  reader.query(
      "SELECT phase, COUNT(*) FROM flow_run WHERE tenant = ? AND project = ? AND pipeline = ? AND"
      " (phase = 'queued' OR phase = 'running') GROUP BY phase",
      {where.tenant.str(), where.project.str(), pipeline},
      [&](const sql::Row& row) { (row.text(0) == "queued" ? out.first : out.second) = row.integer(1); });
  return out;
}

}  // namespace falaj::flow
