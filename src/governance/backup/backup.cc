// SPDX-License-Identifier: Apache-2.0
#include "governance/backup/backup.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "foundation/base/json.h"
#include "foundation/crypto/sign.h"
#include "governance/audit/verify.h"
#include "storage/sql/table.h"

namespace falaj::backup {
namespace {

Bytes encode_table(const sql::Table& table) {
  ByteWriter out;
  out.text(table.name);
  out.u32(static_cast<std::uint32_t>(table.columns.size()));
  for (const auto& column : table.columns) {
    out.text(column.name);
    out.u8(static_cast<std::uint8_t>(column.kind));
  }
  return out.take();
}

sql::Table decode_table(BytesView bytes) {
  ByteReader in(bytes);
  sql::Table table{in.text(), {}};
  for (std::uint32_t n = in.u32(); n > 0; --n) {
    std::string name = in.text();
    const auto kind = in.u8();
    if (kind > static_cast<std::uint8_t>(sql::Kind::bytes))
      throw Error(Code::corrupt, "backup: a column of an unknown kind");
    table.columns.push_back({std::move(name), static_cast<sql::Kind>(kind)});
  }
  in.expect_end();
  return table;
}

Bytes encode_row(std::span<const sql::Value> values) {
  ByteWriter out;
  for (const auto& value : values) {
    out.u8(static_cast<std::uint8_t>(value.index()));
    if (const auto* v = std::get_if<std::int64_t>(&value)) out.u64(static_cast<std::uint64_t>(*v));
    if (const auto* v = std::get_if<double>(&value)) out.u64(std::bit_cast<std::uint64_t>(*v));
    if (const auto* v = std::get_if<std::string>(&value)) out.text(*v);
    if (const auto* v = std::get_if<Bytes>(&value)) out.blob(*v);
  }
  return out.take();
}

std::vector<sql::Value> decode_row(BytesView bytes) {
  ByteReader in(bytes);
  std::vector<sql::Value> values;
  while (in.left() > 0) {
    switch (in.u8()) {
      case 0:
        values.emplace_back(sql::Null{});
        break;
      case 1:
        values.emplace_back(static_cast<std::int64_t>(in.u64()));
        break;
      case 2:
        values.emplace_back(std::bit_cast<double>(in.u64()));
        break;
      case 3:
        values.emplace_back(in.text());
        break;
      case 4: {
        const auto blob = in.blob();
        values.emplace_back(Bytes(blob.begin(), blob.end()));
        break;
      }
      default:
        throw Error(Code::corrupt, "backup: a value of an unknown type");
    }
  }
  return values;
}

class ToArchive final : public sql::TableSink {
 public:
  ToArchive(ArchiveWriter& archive, Totals& totals) : archive_(archive), totals_(totals) {}
  void table(const sql::Table& table) override {
    archive_.add(Part::table, encode_table(table));
    ++totals_.tables;
  }
  void row(std::span<const sql::Value> values) override {
    const Bytes encoded = encode_row(values);
    BytesView rest = encoded;
    for (; rest.size() > kPartBytesMax; rest = rest.subspan(kPartBytesMax))
      archive_.add(Part::of_row, rest.first(kPartBytesMax));
    archive_.add(Part::row, rest);
    ++totals_.rows;
  }

 private:
  ArchiveWriter& archive_;
  Totals& totals_;
};

Bytes encode_object(const vault::Vault::Kept& kept, std::uint64_t size) {
  ByteWriter out;
  out.text(kept.zone.str());
  out.text(kept.tenant.str());
  out.raw(kept.address.digest.view());
  out.u64(size);
  return out.take();
}

struct ObjectHead {
  vault::Vault::Kept kept;
  std::uint64_t size = 0;
};

ObjectHead decode_object(BytesView bytes) {
  ByteReader in(bytes);
  ObjectHead out;
  out.kept.zone = ZoneName::parse(in.text());
  out.kept.tenant = TenantName::parse(in.text());
  auto& address = out.kept.address.digest.bytes;
  const auto digest = in.raw(address.size());
  std::copy(digest.begin(), digest.end(), address.begin());
  out.size = in.u64();
  in.expect_end();
  return out;
}

void copy_objects(ArchiveWriter& archive, vault::Vault& vault, sql::Reader& reader, Totals& totals) {
  for (const auto& kept : vault.kept(reader)) {
    const auto object = vault.store(kept.zone).get({kept.tenant, kept.zone, nullptr}, kept.address);
    archive.add(Part::object, encode_object(kept, object->info().size));
    for (Bytes piece = object->next(); !piece.empty(); piece = object->next()) archive.add(Part::piece, piece);
    ++totals.objects;
    totals.object_bytes += object->info().size;
  }
}

constexpr std::size_t kRowBytesMax = std::size_t{1} << 30;

// Reads parts one ahead, so that whoever needs a run of one kind sees where it ends.
class Parts {
 public:
  Parts(std::string_view passphrase, const ArchiveReader::Source& source)
      : reader_(passphrase, source), ahead_(reader_.next()) {}
  bool is(Part part) const { return ahead_ && ahead_->part == part; }
  Bytes take(Part part, std::string_view what) {
    if (!is(part)) throw Error(Code::corrupt, fmt::format("backup: {} is missing", what));
    Bytes bytes = std::move(ahead_->bytes);
    ahead_ = reader_.next();
    return bytes;
  }
  // A row that did not fit in one part comes as several.
  Bytes take_row() {
    Bytes row;
    while (is(Part::of_row)) {
      const Bytes begin = take(Part::of_row, "a row");
      if (row.size() + begin.size() > kRowBytesMax) throw Error(Code::corrupt, "backup: a row is too large");
      row.insert(row.end(), begin.begin(), begin.end());
    }
    const Bytes last = take(Part::row, "the end of a row");
    row.insert(row.end(), last.begin(), last.end());
    return row;
  }
  void expect_end() {
    if (ahead_) throw Error(Code::corrupt, "backup: something follows its end");
  }

 private:
  ArchiveReader reader_;
  std::optional<ArchiveReader::Item> ahead_;
};

void check_about(Parts& parts) {
  const auto about = parse_json(as_text(parts.take(Part::about, "the description")));
  const auto* format = about.is_object() ? about.as_object().if_contains("format") : nullptr;
  if (!format) throw Error(Code::corrupt, "backup: its description names no format");
  if (*format != 1) throw Error(Code::invalid, "backup: made by a newer program");
}

void restore_object(Parts& parts, vault::Vault& vault, Totals& totals) {
  const auto [kept, size] = decode_object(parts.take(Part::object, "an object"));
  const auto& [zone, tenant, address] = kept;
  Bytes piece;
  std::size_t at = 0;
  const auto stored = vault.store(zone).put(tenant, [&](std::span<std::byte> out) -> std::size_t {
    if (at == piece.size()) {
      if (!parts.is(Part::piece)) return 0;
      piece = parts.take(Part::piece, "a piece of an object");
      at = 0;
    }
    const std::size_t n = std::min(out.size(), piece.size() - at);
    std::copy_n(piece.begin() + static_cast<std::ptrdiff_t>(at), n, out.begin());
    at += n;
    return n;
  });
  if (stored.info.address != address || stored.info.size != size)
    throw Error(Code::corrupt, fmt::format("backup: object {} of tenant {} is not what its address says", address.hex(),
                                           tenant.str()));
  ++totals.objects;
  totals.object_bytes += size;
}

}  // namespace

Totals take(sql::Database& database, vault::Vault& vault, vault::KeyStore& keys, std::string_view passphrase,
            Blobs blobs, std::int64_t now_us, const ArchiveWriter::Sink& sink, crypto::PasswordCost cost) {
  Totals totals;
  ArchiveWriter archive(passphrase, sink, cost);
  archive.add(Part::about,
              as_bytes(json::serialize(json::object{{"format", 1},
                                                    {"created_us", now_us},
                                                    {"engine", database.engine()},
                                                    {"blobs", blobs == Blobs::copy ? "copy" : "reference"}})));
  const vault::Vault::Hold hold(vault);  // before the snapshot: what it names stays until it is copied
  database.read([&](sql::Reader& reader) {
    archive.add(Part::roots, keys.encode_roots(reader));  // the first read, so it decides which snapshot this is
    ToArchive tables(archive, totals);
    reader.dump(tables);
    if (blobs == Blobs::copy) copy_objects(archive, vault, reader, totals);
  });
  archive.add(Part::end, {});
  archive.finish();
  return totals;
}

Totals inspect(std::string_view passphrase, const ArchiveReader::Source& source) {
  Totals totals;
  Parts parts(passphrase, source);
  check_about(parts);
  vault::RootKeys::decode(parts.take(Part::roots, "the root keys"));
  while (parts.is(Part::table)) {
    decode_table(parts.take(Part::table, "a table"));
    for (++totals.tables; parts.is(Part::row) || parts.is(Part::of_row); ++totals.rows) decode_row(parts.take_row());
  }
  while (parts.is(Part::object)) {
    const std::uint64_t size = decode_object(parts.take(Part::object, "an object")).size;
    std::uint64_t bytes = 0;
    while (parts.is(Part::piece)) bytes += parts.take(Part::piece, "a piece of an object").size();
    if (bytes != size) throw Error(Code::corrupt, "backup: an object has not the size that it says");
    ++totals.objects;
    totals.object_bytes += bytes;
  }
  parts.take(Part::end, "the end");
  parts.expect_end();
  return totals;
}

Totals restore(std::string_view passphrase, const ArchiveReader::Source& source, const Target& target,
               const std::function<void(std::string_view what, std::uint64_t done)>& progress) {
  Totals totals;
  Parts parts(passphrase, source);
  check_about(parts);
  const auto roots = vault::RootKeys::decode(parts.take(Part::roots, "the root keys"));
  target.save_roots(roots);
  target.database.load_into_empty([&](sql::TableSink& into) {
    while (parts.is(Part::table)) {
      into.table(decode_table(parts.take(Part::table, "a table")));
      ++totals.tables;
      while (parts.is(Part::row) || parts.is(Part::of_row)) {
        into.row(decode_row(parts.take_row()));
        if (++totals.rows % 1000 == 0) progress("rows", totals.rows);
      }
    }
  });
  progress("rows", totals.rows);
  vault::Vault& vault = target.open_vault();
  while (parts.is(Part::object)) {
    restore_object(parts, vault, totals);
    progress("objects", totals.objects);
  }
  parts.take(Part::end, "the end");
  parts.expect_end();
  const crypto::Signer signer(roots.platform_key(vault::kAuditSignatures));
  const auto verdict = audit::verify(target.database, signer.public_key());
  if (!verdict.intact)
    throw Error(Code::corrupt, fmt::format("backup: the audit log in it was altered: {}", verdict.why));
  totals.audit_records = verdict.records;
  progress("audit records", static_cast<std::uint64_t>(verdict.records));
  return totals;
}

}  // namespace falaj::backup
