// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

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
    w.record({scope_of(where, "run", run_id), crypto::sha256(row.info.name), {}});
    // Searches look for a run by these two; its place is never given again.
    std::vector<Columns::Change> gone{{row.experiment, row.place, {Entity::attribute, "run_id"}, {}, {}},
                                      {row.experiment, row.place, {Entity::attribute, "stage"}, {}, {}}};
    w.after_commit([this, gone = std::move(gone)]() mutable { columns_.note(std::move(gone)); });
    return removed;
  });
}

}  // namespace falaj::track
