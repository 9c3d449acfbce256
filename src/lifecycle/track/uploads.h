// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/vault/vault.h"
#include "storage/sql/database.h"

namespace falaj::track {

struct UploadedPart {
  std::int64_t number = 0;
  std::string etag;  // as put_part gave it
};

inline constexpr std::int64_t kUploadPartsMax = 10'000;
inline constexpr std::uint64_t kPartBytesMax = std::uint64_t{5} << 30;
inline constexpr std::int64_t kOpenUploadsMax = 1'000;  // of one project
inline constexpr std::int64_t kUploadLifeUs = std::int64_t{24} * 3600 * 1'000'000;

// Files that arrive in parts, in any order and each as often as the client likes; the file appears whole or not at all.
// An upload belongs to the project, the name and the actor it was begun with: to everybody else it is not_found.
// Holds nothing in memory: made where it is needed, and whatever a kill interrupts is asked for again or swept.
class Uploads {
 public:
  Uploads(sql::Database& database, vault::Vault& vault, const sys::Clock& clock)
      : database_(database), vault_(vault), clock_(clock) {}

  // `name`: where in the vault the file will be. Returns the upload's id. Throws invalid, exhausted.
  std::string begin(const vault::Where& where, const std::string& name, std::int64_t parts, sys::Random& random,
                    const sql::Act& act);
  // Throws conflict when the upload has ended. Returns the part's tag. Durable when it returns.
  std::string put_part(const vault::Where& where, const std::string& upload_id, std::int64_t number,
                       const blob::Source& source, const sql::Act& act);
  // All parts, in order, become the file. Asked again with the same parts it does nothing.
  void complete(const vault::Where& where, const std::string& upload_id, const std::string& name,
                const std::vector<UploadedPart>& parts, const sql::Act& act);
  void abort(const vault::Where& where, const std::string& upload_id, const std::string& name, const sql::Act& act);
  // Forgets uploads that began longer ago than kUploadLifeUs, with what there is of them. Returns how many.
  std::size_t sweep();

 private:
  void remove_parts(const vault::Where& where, const std::string& upload_id, const sql::Act& act);

  sql::Database& database_;
  vault::Vault& vault_;
  const sys::Clock& clock_;
};

}  // namespace falaj::track
