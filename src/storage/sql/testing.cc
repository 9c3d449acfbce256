// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/testing.h"

#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>

#include "foundation/base/error.h"

namespace falaj::sql {

namespace {

class TempDirectory {
 public:
  TempDirectory() {
    std::string made = (std::filesystem::temp_directory_path() / "falaj_sql_XXXXXX").string();
    CHECK(::mkdtemp(made.data()), "a temporary directory can be made");
    path_ = made;
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class SqliteScratch final : public Scratch {
 public:
  std::unique_ptr<Database> open(Metrics& metrics, Limits limits) override {
    return open_sqlite(file_, metrics, limits);
  }
  const std::string& where() const override { return file_; }
  void tamper(const std::string& statements) override {
    sqlite3* db = nullptr;
    CHECK(sqlite3_open(file_.c_str(), &db) == SQLITE_OK, "the database file opens");
    const int result = sqlite3_exec(db, statements.c_str(), nullptr, nullptr, nullptr);
    const std::string why = sqlite3_errmsg(db);
    sqlite3_close(db);
    if (result != SQLITE_OK) throw Error(Code::internal, "tamper: " + why);
  }

 private:
  const TempDirectory directory_;
  const std::string file_ = directory_.path() + "/falaj.db";
};

}  // namespace

std::unique_ptr<Scratch> make_scratch(std::string_view) { return std::make_unique<SqliteScratch>(); }

std::vector<std::string> engines() { return {"sqlite"}; }

}  // namespace falaj::sql
