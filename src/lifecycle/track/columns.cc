// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/columns.h"

#include <algorithm>

#include "lifecycle/track/images.h"

namespace falaj::track {

namespace {

constexpr std::size_t kNotedMax = 1'000'000;  // past it everything loads again instead

const Columns::Key kRunId{Entity::attribute, "run_id"};
const Columns::Key kStage{Entity::attribute, "stage"};
const Columns::Key kStart{Entity::attribute, "start_time"};

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

const Column& Columns::column(std::int64_t experiment, const Key& key) {
  auto& loaded = loaded_[experiment];
  const auto found = loaded.columns.find(key);
  if (found != loaded.columns.end()) return found->second;
  {
    // Before the snapshot that is loaded from: what commits meanwhile is noted, and set again in its order.
    Lock lock(noted_mu_);
    followed_.insert(experiment);
  }
  return loaded.columns.emplace(key, database_.read([&](sql::Reader& r) { return load_column(r, experiment, key); }))
      .first->second;
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

  struct Candidate {
    std::uint32_t experiment, place;
  };
  std::vector<Candidate> candidates;
  bool ids_known = true;
  for (std::size_t e = 0; e < experiments.size(); ++e) {
    const auto experiment = experiments[e];
    const auto& stages = column(experiment, kStage);
    std::vector<bool> keep(stages.size());
    for (std::size_t i = 0; i < keep.size(); ++i)
      keep[i] = stages.has(i) && (stages.text(i) == "active" ? asked.active : asked.deleted);
    for (const auto& comparison : asked.filter) {
      if (comparison.entity == Entity::dataset) {
        const auto good = of_datasets(experiment, comparison, keep.size());
        for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = keep[i] && good[i];
      } else {
        column(experiment, {comparison.entity, comparison.key}).filter(comparison, keep);
      }
    }
    // The newest first, which is the usual order: then a page is found early, and the rest only compared with its end.
    for (std::size_t i = keep.size(); i-- > 0;)
      if (keep[i]) candidates.push_back({static_cast<std::uint32_t>(e), static_cast<std::uint32_t>(i)});
    ids_known = ids_known && loaded_[experiment].columns.contains(kRunId);
    loaded_[experiment].used = searches_;
  }

  const auto begin = std::min(asked.offset, candidates.size());
  const auto end = std::min(begin + asked.limit, candidates.size());
  const auto at = [&](std::size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  // Runs alike in all that is asked for stand by their ids, the largest column of all: it is loaded when there are
  // such.
  for (bool again = true; again;) {
    if (ids_known) order.push_back({Entity::attribute, "run_id", true});
    std::vector<std::vector<const Column*>> sort_by(experiments.size());
    for (std::size_t e = 0; e < experiments.size(); ++e)
      for (const auto& item : order) sort_by[e].push_back(&column(experiments[e], {item.entity, item.key}));
    bool alike = false;
    const auto before = [&](const Candidate& a, const Candidate& b) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        const int less =
            sort_by[a.experiment][i]->compare(a.place, *sort_by[b.experiment][i], b.place, order[i].ascending);
        if (less != 0) return less < 0;
      }
      alike = alike || a.experiment != b.experiment || a.place != b.place;
      return std::pair(a.experiment, a.place) < std::pair(b.experiment, b.place);
    };
    if (begin > 0) std::nth_element(at(0), at(begin), at(candidates.size()), before);
    std::partial_sort(at(begin), at(end), at(candidates.size()), before);
    again = alike && !ids_known;
    ids_known = true;
  }

  Answer answer;
  answer.more = end < candidates.size();
  for (auto i = begin; i < end; ++i)
    answer.runs.push_back({experiments[candidates[i].experiment], candidates[i].place});
  shrink(experiments);
  return answer;
}

}  // namespace falaj::track
