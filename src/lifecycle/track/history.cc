// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

constexpr std::size_t kDatasetNameMax = 500, kDatasetDigestMax = 36, kDatasetSourceMax = 65'535,
                      kDatasetSchemaMax = 1'048'575, kDatasetProfileMax = 16'777'215;
constexpr std::string_view kContextTag = "mlflow.data.context";

std::vector<std::int64_t> series_of(sql::Reader& reader, const RunRow& row, const std::string& key) {
  return reader.all("SELECT series FROM track_metric WHERE experiment = ? AND place = ? AND key = ?",
                    {row.experiment, row.place, key}, [](const sql::Row& r) { return r.integer(0); });
}

}  // namespace

void check_dataset(const Dataset& dataset) {
  if (dataset.name.empty() || dataset.digest.empty())
    throw Error(Code::invalid, "datasets: each needs a name and a digest");
  check_length("dataset.name", dataset.name, kDatasetNameMax);
  check_length("dataset.digest", dataset.digest, kDatasetDigestMax);
  check_length("dataset.source", dataset.source, kDatasetSourceMax);
  check_length("dataset.schema", dataset.schema, kDatasetSchemaMax);
  check_length("dataset.profile", dataset.profile, kDatasetProfileMax);
}

std::int64_t dataset_row(sql::Writer& w, std::int64_t experiment, const Dataset& d) {
  const auto found = w.first("SELECT id FROM track_dataset WHERE experiment = ? AND name = ? AND digest = ?",
                             {experiment, d.name, d.digest}, [](const sql::Row& row) { return row.integer(0); });
  if (found) return *found;
  const auto id = next_number(w, "dataset");
  w.execute(
      "INSERT INTO track_dataset(id, experiment, name, digest, source_type, source, schema, profile)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      {id, experiment, d.name, d.digest, d.source_type, d.source, d.schema, d.profile});
  return id;
}

// Blocks overlap little in time, as points are mostly logged in order: a page reads only those that can hold some of
// it.
HistoryPage history_page(sql::Reader& r, std::span<const std::int64_t> of_series, const std::optional<Point>& after,
                         std::size_t limit) {
  struct Block {
    std::int64_t series, number, first_ms, points;
  };
  std::vector<Block> blocks;
  for (const auto series : of_series) {
    const auto more =
        r.all("SELECT number, first_ms, points FROM track_block WHERE series = ? AND last_ms >= ?",
              {series, after ? after->unix_ms : std::numeric_limits<std::int64_t>::min()}, [&](const sql::Row& b) {
                return Block{series, b.integer(0), b.integer(1), b.integer(2)};
              });
    blocks.insert(blocks.end(), more.begin(), more.end());
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.first_ms < b.first_ms; });

  HistoryPage page;
  std::vector<Point> waiting;  // read, and not yet known to be before everything unread
  for (std::size_t i = 0; i <= blocks.size(); ++i) {
    if (i < blocks.size()) {
      r.query("SELECT data FROM track_block WHERE series = ? AND number = ?", {blocks[i].series, blocks[i].number},
              [&](const sql::Row& b) {
                for (const auto& point : unpack(b.bytes(0)))
                  if (!after || before(*after, point)) waiting.push_back(point);
              });
    }
    const bool last = i + 1 >= blocks.size();
    const auto unread_ms = last ? std::numeric_limits<std::int64_t>::max() : blocks[i + 1].first_ms;
    // Points before the first moment of any unread block can be handed out, in order and once each.
    if (!last && waiting.size() <= limit) continue;
    tidy(waiting);
    std::size_t known = 0;
    while (known < waiting.size() && (last || waiting[known].unix_ms < unread_ms)) ++known;
    if (!last && known <= limit) continue;
    const auto taken = std::min(known, limit);
    page.points.assign(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(taken));
    if (taken < waiting.size() && taken > 0) page.after = page.points.back();
    return page;
  }
  return page;
}

HistoryPage Track::history(const Where& where, const std::string& run_id, const std::string& key,
                           const std::optional<Point>& after, std::size_t limit) {
  return database_.read(
      [&](sql::Reader& r) { return history_page(r, series_of(r, need_run(r, where, run_id), key), after, limit); });
}

std::vector<Point> Track::history(const Where& where, const std::string& run_id, const std::string& key,
                                  std::int64_t first_step, std::int64_t last_step) {
  auto points = history(where, run_id, key, std::nullopt, std::numeric_limits<std::size_t>::max()).points;
  points.erase(std::remove_if(points.begin(), points.end(),
                              [&](const Point& p) { return p.step < first_step || p.step > last_step; }),
               points.end());
  return points;
}

void Track::log_inputs(const Where& where, const std::string& run_id, const std::vector<DatasetInput>& datasets,
                       const std::vector<std::string>& models, const sql::Act& act) {
  for (const auto& input : datasets) check_dataset(input.dataset);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_active_run(w, where, run_id);
    for (const auto& input : datasets) {
      json::object tags;
      std::string context;
      for (const auto& tag : input.tags) {
        check_length("dataset tag", tag.value, kTagBytesMax);
        tags[tag.key] = tag.value;
        if (tag.key == kContextTag) context = tag.value;
      }
      w.execute(
          "INSERT INTO track_input(experiment, place, dataset, context, tags) VALUES (?, ?, ?, ?, ?)"
          " ON CONFLICT DO NOTHING",
          {row.experiment, row.place, dataset_row(w, row.experiment, input.dataset), context,
           std::string_view(canonical(tags))});
      w.record({scope_of(where, "run", run_id), {}, crypto::sha256(input.dataset.name + "\n" + input.dataset.digest)});
    }
    for (const auto& model : models)
      w.execute(
          "INSERT INTO track_model_link(experiment, place, way, model, step) VALUES (?, ?, 'in', ?, 0)"
          " ON CONFLICT DO NOTHING",
          {row.experiment, row.place, model});
    w.after_commit([this, row] { columns_.touch(row.experiment, row.place); });
  });
}

void Track::log_outputs(const Where& where, const std::string& run_id, const std::vector<ModelOutput>& models,
                        const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_active_run(w, where, run_id);
    for (const auto& output : models) {
      w.execute(
          "INSERT INTO track_model_link(experiment, place, way, model, step) VALUES (?, ?, 'out', ?, ?)"
          " ON CONFLICT (experiment, place, way, model) DO UPDATE SET step = excluded.step",
          {row.experiment, row.place, output.model_id, output.step});
      w.record({scope_of(where, "run", run_id), {}, crypto::sha256(output.model_id)});
    }
    w.after_commit([this, row] { columns_.touch(row.experiment, row.place); });
  });
}

std::vector<Track::DatasetSummary> Track::datasets(const Where& where, const std::vector<std::int64_t>& experiments) {
  return database_.read([&](sql::Reader& r) {
    std::vector<DatasetSummary> out;
    for (const auto number : experiments) {
      const auto experiment = find_experiment(r, where, number);
      if (!experiment) continue;
      r.query(
          "SELECT DISTINCT d.name, d.digest, i.context FROM track_input i JOIN track_dataset d ON d.id = i.dataset"
          " WHERE i.experiment = ? ORDER BY d.name, d.digest LIMIT 1000",
          {experiment->id}, [&](const sql::Row& row) {
            out.push_back({number, std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2))});
          });
    }
    return out;
  });
}

}  // namespace falaj::track
