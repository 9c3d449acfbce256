// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/clock.h"
#include "governance/audit/merkle.h"
#include "governance/audit/record.h"
#include "storage/sql/database.h"

namespace falaj::audit {

// The tables; give them to Database::migrate before making an AuditLog.
std::span<const sql::Migration> migrations();

struct Filter {
  std::string actor{};            // "" is any
  std::string verb{};             // a glob such as "model.*"; "" is any
  std::string resource_prefix{};  // "" is any
  std::string outcome{};          // "" is any
  std::int64_t from_us = 0;
  std::optional<std::int64_t> until_us{};  // not included
};
struct Page {
  std::vector<Record> records;        // newest first
  std::optional<std::int64_t> older;  // give it back for the next page; nothing: that was all
};

// The log of everything that was done: one record for each committed write, in the same transaction, over all of them a
// Merkle tree whose head is signed at each commit. Nobody who can change the database but has not the signing key can
// change, drop, insert or reorder a record without verify noticing, except cut the newest records off together with
// restoring an older head: for that, keep a copy of head() elsewhere.
//
// As a Ledger it belongs to who writes, one thread at a time. Everything else is thread-safe and reads a snapshot of
// its own.
class AuditLog final : public sql::Ledger {
 public:
  // Takes over where the stored head left off; throws corrupt if that head is not signed by `signer`.
  AuditLog(sql::Database& database, const sys::Clock& clock, const crypto::Signer& signer);

  void append(sql::Writer& in, const sql::Act& act, std::span<const sql::Effect> effects) override;
  void seal(sql::Writer& in) override;
  void committed(bool success) override;

  // A call that was refused changes nothing, but is remembered. Returns when durable.
  // Requires: this is the ledger of the database.
  void record_denied(sql::Act act, const json::object& why);

  Page log(const Filter& filter, std::optional<std::int64_t> older_than, std::size_t limit) const;
  SignedHead head() const;
  crypto::PublicKey public_key() const { return signer_.public_key(); }

  // Everything one needs to check, with check_proof and without this database, that the record is in the log.
  json::object prove(std::int64_t sequence) const;  // not_found
  // That the log of `second` records begins with the log of `first`. Requires: 0 < first <= second <= size, or invalid.
  json::object prove_consistency(std::int64_t first, std::int64_t second) const;
  // Records from..until-1, one JSON object a line.
  void export_jsonl(std::int64_t from, std::int64_t until, const std::function<void(std::string_view)>& line) const;

 private:
  struct State {
    Frontier frontier;
    std::int64_t unix_us = 0;  // of the newest record
  };
  State load(sql::Reader& reader) const;
  SignedHead stored_head(sql::Reader& reader) const;

  sql::Database& database_;
  const sys::Clock& clock_;
  const crypto::Signer& signer_;

  // Belongs to who writes. Empty after a rollback: what is stored is then read again.
  std::optional<State> state_;
};

}  // namespace falaj::audit
