// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/removal.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

constexpr std::size_t kFilesAtOnce = 500;  // forgotten in one write: others get their turn in between

// Of the highest experiment that was removed from a project.
std::string counter_of(const Where& where) {
  return fmt::format("removed experiments of {}/{}", where.tenant.str(), where.project.str());
}

// In the write that removes: from then on nothing leads to the files, and a kill does not lose that they are to go.
void leave_files(sql::Writer& w, const Where& where, const std::string& root, const std::string& resource) {
  w.execute("INSERT INTO track_leftover(tenant, project, root, resource) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            {where.tenant.str(), where.project.str(), root, resource});
}

std::int64_t remove_points(sql::Writer& w, const RunRow& row, RemovedRun& removed) {
  std::int64_t rows = 0;
  const auto series = w.all("SELECT series FROM track_metric WHERE experiment = ? AND place = ?",
                            {row.experiment, row.place}, [](const sql::Row& r) { return r.integer(0); });
  for (const auto one : series) {
    w.query("SELECT points, LENGTH(data) FROM track_block WHERE series = ?", {one}, [&](const sql::Row& r) {
      removed.points += r.integer(0);
      removed.bytes += r.integer(1);
    });
    rows += w.execute("DELETE FROM track_block WHERE series = ?", {one});
  }
  return rows + w.execute("DELETE FROM track_metric WHERE experiment = ? AND place = ?", {row.experiment, row.place});
}

// A dataset is described once for all runs of an experiment; the last of them takes it along.
std::int64_t remove_inputs(sql::Writer& w, const RunRow& row) {
  const auto datasets = w.all("SELECT dataset FROM track_input WHERE experiment = ? AND place = ?",
                              {row.experiment, row.place}, [](const sql::Row& r) { return r.integer(0); });
  auto rows = w.execute("DELETE FROM track_input WHERE experiment = ? AND place = ?", {row.experiment, row.place});
  for (const auto dataset : datasets)
    rows += w.execute(
        "DELETE FROM track_dataset WHERE id = ? AND NOT EXISTS"
        " (SELECT 1 FROM track_input i WHERE i.experiment = ? AND i.dataset = track_dataset.id)",
        {dataset, row.experiment});
  return rows;
}

}  // namespace

RunInfo Track::removable_run(sql::Reader& reader, const Where& where, const std::string& run_id) {
  auto info = need_run(reader, where, run_id).info;
  if (info.stage != Stage::deleted)
    throw Error(Code::conflict, fmt::format("the run {} is not deleted: delete it first, then remove it", run_id));
  return info;
}

RemovedRun Track::remove_run(const Where& where, const std::string& run_id,
                             const std::function<void(sql::Reader&)>& check, const sql::Act& act) {
  return database_.write(act, [&](sql::Writer& w) {
    removable_run(w, where, run_id);
    check(w);
    const auto row = need_run(w, where, run_id);
    RemovedRun removed;
    removed.rows = remove_points(w, row, removed) + remove_inputs(w, row);
    removed.rows +=
        w.execute("DELETE FROM track_param WHERE experiment = ? AND place = ?", {row.experiment, row.place});
    removed.rows += w.execute("DELETE FROM track_tag WHERE experiment = ? AND place = ?", {row.experiment, row.place});
    removed.rows +=
        w.execute("DELETE FROM track_model_link WHERE experiment = ? AND place = ?", {row.experiment, row.place});
    removed.rows += w.execute("DELETE FROM track_run WHERE experiment = ? AND place = ?", {row.experiment, row.place});
    images_.removed(w, row);
    const auto resource = scope_of(where, "run", run_id);
    leave_files(w, where, run_artifact(run_id, ""), resource);
    w.record({resource, crypto::sha256(row.info.name), {}});
    // Searches look for a run by these two; its place is never given again.
    std::vector<Columns::Change> gone{{row.experiment, row.place, {Entity::attribute, "run_id"}, {}, {}},
                                      {row.experiment, row.place, {Entity::attribute, "stage"}, {}, {}}};
    w.after_commit([this, gone = std::move(gone)]() mutable { columns_.note(std::move(gone)); });
    return removed;
  });
}

void Track::remove_experiment(const Where& where, std::int64_t number, const sql::Act& act) {
  if (number == kDefaultExperiment) throw Error(Code::invalid, "the default experiment of a project stays");
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_experiment(w, where, number);
    if (row.experiment.stage != Stage::deleted)
      throw Error(Code::conflict, fmt::format("the experiment {} is not deleted: delete it first", number));
    const auto left = *w.first(
        "SELECT (SELECT COUNT(*) FROM track_run WHERE experiment = ?) + (SELECT COUNT(*) FROM track_model WHERE"
        " experiment = ?)",
        {row.id, row.id}, [](const sql::Row& r) { return r.integer(0); });
    if (left > 0)
      throw Error(Code::conflict, fmt::format("the experiment {} still has {} runs and logged models", number, left));
    w.execute("DELETE FROM track_experiment_tag WHERE experiment = ?", {row.id});
    w.execute("DELETE FROM track_dataset WHERE experiment = ?", {row.id});
    w.execute("DELETE FROM track_experiment WHERE id = ?", {row.id});
    w.execute(
        "INSERT INTO track_counter(name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value ="
        " CASE WHEN excluded.value > track_counter.value THEN excluded.value ELSE track_counter.value END",
        {counter_of(where), number});
    w.record({scope_of(where, "experiment", std::to_string(number)), crypto::sha256(row.experiment.name), {}});
    w.after_commit([this, id = row.id] { columns_.drop(id); });
  });
}

std::int64_t next_experiment(sql::Reader& reader, const Where& where) {
  return *reader.first(
      "SELECT MAX(number) + 1 FROM (SELECT MAX(number) AS number FROM track_experiment WHERE tenant = ? AND project = ?"
      " UNION ALL SELECT value AS number FROM track_counter WHERE name = ?) numbers",
      {where.tenant.str(), where.project.str(), counter_of(where)}, [](const sql::Row& row) { return row.integer(0); });
}

void LoggedModels::remove_for_good(const Where& where, const std::string& model_id,
                                   const std::function<void(sql::Reader&)>& check, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_logged_model(w, where, model_id, true);
    check(w);
    w.execute("DELETE FROM track_model_param WHERE model = ?", {row.id});
    w.execute("DELETE FROM track_model_tag WHERE model = ?", {row.id});
    // Whoever knows the id may have linked it: only the links of its own project are its.
    w.execute(
        "DELETE FROM track_model_link WHERE model = ? AND experiment IN (SELECT id FROM track_experiment WHERE"
        " tenant = ? AND project = ?)",
        {model_id, where.tenant.str(), where.project.str()});
    w.execute("DELETE FROM track_model WHERE id = ?", {row.id});
    const auto resource = scope_of(where, "logged-model", model_id);
    leave_files(w, where, model_artifact(model_id, ""), resource);
    w.record({resource, crypto::sha256(row.model.name), {}});
  });
}

std::vector<Leftover> leftovers(sql::Reader& reader, std::size_t limit) {
  return reader.all("SELECT tenant, project, root, resource FROM track_leftover ORDER BY tenant, project, root LIMIT ?",
                    {static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
                      return Leftover{{TenantName::parse(row.text(0)), ProjectName::parse(row.text(1))},
                                      std::string(row.text(2)),
                                      std::string(row.text(3))};
                    });
}

vault::Vault::Removed finish_removal(sql::Database& database, vault::Vault& vault, const Leftover& of,
                                     const std::string& actor) {
  const sql::Act act{actor, "artifact.remove", of.resource, ""};
  vault::Vault::Removed all;
  for (;;) {
    const auto some = vault.remove_below(of.where, of.root + "/", kFilesAtOnce, act);
    if (some.names == 0) break;
    all.names += some.names;
    all.bytes += some.bytes;
  }
  database.write(act, [&](sql::Writer& w) {
    w.execute("DELETE FROM track_leftover WHERE tenant = ? AND project = ? AND root = ?",
              {of.where.tenant.str(), of.where.project.str(), of.root});
  });
  return all;
}

std::size_t finish_removals(sql::Database& database, vault::Vault& vault, const std::string& actor) {
  constexpr std::size_t kAtOnce = 1000;
  std::size_t finished = 0;
  for (;;) {
    const auto some = database.read([&](sql::Reader& r) { return leftovers(r, kAtOnce); });
    if (some.empty()) return finished;
    for (const auto& leftover : some) finish_removal(database, vault, leftover, actor);
    finished += some.size();
  }
}

}  // namespace falaj::track
