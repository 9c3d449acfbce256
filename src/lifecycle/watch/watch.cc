// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "lifecycle/watch/judge.h"

namespace falaj::watch {
namespace {

constexpr sql::Migration kWatchMigrations[] = {
    {1, "watch",
     "CREATE TABLE watch_segment(segment TEXT PRIMARY KEY, at_us BIGINT NOT NULL);"
     "CREATE INDEX watch_segment_at ON watch_segment(at_us);"
     "CREATE TABLE watch_open(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, halvings BIGINT NOT NULL, from_us BIGINT NOT NULL,"
     " until_us BIGINT NOT NULL, total BIGINT NOT NULL, looked_at BIGINT NOT NULL, sealed BYTEA NOT NULL,"
     " PRIMARY KEY(tenant, project, monitor, variant, version, halvings));"
     "CREATE TABLE watch_window(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, number BIGINT NOT NULL, from_us BIGINT NOT NULL,"
     " until_us BIGINT NOT NULL, total BIGINT NOT NULL, looked_at BIGINT NOT NULL, seen TEXT NOT NULL,"
     " sealed BYTEA NOT NULL, PRIMARY KEY(tenant, project, monitor, variant, version, number));"
     "CREATE TABLE watch_state(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, rule TEXT NOT NULL, windows BIGINT NOT NULL,"
     " last_us BIGINT NOT NULL, reference TEXT NOT NULL, state TEXT NOT NULL,"
     " PRIMARY KEY(tenant, project, monitor, variant, version));"
     "CREATE TABLE watch_finding(number BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " monitor TEXT NOT NULL, endpoint TEXT NOT NULL, variant TEXT NOT NULL, version BIGINT NOT NULL,"
     " subject TEXT NOT NULL, test TEXT NOT NULL, kind TEXT NOT NULL, first_us BIGINT NOT NULL,"
     " seen_us BIGINT NOT NULL, ended_us BIGINT NOT NULL, body TEXT NOT NULL);"
     "CREATE INDEX watch_finding_of ON watch_finding(tenant, project, ended_us, monitor);"
     "CREATE TABLE watch_label(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " number BIGINT NOT NULL, PRIMARY KEY(tenant, project, monitor))"},
    {2, "watch",
     "CREATE TABLE watch_outcome(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, number BIGINT NOT NULL, from_us BIGINT NOT NULL,"
     " until_us BIGINT NOT NULL, labels BIGINT NOT NULL, seen TEXT NOT NULL, sealed BYTEA NOT NULL,"
     " PRIMARY KEY(tenant, project, monitor, variant, version, number));"
     "CREATE TABLE watch_outcome_state(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, rule TEXT NOT NULL, windows BIGINT NOT NULL,"
     " waiting BIGINT NOT NULL, unmatched BIGINT NOT NULL, late BIGINT NOT NULL, last_us BIGINT NOT NULL,"
     " reference TEXT NOT NULL, state TEXT NOT NULL, pending BYTEA NOT NULL,"
     " PRIMARY KEY(tenant, project, monitor, variant, version));"
     "CREATE TABLE watch_outcome_label(tenant TEXT NOT NULL, project TEXT NOT NULL, monitor TEXT NOT NULL,"
     " rule TEXT NOT NULL, number BIGINT NOT NULL, waiting TEXT NOT NULL, PRIMARY KEY(tenant, project, monitor))"}};

constexpr std::size_t kPsiGaugesMax = 500;
constexpr std::int64_t kLabelsAtOnce = 10'000;
constexpr std::uint8_t kWithRows =
    2;  // begins what holds sketches and rows; sketches alone begin with their version, 1
constexpr const char* kFindingKinds[] = {"drift", "quality", "performance", "skew"};

const resource::Authorise kForMonitors = [](std::string_view, const iam::Scope&) {
  return std::optional<std::string>();
};

double mean_of(const stats::Quantiles& sketch) {
  double sum = 0;
  for (const auto& [value, weight] : sketch.sorted()) sum += value * static_cast<double>(weight);
  return sketch.count() == 0 ? 0 : sum / static_cast<double>(sketch.count());
}

// What is drift of a column is how the model does, when the column is what became of its predictions.
void tell_performance(std::vector<Finding>& findings, const Reference& reference, const Window& window) {
  const auto was = reference.columns.find(kLabelColumn);
  const auto is = window.columns.find(kLabelColumn);
  if (was == reference.columns.end() || is == window.columns.end()) return;
  for (auto& one : findings) {
    one.kind = "performance";
    one.text = fmt::format("labels are {:.4g} in the mean of the newest, {:.4g} in the reference",
                           mean_of(is->second.numbers), mean_of(was->second.sketch.numbers));
    one.diagnosis.clear();
  }
}

// A window put into another row does not open there.
Bytes sketch_header(const Stream& stream) {
  return to_bytes(fmt::format("watched {}/{}/{}/{}/{}", stream.tenant, stream.project, stream.monitor, stream.variant,
                              stream.version));
}

}  // namespace

// The same rule for labels: they have no reference but themselves.
MonitorSpec label_rule(MonitorSpec spec) {
  spec.reference = "windows";
  spec.reference_windows = spec.labels->windows;
  spec.window.rows = spec.labels->rows;
  spec.columns = {};
  return spec;
}

std::span<const sql::Migration> Watch::migrations() { return kWatchMigrations; }

Watch::Watch(Parts parts, Metrics& metrics)
    : parts_(parts),
      metrics_(metrics),
      performance_({parts.database,
                    {parts.resources, parts.models, parts.vault},
                    parts.datasets,
                    parts.predictions,
                    parts.clock,
                    parts.key},
                   metrics),
      segments_(metrics.counter("falaj_watch_segments_total", "Segments of watched endpoints taken.")),
      windows_(metrics.counter("falaj_watch_windows_total", "Windows of rows that were looked at.")) {
  for (const auto* kind : kFindingKinds)
    standing_[kind] = &metrics.gauge("falaj_watch_findings", "Findings that stand.", {{"kind", kind}});
  metrics.before_render([this] {
    std::map<std::string, std::int64_t> many;
    parts_.database.read([&](sql::Reader& r) {
      r.query("SELECT kind, COUNT(*) FROM watch_finding WHERE ended_us = 0 GROUP BY kind", {},
              [&](const sql::Row& row) { many[std::string(row.text(0))] = row.integer(1); });
    });
    for (const auto& [kind, gauge] : standing_) gauge->Set(static_cast<double>(many[kind]));
  });
}

Bytes Watch::seal(const Stream& stream, const Held& held) const {
  auto plain = traffic::encode_sketches(held.sketches);
  if (!held.rows.columns().empty()) {
    ByteWriter both;
    both.u8(kWithRows);
    both.blob(plain);
    both.blob(traffic::encode_rows(held.rows));
    plain = both.take();
  }
  return crypto::seal(parts_.key, sketch_header(stream), plain);
}

Watch::Held Watch::unseal(const Stream& stream, BytesView sealed) const {
  if (sealed.empty()) return {};
  const auto plain = crypto::open(parts_.key, sketch_header(stream), sealed);
  if (plain.empty() || plain[0] != std::byte{kWithRows}) return {traffic::decode_sketches(plain), {}};
  ByteReader in(plain);
  in.u8();
  Held out{traffic::decode_sketches(in.blob()), {}};
  out.rows = traffic::decode_rows(in.blob());
  in.expect_end();
  return out;
}

// Of one project, or of all.
std::vector<std::pair<Where, Watch::Declared>> Watch::declared(const std::optional<Where>& where) {
  std::vector<std::pair<Where, Declared>> out;
  resource::ListOptions options;
  if (where) options.tenant = where->tenant.str(), options.project = where->project.str();
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list(kMonitor, options, kForMonitors);
    for (const auto& stored : page.items) {
      const auto& metadata = stored.resource.metadata;
      out.push_back({{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)},
                     {metadata.name, decode<MonitorSpec>(stored.resource.spec, "monitor")}});
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

// ---- segments become windows

std::optional<Watch::Open> Watch::open_window(const Stream& stream, std::int64_t halvings) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT from_us, until_us, total, looked_at, sealed FROM watch_open WHERE tenant = ? AND project = ? AND "
        "monitor = ? AND variant = ? AND version = ? AND halvings = ?",
        {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, halvings},
        [&](const sql::Row& row) {
          return Open{halvings,       row.integer(0), row.integer(1),
                      row.integer(2), row.integer(3), unseal(stream, row.bytes(4))};
        });
  });
}

Watch::Kept Watch::kept(const Stream& stream) {
  return parts_.database
      .read([&](sql::Reader& r) {
        return r.first(
            "SELECT rule, windows, last_us, reference, state FROM watch_state WHERE tenant = ? AND project = ? AND "
            "monitor = ? AND variant = ? AND version = ?",
            {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version}, [](const sql::Row& row) {
              Kept out;
              out.rule = row.text(0);
              out.windows = row.integer(1);
              out.last_us = row.integer(2);
              out.reference = row.text(3);
              out.tests = decode<std::map<std::string, TestState>>(parse_json(row.text(4)), "state of a monitor");
              return out;
            });
      })
      .value_or(Kept());
}

// In memory where the last window was looked at in this process; else made of the windows on disk.
State Watch::state_of(const Stream& stream, const Kept& kept) {
  if (const auto known = states_.find(stream); known != states_.end()) {
    auto state = std::move(known->second);
    states_.erase(known);
    if (state.first == kept.windows) return std::move(state.second);
  }
  State out;
  out.tests = kept.tests;
  const auto first = std::max<std::int64_t>(0, (kept.windows / kRemembered - 1) * kRemembered);
  parts_.database.read([&](sql::Reader& r) {
    r.query(
        "SELECT number, from_us, until_us, sealed FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? "
        "AND variant = ? AND version = ? AND number >= ? ORDER BY number",
        {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, first},
        [&](const sql::Row& row) {
          auto held = unseal(stream, row.bytes(3));
          remember(out,
                   {row.integer(0), row.integer(1), row.integer(2), std::move(held.sketches), std::move(held.rows)});
        });
  });
  return out;
}

Watch::Closed Watch::close(const Stream& stream, const MonitorSpec& spec, Open window) {
  Closed out;
  out.stream = stream;
  out.endpoint = spec.endpoint;
  out.kept = kept(stream);
  if (out.kept.rule != rule_of(spec)) {
    const auto before = std::exchange(out.kept, {});
    out.kept.rule = rule_of(spec);
    out.anew = !before.rule.empty();
    // A time of the past is of use only while there is one.
    out.keeps_windows = out.anew && past_of(spec) && before.rule.ends_with(" " + spec.endpoint);
    if (out.keeps_windows) {
      out.kept.windows = before.windows;
      out.kept.tests[kEveryTest].clear_from = before.windows;  // as evidence they count no more
    }
    references_.erase(stream);
    states_.erase(stream);
  }
  out.number = out.kept.windows;
  Window one{out.number, window.from_us, window.until_us, std::move(window.held.sketches), std::move(window.held.rows)};
  std::string why_not;
  if (const auto compared = reference(stream, spec, out.kept.windows, &why_not)) {
    auto rule = spec;
    rule.level = level_of_each(spec);
    out.looked = look(*compared, rule, state_of(stream, out.kept), one);
    if (is_labels(stream)) tell_performance(out.looked.findings, *compared, one);
    out.kept.tests = out.looked.state.tests;
    out.kept.reference = compared->is;
    states_[stream] = {out.kept.windows + 1, std::move(out.looked.state)};
  } else {
    out.kept.reference = why_not;
    for (const auto& [name, sketch] : one.columns) {
      ColumnSeen told;
      told.column = name;
      told.rows = static_cast<std::int64_t>(sketch.rows);
      told.missing = static_cast<std::int64_t>(sketch.missing);
      told.note = "nothing to compare with yet";
      out.looked.columns.push_back(std::move(told));
    }
  }
  window.held = {std::move(one.columns), std::move(one.rows)};
  ++out.kept.windows;
  out.kept.last_us = window.until_us;
  out.window = std::move(window);
  return out;
}

void Watch::write_open(sql::Writer& w, const Stream& s, const Open& open) const {
  w.execute(
      "DELETE FROM watch_open WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ? AND "
      "halvings = ?",
      {s.tenant, s.project, s.monitor, s.variant, s.version, open.halvings});
  if (open.rows == 0 && open.looked_at == 0) return;
  const auto sealed = seal(s, open.held);
  w.execute(
      "INSERT INTO watch_open(tenant, project, monitor, variant, version, halvings, from_us, until_us, total, "
      "looked_at, sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {s.tenant, s.project, s.monitor, s.variant, s.version, open.halvings, open.from_us, open.until_us, open.rows,
       open.looked_at, BytesView(sealed)});
}

void Watch::write_closed(sql::Writer& w, const Closed& closed) const {
  const auto& s = closed.stream;
  if (closed.anew && !closed.keeps_windows)
    w.execute(
        "DELETE FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ?",
        {s.tenant, s.project, s.monitor, s.variant, s.version});
  const auto sealed = seal(s, closed.window.held);
  const auto seen_text = json::serialize(encode(closed.looked.columns));
  w.execute(
      "INSERT INTO watch_window(tenant, project, monitor, variant, version, number, from_us, until_us, total, "
      "looked_at, seen, sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {s.tenant, s.project, s.monitor, s.variant, s.version, closed.number, closed.window.from_us,
       closed.window.until_us, closed.window.rows, closed.window.looked_at, seen_text, BytesView(sealed)});
  w.execute("DELETE FROM watch_state WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ?",
            {s.tenant, s.project, s.monitor, s.variant, s.version});
  const auto state = json::serialize(encode(closed.kept.tests));
  w.execute(
      "INSERT INTO watch_state(tenant, project, monitor, variant, version, rule, windows, last_us, reference, state) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {s.tenant, s.project, s.monitor, s.variant, s.version, closed.kept.rule, closed.kept.windows, closed.kept.last_us,
       closed.kept.reference, state});
  write_findings(w, s, closed.endpoint, closed.looked.findings, closed.window.until_us);
}

void Watch::note(const Closed& closed) {
  windows_.Increment();
  const auto& s = closed.stream;
  for (const auto& column : closed.looked.columns) {
    if (!column.distances.psi) continue;
    const Labels labels{{"tenant", s.tenant},   {"project", s.project},    {"monitor", s.monitor},
                        {"variant", s.variant}, {"column", column.column}, {"version", std::to_string(s.version)}};
    const auto name =
        fmt::format("{}/{}/{}/{}/{}/{}", s.tenant, s.project, s.monitor, s.variant, s.version, column.column);
    auto gauge = psi_.find(name);
    if (gauge == psi_.end() && psi_.size() < kPsiGaugesMax)
      gauge = psi_.emplace(name, &metrics_.gauge("falaj_watch_psi", "Population stability index of the newest window.",
                                                 labels))
                  .first;
    if (gauge != psi_.end()) gauge->second->Set(*column.distances.psi);
  }
}

void Watch::write(const std::string& scope, std::vector<std::string>& names, Filling& filling,
                  const std::vector<Closed>& closed, const More& more) {
  try {
    parts_.database.write({"system/watch", "monitor.take", scope, ""}, [&](sql::Writer& w) {
      for (const auto& name : names)
        w.execute("INSERT INTO watch_segment(segment, at_us) VALUES (?, ?)", {name, parts_.clock.wall().count()});
      for (const auto& [at, open] : filling) write_open(w, at.first, open);
      for (const auto& one : closed) write_closed(w, one);
      if (more) more(w);
    });
  } catch (const Error&) {
    for (const auto& one : closed) states_.erase(one.stream);  // they are ahead of the disk
    throw;
  }
  segments_.Increment(static_cast<double>(names.size()));
  names.clear();
  filling.clear();
  for (const auto& one : closed) note(one);
}

void Watch::accept(const WatchedBatch& batch) {
  const Where where{TenantName::parse(batch.tenant), ProjectName::parse(batch.project)};
  std::vector<Held> read;
  for (const auto& one : batch.segments) {
    try {
      read.push_back({traffic::decode_sketches(from_base64(one.watched.sketches)),
                      traffic::decode_rows(from_base64(one.watched.rows_whole))});
    } catch (const Error& e) {
      throw Error(Code::invalid, fmt::format("segment {}: {}", one.segment, e.what()));
    }
  }
  Lock lock(taking_);
  auto watching = declared(where);
  std::erase_if(watching, [&](const auto& one) { return one.second.spec.endpoint != batch.endpoint; });
  if (watching.empty()) return;  // whoever wanted to know is gone
  std::vector<std::string> names;
  Filling filling;
  const auto scope = iam::Scope::of(batch.tenant, batch.project, "endpoint", batch.endpoint).str();
  for (std::size_t i = 0; i < batch.segments.size(); ++i) {
    const auto& [name, segment] = batch.segments[i];
    const auto& known_name = name;
    const bool known =
        std::find(names.begin(), names.end(), name) != names.end() || parts_.database.read([&](sql::Reader& r) {
          return r
              .first("SELECT at_us FROM watch_segment WHERE segment = ?", {known_name},
                     [](const sql::Row& row) { return row.integer(0); })
              .has_value();
        });
    if (known) continue;
    names.push_back(name);
    std::vector<Closed> closed;
    for (const auto& [of, monitor] : watching) {
      const Stream stream{batch.tenant, batch.project, monitor.name, segment.variant, segment.version};
      const std::pair at{stream, segment.halvings};
      if (!filling.contains(at)) filling[at] = open_window(stream, segment.halvings).value_or(Open());
      auto& open = filling[at];
      open.halvings = segment.halvings;
      if (open.from_us == 0) open.from_us = segment.from_us;
      open.until_us = std::max(open.until_us, segment.until_us);
      open.rows += segment.rows;
      open.looked_at += segment.looked_at;
      traffic::merge_into(open.held.sketches, read[i].sketches);
      if (monitor.spec.together) {  // another monitor may have asked for more
        open.held.rows.set_limit(static_cast<std::uint32_t>(monitor.spec.together->rows));
        open.held.rows.merge(read[i].rows);
        open.held.rows.set_limit(static_cast<std::uint32_t>(monitor.spec.together->rows));
      }
      if (open.looked_at < monitor.spec.window.rows) continue;
      closed.push_back(close(stream, monitor.spec, std::move(open)));
      open = {};
      open.halvings = segment.halvings;
    }
    if (!closed.empty()) write(scope, names, filling, closed);
  }
  if (!names.empty()) write(scope, names, filling, {});
}

// Labels that came since the last time, in the order in which they came.
void Watch::take_labels(const Where& where, const Declared& monitor) {
  if (!monitor.spec.labels) return;
  const auto spec = label_rule(monitor.spec);
  const auto tenant = where.tenant.str(), project = where.project.str();
  struct Came {
    std::int64_t number, version, predicted_us;
    std::string variant;
    double value;
  };
  const auto came = parts_.database.read([&](sql::Reader& r) {
    const auto last = r.first("SELECT number FROM watch_label WHERE tenant = ? AND project = ? AND monitor = ?",
                              {tenant, project, monitor.name}, [](const sql::Row& row) { return row.integer(0); });
    return r.all(
        "SELECT number, version, predicted_us, variant, value FROM predictions_label WHERE tenant = ? AND project = ? "
        "AND endpoint = ? AND number > ? ORDER BY number LIMIT ?",
        {tenant, project, spec.endpoint, last.value_or(0), kLabelsAtOnce}, [](const sql::Row& row) {
          return Came{row.integer(0), row.integer(1), row.integer(2), std::string(row.text(3)), row.real(4)};
        });
  });
  if (came.empty()) return;
  const auto scope = iam::Scope::of(tenant, project, "monitor", monitor.name).str();
  std::vector<std::string> no_names;
  Filling filling;
  const auto up_to = [&](std::int64_t number) -> More {
    return [=, name = monitor.name](sql::Writer& w) {
      w.execute("DELETE FROM watch_label WHERE tenant = ? AND project = ? AND monitor = ?", {tenant, project, name});
      w.execute("INSERT INTO watch_label(tenant, project, monitor, number) VALUES (?, ?, ?, ?)",
                {tenant, project, name, number});
    };
  };
  for (const auto& one : came) {
    const Stream stream{tenant, project, monitor.name, one.variant + std::string(kLabelsOf), one.version};
    const std::pair at{stream, std::int64_t{0}};
    if (!filling.contains(at)) filling[at] = open_window(stream, 0).value_or(Open());
    auto& open = filling[at];
    if (open.from_us == 0) open.from_us = one.predicted_us;
    open.until_us = std::max(open.until_us, one.predicted_us);
    ++open.rows, ++open.looked_at;
    open.held.sketches[kLabelColumn].add(one.value);
    if (open.looked_at < spec.window.rows) continue;
    std::vector<Closed> closed;
    closed.push_back(close(stream, spec, std::move(open)));
    open = {};
    write(scope, no_names, filling, closed, up_to(one.number));
  }
  if (!filling.empty()) write(scope, no_names, filling, {}, up_to(came.back().number));
}

}  // namespace falaj::watch
