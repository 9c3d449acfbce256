// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "lifecycle/serving/kind.h"

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
     " number BIGINT NOT NULL, PRIMARY KEY(tenant, project, monitor))"}};

constexpr std::int64_t kMinuteUs = 60'000'000, kDayUs = 1'440 * kMinuteUs;
constexpr std::int64_t kSegmentsKeptUs = 7 * kDayUs;     // their names: nothing is sent again after so long
constexpr std::int64_t kSketchesKept = 2 * kRemembered;  // windows whose distributions can be looked at
constexpr std::size_t kReferenceBytesMax = std::size_t{64} << 20;
constexpr std::size_t kPsiGaugesMax = 500;
constexpr std::int64_t kLabelsAtOnce = 10'000;
constexpr const char* kSilence = "silence";
constexpr const char* kFindingKinds[] = {"drift", "quality", "performance", "skew"};

const resource::Authorise kForMonitors = [](std::string_view, const iam::Scope&) {
  return std::optional<std::string>();
};

iam::Scope monitor_scope(const Stream& stream) {
  return iam::Scope::of(stream.tenant, stream.project, "monitor", stream.monitor);
}
sql::Act watch_act(const Stream& stream, const char* verb) {
  return {"system/watch", verb, monitor_scope(stream).str(), ""};
}
Where where_of(const Stream& stream) { return {TenantName::parse(stream.tenant), ProjectName::parse(stream.project)}; }

bool is_labels(const Stream& stream) { return stream.variant.ends_with(kLabelsOf); }

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

// What evidence was gathered for; by another rule it begins anew.
std::string rule_of(const MonitorSpec& spec) {
  return fmt::format("{} {} {}", spec.reference, spec.reference_windows, spec.endpoint);
}

std::string read_text(vault::Vault& vault, const Where& where, const vault::Entry& entry) {
  if (entry.bytes > kReferenceBytesMax)
    throw Error(Code::invalid, fmt::format("{} is larger than {} bytes", entry.name, kReferenceBytesMax));
  std::string out;
  const auto reader = vault.open(where, entry, 0, entry.bytes);
  for (Bytes piece = reader->next(); !piece.empty(); piece = reader->next()) out += as_text(piece);
  return out;
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

Bytes Watch::seal(const Stream& stream, const traffic::Sketches& sketches) const {
  return crypto::seal(parts_.key, sketch_header(stream), traffic::encode_sketches(sketches));
}

traffic::Sketches Watch::unseal(const Stream& stream, BytesView sealed) const {
  if (sealed.empty()) return {};
  return traffic::decode_sketches(crypto::open(parts_.key, sketch_header(stream), sealed));
}

std::vector<Watch::Declared> Watch::declared(const Where& where) {
  std::vector<Declared> out;
  resource::ListOptions options;
  options.tenant = where.tenant.str();
  options.project = where.project.str();
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list(kMonitor, options, kForMonitors);
    for (const auto& stored : page.items)
      out.push_back({stored.resource.metadata.name, decode<MonitorSpec>(stored.resource.spec, "monitor")});
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

// ---- what windows are compared with

std::shared_ptr<const Reference> Watch::trained_reference(const Stream& stream, const MonitorSpec& spec,
                                                          std::string* why_not) {
  const auto where = where_of(stream);
  try {
    const auto endpoint = parts_.resources.get({"Endpoint", stream.tenant, stream.project, spec.endpoint});
    const auto variants = decode<serving::EndpointSpec>(endpoint.resource.spec, "endpoint").variants;
    const auto variant = std::find_if(variants.begin(), variants.end(),
                                      [&](const serving::VariantSpec& v) { return v.name == stream.variant; });
    if (variant == variants.end()) {
      *why_not = fmt::format("the endpoint has no variant {} any more", stream.variant);
      return nullptr;
    }
    const auto version = parts_.models.version(where, variant->model, stream.version);
    for (const auto& entry : parts_.models.files(where, version.model_row, version.number, ""))
      if (entry.name == "reference.json" || entry.name.ends_with("/reference.json"))
        return std::make_shared<const Reference>(
            read_reference(read_text(parts_.vault, where, entry),
                           fmt::format("what {}/{} was tested on", version.model, version.number)));
    *why_not = fmt::format("{}/{} has no reference.json", version.model, version.number);
  } catch (const Error& e) {
    *why_not = e.what();
  }
  return nullptr;
}

std::shared_ptr<const Reference> Watch::reference(const Stream& stream, const MonitorSpec& spec, std::int64_t windows,
                                                  std::string* why_not) {
  if (const auto known = references_.find(stream); known != references_.end()) return known->second;
  std::shared_ptr<const Reference> made;
  std::string none;
  if (spec.reference == "training" && !is_labels(stream)) made = trained_reference(stream, spec, &none);
  if (!made) {
    if (windows < spec.reference_windows) {
      *why_not = fmt::format("{}{} of the {} windows that make a reference", none.empty() ? "" : none + ": ", windows,
                             spec.reference_windows);
      return nullptr;
    }
    std::vector<traffic::Sketches> first;
    parts_.database.read([&](sql::Reader& r) {
      r.query(
          "SELECT sealed FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND "
          "version "
          "= ? AND number < ? ORDER BY number",
          {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, spec.reference_windows},
          [&](const sql::Row& row) { first.push_back(unseal(stream, row.bytes(0))); });
    });
    made = std::make_shared<const Reference>(make_reference(first, fmt::format("its first {} windows", first.size())));
  }
  references_[stream] = made;
  return made;
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
          remember(out, {row.integer(0), row.integer(1), row.integer(2), unseal(stream, row.bytes(3))});
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
    out.anew = !out.kept.rule.empty();
    out.kept = {};
    out.kept.rule = rule_of(spec);
    references_.erase(stream);
  }
  out.number = out.kept.windows;
  Window one{out.number, window.from_us, window.until_us, std::move(window.sketches)};
  std::string why_not;
  if (const auto compared = reference(stream, spec, out.kept.windows, &why_not)) {
    out.looked = look(*compared, spec, state_of(stream, out.kept), one);
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
  window.sketches = std::move(one.columns);
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
  const auto sealed = seal(s, open.sketches);
  w.execute(
      "INSERT INTO watch_open(tenant, project, monitor, variant, version, halvings, from_us, until_us, total, "
      "looked_at, sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {s.tenant, s.project, s.monitor, s.variant, s.version, open.halvings, open.from_us, open.until_us, open.rows,
       open.looked_at, BytesView(sealed)});
}

void Watch::write_closed(sql::Writer& w, const Closed& closed) const {
  const auto& s = closed.stream;
  if (closed.anew)
    w.execute(
        "DELETE FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ?",
        {s.tenant, s.project, s.monitor, s.variant, s.version});
  const auto sealed = seal(s, closed.window.sketches);
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
  write_findings(w, closed);
}

// What stands goes on under its number; what no longer does has ended.
void Watch::write_findings(sql::Writer& w, const Closed& closed) const {
  const auto& s = closed.stream;
  const auto now = closed.window.until_us;
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::string>> before;  // by column and test
  w.query(
      "SELECT subject, test, number, kind FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND "
      "variant = ? AND version = ? AND ended_us = 0",
      {s.tenant, s.project, s.monitor, s.variant, s.version}, [&](const sql::Row& row) {
        before[{std::string(row.text(0)), std::string(row.text(1))}] = {row.integer(2), std::string(row.text(3))};
      });
  auto next = *w.first("SELECT COALESCE(MAX(number), 0) FROM watch_finding", {},
                       [](const sql::Row& row) { return row.integer(0); });
  for (const auto& finding : closed.looked.findings) {
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
        {++next, s.tenant, s.project, s.monitor, closed.endpoint, s.variant, s.version, finding.column, finding.test,
         finding.kind, now, now, body});
  }
  for (const auto& [of, one] : before)
    w.execute("UPDATE watch_finding SET ended_us = ? WHERE number = ?", {now, one.first});
}

void Watch::note(const Closed& closed) {
  windows_.Increment();
  const auto& s = closed.stream;
  for (const auto& column : closed.looked.columns) {
    if (!column.distances.psi) continue;
    const Labels labels{
        {"tenant", s.tenant}, {"project", s.project}, {"monitor", s.monitor}, {"column", column.column}};
    auto& gauge = psi_[fmt::format("{}/{}/{}/{}", s.tenant, s.project, s.monitor, column.column)];
    if (!gauge && psi_.size() <= kPsiGaugesMax)
      gauge = &metrics_.gauge("falaj_watch_psi", "Population stability index of the newest window.", labels);
    if (gauge) gauge->Set(*column.distances.psi);
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
  std::vector<traffic::Sketches> read;
  for (const auto& one : batch.segments) {
    try {
      read.push_back(traffic::decode_sketches(from_base64(one.watched.sketches)));
    } catch (const Error& e) {
      throw Error(Code::invalid, fmt::format("segment {}: {}", one.segment, e.what()));
    }
  }
  Lock lock(taking_);
  std::vector<Declared> watching = declared(where);
  std::erase_if(watching, [&](const Declared& one) { return one.spec.endpoint != batch.endpoint; });
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
    for (const auto& monitor : watching) {
      const Stream stream{batch.tenant, batch.project, monitor.name, segment.variant, segment.version};
      const std::pair at{stream, segment.halvings};
      if (!filling.contains(at)) filling[at] = open_window(stream, segment.halvings).value_or(Open());
      auto& open = filling[at];
      open.halvings = segment.halvings;
      if (open.from_us == 0) open.from_us = segment.from_us;
      open.until_us = std::max(open.until_us, segment.until_us);
      open.rows += segment.rows;
      open.looked_at += segment.looked_at;
      traffic::merge_into(open.sketches, read[i]);
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
    open.sketches[kLabelColumn].add(one.value);
    if (open.looked_at < spec.window.rows) continue;
    std::vector<Closed> closed;
    closed.push_back(close(stream, spec, std::move(open)));
    open = {};
    write(scope, no_names, filling, closed, up_to(one.number));
  }
  if (!filling.empty()) write(scope, no_names, filling, {}, up_to(came.back().number));
}

// ---- now and then

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

void Watch::forget(const Where& where, const Declared& monitor) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  const auto edge = parts_.clock.wall().count() - monitor.spec.keep_us;
  const Stream stream{tenant, project, monitor.name, "", 0};
  const auto old = parts_.database.read([&](sql::Reader& r) {
    const auto count = [](const sql::Row& row) { return row.integer(0); };
    return *r.first(
               "SELECT COUNT(*) FROM watch_window w JOIN watch_state s ON s.tenant = w.tenant AND s.project = "
               "w.project AND s.monitor = w.monitor AND s.variant = w.variant AND s.version = w.version WHERE w.tenant "
               "= ? AND w.project = ? AND w.monitor = ? AND w.number >= ? AND (w.until_us < ? OR (w.number + ? < "
               "s.windows AND LENGTH(w.sealed) > 0))",
               {tenant, project, monitor.name, monitor.spec.reference_windows, edge, kSketchesKept}, count) +
           *r.first(
               "SELECT COUNT(*) FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND ended_us > 0 "
               "AND ended_us < ?",
               {tenant, project, monitor.name, edge}, count);
  });
  if (old == 0) return;
  parts_.database.write(watch_act(stream, "monitor.forget"), [&](sql::Writer& w) {
    // The windows that are the reference stay as long as it is compared with.
    w.execute(
        "DELETE FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND until_us < ? AND number >= ?",
        {tenant, project, monitor.name, edge, monitor.spec.reference_windows});
    w.execute(
        "UPDATE watch_window SET sealed = ? WHERE tenant = ? AND project = ? AND monitor = ? AND number >= ? AND "
        "number "
        "+ ? < (SELECT MAX(s.windows) FROM watch_state s WHERE s.tenant = watch_window.tenant AND s.project = "
        "watch_window.project AND s.monitor = watch_window.monitor AND s.variant = watch_window.variant AND s.version "
        "= watch_window.version)",
        {BytesView(), tenant, project, monitor.name, monitor.spec.reference_windows, kSketchesKept});
    w.execute(
        "DELETE FROM watch_finding WHERE tenant = ? AND project = ? AND monitor = ? AND ended_us > 0 AND ended_us < ?",
        {tenant, project, monitor.name, edge});
  });
}

void Watch::upkeep() {
  Lock lock(taking_);
  close_due();
  const auto now = parts_.clock.wall().count();
  const bool tidy = now >= next_tidy_us_;
  if (tidy) next_tidy_us_ = now + 10 * kMinuteUs;
  resource::ListOptions options;
  options.limit = 1000;
  std::vector<Stream> there;
  do {
    const auto page = parts_.resources.list(kMonitor, options, kForMonitors);
    for (const auto& stored : page.items) {
      const auto& metadata = stored.resource.metadata;
      const Declared one{metadata.name, decode<MonitorSpec>(stored.resource.spec, "monitor")};
      const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
      there.push_back({metadata.tenant, metadata.project, metadata.name, "", 0});
      take_labels(where, one);
      notice_silence(where, one);
      if (tidy) forget(where, one);
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  // What is left of monitors that are gone.
  const auto kept_of = parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT tenant, project, monitor FROM watch_state UNION SELECT tenant, project, monitor FROM watch_finding", {},
        [](const sql::Row& row) {
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
