// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/removal.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

constexpr std::size_t kProjectsRememberedMax = 10'000;

void insert_experiment(sql::Writer& w, const Where& where, std::int64_t number, std::string_view name,
                       std::int64_t now_ms) {
  w.execute(
      "INSERT INTO track_experiment(id, tenant, project, number, name, stage, created_ms, updated_ms, runs)"
      " VALUES (?, ?, ?, ?, ?, 'active', ?, ?, 0)",
      {next_number(w, "experiment"), where.tenant.str(), where.project.str(), number, name, now_ms, now_ms});
  w.record({scope_of(where, "experiment", std::to_string(number)), {}, crypto::sha256(name)});
}

void put_tag(sql::Writer& w, std::int64_t id, const KeyValue& tag) {
  w.execute(
      "INSERT INTO track_experiment_tag(experiment, key, value) VALUES (?, ?, ?)"
      " ON CONFLICT (experiment, key) DO UPDATE SET value = excluded.value",
      {id, tag.key, tag.value});
}

void check_tag(const KeyValue& tag) {
  check_key("tags", tag.key);
  check_length(fmt::format("value of tag '{}'", tag.key), tag.value, kExperimentTagBytesMax);
}

void check_name(const std::string& name) {
  if (name.empty()) throw Error(Code::invalid, "name: an experiment needs one");
  check_length("name", name, kExperimentNameBytesMax);
}

void touch(sql::Writer& w, std::int64_t id, std::int64_t now_ms) {
  w.execute("UPDATE track_experiment SET updated_ms = ? WHERE id = ?", {now_ms, id});
}

}  // namespace

Track::Track(sql::Database& database, const iam::Directory& directory, const sys::Clock& clock, sys::Random& random,
             Metrics& metrics, TrackOptions options)
    : database_(database),
      directory_(directory),
      clock_(clock),
      random_(random),
      began_ms_(clock.wall().count() / 1000),
      columns_(database, options.search_memory_bytes),
      points_logged_(metrics.counter("falaj_track_points_total", "Points of metrics logged.")),
      runs_created_(metrics.counter("falaj_track_runs_total", "Runs created.")),
      search_seconds_(
          metrics.histogram("falaj_track_search_seconds", "Time a search of runs took.", Metrics::seconds_buckets())) {}

Track::~Track() = default;

void Track::ensure_default(const Where& where) {
  const auto key = iam::owned_name(where.tenant.str(), where.project.str());
  {
    Lock lock(mu_);
    if (std::find(projects_.begin(), projects_.end(), key) != projects_.end()) return;
  }
  if (!directory_.snapshot()->find<iam::Project>(key))
    throw Error(Code::not_found, fmt::format("no such project: {}", where.scope().str()));
  const auto there = [&](sql::Reader& r) { return find_experiment(r, where, kDefaultExperiment).has_value(); };
  if (!database_.read(there)) {
    const sql::Act act{"system/track", "experiment.create", where.scope().str(), ""};
    database_.write(act, [&](sql::Writer& w) {
      if (!there(w))
        insert_experiment(w, where, kDefaultExperiment, kDefaultExperimentName, clock_.wall().count() / 1000);
    });
  }
  Lock lock(mu_);
  if (projects_.size() >= kProjectsRememberedMax) projects_.clear();
  projects_.push_back(key);
}

std::int64_t Track::create_experiment(const Where& where, const std::string& name, const std::vector<KeyValue>& tags,
                                      const sql::Act& act) {
  check_name(name);
  for (const auto& tag : tags) check_tag(tag);
  ensure_default(where);
  return database_.write(act, [&](sql::Writer& w) {
    if (const auto taken = find_experiment(w, where, name))
      throw Error(Code::exists, fmt::format("an experiment of this name exists{}: '{}'",
                                            taken->experiment.stage == Stage::active ? "" : " and is deleted", name));
    const auto number = next_experiment(w, where);
    insert_experiment(w, where, number, name, clock_.wall().count() / 1000);
    const auto made = need_experiment(w, where, number);
    for (const auto& tag : tags) put_tag(w, made.id, tag);
    return number;
  });
}

Experiment Track::experiment(const Where& where, std::int64_t number) {
  ensure_default(where);
  return database_.read([&](sql::Reader& r) {
    auto row = need_experiment(r, where, number);
    row.experiment.tags = experiment_tags(r, row.id);
    return row.experiment;
  });
}

Experiment Track::experiment_by_name(const Where& where, const std::string& name) {
  ensure_default(where);
  return database_.read([&](sql::Reader& r) {
    auto row = find_experiment(r, where, name);
    if (!row) throw Error(Code::not_found, fmt::format("no experiment named '{}' in this project", name));
    row->experiment.tags = experiment_tags(r, row->id);
    return row->experiment;
  });
}

void Track::rename_experiment(const Where& where, std::int64_t number, const std::string& name, const sql::Act& act) {
  check_name(name);
  ensure_default(where);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_experiment(w, where, number);
    if (row.experiment.stage != Stage::active)
      throw Error(Code::invalid, fmt::format("the experiment {} is deleted: restore it first", number));
    if (const auto taken = find_experiment(w, where, name); taken && taken->id != row.id)
      throw Error(Code::exists, fmt::format("an experiment of this name exists: '{}'", name));
    w.execute("UPDATE track_experiment SET name = ?, updated_ms = ? WHERE id = ?",
              {name, clock_.wall().count() / 1000, row.id});
    w.record({scope_of(where, "experiment", std::to_string(number)), crypto::sha256(row.experiment.name),
              crypto::sha256(name)});
  });
}

void Track::set_experiment_stage(const Where& where, std::int64_t number, Stage stage, const sql::Act& act) {
  ensure_default(where);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_experiment(w, where, number);
    if (row.experiment.stage == stage)
      throw Error(Code::not_found,
                  fmt::format("no {} experiment with id {}", stage == Stage::deleted ? "active" : "deleted", number));
    const auto now = clock_.wall().count() / 1000;
    w.execute("UPDATE track_experiment SET stage = ?, updated_ms = ? WHERE id = ?", {name(stage), now, row.id});
    w.execute("UPDATE track_run SET stage = ?, changed_ms = ? WHERE experiment = ? AND stage <> ?",
              {name(stage), now, row.id, name(stage)});
    images_.stages_changed(w, row.id);
    w.record({scope_of(where, "experiment", std::to_string(number)), crypto::sha256(name(row.experiment.stage)),
              crypto::sha256(name(stage))});
    w.after_commit([this, id = row.id] { columns_.drop(id); });
  });
}

void Track::set_experiment_tag(const Where& where, std::int64_t number, const KeyValue& tag, const sql::Act& act) {
  check_tag(tag);
  ensure_default(where);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_experiment(w, where, number);
    put_tag(w, row.id, tag);
    touch(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "experiment", std::to_string(number)), {}, crypto::sha256(tag.key + "\n" + tag.value)});
  });
}

void Track::delete_experiment_tag(const Where& where, std::int64_t number, const std::string& key,
                                  const sql::Act& act) {
  ensure_default(where);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_experiment(w, where, number);
    if (w.execute("DELETE FROM track_experiment_tag WHERE experiment = ? AND key = ?", {row.id, key}) == 0)
      throw Error(Code::not_found, fmt::format("no tag '{}' on experiment {}", key, number));
    touch(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "experiment", std::to_string(number)), crypto::sha256(key), {}});
  });
}

// Projects have few experiments beside runs: all are read and looked at.
Found<Experiment> Track::search_experiments(const Where& where, const SearchExperiments& search) {
  const auto filter = parse_filter(search.filter, kExperimentGrammar);
  auto order = parse_order_by(search.order_by, kExperimentGrammar);
  ensure_default(where);
  auto all = database_.read([&](sql::Reader& r) {
    std::vector<Experiment> out;
    std::unordered_map<std::int64_t, std::size_t> at;
    r.query(
        "SELECT id, number, name, stage, created_ms, updated_ms FROM track_experiment WHERE tenant = ? AND project = ?",
        {where.tenant.str(), where.project.str()}, [&](const sql::Row& row) {
          at[row.integer(0)] = out.size();
          out.push_back({row.integer(1),
                         std::string(row.text(2)),
                         row.text(3) == "active" ? Stage::active : Stage::deleted,
                         row.integer(4),
                         row.integer(5),
                         {}});
        });
    r.query(
        "SELECT t.experiment, t.key, t.value FROM track_experiment_tag t JOIN track_experiment e ON e.id = t.experiment"
        " WHERE e.tenant = ? AND e.project = ? ORDER BY t.experiment, t.key",
        {where.tenant.str(), where.project.str()}, [&](const sql::Row& row) {
          out[at.at(row.integer(0))].tags.push_back({std::string(row.text(1)), std::string(row.text(2))});
        });
    return out;
  });
  const auto lets_through = [&](const Experiment& e) {
    if ((search.view == View::active && e.stage != Stage::active) ||
        (search.view == View::deleted && e.stage != Stage::deleted))
      return false;
    return std::all_of(filter.begin(), filter.end(), [&](const Comparison& c) {
      if (c.entity == Entity::tag) {
        const auto tag = std::find_if(e.tags.begin(), e.tags.end(), [&](const auto& t) { return t.key == c.key; });
        if (c.op == Op::is_null || c.op == Op::is_not_null) return (tag == e.tags.end()) == (c.op == Op::is_null);
        return tag != e.tags.end() && matches(c, tag->value);
      }
      if (c.key == "name") return matches(c, e.name);
      return matches(c, static_cast<double>(c.key == "creation_time" ? e.created_ms : e.updated_ms));
    });
  };
  all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& e) { return !lets_through(e); }), all.end());
  if (order.empty())
    order = {{Entity::attribute, "creation_time", false}, {Entity::attribute, "experiment_id", true}};
  else
    order.push_back({Entity::attribute, "experiment_id", false});
  std::sort(all.begin(), all.end(), [&](const Experiment& a, const Experiment& b) {
    for (const auto& item : order) {
      const auto number = [&](const Experiment& e) {
        return item.key == "creation_time" ? e.created_ms : item.key == "experiment_id" ? e.number : e.updated_ms;
      };
      const int less = item.key == "name" ? a.name.compare(b.name) : (number(a) > number(b)) - (number(a) < number(b));
      if (less != 0) return item.ascending ? less < 0 : less > 0;
    }
    return false;
  });
  Found<Experiment> found;
  for (auto i = search.offset; i < all.size() && found.items.size() < search.limit; ++i)
    found.items.push_back(std::move(all[i]));
  found.more = search.offset + found.items.size() < all.size();
  return found;
}

}  // namespace falaj::track
