// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/uploads.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/names.h"

namespace falaj::track {

namespace {

constexpr std::size_t kNamesAtOnce = 500;  // forgotten in one write

enum class State { open, done, aborted };
State parse_state(std::string_view text) {
  return text == "open" ? State::open : text == "done" ? State::done : State::aborted;
}

struct Upload {
  vault::Where where;
  std::string name, made_by;
  std::int64_t parts = 0;
  State state = State::open;
  std::optional<Digest> etags;  // of the parts it was completed with
};

std::string parts_of(const std::string& upload_id) { return fmt::format("@upload/{}/", upload_id); }
std::string part_name(const std::string& upload_id, std::int64_t number) {
  return fmt::format("{}{:05}", parts_of(upload_id), number);
}

std::string_view unquoted(std::string_view etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return etag;
}

Digest digest_of(const std::vector<UploadedPart>& parts) {
  ByteWriter out;
  for (const auto& part : parts) out.text(unquoted(part.etag));
  return crypto::sha256(out.bytes());
}

Upload need(sql::Reader& reader, const vault::Where& where, const std::string& upload_id, const std::string& actor) {
  auto found = reader.first(
      "SELECT name, made_by, parts, state, etags FROM track_upload WHERE upload_id = ? AND tenant = ? AND project = ?",
      {upload_id, where.tenant.str(), where.project.str()}, [&](const sql::Row& row) {
        return Upload{
            where,          std::string(row.text(0)), std::string(row.text(1)),
            row.integer(2), parse_state(row.text(3)), row.is_null(4) ? std::nullopt : std::optional(row.digest(4))};
      });
  if (!found || found->made_by != actor)
    throw Error(Code::not_found, fmt::format("no upload '{}' of yours in this project", shortened(upload_id, 64)));
  return *found;
}

Upload need(sql::Reader& reader, const vault::Where& where, const std::string& upload_id, const std::string& actor,
            const std::string& name) {
  auto upload = need(reader, where, upload_id, actor);
  if (upload.name != name)
    throw Error(Code::not_found, fmt::format("upload '{}' is not for this path", shortened(upload_id, 64)));
  return upload;
}

// The bytes of several objects, one after the other.
blob::Source joined(vault::Vault& vault, const vault::Where& where, const std::vector<vault::Entry>& entries) {
  struct Place {
    std::size_t next = 0, at = 0;
    std::unique_ptr<blob::ObjectReader> reader;
    Bytes piece;
  };
  return [&vault, where, &entries, place = std::make_shared<Place>()](std::span<std::byte> out) -> std::size_t {
    auto& p = *place;
    while (p.at == p.piece.size()) {
      p.at = 0;
      p.piece = p.reader ? p.reader->next() : Bytes();
      if (!p.piece.empty()) break;
      if (p.next == entries.size()) return 0;
      const auto& entry = entries[p.next++];
      p.reader = vault.open(where, entry, 0, entry.bytes);
    }
    const auto n = std::min(out.size(), p.piece.size() - p.at);
    std::memcpy(out.data(), p.piece.data() + p.at, n);
    p.at += n;
    return n;
  };
}

}  // namespace

std::string Uploads::begin(const vault::Where& where, const std::string& name, std::int64_t parts, sys::Random& random,
                           const sql::Act& act) {
  if (parts < 1 || parts > kUploadPartsMax)
    throw Error(Code::invalid, fmt::format("num_parts: must be 1 to {}, not {}", kUploadPartsMax, parts));
  const auto upload_id = random_run_id(random);
  database_.write(act, [&](sql::Writer& w) {
    const auto open =
        *w.first("SELECT COUNT(*) FROM track_upload WHERE tenant = ? AND project = ? AND state = 'open'",
                 {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return row.integer(0); });
    if (open >= kOpenUploadsMax)
      throw Error(Code::exhausted, fmt::format("a project has at most {} uploads under way: end some, or wait until "
                                               "those that nobody ended are swept",
                                               kOpenUploadsMax));
    w.execute(
        "INSERT INTO track_upload(upload_id, tenant, project, name, made_by, parts, created_us, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'open')",
        {upload_id, where.tenant.str(), where.project.str(), name, act.actor, parts, clock_.wall().count()});
  });
  return upload_id;
}

std::string Uploads::put_part(const vault::Where& where, const std::string& upload_id, std::int64_t number,
                              const blob::Source& source, const sql::Act& act) {
  const auto upload = database_.read([&](sql::Reader& r) { return need(r, where, upload_id, act.actor); });
  if (upload.state != State::open) throw Error(Code::conflict, "the upload has ended");
  if (number < 1 || number > upload.parts)
    throw Error(Code::invalid, fmt::format("the upload has the parts 1 to {}, not {}", upload.parts, number));
  return vault_.put(where, std::nullopt, part_name(upload_id, number), source, act).content.hex();
}

void Uploads::complete(const vault::Where& where, const std::string& upload_id, const std::string& name,
                       const std::vector<UploadedPart>& parts, const sql::Act& act) {
  const auto etags = digest_of(parts);
  // Whether somebody completed it already, with these very parts.
  const auto is_done = [&](sql::Reader& r) {
    const auto upload = need(r, where, upload_id, act.actor, name);
    if (upload.state == State::aborted) throw Error(Code::conflict, "the upload was aborted");
    if (static_cast<std::int64_t>(parts.size()) != upload.parts)
      throw Error(Code::invalid, fmt::format("the upload has {} parts, not {}", upload.parts, parts.size()));
    if (upload.state == State::done && upload.etags != etags)
      throw Error(Code::conflict, "the upload was completed with other parts");
    return upload.state == State::done;
  };
  if (database_.read(is_done)) return;
  std::vector<vault::Entry> entries;
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i) + 1;
      if (parts[i].number != number)
        throw Error(Code::invalid,
                    fmt::format("parts: must be 1, 2, 3, ...; number {} is {}", number, parts[i].number));
      entries.push_back(vault_.info(where, part_name(upload_id, number)));
      if (entries.back().content.hex() != unquoted(parts[i].etag))
        throw Error(Code::invalid, fmt::format("parts: part {} is not the one with this etag", number));
    }
    vault_.put(where, std::nullopt, name, joined(vault_, where, entries), act);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    // The same call on another connection was quicker and took the parts away; or one never came.
    if (database_.read(is_done)) return;
    throw Error(Code::invalid, fmt::format("parts: part {} was never uploaded", entries.size() + 1));
  }
  database_.write(act, [&](sql::Writer& w) {
    w.execute("UPDATE track_upload SET state = 'done', etags = ? WHERE upload_id = ?", {etags.view(), upload_id});
  });
  remove_parts(where, upload_id, act);
}

void Uploads::abort(const vault::Where& where, const std::string& upload_id, const std::string& name,
                    const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    if (need(w, where, upload_id, act.actor, name).state == State::done)
      throw Error(Code::conflict, "the upload was completed");
    w.execute("UPDATE track_upload SET state = 'aborted' WHERE upload_id = ?", {upload_id});
  });
  remove_parts(where, upload_id, act);
}

void Uploads::remove_parts(const vault::Where& where, const std::string& upload_id, const sql::Act& act) {
  while (vault_.remove_below(where, parts_of(upload_id), kNamesAtOnce, act).names > 0) {
  }
}

std::size_t Uploads::sweep() {
  struct Old {
    std::string id;
    vault::Where where;
  };
  const auto before = clock_.wall().count() - kUploadLifeUs;
  const auto old = database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT upload_id, tenant, project FROM track_upload WHERE created_us < ?", {before}, [](const sql::Row& row) {
          return Old{std::string(row.text(0)), {TenantName::parse(row.text(1)), ProjectName::parse(row.text(2))}};
        });
  });
  for (const auto& upload : old) {
    const sql::Act act{"system/upkeep", "upload.sweep", upload.where.scope().str(), ""};
    remove_parts(upload.where, upload.id, act);
    database_.write(act,
                    [&](sql::Writer& w) { w.execute("DELETE FROM track_upload WHERE upload_id = ?", {upload.id}); });
  }
  return old.size();
}

}  // namespace falaj::track
