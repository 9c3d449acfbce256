// SPDX-License-Identifier: Apache-2.0
// How uploaded bytes become a version: parts in the vault, a table in a room, checks, Parquet files in the vault, rows.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/produced.h"
#include "lifecycle/data/dataset_kind.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/readers.h"
#include "lifecycle/data/statistics.h"
#include "lifecycle/data/tables.h"
#include "lifecycle/data/turn.h"
#include "lifecycle/data/vault_names.h"
#include "lifecycle/data/vault_source.h"
#include "storage/table/ordered.h"

namespace falaj::data {
namespace {

constexpr std::size_t kFaultsMax = 20;  // shown of rows that do not fit
constexpr std::int64_t kRefusedMax = 1000;
// All columns that are wrong at once.
void check_columns(const table::Schema& found, const table::Schema& declared) {
  Faults faults;
  for (const auto& column : found)
    if (!table::find(declared, column.name))
      faults.push_back({column.name, fmt::format("is in the data ({}) but not in the dataset's spec.columns",
                                                 table::name(column.type))});
  for (const auto& column : declared)
    if (!column.nullable && !table::find(found, column.name))
      faults.push_back({column.name, "must not be missing, and the data does not have it"});
  refuse_if_any("columns", std::move(faults));
}

// As declared, whatever the data has; what it lacks is null.
std::string select_list(const table::Schema& found, const table::Schema& declared) {
  std::string out;
  for (const auto& c : declared)
    out += fmt::format("{}CAST({} AS {}) AS {}", out.empty() ? "" : ", ",
                       table::find(found, c.name) ? table::identifier(c.name) : "NULL", table::sql_name(c.type),
                       table::identifier(c.name));
  return out;
}

// The partition of a row as text; rows without a time have one of their own.
std::string partition_of(const DatasetSpec& spec) {
  if (spec.partition == "none") return "''";
  return fmt::format("coalesce(strftime({}::TIMESTAMP, '{}'), '')", table::identifier(spec.time),
                     spec.partition == "day"     ? "%Y-%m-%d"
                     : spec.partition == "month" ? "%Y-%m"
                                                 : "%Y");
}

// Where in a version's making we are. Reading takes about half of the time, writing most of the rest.
struct Stage {
  double from, share;
};
constexpr Stage kReading{0, 0.5}, kChecking{0.5, 0.05}, kWriting{0.55, 0.35}, kMeasuring{0.9, 0.1};

}  // namespace

// Hands on what a statement says of itself as a part of the whole, to whoever asks for the upload's progress.
class Datasets::Way {
 public:
  Way(Datasets& of, const Finish& how, const table::Workspace::Watch& watch)
      : of_(of), upload_(how.upload), done_before_(how.done_before), watch_(watch) {
    enter(kReading);
  }
  ~Way() { of_.note_progress(upload_, 0); }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  void enter(Stage stage) {
    stage_ = stage;
    note(0);
  }
  table::Workspace::Watch watch() {
    return [this](double done) {
      note(std::clamp(done, 0.0, 1.0));
      if (watch_) watch_(done);
    };
  }

 private:
  void note(double done) {
    of_.note_progress(upload_, done_before_ + (1 - done_before_) * (stage_.from + stage_.share * done));
  }
  Datasets& of_;
  const std::string upload_;
  const double done_before_;
  const table::Workspace::Watch& watch_;
  Stage stage_{0, 0};
};

// Of a Parquet file's group of rows, which whoever writes it holds in memory.
constexpr std::int64_t kGroupRows = 122'880, kGroupRowsMin = 2'048;

// Rows that are in table `staged` of the room and checked, before they are files.
struct Datasets::Batch {
  std::string name;
  std::int64_t row = 0;
  DatasetSpec spec;
  table::Schema schema;
  std::optional<Version> parent;
  Finish how;
  std::string place;  // below which its files are in the vault
  table::Workspace& room;
  Way& way;
  const table::Workspace::Watch watch;
  std::vector<CheckResult> checks;
  std::int64_t pieces = 1, group_rows = kGroupRows;  // in which rows are sorted and written: texts may be long
};

table::Schema Datasets::infer(const Where& where, const std::string& name, const std::string& upload, Format format) {
  finished(where, name, upload);
  const auto source = std::make_shared<VaultSource>(vault_, where, entries(where, upload));
  if (source->size() == 0) throw Error(Code::invalid, "the upload is empty");
  const auto room = this->room();
  room->put("in", source);
  const bool gzip = is_gzip(*source);
  if (format == Format::jsonl) refuse_deep(*room, gzip);
  return room->describe("SELECT * FROM " + reader(format, gzip, {}));
}

Version Datasets::finish(const Where& where, const std::string& name, const std::string& upload, Finish how,
                         const sql::Act& act, const table::Workspace::Watch& watch) {
  finished(where, name, upload);  // an unknown one need not wait for its turn
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  // Asked twice at once, the second finds what the first has made.
  if (auto done = finished(where, name, upload)) return std::move(*done);
  const auto spec = this->spec(where, name);
  const auto declared = spec.schema();
  const auto pieces = entries(where, upload);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].name != part_name(upload, static_cast<std::int64_t>(i)))
      throw Error(Code::invalid, fmt::format("part {} of the upload is missing", i));
  const auto source = std::make_shared<VaultSource>(vault_, where, pieces);
  if (source->size() == 0) throw Error(Code::invalid, "the upload is empty");

  const auto room = this->room();
  room->put("in", source);
  const bool gzip = is_gzip(*source);
  if (how.format == Format::jsonl) refuse_deep(*room, gzip, watch);
  const auto found = room->describe("SELECT * FROM " + reader(how.format, gzip, {}));
  check_columns(found, declared);
  table::Schema typed;
  for (const auto& column : declared)
    if (table::find(found, column.name)) typed.push_back(column);
  const auto select = fmt::format("SELECT {} FROM {}", select_list(found, declared), reader(how.format, gzip, typed));
  how.upload = upload;
  auto version = take_in(where, name, row, *room, select, how, act, watch);
  drop_below(where, upload_root(upload), act);
  return version;
}

double Datasets::progress(const std::string& upload) const {
  Lock lock(mu_);
  const auto found = under_way_.find(upload);
  return found == under_way_.end() ? 0 : found->second;
}

void Datasets::note_progress(const std::string& upload, double done) {
  if (upload.empty()) return;
  Lock lock(mu_);
  if (done > 0)
    under_way_[upload] = done;
  else
    under_way_.erase(upload);
}

Version Datasets::store(const Where& where, const std::string& name, table::Workspace& room, const std::string& select,
                        const Finish& how, const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto row = database_.read([&](sql::Reader& r) { return need_dataset(r, where, name); });
  const Turn turn(*this, row);
  return take_in(where, name, row, room, select, how, act, watch);
}

Version Datasets::take_in(const Where& where, const std::string& name, std::int64_t row, table::Workspace& room,
                          const std::string& select, const Finish& how, const sql::Act& act,
                          const table::Workspace::Watch& watch) {
  Way way(*this, how, watch);
  Batch batch{name, row, spec(where, name), {}, std::nullopt, how, "", room, way, way.watch(), {}};
  batch.schema = batch.spec.schema();
  batch.place = fmt::format("{}{}/{:016x}/", kFiles, row, random_.next());
  batch.parent = database_.read([&](sql::Reader& r) { return newest_version(r, row, name); });
  if (how.mode == Mode::append && batch.parent && batch.parent->major != batch.spec.major)
    throw Error(Code::invalid,
                fmt::format("mode: version {} has major {} and the dataset now {}; overwrite instead of appending",
                            batch.parent->number, batch.parent->major, batch.spec.major));
  room.run("CREATE OR REPLACE TEMP TABLE staged AS " + select, {}, batch.watch);
  way.enter(kChecking);
  check_batch(where, batch);
  check_expectations(where, batch, act);
  try {
    return write_batch(where, batch, act);
  } catch (...) {
    // Nothing of it may stay. When this fails too, sweep() does it later.
    try {
      drop_below(where, batch.place, act);
    } catch (const Error& e) {
      log::warn("batch_left_behind", {{"files", batch.place}, {"problem", e.what()}});
    }
    throw;
  }
}

void Datasets::check_batch(const Where& where, Batch& batch) {
  auto& room = batch.room;
  Faults faults;
  for (const auto& column : batch.schema) {
    if (column.nullable) continue;
    room.query(
        fmt::format("SELECT rowid FROM staged WHERE {} IS NULL LIMIT {}", table::identifier(column.name), kFaultsMax),
        {},
        [&](const table::Chunk& chunk) {
          for (std::size_t i = 0; i < chunk.rows() && faults.size() < kFaultsMax; ++i)
            faults.push_back(
                {fmt::format("row {}", chunk.integer(0, i) + 1), fmt::format("'{}' is missing", column.name)});
          return true;
        },
        batch.watch);
  }
  const auto& key = batch.spec.key;
  if (!key.empty()) {
    const auto columns = table::identifiers(key);
    const auto twice = [&](const std::string& sql, std::string_view what) {
      room.query(
          sql, {},
          [&](const table::Chunk& chunk) {
            for (std::size_t i = 0; i < chunk.rows() && faults.size() < kFaultsMax; ++i)
              faults.push_back({fmt::format("row {}", chunk.integer(0, i) + 1), std::string(what)});
            return true;
          },
          batch.watch);
    };
    twice(fmt::format("SELECT max(rowid) FROM staged GROUP BY {} HAVING count(*) > 1 ORDER BY 1 LIMIT {}", columns,
                      kFaultsMax),
          fmt::format("its key ({}) is there before in the same data", fmt::join(key, ", ")));
    if (batch.how.mode == Mode::append && batch.parent) {
      open(room, where, *batch.parent, "stored");
      twice(fmt::format("SELECT staged.rowid FROM staged SEMI JOIN stored USING ({}) ORDER BY 1 LIMIT {}", columns,
                        kFaultsMax),
            fmt::format("its key ({}) is in version {} already", fmt::join(key, ", "), batch.parent->number));
    }
  }
  refuse_if_any("rows", std::move(faults));
}

std::vector<std::pair<std::string, ExpectationSpec>> Datasets::expectations(const Where& where,
                                                                            const std::string& dataset) {
  std::vector<std::pair<std::string, ExpectationSpec>> out;
  resource::ListOptions options{where.tenant.str(), where.project.str(), "", "", 1000};
  do {
    const auto page = resources_.list("Expectation", options, [](auto&&...) { return std::nullopt; });
    for (const auto& stored : page.items) {
      auto spec = decode<ExpectationSpec>(stored.resource.spec, "reading an expectation");
      if (spec.dataset == dataset) out.emplace_back(stored.resource.metadata.name, std::move(spec));
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

void Datasets::check_expectations(const Where& where, Batch& batch, const sql::Act& act) {
  Checked in{batch.room, "staged", "", "", clock_.wall().count(), batch.watch};
  if (batch.how.mode == Mode::append && batch.parent) {
    open(batch.room, where, *batch.parent, "stored");
    in.stored = "stored";
  }
  Faults faults;
  for (const auto& [expectation, spec] : expectations(where, batch.name)) {
    for (const auto& rule : spec.rules) {
      in.reference.clear();
      const auto reference =
          rule.check != "distribution" ? std::nullopt
          : rule.version
              ? database_.read([&](sql::Reader& r) { return find_version(r, batch.row, batch.name, *rule.version); })
              : batch.parent;
      if (reference) {
        in.reference = "reference";
        open(batch.room, where, *reference, in.reference);
      }
      auto result = run_rule(in, rule);
      result.expectation = expectation;
      result.action = batch.how.promised ? "warn" : spec.action;
      if (!result.held && result.action == "refuse") {
        faults.push_back({fmt::format("expectation {}", result.expectation), result.said});
        for (const auto& example : result.examples) faults.push_back({result.column, example});
      }
      batch.checks.push_back(std::move(result));
    }
  }
  if (faults.empty()) return;
  database_.write(act, [&](sql::Writer& w) { keep_checks(w, batch.row, std::nullopt, in.now_us, batch.checks); });
  refuse_if_any("rows", std::move(faults));
}

std::vector<std::pair<std::string, RuleSpec>> Datasets::rules_of_rows(const Where& where, const std::string& name) {
  std::vector<std::pair<std::string, RuleSpec>> out;
  for (auto& [expectation, spec] : expectations(where, name)) {
    if (spec.action != "refuse") continue;
    // Of which a share may fail, that is about all the rows of a version.
    for (auto& rule : spec.rules)
      if (looks_at_one_row(rule) && rule.share == 0) out.emplace_back(expectation, std::move(rule));
  }
  return out;
}

void Datasets::note_refused(const Where& where, const std::string& name, const std::vector<CheckResult>& results,
                            const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_dataset(w, where, name);
    keep_checks(w, row, std::nullopt, clock_.wall().count(), results);
    const auto last =
        w.first("SELECT id FROM data_check WHERE dataset = ? AND version IS NULL ORDER BY id DESC LIMIT 1 OFFSET ?",
                {row, kRefusedMax}, [](const sql::Row& found) { return found.integer(0); });
    if (last) w.execute("DELETE FROM data_check WHERE dataset = ? AND version IS NULL AND id <= ?", {row, *last});
  });
}

namespace {

vault::Entry put_rows(vault::Vault& vault, const Where& where, const std::string& zone, table::Workspace& room,
                      const std::string& select, std::int64_t group_rows, const std::string& name, const sql::Act& act,
                      const table::Workspace::Watch& watch) {
  Produced parquet([&](const std::function<void(BytesView)>& put) {
    room.put("out", table::sink_to(put));
    room.run(fmt::format("COPY ({}) TO 'out' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {})", select,
                         std::clamp(group_rows, kGroupRowsMin, kGroupRows)),
             {}, watch);
  });
  Bytes piece;
  std::size_t taken = 0;
  const auto source = [&](std::span<std::byte> out) -> std::size_t {
    if (taken == piece.size()) {
      piece = parquet.next();
      taken = 0;
    }
    const auto n = std::min(out.size(), piece.size() - taken);
    std::copy_n(piece.begin() + static_cast<std::ptrdiff_t>(taken), n, out.begin());
    taken += n;
    return n;
  };
  const std::optional<ZoneName> in = zone.empty() ? std::nullopt : std::optional(ZoneName::parse(zone));
  return vault.put(where, in, name, source, act);
}

}  // namespace

vault::Entry Datasets::put_parquet(const Where& where, const std::string& zone, table::Workspace& room,
                                   const std::string& select, const std::string& name, const sql::Act& act,
                                   const table::Workspace::Watch& watch) {
  return put_rows(vault_, where, zone, room, select, kGroupRows, name, act, watch);
}

void Datasets::write_file(const Where& where, Batch& batch, std::size_t number, const std::string& cut, File& file,
                          const sql::Act& act) {
  file.name = fmt::format("{}{:06}", batch.place, number);
  const auto& time = batch.spec.time;
  const auto select = batch.spec.partition == "none"
                          ? std::string("SELECT * FROM staged")
                          : fmt::format("SELECT * FROM staged WHERE {} = {}", cut, table::literal(file.partition));
  // Rows of a time lie together, so that a query for some of them reads only those.
  const auto by = time.empty() ? std::string() : table::identifier(time) + ", rowid";
  const auto put = [&](const std::string& sql) {
    return put_rows(vault_, where, batch.spec.zone, batch.room, sql, batch.group_rows, file.name, act, batch.watch);
  };
  vault::Entry entry;
  if (by.empty()) {
    entry = put(select);
  } else if (batch.pieces == 1) {
    entry = put(select + " ORDER BY " + by);
  } else {
    constexpr const char *kPart = "staged part", *kInOrder = "staged in order";
    batch.room.run(fmt::format("CREATE OR REPLACE TABLE {} AS {}", table::identifier(kPart), select), {}, batch.watch);
    table::put_in_order(batch.room, kPart, by, kInOrder, batch.watch);
    entry = put("SELECT * FROM " + table::identifier(kInOrder));
    for (const auto* made : {kPart, kInOrder}) batch.room.run("DROP TABLE " + table::identifier(made));
  }
  file.bytes = static_cast<std::int64_t>(entry.bytes);
  file.content = entry.content;
}

Version Datasets::write_batch(const Where& where, Batch& batch, const sql::Act& act) {
  const auto cut = partition_of(batch.spec);
  const auto& time = batch.spec.time;
  const auto times = time.empty() ? std::string("NULL::BIGINT, NULL::BIGINT")
                                  : fmt::format("epoch_us(min({0})::TIMESTAMP), epoch_us(max({0})::TIMESTAMP)",
                                                table::identifier(time));
  std::vector<File> added;
  batch.room.query(
      // By their places: a column may have any name.
      fmt::format("SELECT {}, count(*), {} FROM staged GROUP BY 1 ORDER BY 1 LIMIT {}", cut, times,
                  limits_.files_max + 1),
      {},
      [&](const table::Chunk& chunk) {
        for (std::size_t i = 0; i < chunk.rows(); ++i) {
          auto& file = added.emplace_back();
          file.partition = chunk.text(0, i);
          file.rows = chunk.integer(1, i);
          if (chunk.is_null(2, i)) continue;
          file.first_us = chunk.integer(2, i);
          file.last_us = chunk.integer(3, i);
        }
        return true;
      },
      batch.watch);
  if (added.size() > limits_.files_max)
    throw Error(Code::exhausted, fmt::format("the data would be cut into more than {} files; cut it by more than a {}",
                                             limits_.files_max, batch.spec.partition));
  if (added.empty()) added.emplace_back();  // no rows have a file too: it has their columns
  batch.pieces = table::pieces_to_sort(batch.room, "staged", {}, batch.watch);
  constexpr std::int64_t kGroupsOfPiece = 4;
  std::int64_t rows = 0;
  for (const auto& file : added) rows += file.rows;
  if (batch.pieces > 1) batch.group_rows = rows / (batch.pieces * kGroupsOfPiece);
  const auto share = kWriting.share / static_cast<double>(added.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    batch.way.enter({kWriting.from + share * static_cast<double>(i), share});
    write_file(where, batch, i, cut, added[i], act);
  }
  batch.way.enter(kMeasuring);

  Version version;
  version.dataset = batch.name;
  version.row = batch.row;
  version.major = batch.spec.major;
  version.mode = batch.how.mode;
  version.schema = batch.schema;
  version.stats = statistics(batch.room, "staged", batch.schema, batch.watch);
  for (const auto& check : batch.checks)
    if (!check.held) version.warnings.push_back(fmt::format("{}: {}", check.expectation, check.said));
  version.source = batch.how.source;
  version.created_us = clock_.wall().count();
  version.created_by = act.actor;
  version.inputs = batch.how.inputs;
  version.answered_by = batch.how.answered_by;
  database_.write(act, [&](sql::Writer& w) {
    // Else rows that were erased while this was made of them would be back.
    for (const auto& input : version.inputs) need_whole(w, input);
    // Inside, since a version may have been removed meanwhile.
    const auto parent = batch.how.mode == Mode::append ? newest_version(w, batch.row, batch.name) : std::nullopt;
    version.parent = parent ? std::optional(parent->number) : std::nullopt;
    auto files = parent ? version_files(w, batch.row, parent->number) : std::vector<File>{};
    files.insert(files.end(), added.begin(), added.end());
    if (files.size() > limits_.files_max)
      throw Error(Code::exhausted,
                  fmt::format("a version has at most {} files; overwrite it with all rows at once", limits_.files_max));
    version.rows = version.bytes = 0;
    for (const auto& file : files) version.rows += file.rows, version.bytes += file.bytes;
    version.id = version_id(version.schema, files);
    insert_version(w, version, files);
    keep_checks(w, batch.row, version.number, version.created_us, batch.checks);
    if (!batch.how.upload.empty())
      w.execute("UPDATE data_ingest SET version = ? WHERE id = ?", {version.number, batch.how.upload});
    w.record({resource_name(where, batch.name, version.number), {}, version.id});
  });
  versions_made_.Increment();
  for (const auto& file : added) rows_in_.Increment(static_cast<double>(file.rows));
  return version;
}

}  // namespace falaj::data
