// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/columns.h"

#include <algorithm>
#include <cmath>

#include "foundation/base/error.h"
#include "lifecycle/track/points.h"

namespace falaj::track {

namespace {

constexpr std::size_t kNotedMax = 1'000'000;  // past it everything loads again instead

const Columns::Key kRunId{Entity::attribute, "run_id"};
const Columns::Key kStage{Entity::attribute, "stage"};
const Columns::Key kStart{Entity::attribute, "start_time"};

Column::Type type_of(const Columns::Key& key) {
  const bool number = key.entity == Entity::metric ||
                      (key.entity == Entity::attribute && (key.key == "start_time" || key.key == "end_time"));
  return number ? Column::Type::number : Column::Type::text;
}

void set(Column& column, const Columns::Change& change) {
  const auto place = static_cast<std::size_t>(change.place);
  if (change.number)
    column.set(place, *change.number);
  else if (change.text)
    column.set(place, *change.text);
  else
    column.clear(place);
}

}  // namespace

void Column::set(std::size_t place, double value) {
  if (place >= numbers_.size()) {
    numbers_.resize(place + 1);
    has_.resize(place + 1);
    bytes_ = numbers_.capacity() * sizeof(double) + has_.capacity() / 8;
  }
  numbers_[place] = value;
  has_[place] = true;
}

void Column::set(std::size_t place, std::string_view value) {
  const auto [found, added] = code_of_.try_emplace(std::string(value), static_cast<std::uint32_t>(texts_.size()));
  if (added) {
    texts_.emplace_back(value);
    bytes_ += 2 * (sizeof(std::string) + value.size()) + 3 * sizeof(void*);
  }
  if (place >= codes_.size()) {
    bytes_ += (place + 1 - codes_.size()) * sizeof(std::uint32_t);
    codes_.resize(place + 1);
  }
  codes_[place] = found->second;
}

void Column::clear(std::size_t place) {
  if (place >= size()) return;
  if (type_ == Type::text)
    codes_[place] = 0;
  else
    has_[place] = false;
}

void Column::filter(const Comparison& comparison, std::vector<bool>& keep) const {
  if (comparison.op == Op::is_null || comparison.op == Op::is_not_null) {
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (has(i) == (comparison.op == Op::is_null)) keep[i] = false;
    return;
  }
  if (type_ == Type::number) {
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i] && !(has(i) && matches(comparison, numbers_[i]))) keep[i] = false;
    return;
  }
  // Each distinct text is compared once.
  std::vector<bool> good(texts_.size());
  for (std::size_t code = 1; code < texts_.size(); ++code) good[code] = matches(comparison, texts_[code]);
  for (std::size_t i = 0; i < keep.size(); ++i)
    if (keep[i] && !(i < codes_.size() && good[codes_[i]])) keep[i] = false;
}

int Column::compare(std::size_t a, const Column& other, std::size_t b, bool ascending) const {
  const bool has_a = has(a), has_b = other.has(b);
  if (!has_a || !has_b) return static_cast<int>(has_b) - static_cast<int>(has_a);
  if (type_ == Type::text) {
    const int order = text(a).compare(other.text(b));
    return ascending ? order : -order;
  }
  const double x = number(a), y = other.number(b);
  if (std::isnan(x) || std::isnan(y)) return static_cast<int>(std::isnan(x)) - static_cast<int>(std::isnan(y));
  const int order = x < y ? -1 : x > y ? 1 : 0;
  return ascending ? order : -order;
}

std::size_t Columns::Loaded::bytes() const {
  std::size_t all = 0;
  for (const auto& [key, column] : columns) all += column.bytes();
  return all;
}

void Columns::touch(std::int64_t experiment, std::int64_t place) { runs_.forget(experiment, place); }

void Columns::note(std::vector<Change> changes) {
  for (std::size_t i = 0; i < changes.size(); ++i)
    if (i == 0 || changes[i].experiment != changes[i - 1].experiment || changes[i].place != changes[i - 1].place)
      touch(changes[i].experiment, changes[i].place);
  Lock lock(noted_mu_);
  for (auto& change : changes)
    if (followed_.contains(change.experiment)) noted_.push_back(std::move(change));
  if (noted_.size() <= kNotedMax) return;
  noted_.clear();
  dropped_.assign(followed_.begin(), followed_.end());
  followed_.clear();
}

void Columns::drop(std::int64_t experiment) {
  runs_.forget_all();
  Lock lock(noted_mu_);
  followed_.erase(experiment);
  dropped_.push_back(experiment);
}

void Columns::apply_noted() {
  std::vector<Change> changes;
  {
    Lock lock(noted_mu_);
    changes.swap(noted_);
    for (const auto experiment : dropped_) loaded_.erase(experiment);
    dropped_.clear();
  }
  for (const auto& change : changes) {
    const auto experiment = loaded_.find(change.experiment);
    if (experiment == loaded_.end()) continue;
    const auto column = experiment->second.columns.find(change.key);
    if (column != experiment->second.columns.end()) set(column->second, change);
  }
}

Column Columns::load(std::int64_t experiment, const Key& key) {
  Column column(type_of(key));
  const auto text = [&](const sql::Row& row) {
    if (!row.is_null(1)) column.set(static_cast<std::size_t>(row.integer(0)), row.text(1));
  };
  const auto number = [&](const sql::Row& row) {
    if (!row.is_null(1)) column.set(static_cast<std::size_t>(row.integer(0)), static_cast<double>(row.integer(1)));
  };
  database_.read([&](sql::Reader& r) {
    if (key.entity == Entity::param) {
      r.query("SELECT place, value FROM track_param WHERE experiment = ? AND key = ?", {experiment, key.key}, text);
    } else if (key.entity == Entity::tag) {
      r.query("SELECT place, value FROM track_tag WHERE experiment = ? AND key = ?", {experiment, key.key}, text);
    } else if (key.entity == Entity::metric) {
      // Several series of one key (of several models, say): the newest point of them is the run's.
      std::optional<Point> newest;
      std::int64_t at = -1;
      r.query("SELECT place, value, unix_ms, step FROM track_metric WHERE experiment = ? AND key = ? ORDER BY place",
              {experiment, key.key}, [&](const sql::Row& row) {
                const Point point{row.integer(2), row.integer(3), row.is_null(1) ? std::nan("") : row.real(1)};
                if (row.integer(0) == at && newest && !newer(point, *newest)) return;
                at = row.integer(0);
                newest = point;
                column.set(static_cast<std::size_t>(at), point.value);
              });
    } else if (key == kRunId) {
      r.query("SELECT place, run_id FROM track_run WHERE experiment = ?", {experiment}, text);
    } else if (key.key == "run_name") {
      r.query("SELECT place, name FROM track_run WHERE experiment = ?", {experiment}, text);
    } else if (key.key == "user_id") {
      r.query("SELECT place, user_id FROM track_run WHERE experiment = ?", {experiment}, text);
    } else if (key.key == "status") {
      r.query("SELECT place, status FROM track_run WHERE experiment = ?", {experiment}, text);
    } else if (key == kStage) {
      r.query("SELECT place, stage FROM track_run WHERE experiment = ?", {experiment}, text);
    } else if (key == kStart) {
      r.query("SELECT place, start_ms FROM track_run WHERE experiment = ?", {experiment}, number);
    } else if (key.key == "end_time") {
      r.query("SELECT place, end_ms FROM track_run WHERE experiment = ?", {experiment}, number);
    } else if (key.key == "artifact_uri") {
      r.query(
          "SELECT r.place, 'mlflow-artifacts:/' || CAST(e.number AS TEXT) || '/' || r.run_id || '/artifacts' FROM"
          " track_run r JOIN track_experiment e ON e.id = r.experiment WHERE r.experiment = ?",
          {experiment}, text);
    } else {
      throw Error(Code::internal, "a filter names an attribute that runs do not have: " + key.key);
    }
  });
  return column;
}

const Column& Columns::column(std::int64_t experiment, const Key& key) {
  auto& loaded = loaded_[experiment];
  const auto found = loaded.columns.find(key);
  if (found != loaded.columns.end()) return found->second;
  {
    // Before the snapshot that is loaded from: what commits meanwhile is noted, and set again in its order.
    Lock lock(noted_mu_);
    followed_.insert(experiment);
  }
  return loaded.columns.emplace(key, load(experiment, key)).first->second;
}

std::vector<bool> Columns::of_datasets(std::int64_t experiment, const Comparison& comparison, std::size_t size) {
  std::vector<bool> out(size);
  database_.read([&](sql::Reader& r) {
    r.query(
        "SELECT i.place, d.name, d.digest, i.context FROM track_input i JOIN track_dataset d ON d.id = i.dataset"
        " WHERE i.experiment = ?",
        {experiment}, [&](const sql::Row& row) {
          const auto value = row.text(comparison.key == "name" ? 1 : comparison.key == "digest" ? 2 : 3);
          const auto place = static_cast<std::size_t>(row.integer(0));
          if (place < size && matches(comparison, value)) out[place] = true;
        });
  });
  return out;
}

void Columns::shrink(std::span<const std::int64_t> keep) {
  std::size_t all = 0;
  for (const auto& [experiment, loaded] : loaded_) all += loaded.bytes();
  while (all > bytes_max_) {
    auto oldest = loaded_.end();
    for (auto it = loaded_.begin(); it != loaded_.end(); ++it)
      if (std::find(keep.begin(), keep.end(), it->first) == keep.end() &&
          (oldest == loaded_.end() || it->second.used < oldest->second.used))
        oldest = it;
    if (oldest == loaded_.end()) return;
    all -= oldest->second.bytes();
    {
      Lock lock(noted_mu_);
      followed_.erase(oldest->first);
    }
    loaded_.erase(oldest);
  }
}

std::size_t Columns::bytes() const {
  Lock lock(mu_);
  std::size_t all = 0;
  for (const auto& [experiment, loaded] : loaded_) all += loaded.bytes();
  return all;
}

Columns::Answer Columns::search(std::span<const std::int64_t> experiments, const Asked& asked) {
  Lock lock(mu_);
  apply_noted();
  ++searches_;

  std::vector<Order> order = asked.order;
  order.push_back({Entity::attribute, "start_time", false});
  order.push_back({Entity::attribute, "run_id", true});

  struct Candidate {
    std::uint32_t experiment, place;
  };
  std::vector<Candidate> candidates;
  std::vector<std::vector<const Column*>> sort_by(experiments.size());
  for (std::size_t e = 0; e < experiments.size(); ++e) {
    const auto experiment = experiments[e];
    const auto& ids = column(experiment, kRunId);
    const auto& stages = column(experiment, kStage);
    std::vector<bool> keep(ids.size());
    for (std::size_t i = 0; i < keep.size(); ++i)
      keep[i] = ids.has(i) && stages.has(i) && (stages.text(i) == "active" ? asked.active : asked.deleted);
    for (const auto& comparison : asked.filter) {
      if (comparison.entity == Entity::dataset) {
        const auto good = of_datasets(experiment, comparison, keep.size());
        for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = keep[i] && good[i];
      } else {
        column(experiment, {comparison.entity, comparison.key}).filter(comparison, keep);
      }
    }
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i]) candidates.push_back({static_cast<std::uint32_t>(e), static_cast<std::uint32_t>(i)});
    for (const auto& item : order) sort_by[e].push_back(&column(experiment, {item.entity, item.key}));
    loaded_[experiment].used = searches_;
  }

  const auto before = [&](const Candidate& a, const Candidate& b) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int less =
          sort_by[a.experiment][i]->compare(a.place, *sort_by[b.experiment][i], b.place, order[i].ascending);
      if (less != 0) return less < 0;
    }
    return std::pair(a.experiment, a.place) < std::pair(b.experiment, b.place);
  };
  const auto begin = std::min(asked.offset, candidates.size());
  const auto end = std::min(begin + asked.limit, candidates.size());
  const auto at = [&](std::size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  if (begin > 0) std::nth_element(at(0), at(begin), at(candidates.size()), before);
  std::partial_sort(at(begin), at(end), at(candidates.size()), before);

  Answer answer;
  answer.more = end < candidates.size();
  for (auto i = begin; i < end; ++i)
    answer.runs.push_back({experiments[candidates[i].experiment], candidates[i].place});
  shrink(experiments);
  return answer;
}

}  // namespace falaj::track
