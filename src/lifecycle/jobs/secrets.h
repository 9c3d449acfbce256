// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "lifecycle/jobs/record.h"
#include "storage/sql/database.h"

namespace falaj::jobs {

struct SecretInfo {
  std::string name, changed_by;
  std::int64_t created_us = 0, changed_us = 0;
};

inline constexpr std::size_t kSecretBytesMax = 64 * 1024, kSecretsMax = 1000;  // of one; of a project

// Values that jobs of a project get by name and nobody else: sealed at rest, never in a spec, a list or an answer.
// Thread-safe. Errors: invalid, not_found, exhausted, unavailable (a server without a key for them).
class Secrets {
 public:
  static std::span<const sql::Migration> migrations();
  Secrets(sql::Database& database, std::shared_ptr<const crypto::Key> key, const sys::Clock& clock)
      : database_(database), key_(std::move(key)), clock_(clock) {}

  void put(sql::Writer& writer, const Where& where, const std::string& name, const std::string& value,
           const std::string& by);
  void remove(sql::Writer& writer, const Where& where, const std::string& name);
  std::vector<SecretInfo> list(const Where& where) const;
  bool has(const Where& where, const std::string& name) const;
  std::string reveal(const Where& where, const std::string& name) const;  // for the environment of a job alone

 private:
  const crypto::Key& key() const;

  sql::Database& database_;
  const std::shared_ptr<const crypto::Key> key_;
  const sys::Clock& clock_;
};

}  // namespace falaj::jobs
