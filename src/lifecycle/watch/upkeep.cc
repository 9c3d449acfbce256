// SPDX-License-Identifier: Apache-2.0
// what is done now and then: windows that waited, silence, labels, and what is old

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "lifecycle/serving/kind.h"
#include "lifecycle/watch/judge.h"
#include "lifecycle/watch/watch.h"

namespace falaj::watch {
namespace {

constexpr std::int64_t kMinuteUs = 60'000'000, kDayUs = 1'440 * kMinuteUs;
constexpr std::int64_t kSegmentsKeptUs = 7 * kDayUs;     // their names: nothing is sent again after so long
constexpr std::int64_t kSketchesKept = 2 * kRemembered;  // windows whose distributions can be looked at
constexpr const char* kSilence = "silence";

// What was found of a version that answers nobody any more is over: no window will ever come to say so.
void end_unserved(sql::Database& database, resource::Resources& resources, const Where& where,
                  const std::string& monitor, const std::string& endpoint, std::int64_t now_us) {
  struct Standing {
    std::int64_t number = 0, version = 0;
    std::string variant;
  };
  const auto standing = database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT number, version, variant FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND "
        "ended_us = 0 AND variant <> ''",
        {where.tenant.str(), where.project.str(), monitor}, [](const sql::Row& row) {
          return Standing{row.integer(0), row.integer(1), std::string(row.text(2))};
        });
  });
  if (standing.empty()) return;
  std::vector<serving::VariantSpec> variants;
  try {
    const auto stored = resources.get({"Endpoint", where.tenant.str(), where.project.str(), endpoint});
    variants = decode<serving::EndpointSpec>(stored.resource.spec, "endpoint").variants;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  const auto is_served = [&](const Standing& one) {
    const auto name = one.variant.substr(0, one.variant.find(' '));  // without what labels and performance are called
    return std::any_of(variants.begin(), variants.end(), [&](const serving::VariantSpec& variant) {
      return variant.name == name && (variant.weight > 0 || variant.shadow || variant.match) &&
             variant.version.value_or(one.version) == one.version;
    });
  };
  std::vector<std::int64_t> over;
  for (const auto& one : standing)
    if (!is_served(one)) over.push_back(one.number);
  if (over.empty()) return;
  const Stream stream{where.tenant.str(), where.project.str(), monitor, "", 0};
  database.write(watch_act(stream, "monitor.end_findings"), [&](sql::Writer& w) {
    for (const auto number : over)
      w.execute("UPDATE watch_finding SET ended_us = ? WHERE number = ?", {now_us, number});
  });
}

}  // namespace

// Reading predictions takes its time; segments are taken meanwhile.
void Watch::take_performance() {
  for (const auto& [where, one] : declared({})) {
    try {
      performance_.take(where, one.name, one.spec);
    } catch (const Error& e) {  // one that cannot be read keeps nobody else from being
      log::warn("performance_not_watched", {{"monitor", one.name}, {"why", e.what()}});
    }
  }
}

// Windows that are not full, as fewer rows came than they were to have.
void Watch::close_due() {
  struct Due {
    Stream stream;
    std::int64_t halvings, from_us;
  };
  const auto all = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT tenant, project, monitor, variant, version, halvings, from_us FROM watch_open", {},
                 [](const sql::Row& row) {
                   return Due{{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2)),
                               std::string(row.text(3)), row.integer(4)},
                              row.integer(5),
                              row.integer(6)};
                 });
  });
  const auto now = parts_.clock.wall().count();
  for (const auto& due : all) {
    const auto& s = due.stream;
    std::optional<MonitorSpec> spec;
    try {
      spec = decode<MonitorSpec>(parts_.resources.get({kMonitor, s.tenant, s.project, s.monitor}).resource.spec,
                                 "monitor");
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
    if (spec && is_labels(s) && !spec->labels) spec.reset();  // nobody wants to know of them any more
    if (spec && (is_labels(s) || now - due.from_us < spec->window.at_most_us)) continue;  // labels take their time
    auto open = open_window(s, due.halvings);
    if (!open) continue;
    std::optional<Closed> closed;
    if (spec && open->looked_at > 0) closed = close(s, *spec, std::move(*open));
    Filling emptied;
    emptied[{s, due.halvings}].halvings = due.halvings;
    std::vector<std::string> no_names;
    std::vector<Closed> one;
    if (closed) one.push_back(std::move(*closed));
    write(monitor_scope(s).str(), no_names, emptied, one);
  }
}

void Watch::notice_silence(const Where& where, const Declared& monitor) {
  if (monitor.spec.quality.silence_us == 0) return;
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto now = parts_.clock.wall().count();
  const auto last = parts_.database.read([&](sql::Reader& r) {
    const auto largest = [](const sql::Row& row) { return row.integer(0); };
    return std::max(
        *r.first("SELECT COALESCE(MAX(last_us), 0) FROM watch_state WHERE tenant = ? AND project = ? AND monitor = ?",
                 {tenant, project, monitor.name}, largest),
        *r.first("SELECT COALESCE(MAX(until_us), 0) FROM watch_open WHERE tenant = ? AND project = ? AND monitor = ?",
                 {tenant, project, monitor.name}, largest));
  });
  if (last == 0) return;  // nobody has asked it yet
  const bool silent = now - last > monitor.spec.quality.silence_us;
  const auto standing = parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT number FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND test = ? AND ended_us = "
        "0",
        {tenant, project, monitor.name, kSilence}, [](const sql::Row& row) { return row.integer(0); });
  });
  if (silent == standing.has_value()) return;
  const Stream stream{tenant, project, monitor.name, "", 0};
  Finding finding;
  finding.test = kSilence;
  finding.kind = "quality";
  finding.since_us = last;
  finding.score = std::log10(level_of_each(monitor.spec) / kLeastChance);
  finding.text = fmt::format("no request since {}", format_time(last));
  const auto body = json::serialize(encode(finding));
  parts_.database.write(watch_act(stream, "monitor.silence"), [&](sql::Writer& w) {
    if (!silent) {
      w.execute("UPDATE watch_finding SET ended_us = ? WHERE number = ?", {now, *standing});
      return;
    }
    const auto next = *w.first("SELECT COALESCE(MAX(number), 0) + 1 FROM watch_finding", {},
                               [](const sql::Row& row) { return row.integer(0); });
    w.execute(
        "INSERT INTO watch_finding(number, tenant, project, monitor, endpoint, variant, version, subject, test, kind, "
        "first_us, seen_us, ended_us, body) VALUES (?, ?, ?, ?, ?, '', 0, '', ?, 'quality', ?, ?, 0, ?)",
        {next, tenant, project, monitor.name, monitor.spec.endpoint, kSilence, now, now, body});
  });
}

// The windows that are the reference stay as long as it is compared with: the first ones, or those of a chosen time.
void Watch::forget(const Where& where, const Declared& monitor) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto edge = parts_.clock.wall().count() - monitor.spec.keep_us;
  performance_.forget(where, monitor.name, monitor.spec, edge);
  const auto streams = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT variant, version, windows FROM watch_state WHERE tenant = ? AND project = ? AND monitor = ?",
                 {tenant, project, monitor.name}, [&](const sql::Row& row) {
                   return std::pair{Stream{tenant, project, monitor.name, std::string(row.text(0)), row.integer(1)},
                                    row.integer(2)};
                 });
  });
  for (const auto& one : streams) {
    const Stream& s = one.first;
    const auto stay = parts_.database.read([&](sql::Reader& r) { return chosen_windows(r, s, past_of(monitor.spec)); });
    const auto first = monitor.spec.reference_windows, sketched = one.second - kSketchesKept;
    const auto old = parts_.database.read([&](sql::Reader& r) {
      return *r.first(
          "SELECT COUNT(*) FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND "
          "version = ? AND number >= ? AND NOT (number BETWEEN ? AND ?) AND (until_us < ? OR (number < ? AND "
          "LENGTH(sealed) > 0))",
          {s.tenant, s.project, s.monitor, s.variant, s.version, first, stay.from, stay.to, edge, sketched},
          [](const sql::Row& row) { return row.integer(0); });
    });
    if (old == 0) continue;
    parts_.database.write(watch_act(s, "monitor.forget"), [&](sql::Writer& w) {
      w.execute(
          "DELETE FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ? "
          "AND number >= ? AND NOT (number BETWEEN ? AND ?) AND until_us < ?",
          {s.tenant, s.project, s.monitor, s.variant, s.version, first, stay.from, stay.to, edge});
      w.execute(
          "UPDATE watch_window SET sealed = ? WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND "
          "version = ? AND number >= ? AND NOT (number BETWEEN ? AND ?) AND number < ?",
          {BytesView(), s.tenant, s.project, s.monitor, s.variant, s.version, first, stay.from, stay.to, sketched});
    });
  }
  const auto ended = parts_.database.read([&](sql::Reader& r) {
    return *r.first(
        "SELECT COUNT(*) FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND ended_us > 0 AND "
        "ended_us < ?",
        {tenant, project, monitor.name, edge}, [](const sql::Row& row) { return row.integer(0); });
  });
  if (ended == 0) return;
  parts_.database.write(watch_act({tenant, project, monitor.name, "", 0}, "monitor.forget"), [&](sql::Writer& w) {
    w.execute(
        "DELETE FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND ended_us > 0 AND ended_us < ?",
        {tenant, project, monitor.name, edge});
  });
}

void Watch::upkeep() {
  take_performance();
  Lock lock(taking_);
  close_due();
  const auto now = parts_.clock.wall().count();
  const bool tidy = now >= next_tidy_us_;
  if (tidy) next_tidy_us_ = now + 10 * kMinuteUs;
  std::vector<Stream> there;
  for (const auto& [where, one] : declared({})) {
    there.push_back({where.tenant.str(), where.project.str(), one.name, "", 0});
    take_labels(where, one);
    notice_silence(where, one);
    end_unserved(parts_.database, parts_.resources, where, one.name, one.spec.endpoint, now);
    if (tidy) forget(where, one);
  }
  // What is left of monitors that are gone.
  const auto kept_of = parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT tenant, project, monitor FROM watch_state UNION SELECT tenant, project, monitor FROM watch_finding "
        "UNION "
        "SELECT tenant, project, monitor FROM watch_outcome_label",
        {}, [](const sql::Row& row) {
          return Stream{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2)), "", 0};
        });
  });
  for (const auto& gone : kept_of) {
    if (std::find(there.begin(), there.end(), gone) != there.end()) continue;
    parts_.database.write(watch_act(gone, "monitor.forget"), [&](sql::Writer& w) {
      const auto t = gone.tenant, p = gone.project, m = gone.monitor;
      w.execute("DELETE FROM watch_open WHERE tenant = ? AND project = ? AND monitor = ?", {t, p, m});
      w.execute("DELETE FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ?", {t, p, m});
      w.execute("DELETE FROM watch_state WHERE tenant = ? AND project = ? AND monitor = ?", {t, p, m});
      w.execute("DELETE FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ?", {t, p, m});
      w.execute("DELETE FROM watch_label WHERE tenant = ? AND project = ? AND monitor = ?", {t, p, m});
      PerformanceWatch::remove(w, where_of(gone), m);
    });
    std::erase_if(references_, [&](const auto& entry) {
      const auto& s = entry.first;
      return s.tenant == gone.tenant && s.project == gone.project && s.monitor == gone.monitor;
    });
  }
  if (!tidy) return;
  const auto old = parts_.database.read([&](sql::Reader& r) {
    return r.first("SELECT COUNT(*) FROM watch_segment WHERE at_us < ?", {now - kSegmentsKeptUs},
                   [](const sql::Row& row) { return row.integer(0); });
  });
  if (old.value_or(0) == 0) return;
  parts_.database.write({"system/watch", "monitor.forget", "/", ""}, [&](sql::Writer& w) {
    w.execute("DELETE FROM watch_segment WHERE at_us < ?", {now - kSegmentsKeptUs});
  });
}

}  // namespace falaj::watch
