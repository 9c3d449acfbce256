// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the tests of everything that stores rows: run each on both engines.
//
//   class Things : public testing::TestWithParam<std::string> { std::unique_ptr<sql::Scratch> scratch =
//   sql::make_scratch(GetParam()); }; INSTANTIATE_TEST_SUITE_P(Engines, Things, testing::ValuesIn(sql::engines()));

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/sql/database.h"

namespace falaj::sql {

inline const Act kAct{"user/ada", "thing.put", "/t/acme/things", "r1"};  // for those to whom it does not matter

// An empty place for one database, gone with this object. Can be opened, dropped and opened again.
class Scratch {
 public:
  virtual ~Scratch() = default;
  virtual std::unique_ptr<Database> open(Metrics& metrics, Limits limits = {}) = 0;
  // The database file, or the connection string.
  virtual const std::string& where() const = 0;
  // Runs statements beside the Database, as somebody with other tools would: to damage what a test must notice.
  virtual void tamper(const std::string& statements) = 0;
};
std::unique_ptr<Scratch> make_scratch(std::string_view engine);

// A throw-away server of this process alone: a socket in a temporary directory, no network. It runs without fsync, so
// it survives being killed but not a power cut. Requires: engines() has "postgresql".
class PostgresqlServer {
 public:
  static PostgresqlServer& shared();  // started at first use, stopped at exit
  virtual ~PostgresqlServer() = default;
  virtual std::string make_database() = 0;  // a fresh one; returns how to connect to it
  virtual void kill() = 0;                  // an immediate end, as in a crash
  virtual void start() = 0;                 // after kill
};

// "sqlite", and "postgresql" where its server is installed; says so on standard error where it is not.
std::vector<std::string> engines();

}  // namespace falaj::sql
