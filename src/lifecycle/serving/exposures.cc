// SPDX-License-Identifier: Apache-2.0
// what is counted of variants while they are compared: rows answered, as servers say, and sums of labels

#include "foundation/base/error.h"
#include "lifecycle/serving/predictions.h"

namespace falaj::serving {
namespace {

constexpr std::int64_t kKeepEveryUs = 10'000'000;
constexpr std::size_t kExposuresMax = 100'000;

std::string counted_scope(const Where& where, const std::string& endpoint) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "endpoint", endpoint).str();
}

}  // namespace

void PredictionLog::load_exposures() {
  if (std::exchange(loaded_, true)) return;
  const auto rows = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT tenant, project, endpoint, variant, version, server, seen, total FROM predictions_exposure",
                 {}, [](const sql::Row& row) {
                   const auto text = [&](int at) { return std::string(row.text(at)); };
                   return std::pair(Exposed{text(0), text(1), text(2), text(3), row.integer(4), text(5)},
                                    Exposure{row.integer(6), row.integer(7), true});
                 });
  });
  exposures_.insert(rows.begin(), rows.end());
}

void PredictionLog::count_for(const Where& where, const std::string& endpoint, const std::string& rule,
                              std::int64_t since_us) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto scope = counted_scope(where, endpoint);
  Lock lock(counting_);
  load_exposures();
  if (const auto known = rules_.find(scope); known != rules_.end() && known->second == rule) return;
  const auto stored = parts_.database.read([&](sql::Reader& r) {
    return r.first("SELECT rule FROM predictions_experiment WHERE tenant = ? AND project = ? AND endpoint = ?",
                   {tenant, project, endpoint}, [](const sql::Row& row) { return std::string(row.text(0)); });
  });
  if (stored != rule) {
    parts_.database.write({"system/serving", "experiment.begin", scope, ""}, [&](sql::Writer& w) {
      w.execute("DELETE FROM predictions_sum WHERE tenant = ? AND project = ? AND endpoint = ?",
                {tenant, project, endpoint});
      w.execute("DELETE FROM predictions_exposure WHERE tenant = ? AND project = ? AND endpoint = ?",
                {tenant, project, endpoint});
      w.execute("DELETE FROM predictions_experiment WHERE tenant = ? AND project = ? AND endpoint = ?",
                {tenant, project, endpoint});
      w.execute("INSERT INTO predictions_experiment(tenant, project, endpoint, rule, since_us) VALUES (?, ?, ?, ?, ?)",
                {tenant, project, endpoint, rule, since_us});
      w.execute(
          "INSERT INTO predictions_sum(tenant, project, endpoint, variant, version, labels, total, squares) SELECT "
          "tenant, project, endpoint, variant, version, COUNT(*), SUM(value), SUM(value * value) FROM "
          "predictions_label "
          "WHERE tenant = ? AND project = ? AND endpoint = ? AND predicted_us >= ? GROUP BY tenant, project, endpoint, "
          "variant, version",
          {tenant, project, endpoint, since_us});
    });
    std::erase_if(exposures_, [&](const auto& entry) {
      return std::get<0>(entry.first) == tenant && std::get<1>(entry.first) == project &&
             std::get<2>(entry.first) == endpoint;
    });
  }
  rules_[scope] = rule;
}

void PredictionLog::expose(const Where& where, const std::string& endpoint, const std::string& variant,
                           std::int64_t version, const std::string& server, std::int64_t rows) {
  Lock lock(counting_);
  load_exposures();
  const Exposed of{where.tenant.str(), where.project.str(), endpoint, variant, version, server};
  const auto found = exposures_.find(of);
  if (found == exposures_.end()) {  // what it answered before we looked is not of this experiment
    if (exposures_.size() < kExposuresMax) exposures_.emplace(of, Exposure{rows, 0, false});
    return;
  }
  auto& exposure = found->second;
  if (rows == exposure.seen) return;
  exposure.total += rows > exposure.seen ? rows - exposure.seen : rows;  // fewer: it was started again
  exposure.seen = rows;
  exposure.kept = false;
}

void PredictionLog::keep_exposures() {
  Lock lock(counting_);
  const auto now = parts_.clock.wall().count();
  if (now - kept_us_ < kKeepEveryUs) return;
  kept_us_ = now;
  std::vector<std::pair<Exposed, Exposure>> changed;
  for (const auto& entry : exposures_)
    if (!entry.second.kept) changed.push_back(entry);
  if (changed.empty()) return;
  parts_.database.write({"system/serving", "experiment.count", "/", ""}, [&](sql::Writer& w) {
    for (const auto& [of, exposure] : changed) {
      const auto& [tenant, project, endpoint, variant, version, server] = of;
      w.execute(
          "DELETE FROM predictions_exposure WHERE tenant = ? AND project = ? AND endpoint = ? AND variant = ? AND "
          "version = ? AND server = ?",
          {tenant, project, endpoint, variant, version, server});
      w.execute(
          "INSERT INTO predictions_exposure(tenant, project, endpoint, variant, version, server, seen, total) VALUES "
          "(?, ?, ?, ?, ?, ?, ?, ?)",
          {tenant, project, endpoint, variant, version, server, exposure.seen, exposure.total});
    }
  });
  for (const auto& [of, exposure] : changed) exposures_[of].kept = true;
}

PredictionLog::Counted PredictionLog::counted(const Where& where, const std::string& endpoint) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  Counted out;
  parts_.database.read([&](sql::Reader& r) {
    out.since_us =
        r.first("SELECT since_us FROM predictions_experiment WHERE tenant = ? AND project = ? AND endpoint = ?",
                {tenant, project, endpoint}, [](const sql::Row& row) { return row.integer(0); })
            .value_or(0);
    r.query(
        "SELECT variant, version, labels, total, squares FROM predictions_sum WHERE tenant = ? AND project = ? AND "
        "endpoint = ?",
        {tenant, project, endpoint}, [&](const sql::Row& row) {
          auto& labels = out.versions[{std::string(row.text(0)), row.integer(1)}].labels;
          labels.count = static_cast<std::uint64_t>(row.integer(2));
          labels.sum = row.real(3);
          labels.sum_of_squares = row.real(4);
        });
  });
  Lock lock(counting_);
  load_exposures();
  for (const auto& [of, exposure] : exposures_)
    if (std::get<0>(of) == tenant && std::get<1>(of) == project && std::get<2>(of) == endpoint)
      out.versions[{std::get<3>(of), std::get<4>(of)}].exposures += exposure.total;
  return out;
}

}  // namespace falaj::serving
