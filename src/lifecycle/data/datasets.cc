// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/datasets.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/data/dataset_kind.h"
#include "lifecycle/data/tables.h"
#include "lifecycle/data/turn.h"
#include "lifecycle/data/vault_source.h"

namespace falaj::data {
namespace {

std::string columns_of(const table::Schema& schema) {
  std::string out;
  for (const auto& column : schema) out += (out.empty() ? "" : ", ") + table::identifier(column.name);
  return out;
}

std::int64_t count(table::Workspace& room, const std::string& select, const table::Workspace::Watch& watch) {
  std::int64_t out = 0;
  room.query(
      "SELECT count(*) FROM (" + select + ")", {},
      [&](const table::Chunk& chunk) {
        out = chunk.integer(0, 0);
        return true;
      },
      watch);
  return out;
}

// Columns that both have, in the order of the first.
table::Schema common(const table::Schema& a, const table::Schema& b) {
  table::Schema out;
  for (const auto& column : a)
    if (const auto* other = table::find(b, column.name); other && other->type == column.type) out.push_back(column);
  return out;
}

}  // namespace

std::span<const sql::Migration> Datasets::migrations() { return data_migrations(); }

Datasets::Datasets(sql::Database& database, resource::Resources& resources, vault::Vault& vault, sys::Files& scratch,
                   const sys::Clock& clock, sys::Random& random, Metrics& metrics, DataLimits limits)
    : database_(database),
      resources_(resources),
      vault_(vault),
      scratch_(scratch),
      clock_(clock),
      random_(random),
      limits_(limits),
      rows_in_(metrics.counter("falaj_dataset_rows_ingested_total", "Rows that became part of a dataset version.")),
      versions_made_(metrics.counter("falaj_dataset_versions_created_total", "Dataset versions made.")) {}

std::vector<Dataset> Datasets::list(const Where& where, const std::string& after, std::size_t limit) {
  return database_.read([&](sql::Reader& r) {
    auto out = r.all(
        "SELECT d.name, d.id, (SELECT COUNT(*) FROM data_version v WHERE v.dataset = d.id) FROM data_set d"
        " WHERE d.tenant = ? AND d.project = ? AND d.name > ? AND d.gone = 0 ORDER BY d.name LIMIT ?",
        {where.tenant.str(), where.project.str(), after, static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          return Dataset{std::string(row.text(0)), row.integer(1), row.integer(2), std::nullopt};
        });
    for (auto& dataset : out) dataset.newest = newest_version(r, dataset.row, dataset.name);
    return out;
  });
}

DatasetSpec Datasets::spec(const Where& where, const std::string& name) {
  const auto stored = resources_.get({"Dataset", where.tenant.str(), where.project.str(), name});
  return decode<DatasetSpec>(stored.resource.spec, "reading a dataset's spec");
}

Dataset Datasets::dataset(const Where& where, const std::string& name) {
  return database_.read([&](sql::Reader& r) {
    Dataset out{name, need_dataset(r, where, name), 0, std::nullopt};
    out.versions = *r.first("SELECT COUNT(*) FROM data_version WHERE dataset = ?", {out.row},
                            [](const sql::Row& row) { return row.integer(0); });
    out.newest = newest_version(r, out.row, name);
    return out;
  });
}

Version Datasets::version(const Where& where, const std::string& name, std::optional<std::int64_t> number) {
  return database_.read([&](sql::Reader& r) {
    const auto row = need_dataset(r, where, name);
    auto found = number ? find_version(r, row, name, *number) : newest_version(r, row, name);
    if (found) return std::move(*found);
    if (number) throw Error(Code::not_found, fmt::format("dataset '{}' has no version {}", name, *number));
    throw Error(Code::not_found, fmt::format("dataset '{}' has no version yet; ingest a file first", name));
  });
}

std::vector<Version> Datasets::versions(const Where& where, const std::string& name, std::int64_t below,
                                        std::size_t limit) {
  return database_.read([&](sql::Reader& r) {
    return list_versions(r, need_dataset(r, where, name), name, below, static_cast<std::int64_t>(limit));
  });
}

std::vector<File> Datasets::files(const Version& version) {
  return database_.read([&](sql::Reader& r) { return version_files(r, version.row, version.number); });
}

std::vector<CheckResult> Datasets::checks(const Where& where, const std::string& name,
                                          std::optional<std::int64_t> version, std::size_t limit) {
  return database_.read([&](sql::Reader& r) { return list_checks(r, need_dataset(r, where, name), version, limit); });
}

namespace {

// Versions that runs name "NAME@DIGEST". Equal content has equal digests, so there may be several.
struct Named {
  std::int64_t row = 0;  // of the dataset
  std::vector<std::int64_t> numbers;
};
std::optional<Named> named(sql::Reader& reader, const Where& where, const std::string& id) {
  const auto at = id.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  const auto row = dataset_row(reader, where, id.substr(0, at));
  if (!row) return std::nullopt;
  Named out{*row, {}};
  reader.query("SELECT number, id FROM data_version WHERE dataset = ? ORDER BY number", {*row}, [&](const sql::Row& r) {
    if (r.digest(1).hex().starts_with(id.substr(at + 1))) out.numbers.push_back(r.integer(0));
  });
  if (out.numbers.empty() || id.size() - at - 1 != 32) return std::nullopt;
  return out;
}

std::string name_of(const sql::Row& r) { return fmt::format("{}@{}", r.text(0), r.digest(1).hex().substr(0, 32)); }

}  // namespace

std::optional<std::vector<std::string>> Datasets::linked(sql::Reader& reader, const Where& where, const std::string& id,
                                                         bool upward) const {
  const auto found = named(reader, where, id);
  if (!found) return std::nullopt;
  std::set<std::string> out;
  const auto add = [&](const sql::Row& r) { out.insert(name_of(r)); };
  for (const auto number : found->numbers) {
    if (upward)
      reader.query(
          "SELECT d.name, v.id FROM data_input i JOIN data_version v ON v.dataset = i.of_dataset AND v.number ="
          " i.of_number JOIN data_set d ON d.id = v.dataset WHERE i.dataset = ? AND i.number = ?",
          {found->row, number}, add);
    else
      reader.query(
          "SELECT d.name, v.id FROM data_input i JOIN data_version v ON v.dataset = i.dataset AND v.number = i.number"
          " JOIN data_set d ON d.id = v.dataset WHERE i.of_dataset = ? AND i.of_number = ?",
          {found->row, number}, add);
  }
  return std::vector<std::string>(out.begin(), out.end());
}

std::vector<AnsweredBy> Datasets::answerers(sql::Reader& reader, const Where& where, const std::string& id) const {
  std::vector<AnsweredBy> out;
  const auto found = named(reader, where, id);
  for (const auto number : found ? found->numbers : std::vector<std::int64_t>{})
    reader.query("SELECT model, model_version FROM data_version WHERE dataset = ? AND number = ? AND model IS NOT NULL",
                 {found->row, number}, [&](const sql::Row& r) {
                   const AnsweredBy by{std::string(r.text(0)), r.integer(1)};
                   if (std::find(out.begin(), out.end(), by) == out.end()) out.push_back(by);
                 });
  return out;
}

std::vector<std::string> Datasets::answers_of(sql::Reader& reader, const Where& where, const AnsweredBy& by) const {
  std::set<std::string> out;
  reader.query(
      "SELECT d.name, v.id FROM data_version v JOIN data_set d ON d.id = v.dataset WHERE v.model = ?"
      " AND v.model_version = ? AND d.tenant = ? AND d.project = ? AND d.gone = 0",
      {by.model, by.version, where.tenant.str(), where.project.str()},
      [&](const sql::Row& r) { out.insert(name_of(r)); });
  return {out.begin(), out.end()};
}

std::unique_ptr<table::Workspace> Datasets::room() const {
  return std::make_unique<table::Workspace>(limits_.room, scratch_);
}

void Datasets::open(table::Workspace& room, const Where& where, const Version& version, const std::string& view,
                    std::optional<std::int64_t> since) {
  if (version.erased)
    throw Error(Code::not_found,
                fmt::format("version {} of '{}' was erased on {}{}", version.number, version.dataset,
                            format_time(version.erased->at_us).substr(0, 10),
                            version.erased->replaced_by
                                ? fmt::format("; what is left of it is in version {}", *version.erased->replaced_by)
                                : ""));
  std::set<std::int64_t> before;
  if (since)
    for (const auto& file : files(this->version(where, version.dataset, since))) before.insert(file.id);
  std::string names;
  for (const auto& file : files(version)) {
    if (before.contains(file.id)) continue;
    const auto name = fmt::format("data/{}", file.id);
    room.put(name, std::make_shared<VaultSource>(vault_, where, std::vector{vault_.info(where, file.name)}));
    names += (names.empty() ? "" : ", ") + table::literal(name);
  }
  if (names.empty()) {
    std::string columns;
    for (const auto& c : version.schema)
      columns += fmt::format("{}NULL::{} AS {}", columns.empty() ? "" : ", ", table::sql_name(c.type),
                             table::identifier(c.name));
    room.run(fmt::format("CREATE OR REPLACE VIEW {} AS SELECT {} WHERE FALSE", table::identifier(view), columns));
    return;
  }
  // By name: files that are older than a column do not have it.
  room.run(fmt::format("CREATE OR REPLACE VIEW {} AS SELECT {} FROM read_parquet([{}], union_by_name = true)",
                       table::identifier(view), columns_of(version.schema), names));
}

Difference Datasets::diff(const Where& where, const Version& before, const Version& after,
                          const table::Workspace::Watch& watch) {
  Difference out;
  out.schema = breaking(before.schema, after.schema);
  for (const auto& column : after.schema)
    if (!table::find(before.schema, column.name) && column.nullable)
      out.schema.push_back(fmt::format("'{}' is new", column.name));
  out.rows_before = before.rows;
  out.rows_after = after.rows;
  const auto both = common(after.schema, before.schema);
  if (both.empty()) {
    out.added = after.rows;
    out.removed = before.rows;
    return out;
  }
  const auto room = this->room();
  open(*room, where, before, "was");
  open(*room, where, after, "now");
  const auto all = columns_of(both);
  const auto less = [&](std::string_view a, std::string_view b, const std::string& columns) {
    return fmt::format("SELECT {0} FROM {1} EXCEPT ALL SELECT {0} FROM {2}", columns, a, b);
  };
  const auto key = spec(where, after.dataset).key;
  const bool keyed = !key.empty() && std::all_of(key.begin(), key.end(), [&](const auto& k) { return find(both, k); });
  if (!keyed) {
    out.added = count(*room, less("now", "was", all), watch);
    out.removed = count(*room, less("was", "now", all), watch);
    return out;
  }
  std::string keys;
  for (const auto& k : key) keys += (keys.empty() ? "" : ", ") + table::identifier(k);
  out.added = count(*room, less("now", "was", keys), watch);
  out.removed = count(*room, less("was", "now", keys), watch);
  out.changed = count(*room, less("now", "was", all), watch) - out.added;
  return out;
}

// A version, or all when no number is given, leaves the tables.
struct Datasets::Removal {
  std::vector<File> had;
  std::vector<std::string> free;  // files that no version has any more

  void run(sql::Writer& w, const Where& where, std::int64_t row, const std::string& name,
           std::optional<std::int64_t> number) {
    had.clear();
    free.clear();
    if (number && !find_version(w, row, name, *number))
      throw Error(Code::not_found, fmt::format("dataset '{}' has no version {}", name, *number));
    std::vector<std::int64_t> numbers;
    if (number) numbers.push_back(*number);
    if (!number)
      for (const auto& version : list_versions(w, row, name, INT64_MAX, INT64_MAX)) numbers.push_back(version.number);
    for (const auto n : numbers) {
      const auto files = version_files(w, row, n);
      had.insert(had.end(), files.begin(), files.end());
      const auto version = find_version(w, row, name, n);
      for (auto& file : delete_version(w, row, n)) free.push_back(std::move(file));
      w.record({resource_name(where, name, n), version->id, {}});
    }
  }
};

std::uint64_t Datasets::remove(const Where& where, const std::string& name, std::optional<std::int64_t> number,
                               const sql::Act& act) {
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  Removal removal;
  database_.write(act, [&](sql::Writer& w) { removal.run(w, where, row, name, number); });
  return give_back(where, removal, act);
}

std::uint64_t Datasets::remove_whole(const Where& where, const std::string& name, const resource::Authorise& authorise,
                                     const sql::Act& act) {
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  const resource::Key key{"Dataset", where.tenant.str(), where.project.str(), name};
  Removal removal;
  resources_.remove(act, {&key, 1}, authorise, [&](sql::Writer& w) { removal.run(w, where, row, name, std::nullopt); });
  return give_back(where, removal, act);
}

// A kill before this leaves files that no version has: sweep() finds them by their name.
std::uint64_t Datasets::give_back(const Where& where, const Removal& removal, const sql::Act& act) {
  std::uint64_t bytes = 0;
  std::vector<vault::Entry> entries;
  for (const auto& file : removal.free) {
    const auto found =
        std::find_if(removal.had.begin(), removal.had.end(), [&](const auto& f) { return f.name == file; });
    bytes += static_cast<std::uint64_t>(found->bytes);
    entries.push_back(vault_.info(where, file));
  }
  drop(where, entries, act);
  return bytes;
}

VersionName parse_version_name(std::string_view text) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos) return {std::string(text), std::nullopt};
  const auto number = parse_int(text.substr(at + 1));
  if (!number || *number < 1)
    throw Error(Code::invalid, fmt::format("'{}': after '@' comes the number of a version", text.substr(0, 80)));
  return {std::string(text.substr(0, at)), *number};
}

}  // namespace falaj::data
