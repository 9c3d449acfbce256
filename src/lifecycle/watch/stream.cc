// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/stream.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lifecycle/serving/kind.h"
#include "lifecycle/watch/now.h"

namespace falaj::watch {

std::string reference_rule(const MonitorSpec& spec) {
  if (const auto past = past_of(spec)) return fmt::format("past:{}..{}:{}", past->from_us, past->to_us, past->windows);
  if (spec.reference == "dataset") return fmt::format("dataset:{}", spec.reference_dataset);
  return spec.reference;
}

std::string rule_of(const MonitorSpec& spec) {
  return fmt::format("{} {} {}", reference_rule(spec), spec.reference_windows, spec.endpoint);
}

void write_findings(sql::Writer& w, const Stream& s, const std::string& endpoint, const std::vector<Finding>& findings,
                    std::int64_t now) {
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::string>> before;  // by column and test
  w.query(
      "SELECT subject, test, number, kind FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND "
      "variant = ? AND version = ? AND ended_us = 0",
      {s.tenant, s.project, s.monitor, s.variant, s.version}, [&](const sql::Row& row) {
        before[{std::string(row.text(0)), std::string(row.text(1))}] = {row.integer(2), std::string(row.text(3))};
      });
  auto next = *w.first("SELECT COALESCE(MAX(number), 0) FROM watch_finding", {},
                       [](const sql::Row& row) { return row.integer(0); });
  for (const auto& finding : findings) {
    const auto body = json::serialize(encode(finding));
    const auto was = before.find({finding.column, finding.test});
    if (was != before.end()) {
      w.execute("UPDATE watch_finding SET kind = ?, seen_us = ?, body = ? WHERE number = ?",
                {finding.kind, now, body, was->second.first});
      before.erase(was);
      continue;
    }
    w.execute(
        "INSERT INTO watch_finding(number, tenant, project, monitor, endpoint, variant, version, subject, test, kind, "
        "first_us, seen_us, ended_us, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
        {++next, s.tenant, s.project, s.monitor, endpoint, s.variant, s.version, finding.column, finding.test,
         finding.kind, now, now, body});
  }
  for (const auto& [of, one] : before)
    w.execute("UPDATE watch_finding SET ended_us = ? WHERE number = ?", {now, one.first});
}

namespace {

Numbers numbers_in(const sql::Row& row) { return {row.integer(0), row.integer(1)}; }
std::int64_t most_of(const Past& past) { return past.windows > 0 ? past.windows : kPastWindowsMax; }

}  // namespace

Numbers chosen_windows(sql::Reader& r, const Stream& s, const std::optional<Past>& past) {
  if (!past) return {};
  return *r.first(
      "SELECT COALESCE(MIN(number), -1), COALESCE(MAX(number), -1) FROM (SELECT number FROM watch_window WHERE tenant "
      "= ? "
      "AND project = ? AND monitor = ? AND variant = ? AND version = ? AND until_us >= ? AND until_us <= ? ORDER BY "
      "number DESC LIMIT ?) chosen",
      {s.tenant, s.project, s.monitor, s.variant, s.version, past->from_us, past->to_us, most_of(*past)}, numbers_in);
}

Numbers chosen_outcomes(sql::Reader& r, const Stream& s, const std::optional<Past>& past) {
  if (!past) return {};
  return *r.first(
      "SELECT COALESCE(MIN(number), -1), COALESCE(MAX(number), -1) FROM (SELECT number FROM watch_outcome WHERE tenant "
      "= ? "
      "AND project = ? AND monitor = ? AND variant = ? AND version = ? AND until_us >= ? AND until_us <= ? ORDER BY "
      "number DESC LIMIT ?) chosen",
      {s.tenant, s.project, s.monitor, s.variant, s.version, past->from_us, past->to_us, most_of(*past)}, numbers_in);
}

std::shared_ptr<const Reference> trained_reference(const Trainings& trainings, const Stream& stream,
                                                   const std::string& endpoint, std::string* why_not) {
  const auto where = where_of(stream);
  try {
    const auto declared = trainings.resources.get({"Endpoint", stream.tenant, stream.project, endpoint});
    const auto variants = decode<serving::EndpointSpec>(declared.resource.spec, "endpoint").variants;
    const auto variant = std::find_if(variants.begin(), variants.end(),
                                      [&](const serving::VariantSpec& v) { return v.name == stream.variant; });
    if (variant == variants.end()) {
      *why_not = fmt::format("the endpoint has no variant {} any more", stream.variant);
      return nullptr;
    }
    return std::make_shared<const Reference>(
        tested_on(trainings.models, trainings.vault, where, variant->model, stream.version));
  } catch (const Error& e) {
    *why_not = e.what();
  }
  return nullptr;
}

}  // namespace falaj::watch
