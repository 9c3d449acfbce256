// SPDX-License-Identifier: Apache-2.0
// How rows go out of all versions of a dataset.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/statistics.h"
#include "lifecycle/data/tables.h"
#include "lifecycle/data/turn.h"
#include "lifecycle/data/vault_names.h"
#include "lifecycle/data/vault_source.h"

namespace falaj::data {
namespace {

// SQL that is true of the rows that go; "" when none can.
std::string condition_of(const Going& going, const table::Schema& schema) {
  std::string out;
  const auto either = [&](const std::string& more) { out += (out.empty() ? "" : " OR ") + more; };
  if (going.subject)
    for (const auto& key : going.keys)
      if (const auto* column = table::find(schema, key))
        // Of the column's own type, so that groups of rows whose range does not hold it are not read.
        either(fmt::format("{} = TRY_CAST({} AS {})", table::identifier(key), table::literal(*going.subject),
                           table::sql_name(column->type)));
  if (going.before_us && table::find(schema, going.time))
    either(fmt::format("epoch_us({}::TIMESTAMP) < {}", table::identifier(going.time), *going.before_us));
  return out;
}

std::vector<File> all_files(sql::Reader& r, std::int64_t dataset) {
  std::map<std::int64_t, File> out;
  const auto numbers = r.all("SELECT number FROM data_version WHERE dataset = ?", {dataset},
                             [](const sql::Row& row) { return row.integer(0); });
  for (const auto number : numbers)
    for (auto& file : version_files(r, dataset, number)) out.emplace(file.id, std::move(file));
  std::vector<File> files;
  for (auto& [id, file] : out) files.push_back(std::move(file));
  return files;
}

struct Uploaded {
  std::string id;
  bool finished;
};
std::vector<Uploaded> uploads(sql::Reader& r, const Where& where, const std::string& name) {
  return r.all("SELECT id, version FROM data_ingest WHERE tenant = ? AND project = ? AND dataset = ?",
               {where.tenant.str(), where.project.str(), name}, [](const sql::Row& row) {
                 return Uploaded{std::string(row.text(0)), !row.is_null(1)};
               });
}

bool has_examples(sql::Reader& r, std::int64_t dataset) {
  bool found = false;
  r.query("SELECT result FROM data_check WHERE dataset = ?", {dataset}, [&](const sql::Row& row) {
    found |= !decode<CheckResult>(parse_json(row.text(0)), "reading a check").examples.empty();
  });
  return found;
}

// Values that expectations showed are of rows that nobody can find any more, when they were refused.
void forget_examples(sql::Writer& w, std::int64_t dataset) {
  const auto all = w.all("SELECT id, result FROM data_check WHERE dataset = ?", {dataset}, [](const sql::Row& row) {
    return std::pair(row.integer(0), decode<CheckResult>(parse_json(row.text(1)), "reading a check"));
  });
  for (auto [id, result] : all) {
    if (result.examples.empty()) continue;
    result.examples.clear();
    w.execute("UPDATE data_check SET result = ? WHERE id = ?", {json::serialize(encode(result)), id});
  }
}

void insert_dropped(sql::Writer& w, const Where& where, const vault::Entry& entry, std::int64_t at_us) {
  w.execute(
      "INSERT INTO data_dropped(tenant, project, name, zone, address, at_us) VALUES(?, ?, ?, ?, ?, ?)"
      " ON CONFLICT DO NOTHING",
      {where.tenant.str(), where.project.str(), entry.name, entry.zone.str(), entry.address.digest.view(), at_us});
}

}  // namespace

// ---- bytes that nothing names any more

void Datasets::note_dropped(const Where& where, const std::vector<vault::Entry>& entries, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    for (const auto& entry : entries) insert_dropped(w, where, entry, clock_.wall().count());
  });
}

void Datasets::drop(const Where& where, const std::vector<vault::Entry>& entries, const sql::Act& act) {
  if (entries.empty()) return;
  note_dropped(where, entries, act);
  for (const auto& entry : entries) vault_.remove(where, entry.name, act);
}

void Datasets::drop_below(const Where& where, const std::string& prefix, const sql::Act& act) {
  for (;;) {
    const auto page = vault_.list(where, prefix, "", 500);
    if (page.empty()) return;
    note_dropped(where, page, act);
    vault_.remove_below(where, prefix, page.size(), act);
  }
}

std::size_t Datasets::destroy_dropped(const Where& where, const sql::Act& act) {
  struct Dropped {
    std::string name;
    vault::Placed object;
  };
  const auto dropped = database_.read([&](sql::Reader& r) {
    return r.all("SELECT name, zone, address FROM data_dropped WHERE tenant = ? AND project = ?",
                 {where.tenant.str(), where.project.str()}, [](const sql::Row& row) {
                   return Dropped{std::string(row.text(0)), {ZoneName::parse(row.text(1)), {row.digest(2)}}};
                 });
  });
  std::vector<vault::Placed> objects;
  for (const auto& one : dropped) {
    // A kill may have come between the note and the name's end. A name may also mean something else by now.
    const auto there = vault_.list(where, one.name, "", 1);
    if (!there.empty() && there[0].name == one.name && there[0].address == one.object.address)
      vault_.remove(where, one.name, act);
    objects.push_back(one.object);
  }
  if (objects.empty()) return 0;
  const auto stay = vault_.destroy(where.tenant, objects, act);
  database_.write(act, [&](sql::Writer& w) {
    for (const auto& one : dropped)
      w.execute(
          "DELETE FROM data_dropped WHERE tenant = ? AND project = ? AND name = ? AND zone = ? AND address = ?",
          {where.tenant.str(), where.project.str(), one.name, one.object.zone.str(), one.object.address.digest.view()});
  });
  return stay.size();
}

// What the vault's collector took by itself.
void Datasets::forget_collected(std::int64_t before_us, const sql::Act& act) {
  struct Dropped {
    Where where;
    std::string name;
    vault::Placed object;
  };
  const auto old = database_.read([&](sql::Reader& r) {
    return r.all("SELECT tenant, project, name, zone, address FROM data_dropped WHERE at_us < ? LIMIT 1000",
                 {before_us}, [](const sql::Row& row) {
                   return Dropped{{{std::string(row.text(0))}, {std::string(row.text(1))}},
                                  std::string(row.text(2)),
                                  {ZoneName::parse(row.text(3)), {row.digest(4)}}};
                 });
  });
  for (const auto& one : old) {
    const auto& [zone, address] = one.object;
    if (vault_.store(zone).exists({one.where.tenant, zone, nullptr}, address)) continue;
    database_.write(act, [&](sql::Writer& w) {
      w.execute("DELETE FROM data_dropped WHERE tenant = ? AND project = ? AND name = ? AND zone = ? AND address = ?",
                {one.where.tenant.str(), one.where.project.str(), one.name, one.object.zone.str(),
                 one.object.address.digest.view()});
    });
  }
}

// ---- which rows

std::string Datasets::show_file(table::Workspace& room, const Where& where, const File& file) {
  const auto name = fmt::format("data/{}", file.name);
  room.put(name, std::make_shared<VaultSource>(vault_, where, std::vector{vault_.info(where, file.name)}));
  return fmt::format("read_parquet({})", table::literal(name));
}

std::vector<Datasets::Matched> Datasets::match(const Where& where, std::int64_t row, const std::string& time,
                                               const Going& going, const table::Workspace::Watch& watch) {
  const auto files = database_.read([&](sql::Reader& r) { return all_files(r, row); });
  const auto room = this->room();
  std::vector<Matched> out;
  for (const auto& file : files) {
    auto& matched = out.emplace_back();
    matched.file = file;
    const bool all_later =
        !going.subject && going.before_us && going.time == time && file.first_us && *file.first_us >= *going.before_us;
    const auto relation = show_file(*room, where, file);
    const auto schema = room->describe("SELECT * FROM " + relation);
    for (const auto& key : going.keys)
      if (table::find(schema, key)) matched.keys.push_back(key);
    matched.condition = condition_of(going, schema);
    if (all_later || matched.condition.empty()) continue;
    room->query(
        fmt::format("SELECT count(*) FROM {} WHERE {}", relation, matched.condition), {},
        [&](const table::Chunk& chunk) {
          matched.rows = chunk.integer(0, 0);
          return true;
        },
        watch);
  }
  return out;
}

// ---- how they go

// One cut of one dataset, whose turn it is: what is there, what is put beside it, and the write that changes over.
class Datasets::Cutting {
 public:
  Cutting(Datasets& of, const Where& where, const std::string& name, std::int64_t row, const Going& going,
          const table::Workspace::Watch& watch)
      : of_(of), where_(where), name_(name), row_(row), going_(going), watch_(watch), spec_(of.spec(where, name)) {
    for (auto& matched : of_.match(where_, row_, spec_.time, going_, watch_)) {
      const auto id = matched.file.id;
      files_.emplace(id, std::move(matched));
    }
    of_.database_.read([&](sql::Reader& r) {
      versions_ = list_versions(r, row_, name_, INT64_MAX, INT64_MAX);
      for (const auto& version : versions_)
        for (const auto& file : version_files(r, row_, version.number)) links_[version.number].push_back(file.id);
    });
    for (const auto& version : versions_) {
      if (!newest_ && !version.erased) newest_ = version;
      const auto& of_version = links_[version.number];
      if (std::none_of(of_version.begin(), of_version.end(), [&](auto id) { return files_.at(id).rows > 0; })) continue;
      cut_.held.push_back(version.number);
      if (!version.erased) cut_.erased.push_back(version.number);
    }
    for (const auto& [id, matched] : files_)
      if (!matched.file.keys) cut_.rows += matched.rows;
  }

  const Cut& found() const { return cut_; }

  // New files, which nothing refers to yet.
  void write_files(const sql::Act& act) {
    place_ = fmt::format("{}{}/{:016x}/", kFiles, row_, of_.random_.next());
    room_ = of_.room();
    if (is_erased(newest_)) make_newest(act);
    // What is left of files that no version will have.
    std::set<std::int64_t> needed;
    for (const auto& version : versions_)
      if (!version.erased && !is_erased(version))
        needed.insert(links_[version.number].begin(), links_[version.number].end());
    if (made_)
      for (const auto& file : made_files_)
        if (file.id != 0) needed.insert(file.id);
    for (const auto& [id, matched] : files_) {
      if (needed.contains(id) || next_.contains(id)) continue;
      if (matched.file.keys && matched.rows == 0) continue;
      next_[id] = keys_left(matched, act);
    }
  }

  Cut change_over(const CutOptions& how, const sql::Act& act) {
    std::map<std::int64_t, vault::Entry> entries;  // of files that go
    for (const auto& [id, next] : next_) entries.emplace(id, of_.vault_.info(where_, files_.at(id).file.name));
    const auto now = of_.clock_.wall().count();
    Cut done;
    of_.database_.write(act, [&](sql::Writer& w) {
      done = cut_;
      auto next = next_;
      auto made_files = made_files_;
      auto made = made_;
      if (made) {
        made->created_us = now;
        made->created_by = act.actor;
        insert_version(w, *made, made_files);
        w.execute("UPDATE data_version SET erasure = ? WHERE dataset = ? AND number = ?",
                  {how.erasure, row_, made->number});
        for (std::size_t i = 0; i < made_files.size(); ++i)
          if (from_[i] != 0) next[from_[i]] = made_files[i];
        done.version = made->number;
        w.record({resource_name(where_, name_, made->number), {}, made->id});
      }
      for (auto& [id, file] : next) relink(w, id, file);
      tombstones(w, done, made ? std::optional(made->number) : remaining(), now);
      for (const auto& [id, entry] : entries) {
        w.execute("DELETE FROM data_file WHERE id = ?", {id});
        insert_dropped(w, where_, entry, now);
      }
      forget_examples(w, row_);
      if (how.also) how.also(w, done);
    });
    for (const auto& [id, entry] : entries) of_.vault_.remove(where_, entry.name, act);
    return done;
  }

 private:
  bool is_erased(const std::optional<Version>& version) const { return version && is_erased(*version); }
  bool is_erased(const Version& version) const {
    return std::find(cut_.erased.begin(), cut_.erased.end(), version.number) != cut_.erased.end();
  }
  // The newest that stays as it is.
  std::optional<std::int64_t> remaining() const {
    for (const auto& version : versions_)
      if (!version.erased && !is_erased(version)) return version.number;
    return std::nullopt;
  }

  std::optional<File> put(const Matched& from, const std::string& select, const sql::Act& act) {
    File file;
    file.name = fmt::format("{}{:06}", place_, ++put_);
    file.partition = from.file.partition;
    const auto entry = of_.put_parquet(where_, spec_.zone, *room_, select, file.name, act, watch_);
    file.bytes = static_cast<std::int64_t>(entry.bytes);
    file.content = entry.content;
    return file;
  }

  std::optional<File> keys_left(const Matched& from, const sql::Act& act) {
    if (from.keys.empty()) return std::nullopt;
    const auto left = from.condition.empty() ? "" : fmt::format(" WHERE ({}) IS NOT TRUE", from.condition);
    const auto select = fmt::format("SELECT DISTINCT {} FROM {}{}", table::identifiers(from.keys),
                                    of_.show_file(*room_, where_, from.file), left);
    std::int64_t rows = 0;
    room_->query(
        fmt::format("SELECT count(*) FROM ({})", select), {},
        [&](const table::Chunk& chunk) {
          rows = chunk.integer(0, 0);
          return true;
        },
        watch_);
    if (rows == 0) return std::nullopt;
    auto file = put(from, select + " ORDER BY ALL", act);
    file->keys = true;
    file->rows = rows;
    return file;
  }

  File rows_left(const Matched& from, const sql::Act& act) {
    const auto relation = of_.show_file(*room_, where_, from.file);
    const auto select = fmt::format("SELECT * FROM {} WHERE ({}) IS NOT TRUE", relation, from.condition);
    auto file = *put(from, select, act);
    file.rows = from.file.rows - from.rows;
    const auto schema = room_->describe("SELECT * FROM " + relation);
    if (spec_.time.empty() || !table::find(schema, spec_.time)) return file;
    room_->query(
        fmt::format("SELECT epoch_us(min({0})::TIMESTAMP), epoch_us(max({0})::TIMESTAMP) FROM ({1})",
                    table::identifier(spec_.time), select),
        {},
        [&](const table::Chunk& chunk) {
          if (chunk.is_null(0, 0)) return true;
          file.first_us = chunk.integer(0, 0);
          file.last_us = chunk.integer(1, 0);
          return true;
        },
        watch_);
    return file;
  }

  void make_newest(const sql::Act& act) {
    const auto& before = links_[newest_->number];
    for (const auto id : before) {
      const auto& matched = files_.at(id);
      if (matched.rows == 0) {
        add(matched.file, 0);
        continue;
      }
      next_[id] = std::nullopt;
      if (matched.rows < matched.file.rows) add(rows_left(matched, act), id);
    }
    // No rows have a file too: it has their columns.
    if (made_files_.empty()) add(rows_left(files_.at(before.back()), act), before.back());
    Version made;
    made.dataset = name_;
    made.row = row_;
    made.major = newest_->major;
    made.mode = Mode::overwrite;
    made.schema = newest_->schema;
    made.source = "erasure";
    made.inputs = newest_->inputs;
    made.answered_by = newest_->answered_by;
    made.id = version_id(made.schema, made_files_);
    std::string names, columns;
    for (const auto& file : made_files_) {
      made.rows += file.rows;
      made.bytes += file.bytes;
      of_.show_file(*room_, where_, file);
      names += (names.empty() ? "" : ", ") + table::literal(fmt::format("data/{}", file.name));
    }
    for (const auto& column : made.schema) columns += (columns.empty() ? "" : ", ") + table::identifier(column.name);
    room_->run(fmt::format(
        "CREATE OR REPLACE VIEW remaining AS SELECT {} FROM read_parquet([{}], union_by_name = true)", columns, names));
    made.stats = statistics(*room_, "remaining", made.schema, watch_);
    made_ = std::move(made);
  }
  void add(File file, std::int64_t from) {
    made_files_.push_back(std::move(file));
    from_.push_back(from);
  }

  // Versions that are erased now have, instead of the file, what is left of it.
  void relink(sql::Writer& w, std::int64_t id, std::optional<File>& next) {
    if (next && next->id == 0) insert_file(w, row_, *next);
    if (next)
      w.execute("UPDATE data_version_file SET file = ? WHERE file = ?", {next->id, id});
    else
      w.execute("DELETE FROM data_version_file WHERE file = ?", {id});
  }

  void tombstones(sql::Writer& w, const Cut& done, std::optional<std::int64_t> replaced_by, std::int64_t now) {
    for (const auto number : done.erased) {
      const auto version = find_version(w, row_, name_, number);
      const bool named = going_.subject && version->source.find(*going_.subject) != std::string::npos;
      w.execute(
          "UPDATE data_version SET erased_us = ?, bytes = 0, stats = '[]', warnings = '[]', source = ?"
          " WHERE dataset = ? AND number = ?",
          {now, named ? std::string("erased") : version->source, row_, number});
      w.execute("DELETE FROM data_check WHERE dataset = ? AND version = ?", {row_, number});
      w.record({resource_name(where_, name_, number), version->id, {}});
    }
    w.execute("UPDATE data_version SET replaced_by = ? WHERE dataset = ? AND erased_us IS NOT NULL",
              {replaced_by ? sql::Param(*replaced_by) : sql::Param(sql::Null{}), row_});
  }

  Datasets& of_;
  const Where& where_;
  const std::string& name_;
  const std::int64_t row_;
  const Going& going_;
  const table::Workspace::Watch& watch_;
  const DatasetSpec spec_;

  std::map<std::int64_t, Matched> files_;                    // by id
  std::vector<Version> versions_;                            // newest first
  std::map<std::int64_t, std::vector<std::int64_t>> links_;  // files of each version
  std::optional<Version> newest_;
  Cut cut_;

  std::string place_;
  std::size_t put_ = 0;
  std::unique_ptr<table::Workspace> room_;
  std::optional<Version> made_;
  std::vector<File> made_files_;
  std::vector<std::int64_t> from_;                    // of which file each of those is what is left; 0: it is that file
  std::map<std::int64_t, std::optional<File>> next_;  // files that go, and what is left of them
};

Cut Datasets::would_cut(const Where& where, const std::string& name, const Going& going,
                        const table::Workspace::Watch& watch) {
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  return Cutting(*this, where, name, row, going, watch).found();
}

Cut Datasets::cut(const Where& where, const std::string& name, const Going& going, const CutOptions& how,
                  const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  // Rows on their way in, of which nobody knows whose they are; and what uploads and batches that a kill ended left.
  for (const auto& upload : database_.read([&](sql::Reader& r) { return uploads(r, where, name); })) {
    if (!upload.finished && !going.subject) continue;
    if (!upload.finished)
      database_.write(act, [&](sql::Writer& w) { w.execute("DELETE FROM data_ingest WHERE id = ?", {upload.id}); });
    drop_below(where, upload_root(upload.id), act);
  }
  std::size_t strays = 0;
  drop_strays(where, row, INT64_MAX, act, strays);
  Cutting cutting(*this, where, name, row, going, watch);
  if (!cutting.found().held.empty()) {
    cutting.write_files(act);
    return cutting.change_over(how, act);
  }
  if (going.subject && database_.read([&](sql::Reader& r) { return has_examples(r, row); }))
    database_.write(act, [&](sql::Writer& w) { forget_examples(w, row); });
  return {};
}

}  // namespace falaj::data
