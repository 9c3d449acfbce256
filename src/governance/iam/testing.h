// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/iam/directory.h"
#include "storage/sql/testing.h"

namespace falaj::iam {

// A directory on an empty database of its own, with time and randomness in the hands of the test.
class DirectoryFixture {
 public:
  // `more` migrations are those of the modules above that share the database.
  explicit DirectoryFixture(std::string_view engine = "sqlite", std::vector<sql::Migration> more = {});

  // Runs `work` in one write.
  template <class F>
  auto write(F&& work) {
    return database->write({"user/test", "test.write", "/", ""}, std::forward<F>(work));
  }
  // Ends the process as far as the directory can tell, and starts it again on the same database.
  void restart();

  Metrics metrics;
  sys::SimClock clock;
  sys::SimRandom random{42};
  std::unique_ptr<sql::Scratch> scratch;
  std::unique_ptr<sql::Database> database;
  std::unique_ptr<Directory> directory;

 private:
  void start();
  std::vector<sql::Migration> migrations_;
};

}  // namespace falaj::iam
