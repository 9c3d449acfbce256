// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "foundation/base/error.h"
#include "lifecycle/track/filter.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

using DatasetRef = SearchLoggedModels::DatasetRef;

constexpr std::string_view kStatusBegins = "LOGGED_MODEL_";

bool is_of(const DatasetRef& dataset, std::string_view name, std::string_view digest) {
  return dataset.name == name && (dataset.digest.empty() || dataset.digest == digest);
}

// What one search looks at, read from one snapshot.
class Candidates {
 public:
  Candidates(sql::Reader& reader, std::vector<std::int64_t> experiments)
      : reader_(reader), experiments_(std::move(experiments)) {
    for (const auto experiment : experiments_) {
      auto some = logged_models_of(reader_, experiment);
      rows_.insert(rows_.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    }
  }

  std::vector<LoggedModelRow>& rows() { return rows_; }

  void keep(const Comparison& comparison, const std::vector<DatasetRef>& datasets) {
    if (comparison.entity == Entity::metric) {
      std::unordered_map<std::int64_t, bool> good;
      each_metric(comparison.key, [&](std::int64_t id, std::string_view name, std::string_view digest, const Point& p) {
        const bool counts = datasets.empty() || std::any_of(datasets.begin(), datasets.end(),
                                                            [&](const auto& d) { return is_of(d, name, digest); });
        if (counts && matches(comparison, p.value)) good[id] = true;
      });
      drop_unless([&](const LoggedModelRow& row) { return good.contains(row.id); });
    } else if (comparison.entity == Entity::attribute) {
      drop_unless([&](const LoggedModelRow& row) { return attribute_matches(comparison, row.model); });
    } else {
      const auto values = values_of(comparison.entity, comparison.key);
      drop_unless([&](const LoggedModelRow& row) {
        const auto found = values.find(row.id);
        return found != values.end() && matches(comparison, found->second);
      });
    }
  }

  // Newest point of each model's metric as measured on the dataset.
  std::unordered_map<std::int64_t, double> latest(const std::string& key, const DatasetRef& dataset) {
    std::unordered_map<std::int64_t, Point> points;
    each_metric(key, [&](std::int64_t id, std::string_view name, std::string_view digest, const Point& point) {
      if (!dataset.name.empty() && !is_of(dataset, name, digest)) return;
      const auto [found, added] = points.try_emplace(id, point);
      if (!added && newer(point, found->second)) found->second = point;
    });
    std::unordered_map<std::int64_t, double> out;
    for (const auto& [id, point] : points) out[id] = point.value;
    return out;
  }

 private:
  template <class F>
  void drop_unless(F&& good) {
    rows_.erase(std::remove_if(rows_.begin(), rows_.end(), [&](const auto& row) { return !good(row); }), rows_.end());
  }

  template <class F>
  void each_metric(const std::string& key, F&& each) {
    for (const auto experiment : experiments_)
      reader_.query(
          "SELECT m.id, t.dataset, t.digest, t.unix_ms, t.step, t.value FROM track_model m"
          " JOIN track_metric t ON t.model = m.model_id JOIN track_experiment e ON e.id = t.experiment"
          " JOIN track_experiment home ON home.id = m.experiment AND home.tenant = e.tenant AND home.project = "
          "e.project"
          " WHERE m.experiment = ? AND t.model <> '' AND t.key = ?",
          {experiment, key}, [&](const sql::Row& row) {
            each(row.integer(0), row.text(1), row.text(2),
                 Point{row.integer(3), row.integer(4), row.is_null(5) ? std::nan("") : row.real(5)});
          });
  }

  std::unordered_map<std::int64_t, std::string> values_of(Entity entity, const std::string& key) {
    std::unordered_map<std::int64_t, std::string> out;
    const auto put = [&](const sql::Row& row) { out[row.integer(0)] = row.text(1); };
    for (const auto experiment : experiments_) {
      if (entity == Entity::param)
        reader_.query(
            "SELECT p.model, p.value FROM track_model m JOIN track_model_param p ON p.model = m.id"
            " WHERE m.experiment = ? AND p.key = ?",
            {experiment, key}, put);
      else
        reader_.query(
            "SELECT t.model, t.value FROM track_model m JOIN track_model_tag t ON t.model = m.id"
            " WHERE m.experiment = ? AND t.key = ?",
            {experiment, key}, put);
    }
    return out;
  }

  // Clients write a status with and without its prefix.
  static Comparison without_prefix(Comparison comparison) {
    const auto strip = [](std::string& text) {
      if (text.starts_with(kStatusBegins)) text.erase(0, kStatusBegins.size());
    };
    strip(comparison.text);
    for (auto& text : comparison.list) strip(text);
    return comparison;
  }

  static bool attribute_matches(const Comparison& c, const LoggedModel& model) {
    if (c.key == "name") return matches(c, model.name);
    if (c.key == "model_id") return matches(c, model.model_id);
    if (c.key == "model_type") return matches(c, model.type);
    if (c.key == "source_run_id") return matches(c, model.source_run_id);
    if (c.key == "status") return matches(without_prefix(c), name(model.status).substr(kStatusBegins.size()));
    return matches(c, static_cast<double>(c.key == "creation_timestamp" ? model.created_ms : model.updated_ms));
  }

  sql::Reader& reader_;
  const std::vector<std::int64_t> experiments_;
  std::vector<LoggedModelRow> rows_;
};

int compare(std::int64_t a, std::int64_t b) { return (a > b) - (a < b); }

int compare_attribute(const std::string& key, const LoggedModelRow& a, const LoggedModelRow& b) {
  if (key == "name") return a.model.name.compare(b.model.name);
  if (key == "model_id") return a.model.model_id.compare(b.model.model_id);
  if (key == "model_type") return a.model.type.compare(b.model.type);
  if (key == "source_run_id") return a.model.source_run_id.compare(b.model.source_run_id);
  if (key == "status") return name(a.model.status).compare(name(b.model.status));
  return key == "creation_timestamp" ? compare(a.model.created_ms, b.model.created_ms)
                                     : compare(a.model.updated_ms, b.model.updated_ms);
}

// Missing last and NaN before it, whichever the direction.
int compare_metric(const std::unordered_map<std::int64_t, double>& values, std::int64_t a, std::int64_t b,
                   bool ascending) {
  const auto x = values.find(a), y = values.find(b);
  if (x == values.end() || y == values.end()) return (x == values.end()) - (y == values.end());
  const bool nan_x = std::isnan(x->second), nan_y = std::isnan(y->second);
  if (nan_x || nan_y) return nan_x - nan_y;
  const int order = (x->second > y->second) - (x->second < y->second);
  return ascending ? order : -order;
}

}  // namespace

Found<LoggedModel> LoggedModels::search(const Where& where, const SearchLoggedModels& search) {
  const auto filter = parse_filter(search.filter, kLoggedModelGrammar);
  struct By {
    Order order;
    DatasetRef dataset;
    std::unordered_map<std::int64_t, double> metric{};
  };
  std::vector<By> by;
  for (const auto& item : search.order_by)
    by.push_back({order_by_field(item.field, item.ascending, kLoggedModelGrammar), item.dataset});
  by.push_back({{Entity::attribute, "creation_timestamp", false}, {}});

  return database_.read([&](sql::Reader& r) {
    std::vector<std::int64_t> experiments;
    for (const auto number : search.experiments)
      if (const auto row = find_experiment(r, where, number);
          row && std::find(experiments.begin(), experiments.end(), row->id) == experiments.end())
        experiments.push_back(row->id);
    Candidates candidates(r, experiments);
    for (const auto& comparison : filter) candidates.keep(comparison, search.datasets);
    for (auto& item : by)
      if (item.order.entity == Entity::metric) item.metric = candidates.latest(item.order.key, item.dataset);

    auto& rows = candidates.rows();
    const auto before = [&](const LoggedModelRow& a, const LoggedModelRow& b) {
      for (const auto& item : by) {
        int order = item.order.entity == Entity::metric
                        ? compare_metric(item.metric, a.id, b.id, item.order.ascending)
                        : compare_attribute(item.order.key, a, b) * (item.order.ascending ? 1 : -1);
        if (order != 0) return order < 0;
      }
      return a.id > b.id;
    };
    const auto begin = std::min(search.offset, rows.size());
    const auto end = begin + std::min(search.limit, rows.size() - begin);
    std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(end), rows.end(), before);

    Found<LoggedModel> found;
    found.more = end < rows.size();
    for (auto i = begin; i < end; ++i) found.items.push_back(load_logged_model(r, rows[i]));
    return found;
  });
}

}  // namespace falaj::track
