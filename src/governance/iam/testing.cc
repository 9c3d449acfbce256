// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/testing.h"

namespace falaj::iam {

DirectoryFixture::DirectoryFixture(std::string_view engine, std::vector<sql::Migration> more)
    : scratch(sql::make_scratch(engine)), migrations_(Directory::migrations().begin(), Directory::migrations().end()) {
  migrations_.insert(migrations_.end(), more.begin(), more.end());
  start();
}

void DirectoryFixture::restart() {
  directory.reset();
  database.reset();
  start();
}

void DirectoryFixture::start() {
  database = scratch->open(metrics);
  database->migrate(migrations_);
  DirectoryOptions options;
  options.password_cost = {8U << 20, 1};  // the real cost would make up most of the time of the tests
  directory = std::make_unique<Directory>(*database, clock, random,
                                          crypto::Key::from(as_bytes("0123456789abcdef0123456789abcdef")), options);
}

}  // namespace falaj::iam
