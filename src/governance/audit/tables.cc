// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/tables.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "governance/audit/audit_log.h"

namespace falaj::audit {

namespace {

// `frontier` is what the appender needs; it is proven by `root`, which the signature covers.
constexpr sql::Migration kMigrations[] = {
    {1, "audit",
     "CREATE TABLE audit_record(sequence BIGINT PRIMARY KEY, unix_us BIGINT NOT NULL, actor TEXT NOT NULL,"
     " verb TEXT NOT NULL, resource TEXT NOT NULL, request_id TEXT NOT NULL, outcome TEXT NOT NULL,"
     " effects BYTEA NOT NULL, details TEXT NOT NULL, leaf BYTEA NOT NULL);"
     "CREATE INDEX audit_record_actor ON audit_record(actor, sequence);"
     "CREATE INDEX audit_record_resource ON audit_record(resource, sequence);"
     "CREATE TABLE audit_node(level BIGINT NOT NULL, position BIGINT NOT NULL, hash BYTEA NOT NULL,"
     " PRIMARY KEY(level, position));"
     "CREATE TABLE audit_head(size BIGINT PRIMARY KEY, root BYTEA NOT NULL, unix_us BIGINT NOT NULL,"
     " signature BYTEA NOT NULL);"
     "CREATE TABLE audit_tip(id BIGINT PRIMARY KEY, size BIGINT NOT NULL, root BYTEA NOT NULL,"
     " unix_us BIGINT NOT NULL, signature BYTEA NOT NULL, frontier BYTEA NOT NULL, CHECK (id = 1))"},
};

}  // namespace

std::span<const sql::Migration> migrations() { return kMigrations; }

Record read_record(const sql::Row& row) {
  Record r;
  r.sequence = row.integer(0);
  r.unix_us = row.integer(1);
  int column = 2;
  for (auto* text : {&r.actor, &r.verb, &r.resource, &r.request_id, &r.outcome}) *text = row.text(column++);
  r.effects = decode_effects(row.bytes(7));
  r.details = row.text(8);
  return r;
}

Digest StoredTree::stored(int level, std::uint64_t position) {
  const auto number = position / kFanOut;
  auto run =
      std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return r.level == level && r.number == number; });
  if (run == runs_.end()) {
    Run made{level, number, {}};
    const auto first = static_cast<std::int64_t>(number * kFanOut);
    const auto take = [&](const sql::Row& row) { made.hashes.push_back(row.digest(0)); };
    if (level == 0)
      reader_.query("SELECT leaf FROM audit_record WHERE sequence >= ? AND sequence < ? ORDER BY sequence",
                    {first, first + kFanOut}, take);
    else
      reader_.query("SELECT hash FROM audit_node WHERE level = ? AND position >= ? AND position < ? ORDER BY position",
                    {std::int64_t{level}, first, first + kFanOut}, take);
    run = runs_.insert(runs_.end(), std::move(made));
  }
  const auto offset = position % kFanOut;
  if (offset >= run->hashes.size()) throw Error(Code::corrupt, "the audit log's tree has a hole: verify it");
  return run->hashes[offset];
}

Digest StoredTree::subtree(std::uint64_t begin, std::uint64_t end) {
  const auto size = end - begin;
  if (size == 0) return empty_root();
  // Complete and of a stored size: a power of 256 that is aligned to itself.
  if (std::has_single_bit(size) && std::countr_zero(size) % kFanOutBits == 0 && begin % size == 0)
    return stored(std::countr_zero(size) / kFanOutBits, begin / size);
  const auto middle = begin + split_point(size);
  return node_hash(subtree(begin, middle), subtree(middle, end));
}

StoredTip read_tip(sql::Reader& reader) {
  auto tip = reader.first(
      "SELECT size, unix_us, root, frontier, signature FROM audit_tip WHERE id = 1", {}, [](const sql::Row& row) {
        const auto frontier = row.bytes(3), signature = row.bytes(4);
        return StoredTip{row.integer(0), row.integer(1), row.digest(2), Bytes(frontier.begin(), frontier.end()),
                         Bytes(signature.begin(), signature.end())};
      });
  if (!tip) throw Error(Code::corrupt, "the audit log has records but no head");
  return std::move(*tip);
}

}  // namespace falaj::audit
