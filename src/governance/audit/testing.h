// SPDX-License-Identifier: Apache-2.0
#pragma once

// A database with an audit log on it, for the tests of everything that writes.

#include <memory>
#include <string>

#include "foundation/crypto/sign.h"
#include "foundation/sys/clock.h"
#include "governance/audit/audit_log.h"
#include "storage/sql/testing.h"

namespace falaj::audit {

// The same key for the same number. Never for anything but tests.
crypto::Signer make_test_signer(unsigned char number = 1);

class AuditedScratch {
 public:
  // `more` are the migrations of the module under test.
  explicit AuditedScratch(std::string_view engine, std::span<const sql::Migration> more = {}, sql::Limits limits = {});
  sql::Database& db() { return *db_; }
  AuditLog& log() { return *log_; }
  sys::SimClock& clock() { return clock_; }
  Metrics& metrics() { return metrics_; }
  sql::Scratch& place() { return *place_; }
  void reopen();  // as after a restart of the program

 private:
  const std::vector<sql::Migration> migrations_;
  const sql::Limits limits_;
  Metrics metrics_;
  sys::SimClock clock_;
  const crypto::Signer signer_ = make_test_signer();
  const std::unique_ptr<sql::Scratch> place_;
  std::unique_ptr<AuditLog> log_;  // outlives the database that calls it
  std::unique_ptr<sql::Database> db_;
};

}  // namespace falaj::audit
