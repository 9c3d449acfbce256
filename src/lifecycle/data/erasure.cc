// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/erasure.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "lifecycle/data/tables.h"

namespace falaj::data {
namespace {

constexpr std::size_t kSubjectBytesMax = 4096;
constexpr std::string_view kBegun = "begun", kCleaning = "cleaning", kDone = "done";
// Tables that may have held a value of a row.
constexpr std::string_view kTables[] = {"data_version", "data_check", "data_erasure"};

void check_subject(const std::string& subject) {
  if (subject.empty() || subject.size() > kSubjectBytesMax || !is_utf8(subject) ||
      subject.find('\0') != std::string::npos)
    throw Error(Code::invalid, fmt::format("subject: must be 1 to {} bytes of UTF-8", kSubjectBytesMax));
}

Where where_of(std::string_view tenant, std::string_view project) {
  return {{std::string(tenant)}, {std::string(project)}};
}

std::string resource_of(const Where& where, const std::string& id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "erasure", id).str();
}

Erasure erasure_of(const sql::Row& row) {
  Erasure e;
  e.id = row.text(0);
  e.kind = row.text(1);
  e.subject = row.digest(2);
  e.state = row.text(3);
  e.begun_us = row.integer(4);
  if (!row.is_null(5)) e.done_us = row.integer(5);
  e.begun_by = row.text(6);
  e.report = decode<ErasureReport>(parse_json(row.text(7)), "reading an erasure");
  return e;
}

std::optional<Erasure> find(sql::Reader& r, const Where& where, const std::string& id) {
  return r.first(
      "SELECT id, kind, subject, state, begun_us, done_us, begun_by, report FROM data_erasure"
      " WHERE id = ? AND tenant = ? AND project = ?",
      {id, where.tenant.str(), where.project.str()}, erasure_of);
}

void write_report(sql::Writer& w, const std::string& id, const ErasureReport& report) {
  w.execute("UPDATE data_erasure SET report = ? WHERE id = ?", {json::serialize(encode(report)), id});
}

// One more cut, of a dataset that may have had one before the process was killed.
void note_cut(ErasureReport& report, const std::string& dataset, const Cut& cut) {
  auto found = std::find_if(report.datasets.begin(), report.datasets.end(),
                            [&](const auto& one) { return one.dataset == dataset; });
  if (found == report.datasets.end()) found = report.datasets.insert(found, {dataset, 0, {}, std::nullopt});
  found->rows += cut.rows;
  for (const auto number : cut.held)
    if (std::find(found->held.begin(), found->held.end(), number) == found->held.end()) found->held.push_back(number);
  std::sort(found->held.begin(), found->held.end());
  if (cut.version) found->version = cut.version;
}

struct Link {
  std::string dataset, of;
  std::vector<std::string> columns;
};
std::vector<Link> links(sql::Reader& r, const Where& where) {
  return r.all(
      "SELECT DISTINCT d.name, o.name, i.columns FROM data_input i JOIN data_set d ON d.id = i.dataset"
      " JOIN data_set o ON o.id = i.of_dataset WHERE d.tenant = ? AND d.project = ? AND d.gone = 0",
      {where.tenant.str(), where.project.str()}, [](const sql::Row& row) {
        return Link{std::string(row.text(0)), std::string(row.text(1)),
                    decode<std::vector<std::string>>(parse_json(row.text(2)), "reading columns")};
      });
}

}  // namespace

// One at a time, and everybody waits for it: what is being erased is not searched by another meanwhile.
class Erasures::Busy {
 public:
  explicit Busy(Erasures& of) : of_(of) {
    Lock lock(of_.mu_);
    while (of_.busy_) lock.wait(of_.ended_);
    of_.busy_ = true;
  }
  ~Busy() {
    Lock lock(of_.mu_);
    of_.busy_ = false;
    of_.under_way_.clear();
    of_.ended_.notify_all();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Erasures& of_;
};

struct Erasures::Record {
  Erasure erasure;
  std::optional<std::string> subject;  // until it is done
};

Erasures::Erasures(const Parts& parts, const crypto::Key& key, Descend descend)
    : parts_(parts),
      seal_key_(crypto::derive(key, {}, "subjects until they are erased")),
      hash_key_(crypto::derive(key, {}, "hashes of subjects")),
      descend_(std::move(descend)) {}

Digest Erasures::hash_of(const Where& where, const std::string& subject) const {
  ByteWriter out;
  out.text(where.tenant.str());
  out.text(where.project.str());
  out.text(subject);
  return crypto::hmac_sha256(hash_key_, out.bytes());
}

Erasure Erasures::begin(const Where& where, const std::string& subject, const sql::Act& act) {
  check_subject(subject);
  const auto hash = hash_of(where, subject);
  ByteWriter bits;
  bits.u64(parts_.random.next());
  bits.u64(parts_.random.next());
  const auto id = to_hex(bits.bytes());
  const auto sealed = crypto::seal(seal_key_, as_bytes(id), as_bytes(subject));
  auto what = act;
  what.resource = resource_of(where, id);
  what.details = json::serialize(json::object{{"subject", hash.hex()}});
  return parts_.database.write(what, [&](sql::Writer& w) {
    const auto there =
        w.first("SELECT id FROM data_erasure WHERE tenant = ? AND project = ? AND subject = ? AND state <> 'done'",
                {where.tenant.str(), where.project.str(), hash.view()},
                [](const sql::Row& row) { return std::string(row.text(0)); });
    if (there) return *find(w, where, *there);
    w.execute(
        "INSERT INTO data_erasure(id, tenant, project, kind, subject, sealed, state, begun_us, begun_by, report)"
        " VALUES(?, ?, ?, 'subject', ?, ?, ?, ?, ?, ?)",
        {id, where.tenant.str(), where.project.str(), hash.view(), BytesView(sealed), kBegun,
         parts_.clock.wall().count(), act.actor, json::serialize(encode(ErasureReport{}))});
    return *find(w, where, id);
  });
}

Erasures::Record Erasures::record(const Where& where, const std::string& id) {
  return parts_.database.read([&](sql::Reader& r) {
    auto erasure = find(r, where, id);
    if (!erasure) throw Error(Code::not_found, "no such erasure in this project");
    Record out{std::move(*erasure), std::nullopt};
    r.query("SELECT sealed FROM data_erasure WHERE id = ?", {id}, [&](const sql::Row& row) {
      if (!row.is_null(0)) out.subject = as_text(crypto::open(seal_key_, as_bytes(id), row.bytes(0)));
    });
    return out;
  });
}

Erasure Erasures::finish(const Where& where, const std::string& id, const sql::Act& act) {
  record(where, id);  // an unknown one need not wait
  const Busy busy(*this);
  const auto what = record(where, id);
  if (what.erasure.state == kDone) return what.erasure;
  auto in = act;
  in.resource = resource_of(where, id);
  in.details = json::serialize(json::object{{"subject", what.erasure.subject.hex()}});
  if (what.subject) try {
      const auto all = [&] { return targets_of(where, *what.subject); };
      // First from where rows are served, then from where they lie.
      for (auto* holder : holders_)
        for (const auto& [dataset, going] : all())
          for (const auto& column : going.keys) holder->erase_subject(where, dataset, column, *what.subject, in);
      cut_all(where, id, all, in);
    } catch (const Error& e) {
      // What is said of it may be logged, so it must not quote whom it is about.
      if (std::string_view(e.what()).find(*what.subject) == std::string_view::npos) throw;
      throw Error(e.code(), "a dataset could not be searched");
    }
  return clean(where, id, in);
}

void Erasures::cut_all(const Where& where, const std::string& id, const std::function<Targets()>& targets,
                       const sql::Act& act) {
  // Until nothing is found: while one dataset was searched, another may have been made of it. Of a version that is
  // erased none can be made.
  for (bool found = true; found;) {
    found = false;
    const auto all = targets();
    const auto share = 1.0 / static_cast<double>(std::max<std::size_t>(all.size(), 1));
    double before = 0;
    for (const auto& one : all) {
      const auto& dataset = one.first;
      const CutOptions how{id, [&](sql::Writer& w, const Cut& cut) {
                             auto report = find(w, where, id).value().report;
                             note_cut(report, dataset, cut);
                             write_report(w, id, report);
                           }};
      const auto cut = parts_.datasets.cut(where, dataset, one.second, how, act, [&](double done) {
        note_progress(id, before + std::clamp(done, 0.0, 1.0) * share);
      });
      found |= !cut.held.empty();
      before += share;
    }
  }
}

Erasure Erasures::clean(const Where& where, const std::string& id, const sql::Act& act) {
  auto erasure = record(where, id).erasure;
  if (erasure.state == kBegun) {
    for (auto* holder : holders_)
      for (const auto& one : erasure.report.datasets)
        if (!one.held.empty()) holder->replaced(where, one.dataset, one.version.value_or(0), act);
    erasure.report.shared = static_cast<std::int64_t>(parts_.datasets.destroy_dropped(where, act));
    parts_.database.write(act, [&](sql::Writer& w) {
      auto report = erasure.report;
      describe(w, where, id, report);
      write_report(w, id, report);
      w.execute("UPDATE data_erasure SET state = ?, sealed = NULL WHERE id = ?", {kCleaning, id});
    });
  }
  // Whoever is told that it is done may look for it in the files.
  std::vector<std::string_view> tables(std::begin(kTables), std::end(kTables));
  for (const auto* holder : holders_)
    for (const auto table : holder->tables()) tables.push_back(table);
  parts_.database.scrub(tables);
  return parts_.database.write(act, [&](sql::Writer& w) {
    w.execute("UPDATE data_erasure SET state = ?, done_us = ? WHERE id = ?", {kDone, parts_.clock.wall().count(), id});
    return *find(w, where, id);
  });
}

ErasureReport Erasures::plan(const Where& where, const std::string& subject) {
  check_subject(subject);
  ErasureReport report;
  for (const auto& [dataset, going] : targets_of(where, subject)) {
    const auto cut = parts_.datasets.would_cut(where, dataset, going);
    if (!cut.held.empty()) note_cut(report, dataset, cut);
  }
  parts_.database.read([&](sql::Reader& r) { describe(r, where, "", report); });
  return report;
}

std::size_t Erasures::resume(const std::function<bool()>& go_on) {
  struct Begun {
    std::string id;
    Where where;
  };
  const auto begun = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT id, tenant, project FROM data_erasure WHERE state <> 'done' ORDER BY begun_us", {},
                 [](const sql::Row& row) {
                   return Begun{std::string(row.text(0)), where_of(row.text(1), row.text(2))};
                 });
  });
  std::size_t finished = 0;
  for (const auto& one : begun) {
    if (!go_on()) break;
    try {
      finish(one.where, one.id, {"system/erasure", "data.erase", "", ""});
      ++finished;
    } catch (const Error& e) {
      log::warn("erasure_not_finished", {{"erasure", one.id}, {"problem", e.what()}});
    }
  }
  return finished;
}

// ---- which datasets

// Those for which `of` says what goes, and those made of them that have the same columns still.
Erasures::Targets Erasures::targets(
    const Where& where, const std::function<std::optional<Going>(const std::string&, const DatasetSpec&)>& of) {
  Targets out;
  resource::ListOptions options{where.tenant.str(), where.project.str(), "", "", 1000};
  do {
    const auto page = parts_.resources.list("Dataset", options, [](auto&&...) { return std::nullopt; });
    for (const auto& stored : page.items)
      if (auto going =
              of(stored.resource.metadata.name, decode<DatasetSpec>(stored.resource.spec, "reading a dataset's spec")))
        out.emplace(stored.resource.metadata.name, std::move(*going));
    options.cursor = page.next;
  } while (!options.cursor.empty());
  const auto all = parts_.database.read([&](sql::Reader& r) { return links(r, where); });
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (bool more = true; more;) {
    more = false;
    for (const auto& link : all) {
      const auto from = out.find(link.of);
      if (from == out.end()) continue;
      const auto going = from->second;
      // By age only where the age is known.
      if (going.before_us && !has(link.columns, going.time)) continue;
      for (const auto& key : going.keys) {
        if (!has(link.columns, key)) continue;
        auto& made = out.emplace(link.dataset, Going{{}, going.subject, going.time, going.before_us}).first->second;
        if (has(made.keys, key)) continue;
        made.keys.push_back(key);
        more = true;
      }
    }
  }
  return out;
}

Erasures::Targets Erasures::targets_of(const Where& where, const std::string& subject) {
  return targets(where, [&](const std::string&, const DatasetSpec& spec) -> std::optional<Going> {
    if (!spec.personal) return std::nullopt;
    return Going{{spec.personal->subject_key}, subject, "", std::nullopt};
  });
}

// ---- what was made of it

void Erasures::describe(sql::Reader& reader, const Where& where, const std::string& id, ErasureReport& report) const {
  using Place = std::pair<std::int64_t, std::int64_t>;  // dataset, version
  std::map<std::int64_t, std::string> names;
  std::set<Place> seen;
  std::deque<Place> next;
  for (const auto& one : report.datasets) {
    const auto row = dataset_row(reader, where, one.dataset);
    if (!row) continue;
    names[*row] = one.dataset;
    for (const auto number : one.held)
      if (seen.insert({*row, number}).second) next.push_back({*row, number});
  }
  const auto held = seen;
  std::vector<std::string> runs_say;
  report.versions.clear();
  while (!next.empty()) {
    const auto [row, number] = next.front();
    next.pop_front();
    if (const auto version = find_version(reader, row, names[row], number)) {
      runs_say.push_back(fmt::format("{}@{}", version->dataset, version->short_id()));
      if (!held.contains({row, number})) report.versions.push_back(fmt::format("{}@{}", version->dataset, number));
    }
    const auto add = [&](const sql::Row& found) {
      // What this erasure made has nothing of it any more.
      if (!found.is_null(2) && found.text(2) == id) return;
      const Place place{found.integer(0), found.integer(1)};
      names[place.first] = found.text(3);
      if (seen.insert(place).second) next.push_back(place);
    };
    reader.query(
        "SELECT v.dataset, v.number, v.erasure, d.name FROM data_input i JOIN data_version v ON v.dataset = i.dataset"
        " AND v.number = i.number JOIN data_set d ON d.id = v.dataset WHERE i.of_dataset = ? AND i.of_number = ?",
        {row, number}, add);
    reader.query(
        "SELECT v.dataset, v.number, v.erasure, d.name FROM data_version v JOIN data_set d ON d.id = v.dataset"
        " WHERE v.dataset = ? AND v.parent = ?",
        {row, number}, add);
  }
  std::sort(report.versions.begin(), report.versions.end());
  auto made = descend_ ? descend_(reader, where, runs_say) : Descendants{};
  report.runs = std::move(made.runs);
  report.logged_models = std::move(made.logged_models);
  report.models = std::move(made.models);
}

// ---- age

std::int64_t retention_edge(std::int64_t now_us, std::int64_t retention_us) {
  constexpr std::int64_t kDayUs = 86'400'000'000;
  const auto step = std::clamp<std::int64_t>(retention_us / 10, 1, kDayUs);
  const auto edge = now_us - retention_us;
  return edge - ((edge % step) + step) % step;
}

std::vector<Erasure> Erasures::retain(const iam::Scope& scope, bool dry_run, const sql::Act& act,
                                      const std::function<bool()>& go_on) {
  struct Kept {
    Where where;
    std::string name;
    DatasetSpec spec;
  };
  std::vector<Kept> kept;
  resource::ListOptions options{std::string(scope.tenant()), std::string(scope.project()), "", "", 1000};
  do {
    const auto page = parts_.resources.list("Dataset", options, [](auto&&...) { return std::nullopt; });
    for (const auto& stored : page.items) {
      auto spec = decode<DatasetSpec>(stored.resource.spec, "reading a dataset's spec");
      if (!spec.personal || !spec.personal->retention_us || spec.time.empty()) continue;
      const auto& meta = stored.resource.metadata;
      kept.push_back({where_of(meta.tenant, meta.project), meta.name, std::move(spec)});
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  std::vector<Erasure> out;
  for (const auto& one : kept) {
    if (!go_on()) break;
    const auto before = retention_edge(parts_.clock.wall().count(), *one.spec.personal->retention_us);
    auto made = retain_dataset(one.where, one.name, one.spec, before, dry_run, act);
    if (!made.report.datasets.empty()) out.push_back(std::move(made));
  }
  return out;
}

Erasure Erasures::retain_dataset(const Where& where, const std::string& name, const DatasetSpec& spec,
                                 std::int64_t before_us, bool dry_run, const sql::Act& act) {
  const auto all = [&] {
    return targets(where, [&](const std::string& dataset, const DatasetSpec&) -> std::optional<Going> {
      if (dataset != name) return std::nullopt;
      return Going{{spec.personal->subject_key}, std::nullopt, spec.time, before_us};
    });
  };
  Erasure out;
  out.kind = "retention";
  out.subject = hash_of(where, name);
  const Busy busy(*this);
  for (const auto& [dataset, going] : all()) {
    const auto cut = parts_.datasets.would_cut(where, dataset, going);
    if (!cut.held.empty()) note_cut(out.report, dataset, cut);
  }
  if (out.report.datasets.empty() || dry_run) return out;
  ByteWriter bits;
  bits.u64(parts_.random.next());
  bits.u64(parts_.random.next());
  const auto id = to_hex(bits.bytes());
  auto in = act;
  in.resource = resource_of(where, id);
  parts_.database.write(in, [&](sql::Writer& w) {
    w.execute(
        "INSERT INTO data_erasure(id, tenant, project, kind, subject, state, begun_us, begun_by, report)"
        " VALUES(?, ?, ?, 'retention', ?, ?, ?, ?, ?)",
        {id, where.tenant.str(), where.project.str(), out.subject.view(), kBegun, parts_.clock.wall().count(),
         act.actor, json::serialize(encode(ErasureReport{}))});
  });
  cut_all(where, id, all, in);
  return clean(where, id, in);
}

// ---- records

Erasure Erasures::get(const Where& where, const std::string& id) { return record(where, id).erasure; }

std::vector<Erasure> Erasures::list(const Where& where, std::int64_t before_us, std::size_t limit) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT id, kind, subject, state, begun_us, done_us, begun_by, report FROM data_erasure"
        " WHERE tenant = ? AND project = ? AND begun_us < ? ORDER BY begun_us DESC, id LIMIT ?",
        {where.tenant.str(), where.project.str(), before_us, static_cast<std::int64_t>(limit)}, erasure_of);
  });
}

void Erasures::note_progress(const std::string& id, double done) {
  Lock lock(mu_);
  under_way_[id] = done;
}

double Erasures::progress(const std::string& id) const {
  Lock lock(mu_);
  const auto found = under_way_.find(id);
  return found == under_way_.end() ? 0 : found->second;
}

}  // namespace falaj::data
