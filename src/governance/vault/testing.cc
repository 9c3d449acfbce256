// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/testing.h"

namespace falaj::vault {

std::vector<sql::Migration> all_migrations() {
  std::vector<sql::Migration> all;
  for (const auto& module :
       {audit::migrations(), iam::Directory::migrations(), KeyStore::migrations(), Vault::migrations()})
    all.insert(all.end(), module.begin(), module.end());
  return all;
}

VaultFixture::VaultFixture(std::string_view engine, Fill fill) : scratch(sql::make_scratch(engine)) {
  for (const auto& zone : {kUae, kEu}) backends[zone] = std::make_unique<blob::MemoryBackend>(clock);
  if (fill == Fill::nothing) return;
  start();
  declare(iam::Zone{kUae, "AE", {"memory"}});
  declare(iam::Zone{kEu, "EU", {"memory"}});
  declare(iam::Tenant{"acme", {kUae, kEu}});
  declare(iam::Tenant{"globex", {kUae}});
  declare(iam::Project{"acme", "flights", kUae});
  declare(iam::Project{"acme", "cargo", kEu});
  declare(iam::Project{"globex", "rockets", kUae});
}

VaultFixture::~VaultFixture() { stop(); }

void VaultFixture::stop() {
  vault.reset();
  keys.reset();
  directory.reset();
  database.reset();
  log.reset();
  signer.reset();
  metrics.reset();
}

void VaultFixture::open_database() {
  metrics = std::make_unique<Metrics>();
  database = scratch->open(*metrics);
  database->migrate(all_migrations());
}

void VaultFixture::save_roots(const RootKeys& roots) { roots.save(files, std::string(kRootKeyName), std::nullopt); }

void VaultFixture::open_vault(RootKeys roots) {
  iam::DirectoryOptions cheap;
  cheap.password_cost = {8U << 20, 1};  // the real cost would make up most of the time of the tests
  directory =
      std::make_unique<iam::Directory>(*database, clock, random, roots.platform_key(kWorkloadTokens), std::move(cheap));
  keys = std::make_unique<KeyStore>(*database, std::move(roots), [this](const RootKeys& now) { save_roots(now); });
  const auto make_backend = [this](const iam::Zone& zone) {
    return std::make_unique<blob::FaultyBackend>(
        *backends.at(zone.name),
        [this](blob::BackendCall call, const std::string& name) { return should_fail && should_fail(call, name); });
  };
  vault = std::make_unique<Vault>(*database, *directory, *keys, make_backend, clock, *metrics, options);
}

void VaultFixture::start() {
  open_database();
  auto roots = RootKeys::open(files, std::string(kRootKeyName), std::nullopt);
  signer = std::make_unique<crypto::Signer>(roots.platform_key(kAuditSignatures));
  log = std::make_unique<audit::AuditLog>(*database, clock, *signer);
  database->set_ledger(*log);
  open_vault(std::move(roots));
}

std::string VaultFixture::read(const Where& where, const std::string& name) {
  const auto entry = vault->info(where, name);
  return std::string(as_text(vault->open(where, entry, 0, entry.bytes)->read_all()));
}

Entry VaultFixture::put(const Where& where, const std::string& name, std::string_view text,
                        const std::optional<ZoneName>& zone) {
  return vault->put(where, zone, name, blob::source_of(as_bytes(text)), act("blob.put"));
}

}  // namespace falaj::vault
