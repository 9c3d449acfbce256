// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "governance/audit/audit_log.h"
#include "governance/backup/archive.h"
#include "governance/vault/root_keys.h"
#include "governance/vault/vault.h"
#include "storage/sql/database.h"

namespace falaj::backup {

enum class Blobs {
  copy,       // inside the backup: it needs nothing else
  reference,  // left where they are: the restored platform must have the same blob stores
};

struct Totals {
  std::uint64_t tables = 0, rows = 0, objects = 0, object_bytes = 0;
  std::int64_t audit_records = 0;
};

// Everything of a platform at one moment, while it goes on: all tables of one snapshot, the root keys, and the objects
// that the snapshot keeps. `sink` gets the file piece by piece.
Totals take(sql::Database& database, vault::Vault& vault, vault::KeyStore& keys, std::string_view passphrase,
            Blobs blobs, std::int64_t now_us, const ArchiveWriter::Sink& sink, crypto::PasswordCost cost = {});

// Reads a whole backup and verifies the file, so that a restore begins only with one that can be finished. Throws
// denied (the passphrase), corrupt, invalid (made by a newer program).
Totals inspect(std::string_view passphrase, const ArchiveReader::Source& source);

// What the restoring program brings, in the order in which it is asked.
struct Target {
  std::function<void(const vault::RootKeys&)> save_roots;
  sql::Database& database;  // migrated and empty, no ledger set
  // After the tables are in: the vault over them, to put the objects into.
  std::function<vault::Vault&()> open_vault;
};

// Loads a backup and verifies all of it: the file, the address of every object, the audit chain. Throws denied (the
// passphrase), corrupt, conflict (the database is not empty).
Totals restore(std::string_view passphrase, const ArchiveReader::Source& source, const Target& target,
               const std::function<void(std::string_view what, std::uint64_t done)>& progress);

}  // namespace falaj::backup
