// SPDX-License-Identifier: Apache-2.0
// labels of predictions: a row each, sums by variant, and the dataset that they become

#include <cmath>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/serving/predictions.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::serving {
namespace {

constexpr std::int64_t kLateUs = 10LL * 365 * 86'400'000'000, kEarlyUs = 600'000'000;  // clocks differ a little
constexpr std::size_t kLabelFaultsMax = 20;
constexpr std::int64_t kExportMax = 100'000;

const std::vector<LoggedColumn> kLabelColumns = {{"prediction_id", "text"}, {"time", "timestamp"},
                                                 {"label", "float64"},      {"label_at", "timestamp"},
                                                 {"variant", "text"},       {"version", "int64"}};

std::vector<traffic::PredictionName> names_of(const std::vector<Label>& labels, std::int64_t now_us) {
  if (labels.empty() || labels.size() > kLabelsMax)
    throw Error(Code::invalid, fmt::format("labels: 1 to {} at once, not {}", kLabelsMax, labels.size()));
  std::vector<traffic::PredictionName> out;
  Faults faults;
  for (std::size_t i = 0; i < labels.size() && faults.size() < kLabelFaultsMax; ++i) {
    const auto at = fmt::format("labels[{}]", i);
    if (!std::isfinite(labels[i].value)) faults.push_back({at + ".value", "must be a number"});
    try {
      out.push_back(traffic::parse_prediction(labels[i].prediction));
      const auto made = out.back().at_us();
      if (made > now_us + kEarlyUs || made < now_us - kLateUs)
        faults.push_back({at + ".prediction_id", fmt::format("was made {}, which cannot be", format_time(made))});
    } catch (const Error& e) {
      faults.push_back({at + ".prediction_id", e.what()});
    }
  }
  refuse_if_any("labels", std::move(faults));
  return out;
}

using OfVersion = std::pair<std::string, std::int64_t>;  // variant and version
struct LabelSum {
  std::int64_t labels = 0;
  double total = 0, squares = 0;
};

void add_sum(sql::Writer& w, const Where& where, const std::string& endpoint, const OfVersion& of,
             const LabelSum& sum) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  if (w.execute("UPDATE predictions_sum SET labels = labels + ?, total = total + ?, squares = squares + ? WHERE tenant "
                "= ? AND project = ? AND endpoint = ? AND variant = ? AND version = ?",
                {sum.labels, sum.total, sum.squares, tenant, project, endpoint, of.first, of.second}) == 0)
    w.execute(
        "INSERT INTO predictions_sum(tenant, project, endpoint, variant, version, labels, total, squares) VALUES (?, "
        "?, ?, ?, ?, ?, ?, ?)",
        {tenant, project, endpoint, of.first, of.second, sum.labels, sum.total, sum.squares});
}

}  // namespace

LabelsTaken PredictionLog::add_labels(const Where& where, const std::string& endpoint, const std::vector<Label>& labels,
                                      const sql::Act& act) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  parts_.resources.get({"Endpoint", tenant, project, endpoint});  // not_found
  const auto now = parts_.clock.wall().count();
  const auto names = names_of(labels, now);
  const auto taken = parts_.database.write(act, [&](sql::Writer& w) {
    LabelsTaken out;
    const auto since =
        w.first("SELECT since_us FROM predictions_experiment WHERE tenant = ? AND project = ? AND endpoint = ?",
                {tenant, project, endpoint}, [](const sql::Row& row) { return row.integer(0); });
    auto number = *w.first("SELECT COALESCE(MAX(number), 0) FROM predictions_label", {},
                           [](const sql::Row& row) { return row.integer(0); });
    std::map<OfVersion, LabelSum> sums;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto& name = names[i];
      const auto& label = labels[i];
      const auto before = w.first(
          "SELECT value FROM predictions_label WHERE tenant = ? AND project = ? AND endpoint = ? AND prediction = ?",
          {tenant, project, endpoint, label.prediction}, [](const sql::Row& row) { return row.real(0); });
      if (before) {
        ++(*before == label.value ? out.known : out.conflicting);
        continue;
      }
      w.execute(
          "INSERT INTO predictions_label(number, tenant, project, endpoint, prediction, variant, version, value, "
          "at_us, predicted_us, upload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
          {++number, tenant, project, endpoint, label.prediction, name.variant, name.version, label.value,
           label.at_us > 0 ? label.at_us : now, name.at_us()});
      ++out.added;
      if (name.at_us() < since.value_or(0)) continue;  // made before the experiment began
      auto& sum = sums[{name.variant, name.version}];
      ++sum.labels;
      sum.total += label.value;
      sum.squares += label.value * label.value;
    }
    for (const auto& [of, sum] : sums) add_sum(w, where, endpoint, of, sum);
    return out;
  });
  labels_.Increment(static_cast<double>(taken.added));
  return taken;
}

// Which labels go into an upload is written down before it is made of them: a kill anywhere makes the same upload of
// the same labels again, which becomes a version once.
void PredictionLog::export_labels(const Where& where, const std::string& endpoint) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto dataset = labels_dataset(endpoint);
  const sql::Act act{"system/serving", "predictions.labels", iam::Scope::of(tenant, project, "dataset", dataset).str(),
                     ""};
  for (;;) {
    auto open = stream(where, dataset);
    if (!open) {
      const auto first = parts_.database.read([&](sql::Reader& r) {
        return r.first(
            "SELECT COALESCE(MIN(number), 0) FROM predictions_label WHERE upload = '' AND tenant = ? AND project = ? "
            "AND endpoint = ?",
            {tenant, project, endpoint}, [](const sql::Row& row) { return row.integer(0); });
      });
      if (first.value_or(0) == 0) return;
      declare(where, dataset, kLabelColumns);
      open = begin(where, dataset, kLabelStream);
      parts_.database.write(act, [&](sql::Writer& w) {
        w.execute(
            "UPDATE predictions_label SET upload = ? WHERE upload = '' AND tenant = ? AND project = ? AND endpoint = ? "
            "AND number < ?",
            {open->upload, tenant, project, endpoint, *first + kExportMax});
        w.execute(
            "UPDATE predictions_stream SET parts = 1 WHERE tenant = ? AND project = ? AND dataset = ? AND upload = ?",
            {tenant, project, dataset, open->upload});
      });
    }
    std::string lines;
    parts_.database.read([&](sql::Reader& r) {
      r.query("SELECT prediction, value, at_us, predicted_us, variant, version FROM predictions_label WHERE upload = ?",
              {open->upload}, [&](const sql::Row& row) {
                lines += json::serialize(json::object{{"prediction_id", row.text(0)},
                                                      {"time", format_time(row.integer(3))},
                                                      {"label", row.real(1)},
                                                      {"label_at", format_time(row.integer(2))},
                                                      {"variant", row.text(4)},
                                                      {"version", row.integer(5)}});
                lines += '\n';
              });
    });
    if (!lines.empty() && !parts_.datasets.finished(where, dataset, open->upload))
      parts_.datasets.put_part(where, dataset, open->upload, 0, blob::source_of(as_bytes(lines)), act);
    finish(where, dataset);
  }
}

void PredictionLog::forget_labels(const Where& where, const std::string& endpoint, std::int64_t before_us) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto old = parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT number FROM predictions_label WHERE tenant = ? AND project = ? AND endpoint = ? AND predicted_us < ? "
        "LIMIT 1",
        {tenant, project, endpoint, before_us}, [](const sql::Row& row) { return row.integer(0); });
  });
  if (!old) return;
  const auto scope = iam::Scope::of(tenant, project, "endpoint", endpoint).str();
  parts_.database.write({"system/serving", "predictions.forget", scope, ""}, [&](sql::Writer& w) {
    w.execute("DELETE FROM predictions_label WHERE tenant = ? AND project = ? AND endpoint = ? AND predicted_us < ?",
              {tenant, project, endpoint, before_us});
  });
}

}  // namespace falaj::serving
