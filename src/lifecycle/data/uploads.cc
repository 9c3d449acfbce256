// SPDX-License-Identifier: Apache-2.0
// Bytes on their way in, part by part, and what is left of those that never became a version.
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/tables.h"
#include "lifecycle/data/vault_names.h"

namespace falaj::data {

std::string Datasets::begin(const Where& where, const std::string& name, const sql::Act& act, const std::string& key) {
  if (!is_name(name)) throw Error(Code::invalid, fmt::format("a dataset's name is {}", kNameRule));
  ByteWriter bits;
  if (key.empty()) {
    bits.u64(random_.next());
    bits.u64(random_.next());
  } else {
    for (const auto& part : {where.tenant.str(), where.project.str(), name, key}) bits.text(part);
  }
  const auto id = key.empty() ? to_hex(bits.bytes()) : crypto::sha256(bits.bytes()).hex().substr(0, 32);
  const auto is_begun = [&](sql::Reader& r) {
    return r.first("SELECT 1 FROM data_ingest WHERE id = ?", {id}, [](const sql::Row&) { return true; }).has_value();
  };
  if (!key.empty() && database_.read(is_begun)) return id;
  database_.write(act, [&](sql::Writer& w) {
    if (is_begun(w)) return;
    w.execute("INSERT INTO data_ingest(id, tenant, project, dataset, created_us, created_by) VALUES(?, ?, ?, ?, ?, ?)",
              {id, where.tenant.str(), where.project.str(), name, clock_.wall().count(), act.actor});
  });
  return id;
}

// The version that the upload became, if it did. Throws not_found for an unknown upload.
std::optional<Version> Datasets::finished(const Where& where, const std::string& name, const std::string& upload) {
  return database_.read([&](sql::Reader& r) -> std::optional<Version> {
    const auto number =
        r.first("SELECT version FROM data_ingest WHERE id = ? AND tenant = ? AND project = ? AND dataset = ?",
                {upload, where.tenant.str(), where.project.str(), name},
                [](const sql::Row& row) { return row.is_null(0) ? 0 : row.integer(0); });
    if (!number)
      throw Error(Code::not_found, fmt::format("no such upload to dataset '{}', or it was given up long ago", name));
    if (*number == 0) return std::nullopt;
    auto version = find_version(r, need_dataset(r, where, name), name, *number);
    if (!version)
      throw Error(Code::not_found,
                  fmt::format("the upload became version {} of '{}', which is removed", *number, name));
    return version;
  });
}

void Datasets::put_part(const Where& where, const std::string& name, const std::string& upload, std::int64_t number,
                        const blob::Source& source, const sql::Act& act) {
  if (finished(where, name, upload)) throw Error(Code::conflict, "the upload is finished: begin another");
  if (number < 0 || static_cast<std::size_t>(number) >= limits_.parts_max)
    throw Error(Code::invalid, fmt::format("part: must be 0 to {}, not {}", limits_.parts_max - 1, number));
  std::uint64_t bytes = 0;
  const auto bounded = [&](std::span<std::byte> out) {
    const auto n = source(out);
    if ((bytes += n) > limits_.part_bytes_max)
      throw Error(Code::exhausted, fmt::format("a part has at most {} bytes", limits_.part_bytes_max));
    return n;
  };
  const auto name_there = part_name(upload, number);
  const auto before = vault_.list(where, name_there, "", 1);
  const auto entry = vault_.put(where, std::nullopt, name_there, bounded, act);
  if (!before.empty() && before[0].address != entry.address) note_dropped(where, before, act);
  try {
    finished(where, name, upload);
  } catch (const Error& e) {
    if (e.code() == Code::not_found) drop(where, {entry}, act);  // given up meanwhile: nobody would take it away
    throw;
  }
}

std::vector<vault::Entry> Datasets::entries(const Where& where, const std::string& upload) {
  return vault_.list(where, upload_root(upload), "", limits_.parts_max);
}

std::vector<Part> Datasets::parts(const Where& where, const std::string& name, const std::string& upload) {
  finished(where, name, upload);
  std::vector<Part> out;
  for (const auto& entry : entries(where, upload))
    out.push_back({*parse_int(std::string_view(entry.name).substr(upload_root(upload).size())), entry.bytes});
  return out;
}

std::size_t Datasets::sweep(const sql::Act& act) {
  const auto before = clock_.wall().count() - limits_.unfinished.count();
  struct Old {
    std::string id, tenant, project;
  };
  const auto old = database_.read([&](sql::Reader& r) {
    return r.all("SELECT id, tenant, project FROM data_ingest WHERE created_us < ? LIMIT 1000", {before},
                 [](const sql::Row& row) {
                   return Old{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2))};
                 });
  });
  for (const auto& upload : old) {
    const Where where{{upload.tenant}, {upload.project}};
    drop_below(where, upload_root(upload.id), act);
    database_.write(act, [&](sql::Writer& w) { w.execute("DELETE FROM data_ingest WHERE id = ?", {upload.id}); });
  }
  forget_collected(before, act);
  return old.size() + sweep_files(act);
}

std::size_t Datasets::sweep_files(const sql::Act& act) {
  const auto before = clock_.wall().count() - limits_.unfinished.count();
  struct Row {
    std::int64_t id;
    Where where;
  };
  const auto rows = database_.read([&](sql::Reader& r) {
    return r.all("SELECT id, tenant, project FROM data_set", {}, [](const sql::Row& row) {
      return Row{row.integer(0), {{std::string(row.text(1))}, {std::string(row.text(2))}}};
    });
  });
  std::size_t removed = 0;
  for (const auto& row : rows) drop_strays(row.where, row.id, before, act, removed);
  return removed;
}

void Datasets::drop_strays(const Where& where, std::int64_t row, std::int64_t before_us, const sql::Act& act,
                           std::size_t& removed) {
  const auto known = database_.read([&](sql::Reader& r) {
    const auto names = r.all("SELECT name FROM data_file WHERE dataset = ?", {row},
                             [](const sql::Row& found) { return std::string(found.text(0)); });
    return std::set<std::string>(names.begin(), names.end());
  });
  const auto root = fmt::format("{}{}/", kFiles, row);
  std::string after;
  for (;;) {
    const auto page = vault_.list(where, root, after, 1000);
    std::vector<vault::Entry> strays;
    for (const auto& entry : page)
      // A batch that is being written has files that no version has yet.
      if (!known.contains(entry.name) && entry.created_us < before_us) strays.push_back(entry);
    drop(where, strays, act);
    removed += strays.size();
    if (page.size() < 1000) break;
    after = page.back().name;
  }
}

}  // namespace falaj::data
