// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/testing.h"

namespace falaj::audit {

namespace {

std::vector<sql::Migration> with_own(std::span<const sql::Migration> more) {
  std::vector<sql::Migration> all(migrations().begin(), migrations().end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

crypto::Signer make_test_signer(unsigned char number) {
  const Bytes seed(crypto::Key::kBytes, std::byte{number});
  return crypto::Signer(crypto::Key::from(seed));
}

AuditedScratch::AuditedScratch(std::string_view engine, std::span<const sql::Migration> more, sql::Limits limits)
    : migrations_(with_own(more)), limits_(limits), place_(sql::make_scratch(engine)) {
  reopen();
}

void AuditedScratch::reopen() {
  db_.reset();
  db_ = place_->open(metrics_, limits_);
  db_->migrate(migrations_);
  log_ = std::make_unique<AuditLog>(*db_, clock_, signer_);
  db_->set_ledger(*log_);
}

}  // namespace falaj::audit
