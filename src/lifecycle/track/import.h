// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/crypto/sign.h"
#include "governance/vault/vault.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

struct ImportRequest {
  Where where;
  std::vector<crypto::PublicKey> trusted;
  std::string experiment;  // where new runs go; "" = to the experiment of the name they had, made when missing
};

struct Imported {
  std::vector<std::string> experiments;  // made
  std::int64_t runs = 0, made = 0, changed = 0, points = 0, files = 0, bytes = 0;
  Digest manifest;  // of its text
};

// Merges what export_runs wrote. The signature is checked before anything is kept, and every byte of the file before
// anything of it can be seen; then each run appears, or changes, in one write. Importing again changes nothing, and
// finishes what was interrupted. Memory does not grow with the file.
// Errors: denied (signed by another key), invalid (not an export, or not what was signed), conflict (a param of another
// value, a deleted experiment), exhausted (a quota).
Imported import_runs(Track& track, vault::Vault& vault, const ImportRequest& request, const blob::Source& file,
                     const sql::Act& act);

}  // namespace falaj::track
