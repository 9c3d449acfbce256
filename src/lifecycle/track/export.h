// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "foundation/crypto/sign.h"
#include "governance/vault/vault.h"
#include "lifecycle/track/types.h"
#include "storage/sql/database.h"

namespace falaj::track {

struct ExportRequest {
  Where where;
  std::vector<std::string> run_ids;
  std::string instance, by;  // what the manifest says of its origin
  std::int64_t now_ms = 0;
};

// Runs with everything they logged as one signed file that import_runs, and tar, can read: docs/formats/run_export.md.
// It shows one moment, however long it takes; everything is read twice, as the manifest with its digests comes first.
// `begin` is told the file's size before `sink` gets the first piece. Memory does not grow with points or files.
// Errors: not_found (a run), invalid (more than one file carries), corrupt, denied (bytes of another zone).
void export_runs(sql::Database& database, vault::Vault& vault, const ExportRequest& request,
                 const crypto::Signer& signer, const std::function<void(std::uint64_t bytes)>& begin,
                 const std::function<void(BytesView)>& sink);

}  // namespace falaj::track
