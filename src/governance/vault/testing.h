// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole vault on an empty audited database, for the tests of it and of what stands on it.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/crypto/sign.h"
#include "foundation/sys/sim_files.h"
#include "governance/audit/audit_log.h"
#include "governance/iam/directory.h"
#include "governance/vault/vault.h"
#include "storage/blob/memory_backend.h"
#include "storage/sql/testing.h"

namespace falaj::vault {

// Every migration that a platform with a vault needs.
std::vector<sql::Migration> all_migrations();

// Two tenants, acme and globex, each with a project in zone uae and acme with one in eu. Time is in the hands of the
// test; bytes are in memory and stay over a restart, as does the database.
class VaultFixture {
 public:
  enum class Fill { tenants, nothing };
  explicit VaultFixture(std::string_view engine, Fill fill = Fill::tenants);
  ~VaultFixture();

  // Ends the process as far as the vault can tell and starts it again. Throws what a start throws.
  void stop();
  void start();
  void restart() {
    stop();
    start();
  }

  // What was put under the name, in full.
  std::string read(const Where& where, const std::string& name);
  Entry put(const Where& where, const std::string& name, std::string_view text,
            const std::optional<ZoneName>& zone = std::nullopt);
  template <class T>
  void declare(const T& object) {
    database->write(act("declare"), [&](sql::Writer& writer) { directory->put(writer, object); });
  }
  static sql::Act act(std::string verb = "test") { return {"user/test", std::move(verb), "/", ""}; }

  static inline const ZoneName kUae{"uae"}, kEu{"eu"};
  static inline const Where kFlights{{"acme"}, {"flights"}}, kCargo{{"acme"}, {"cargo"}},
      kRockets{{"globex"}, {"rockets"}};

  sys::SimClock clock;
  sys::SimRandom random{7};
  sys::SimFiles files{clock, 7};  // holds root.key
  std::unique_ptr<sql::Scratch> scratch;
  std::map<ZoneName, std::unique_ptr<blob::MemoryBackend>> backends;
  blob::StoreOptions options;
  blob::FaultyBackend::ShouldFail should_fail;  // asked by every zone's backend when set; set while nothing runs

  // From here on as one process has them.
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<crypto::Signer> signer;
  std::unique_ptr<audit::AuditLog> log;  // outlives the database that calls it
  std::unique_ptr<sql::Database> database;
  std::unique_ptr<iam::Directory> directory;
  std::unique_ptr<KeyStore> keys;
  std::unique_ptr<Vault> vault;

  void open_database();
  void open_vault(RootKeys roots);  // what is above the database, but for the log
  void save_roots(const RootKeys& roots);
};

inline constexpr std::string_view kRootKeyName = "root.key";
inline constexpr crypto::PasswordCost kCheapPassphrase{8192, 1};

}  // namespace falaj::vault
