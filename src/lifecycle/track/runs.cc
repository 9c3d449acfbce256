// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

constexpr std::string_view kNameTag = "mlflow.runName";
constexpr std::int64_t kReplayMs = 10 * 60 * 1000;

using Change = Columns::Change;

Change attribute(const RunRow& row, const char* key, std::string_view text) {
  return {row.experiment, row.place, {Entity::attribute, key}, std::string(text), {}};
}
Change attribute(const RunRow& row, const char* key, std::optional<std::int64_t> ms) {
  return {row.experiment, row.place, {Entity::attribute, key}, {}, ms ? std::optional<double>(*ms) : std::nullopt};
}

void set_tag(sql::Writer& w, const RunRow& row, const KeyValue& tag, std::vector<Change>& changes) {
  w.execute(
      "INSERT INTO track_tag(experiment, place, key, value) VALUES (?, ?, ?, ?)"
      " ON CONFLICT (experiment, place, key) DO UPDATE SET value = excluded.value",
      {row.experiment, row.place, tag.key, tag.value});
  changes.push_back({row.experiment, row.place, {Entity::tag, tag.key}, tag.value, {}});
  if (tag.key != kNameTag) return;
  w.execute("UPDATE track_run SET name = ? WHERE experiment = ? AND place = ?", {tag.value, row.experiment, row.place});
  changes.push_back(attribute(row, "run_name", tag.value));
}

void set_param(sql::Writer& w, const RunRow& row, const KeyValue& param, std::vector<Change>& changes) {
  if (w.execute("INSERT INTO track_param(experiment, place, key, value) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                {row.experiment, row.place, param.key, param.value}) > 0) {
    changes.push_back({row.experiment, row.place, {Entity::param, param.key}, param.value, {}});
    return;
  }
  const auto old =
      *w.first("SELECT value FROM track_param WHERE experiment = ? AND place = ? AND key = ?",
               {row.experiment, row.place, param.key}, [](const sql::Row& r) { return std::string(r.text(0)); });
  if (old != param.value)
    throw Error(Code::invalid,
                fmt::format("params: changing param values is not allowed: '{}' of run {} was logged with '{}', now "
                            "'{}'",
                            param.key, row.info.run_id, shortened(old, 100), shortened(param.value, 100)));
}

// The points of one series after those that are there. Each call adds a small block; every 32 of a size become one of
// the next, so a point is written a few times at most and a long history has few blocks.
void append_points(sql::Writer& w, std::int64_t series, std::int64_t appends, std::vector<Point>& points) {
  tidy(points);
  const auto insert = [&](const std::vector<Point>& block) {
    const auto packed = pack(block);
    w.execute("INSERT INTO track_block(series, number, first_ms, last_ms, points, data) VALUES (?, ?, ?, ?, ?, ?)",
              {series, appends, block.front().unix_ms, block.back().unix_ms, static_cast<std::int64_t>(block.size()),
               BytesView(packed)});
  };
  insert(points);
  constexpr std::int64_t kFold = 32;
  for (std::int64_t span = kFold; appends % span == 0; span *= kFold) {
    const auto total =
        *w.first("SELECT CAST(SUM(points) AS BIGINT) FROM track_block WHERE series = ? AND number > ? AND number <= ?",
                 {series, appends - span, appends}, [](const sql::Row& row) { return row.integer(0); });
    if (total > static_cast<std::int64_t>(kPointsPerBlockMax)) break;
    std::vector<Point> folded;
    w.query("SELECT data FROM track_block WHERE series = ? AND number > ? AND number <= ? ORDER BY number",
            {series, appends - span, appends}, [&](const sql::Row& row) {
              const auto block = unpack(row.bytes(0));
              folded.insert(folded.end(), block.begin(), block.end());
            });
    tidy(folded);
    w.execute("DELETE FROM track_block WHERE series = ? AND number > ? AND number <= ?",
              {series, appends - span, appends});
    insert(folded);
  }
}

// All points of one series of a batch.
void log_series(sql::Writer& w, const RunRow& row, const Metric& of, std::vector<Point> points,
                std::vector<Change>& changes) {
  auto latest =
      *std::max_element(points.begin(), points.end(), [](const Point& a, const Point& b) { return newer(b, a); });
  std::optional<Point> others;  // the latest of the key's other series, which the run may show instead
  std::int64_t series = 0, appends = 0;
  w.query(
      "SELECT series, appends, value, unix_ms, step, model, dataset, digest FROM track_metric"
      " WHERE experiment = ? AND place = ? AND key = ?",
      {row.experiment, row.place, of.key}, [&](const sql::Row& r) {
        const Point point{r.integer(3), r.integer(4), r.is_null(2) ? std::nan("") : r.real(2)};
        if (r.text(5) == of.model_id && r.text(6) == of.dataset_name && r.text(7) == of.dataset_digest) {
          series = r.integer(0);
          appends = r.integer(1);
          if (!newer(latest, point)) latest = point;
        } else if (!others || newer(point, *others)) {
          others = point;
        }
      });
  if (series == 0) {
    series = next_number(w, "series");
    w.execute(
        "INSERT INTO track_metric(experiment, place, key, model, dataset, digest, series, value, unix_ms, step, "
        "appends) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
        {row.experiment, row.place, of.key, of.model_id, of.dataset_name, of.dataset_digest, series,
         number_or_null(latest.value), latest.unix_ms, latest.step});
  } else {
    w.execute(
        "UPDATE track_metric SET value = ?, unix_ms = ?, step = ?, appends = appends + 1 WHERE experiment = ?"
        " AND place = ? AND key = ? AND model = ? AND dataset = ? AND digest = ?",
        {number_or_null(latest.value), latest.unix_ms, latest.step, row.experiment, row.place, of.key, of.model_id,
         of.dataset_name, of.dataset_digest});
  }
  append_points(w, series, appends + 1, points);
  const auto shown = others && newer(*others, latest) ? *others : latest;
  changes.push_back({row.experiment, row.place, {Entity::metric, of.key}, {}, shown.value});
}

void check(const Batch& batch) {
  if (batch.metrics.size() > kBatchMetricsMax || batch.params.size() > kBatchParamsMax ||
      batch.tags.size() > kBatchTagsMax ||
      batch.metrics.size() + batch.params.size() + batch.tags.size() > kBatchItemsMax)
    throw Error(Code::invalid,
                fmt::format("a batch has at most {} metrics, {} params, {} tags and {} of them together; got {}, {} "
                            "and {}",
                            kBatchMetricsMax, kBatchParamsMax, kBatchTagsMax, kBatchItemsMax, batch.metrics.size(),
                            batch.params.size(), batch.tags.size()));
  for (std::size_t i = 0; i < batch.metrics.size(); ++i) {
    check_key(fmt::format("metrics[{}].key", i), batch.metrics[i].key);
    if (batch.metrics[i].point.unix_ms < 0)
      throw Error(Code::invalid, fmt::format("metrics[{}].timestamp: milliseconds since 1970, not negative: {}", i,
                                             batch.metrics[i].point.unix_ms));
  }
  for (std::size_t i = 0; i < batch.params.size(); ++i) {
    check_key(fmt::format("params[{}].key", i), batch.params[i].key);
    check_length(fmt::format("params[{}].value", i), batch.params[i].value, kParamBytesMax);
    for (std::size_t j = 0; j < i; ++j)
      if (batch.params[j].key == batch.params[i].key)
        throw Error(Code::invalid, fmt::format("params[{}].key: twice in one batch: '{}'", i, batch.params[i].key));
  }
  for (std::size_t i = 0; i < batch.tags.size(); ++i) {
    check_key(fmt::format("tags[{}].key", i), batch.tags[i].key);
    check_length(fmt::format("tags[{}].value", i), batch.tags[i].value, kTagBytesMax);
  }
}

Digest digest_of(const Batch& batch) {
  ByteWriter bytes;
  for (const auto& m : batch.metrics) {
    bytes.blob(as_bytes(m.key));
    bytes.u64(static_cast<std::uint64_t>(m.point.unix_ms));
    bytes.u64(static_cast<std::uint64_t>(m.point.step));
    bytes.u64(std::bit_cast<std::uint64_t>(m.point.value));
  }
  for (const auto* list : {&batch.params, &batch.tags})
    for (const auto& entry : *list) {
      bytes.blob(as_bytes(entry.key));
      bytes.blob(as_bytes(entry.value));
    }
  return crypto::sha256(BytesView(bytes.bytes()));
}

// With its name among its tags, as clients look for it there.
NewRun named(NewRun run, sys::Random& random) {
  const auto tag = std::find_if(run.tags.begin(), run.tags.end(), [](const KeyValue& t) { return t.key == kNameTag; });
  if (tag != run.tags.end()) {
    if (!run.name.empty() && run.name != tag->value)
      throw Error(Code::invalid,
                  fmt::format("run_name: '{}' and the tag {} '{}' differ", run.name, kNameTag, tag->value));
    run.name = tag->value;
  }
  if (run.name.empty()) run.name = random_name(random);
  if (tag == run.tags.end()) run.tags.push_back({std::string(kNameTag), run.name});
  for (const auto& t : run.tags) {
    check_key("tags", t.key);
    check_length(fmt::format("value of tag '{}'", t.key), t.value, kTagBytesMax);
  }
  check_length("user_id", run.user, 256);
  return run;
}

}  // namespace

RunRow Track::add_run(sql::Writer& w, const Where& where, std::int64_t experiment, const NewRun& run) {
  const auto now = clock_.wall().count() / 1000;
  const auto start = run.start_ms.value_or(now);
  RunRow row;
  row.experiment = experiment;
  w.query("UPDATE track_experiment SET runs = runs + 1 WHERE id = ? RETURNING runs", {experiment},
          [&](const sql::Row& r) { row.place = r.integer(0) - 1; });
  row.info = {run.id, run.experiment, run.name, run.user, RunStatus::running, start, {}, Stage::active};
  w.execute(
      "INSERT INTO track_run(experiment, place, run_id, name, user_id, status, start_ms, stage, changed_ms)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, 'active', ?)",
      {row.experiment, row.place, run.id, run.name, run.user, name(row.info.status), start, now});
  std::vector<Change> changes{attribute(row, "run_id", run.id),
                              attribute(row, "user_id", run.user),
                              attribute(row, "run_name", run.name),
                              attribute(row, "status", name(row.info.status)),
                              attribute(row, "stage", "active"),
                              attribute(row, "start_time", start),
                              attribute(row, "artifact_uri", artifact_uri(row.info))};
  for (const auto& tag : run.tags) set_tag(w, row, tag, changes);
  images_.made(w, row);
  w.record({scope_of(where, "run", run.id), {}, crypto::sha256(run.name)});
  w.after_commit([this, changes = std::move(changes)]() mutable {
    columns_.note(std::move(changes));
    runs_created_.Increment();
  });
  return row;
}

Run Track::create_run(const Where& where, const NewRun& wanted, const sql::Act& act) {
  const auto tagged = [](const KeyValue& t) { return t.key == kNameTag; };
  const bool name_given = !wanted.name.empty() || std::any_of(wanted.tags.begin(), wanted.tags.end(), tagged);
  NewRun run = named(wanted, random_);
  if (wanted.id.empty()) run.id = random_run_id(random_);
  ensure_default(where);
  const auto now = clock_.wall().count() / 1000;
  return database_.write(act, [&](sql::Writer& w) {
    if (const auto before = wanted.id.empty() ? std::nullopt : find_run(w, where, run.id)) return load_run(w, *before);
    const auto experiment = need_experiment(w, where, run.experiment);
    if (experiment.experiment.stage != Stage::active)
      throw Error(Code::invalid, fmt::format("the experiment {} is deleted: restore it first", run.experiment));
    // A client that got no answer because this server died asks again. Only then, and only for a run that nothing has
    // touched since, is the second call the first.
    if (const auto start = run.start_ms.value_or(now); run.start_ms && start < began_ms_ && now - start < kReplayMs) {
      std::optional<std::int64_t> place;
      w.query(
          "SELECT place, name FROM track_run WHERE experiment = ? AND start_ms = ? AND user_id = ?"
          " AND status = 'RUNNING' AND changed_ms < ?",
          {experiment.id, start, run.user, began_ms_}, [&](const sql::Row& row) {
            if (!name_given || row.text(1) == run.name) place = row.integer(0);
          });
      if (place) {
        const auto row = *run_at(w, experiment.id, *place);
        auto same = load_run(w, row);
        auto tags = run.tags;
        if (!name_given) tags.back().value = same.info.name;
        std::sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
        if (same.metrics.empty() && same.params.empty() && same.tags == tags) return same;
      }
    }
    return load_run(w, add_run(w, where, experiment.id, run));
  });
}

std::function<void(sql::Writer&)> Track::run_to_add(const Where& where, const NewRun& wanted) {
  CHECK(!wanted.id.empty(), "who adds a run to a write of its own must be able to find it");
  ensure_default(where);
  return [this, where, run = named(wanted, random_)](sql::Writer& w) {
    if (find_run(w, where, run.id)) return;
    const auto found = find_experiment(w, where, run.experiment);
    if (found && found->experiment.stage == Stage::active) add_run(w, where, found->id, run);
  };
}

bool Track::has_run(const Where& where, const std::string& run_id) {
  return database_.read([&](sql::Reader& r) { return find_run(r, where, run_id).has_value(); });
}

Run Track::run(const Where& where, const std::string& run_id) {
  return database_.read([&](sql::Reader& r) { return load_run(r, need_run(r, where, run_id)); });
}

RunInfo Track::run_info(const Where& where, const std::string& run_id) {
  return database_.read([&](sql::Reader& r) { return need_run(r, where, run_id).info; });
}

RunInfo Track::update_run(const Where& where, const std::string& run_id, const RunChange& change, const sql::Act& act) {
  if (change.name) check_length("run_name", *change.name, kTagBytesMax);
  return database_.write(act, [&](sql::Writer& w) {
    auto row = need_active_run(w, where, run_id);
    std::vector<Change> changes;
    if (change.status) {
      row.info.status = *change.status;
      changes.push_back(attribute(row, "status", name(*change.status)));
    }
    if (change.end_ms) {
      row.info.end_ms = *change.end_ms == 0 ? std::nullopt : change.end_ms;
      changes.push_back(attribute(row, "end_time", row.info.end_ms));
    }
    if (change.name && !change.name->empty()) {
      row.info.name = *change.name;
      set_tag(w, row, {std::string(kNameTag), *change.name}, changes);
    }
    w.execute(
        "UPDATE track_run SET status = ?, end_ms = ?, changed_ms = ? WHERE experiment = ? AND place = ?",
        {name(row.info.status), nullable(row.info.end_ms), clock_.wall().count() / 1000, row.experiment, row.place});
    images_.changed(w, row);
    w.record({scope_of(where, "run", run_id), {}, crypto::sha256(name(row.info.status))});
    w.after_commit([this, changes = std::move(changes)]() mutable { columns_.note(std::move(changes)); });
    return row.info;
  });
}

void Track::set_run_stage(const Where& where, const std::string& run_id, Stage stage, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_run(w, where, run_id);
    // Deleted again it is no younger: retention counts from the first time.
    w.execute("UPDATE track_run SET stage = ?, changed_ms = ? WHERE experiment = ? AND place = ? AND stage <> ?",
              {name(stage), clock_.wall().count() / 1000, row.experiment, row.place, name(stage)});
    images_.changed(w, row);
    w.record({scope_of(where, "run", run_id), crypto::sha256(name(row.info.stage)), crypto::sha256(name(stage))});
    w.after_commit([this, changed = attribute(row, "stage", name(stage))] { columns_.note({changed}); });
  });
}

void Track::log(const Where& where, const std::string& run_id, const Batch& batch, const sql::Act& act) {
  check(batch);
  // Grouped by series, each in the order given.
  std::map<std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>,
           std::pair<const Metric*, std::vector<Point>>>
      series;
  for (const auto& metric : batch.metrics) {
    auto& [of, points] = series[{metric.key, metric.model_id, metric.dataset_name, metric.dataset_digest}];
    of = &metric;
    points.push_back(metric.point);
  }
  const auto digest = digest_of(batch);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_active_run(w, where, run_id);
    std::vector<Change> changes;
    for (const auto& param : batch.params) set_param(w, row, param, changes);
    for (const auto& [key, value] : series) log_series(w, row, *value.first, value.second, changes);
    for (const auto& tag : batch.tags) set_tag(w, row, tag, changes);
    images_.changed(w, row);
    w.record({scope_of(where, "run", run_id), {}, digest});
    w.after_commit([this, changes = std::move(changes)]() mutable { columns_.note(std::move(changes)); });
  });
  points_logged_.Increment(static_cast<double>(batch.metrics.size()));
}

void Track::delete_tag(const Where& where, const std::string& run_id, const std::string& key, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_active_run(w, where, run_id);
    if (w.execute("DELETE FROM track_tag WHERE experiment = ? AND place = ? AND key = ?",
                  {row.experiment, row.place, key}) == 0)
      throw Error(Code::not_found, fmt::format("no tag '{}' on run {}", key, run_id));
    images_.changed(w, row);
    w.record({scope_of(where, "run", run_id), crypto::sha256(key), {}});
    w.after_commit(
        [this, change = Change{row.experiment, row.place, {Entity::tag, key}, {}, {}}] { columns_.note({change}); });
  });
}

bool Track::make_images(const sql::Act& act) {
  const auto missing = database_.read([](sql::Reader& r) { return Images::missing(r); });
  if (missing) database_.write(act, [&](sql::Writer& w) { Images::make(w, *missing); });
  return missing.has_value();
}

Found<Run> Track::search_runs(const Where& where, const SearchRuns& search) {
  Found<Run> found;
  found.more = search_runs(where, search, [&](const Run& run) { found.items.push_back(run); });
  return found;
}

bool Track::search_runs(const Where& where, const SearchRuns& search, const std::function<void(const Run&)>& each) {
  Columns::Asked asked;
  asked.filter = parse_filter(search.filter, kRunGrammar);
  asked.order = parse_order_by(search.order_by, kRunGrammar);
  asked.active = search.view != View::deleted;
  asked.deleted = search.view != View::active;
  asked.offset = search.offset;
  asked.limit = search.limit;
  ensure_default(where);
  const auto began = clock_.now();
  // The same project's experiments only; one that is not there has no runs.
  const auto experiments = database_.read([&](sql::Reader& r) {
    std::vector<std::int64_t> ids;
    for (const auto number : search.experiments)
      if (const auto row = find_experiment(r, where, number);
          row && std::find(ids.begin(), ids.end(), row->id) == ids.end())
        ids.push_back(row->id);
    return ids;
  });
  const auto answer = columns_.search(experiments, asked);
  auto& kept = columns_.runs();
  std::vector<RunCache::Kept> runs;
  bool all = true;
  for (const auto& place : answer.runs) all &= runs.emplace_back(kept.find(place.experiment, place.place)) != nullptr;
  if (!all) {
    const auto seen = kept.seen();
    database_.read([&](sql::Reader& r) {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto& place = answer.runs[i];
        if (runs[i]) continue;
        const auto row = run_at(r, place.experiment, place.place);
        if (!row) continue;  // removed meanwhile
        runs[i] = std::make_shared<const Run>(load_run(r, *row));
        kept.put(place.experiment, place.place, runs[i], seen);
      }
    });
  }
  for (const auto& run : runs)
    if (run) each(*run);
  search_seconds_.Observe(std::chrono::duration<double>(clock_.now() - began).count());
  return answer.more;
}

}  // namespace falaj::track
