// SPDX-License-Identifier: Apache-2.0
#pragma once

// Removing for good takes two steps. The first is one write: everything of the thing goes, and where its files are is
// noted as a leftover. The second takes the files away, a few hundred in a write; a kill in between only delays it.

#include <cstdint>
#include <string>
#include <vector>

#include "governance/vault/vault.h"
#include "storage/sql/database.h"

namespace falaj::track {

// Files of something that is gone: those below `root` in the vault.
struct Leftover {
  vault::Where where;
  std::string root, resource;
};
std::vector<Leftover> leftovers(sql::Reader& reader, std::size_t limit);
vault::Vault::Removed finish_removal(sql::Database& database, vault::Vault& vault, const Leftover& of,
                                     const std::string& actor);
// All there are; returns how many.
std::size_t finish_removals(sql::Database& database, vault::Vault& vault, const std::string& actor);

// The number of the project's next experiment: higher than any it ever had.
std::int64_t next_experiment(sql::Reader& reader, const vault::Where& where);

}  // namespace falaj::track
