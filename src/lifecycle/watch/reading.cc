// SPDX-License-Identifier: Apache-2.0
// what was found and seen, for those who ask

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/watch/watch.h"

namespace falaj::watch {
namespace {

StandingFinding read_finding(const sql::Row& row) {
  StandingFinding out;
  out.number = row.integer(0);
  out.monitor = row.text(1);
  out.endpoint = row.text(2);
  out.variant = row.text(3);
  out.variant.resize(std::min(out.variant.size(), out.variant.find(' ')));  // streams of labels and performance
  out.version = row.integer(4);
  out.first_us = row.integer(5);
  out.seen_us = row.integer(6);
  if (row.integer(7) != 0) out.ended_us = row.integer(7);
  out.finding = decode<Finding>(parse_json(row.text(8)), "a finding");
  return out;
}

MonitorSpec spec_of(const resource::Stored& stored) { return decode<MonitorSpec>(stored.resource.spec, "monitor"); }

}  // namespace

std::vector<StandingFinding> Watch::findings(const Where& where, const FindingFilter& filter) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT number, monitor, endpoint, variant, version, first_us, seen_us, ended_us, body FROM watch_finding "
        "WHERE tenant = ? AND project = ? AND (ended_us = 0 OR ? = 0) AND (? = '' OR monitor = ?) AND (? = '' OR "
        "endpoint = ?) AND (? = '' OR subject = ?) AND (? = '' OR kind = ?) ORDER BY number DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), std::int64_t{filter.standing ? 1 : 0}, filter.monitor, filter.monitor,
         filter.endpoint, filter.endpoint, filter.column, filter.column, filter.kind, filter.kind,
         static_cast<std::int64_t>(filter.limit)},
        read_finding);
  });
}

MonitorSeen Watch::seen(const Where& where, const std::string& name, const MonitorSpec& spec) {
  MonitorSeen out{name, spec, {}, performance_.seen(where, name, spec), {}};
  const auto tenant = where.tenant.str(), project = where.project.str();
  parts_.database.read([&](sql::Reader& r) {
    std::map<std::pair<std::string, std::int64_t>, StreamSeen> streams;
    r.query(
        "SELECT variant, version, windows, last_us, reference FROM watch_state WHERE tenant = ? AND project = ? AND "
        "monitor = ?",
        {tenant, project, name}, [&](const sql::Row& row) {
          auto& one = streams[{std::string(row.text(0)), row.integer(1)}];
          one.windows = row.integer(2);
          one.last_us = row.integer(3);
          one.reference = row.text(4);
        });
    r.query(
        "SELECT variant, version, until_us, looked_at FROM watch_open WHERE tenant = ? AND project = ? AND monitor = ?",
        {tenant, project, name}, [&](const sql::Row& row) {
          auto& one = streams[{std::string(row.text(0)), row.integer(1)}];
          one.last_us = std::max(one.last_us, row.integer(2));
          one.waiting += row.integer(3);
        });
    for (auto& [of, one] : streams) {
      one.variant = of.first;
      one.version = of.second;
      out.streams.push_back(std::move(one));
    }
  });
  FindingFilter filter;
  filter.monitor = name;
  out.findings = findings(where, filter);
  return out;
}

std::vector<MonitorSeen> Watch::monitors(const Where& where, const resource::Authorise& authorise) {
  std::vector<MonitorSeen> out;
  resource::ListOptions options;
  options.tenant = where.tenant.str();
  options.project = where.project.str();
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list(kMonitor, options, authorise);
    for (const auto& stored : page.items) out.push_back(seen(where, stored.resource.metadata.name, spec_of(stored)));
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

MonitorSeen Watch::monitor(const Where& where, const std::string& name) {
  return seen(where, name, spec_of(parts_.resources.get({kMonitor, where.tenant.str(), where.project.str(), name})));
}

std::vector<WindowSeen> Watch::windows(const Where& where, const std::string& monitor, std::size_t limit) {
  parts_.resources.get({kMonitor, where.tenant.str(), where.project.str(), monitor});  // not_found
  return parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT variant, version, number, from_us, until_us, total, looked_at, seen FROM watch_window WHERE tenant = ? "
        "AND project = ? AND monitor = ? ORDER BY until_us DESC, number DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), monitor, static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          WindowSeen out{std::string(row.text(0)), row.integer(1), row.integer(2), row.integer(3),
                         row.integer(4),           row.integer(5), row.integer(6), {}};
          out.columns = decode<std::vector<ColumnSeen>>(parse_json(row.text(7)), "a window");
          return out;
        });
  });
}

std::vector<PerformanceWindowSeen> Watch::performance(const Where& where, const std::string& monitor,
                                                      std::size_t limit) {
  parts_.resources.get({kMonitor, where.tenant.str(), where.project.str(), monitor});  // not_found
  return performance_.windows(where, monitor, limit);
}

ColumnPair Watch::column(const Where& where, const std::string& monitor, const std::string& column,
                         const std::string& variant, std::int64_t version, std::optional<std::int64_t> window) {
  const auto spec = spec_of(parts_.resources.get({kMonitor, where.tenant.str(), where.project.str(), monitor}));
  Stream stream{where.tenant.str(), where.project.str(), monitor, variant, version};
  ColumnPair out;
  std::int64_t windows = 0;
  const auto found = parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT w.variant, w.version, w.number, w.from_us, w.until_us, w.sealed, s.windows FROM watch_window w JOIN "
        "watch_state s ON s.tenant = w.tenant AND s.project = w.project AND s.monitor = w.monitor AND s.variant = "
        "w.variant AND s.version = w.version WHERE w.tenant = ? AND w.project = ? AND w.monitor = ? AND (? = '' OR "
        "w.variant = ?) AND (? = 0 OR w.version = ?) AND (? < 0 OR w.number = ?) ORDER BY w.until_us DESC, w.number "
        "DESC LIMIT 1",
        {stream.tenant, stream.project, monitor, variant, variant, version, version, window.value_or(-1),
         window.value_or(-1)},
        [&](const sql::Row& row) {
          stream.variant = out.variant = row.text(0);
          stream.version = out.version = row.integer(1);
          out.window = row.integer(2);
          out.from_us = row.integer(3);
          out.until_us = row.integer(4);
          windows = row.integer(6);
          return unseal(stream, row.bytes(5)).sketches;
        });
  });
  if (!found)
    throw Error(Code::not_found,
                fmt::format("monitor {} has no such window: see falaj monitor windows {}", monitor, monitor));
  if (found->empty())
    throw Error(Code::not_found, fmt::format("window {} is too old: its distributions are no longer kept", out.window));
  const auto seen = found->find(column);
  if (seen == found->end()) {
    std::string names;
    for (const auto& entry : *found) names += (names.empty() ? "" : ", ") + entry.first;
    throw Error(Code::not_found, fmt::format("no column '{}': there are {}", column.substr(0, 64), names));
  }
  out.seen = seen->second;
  Lock lock(taking_);
  std::string why_not;
  if (const auto compared =
          reference(stream, column == kLabelColumn && spec.labels ? label_rule(spec) : spec, windows, &why_not)) {
    out.is = compared->is;
    if (const auto known = compared->columns.find(column); known != compared->columns.end())
      out.reference = known->second;
  } else {
    out.is = why_not;
  }
  return out;
}

}  // namespace falaj::watch
