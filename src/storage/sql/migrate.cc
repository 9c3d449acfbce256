// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/migrate.h"

#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::sql {

namespace {

// The whole text is kept rather than a digest of it: a difference can then be looked at.
constexpr std::string_view kMigrationTable =
    "CREATE TABLE IF NOT EXISTS migration(module TEXT NOT NULL, version BIGINT NOT NULL, text TEXT NOT NULL, "
    "applied_us BIGINT NOT NULL, PRIMARY KEY(module, version))";

using Applied = std::map<std::pair<std::string, std::int64_t>, std::string>;

void run(Connection& connection, std::string_view text, std::initializer_list<Param> params = {}) {
  connection.run(text, Params(params.begin(), params.size()), nullptr);
}

template <class F>
void in_transaction(Connection& connection, F work) {
  connection.begin_write();
  try {
    work();
    if (!connection.commit()) throw Error(Code::unavailable, "the database went away during a migration");
  } catch (...) {
    connection.rollback();
    throw;
  }
}

Applied read_applied(Connection& connection) {
  Applied applied;
  const EachRow each = [&](const Row& row) { applied[{std::string(row.text(0)), row.integer(1)}] = row.text(2); };
  connection.begin_read();
  try {
    connection.run("SELECT module, version, text FROM migration", {}, &each);
  } catch (...) {
    connection.rollback();
    throw;
  }
  connection.rollback();
  return applied;
}

void refuse_gaps(std::span<const Migration> migrations, std::map<std::string_view, std::int64_t>& newest) {
  for (const auto& m : migrations)
    CHECK(m.version == ++newest[m.module], "migrations of a module are numbered 1, 2, 3, ... in order");
}

}  // namespace

void migrate(Connection& connection, std::span<const Migration> migrations, sys::Micros wall) {
  std::map<std::string_view, std::int64_t> newest;
  refuse_gaps(migrations, newest);
  in_transaction(connection, [&] { connection.run_script(kMigrationTable); });
  const auto applied = read_applied(connection);
  for (const auto& [key, text] : applied) {
    const auto known = newest.find(key.first);
    if (known != newest.end() && key.second > known->second)
      throw Error(Code::corrupt, fmt::format("the database is newer than this program: migration {}/{} is unknown here",
                                             key.first, key.second));
  }
  for (const auto& m : migrations) {
    const auto found = applied.find({std::string(m.module), m.version});
    if (found == applied.end()) continue;
    if (found->second != m.sql)
      throw Error(Code::corrupt, fmt::format("migration {}/{} was applied with another text", m.module, m.version));
  }
  for (const auto& m : migrations) {
    if (applied.contains({std::string(m.module), m.version})) continue;
    in_transaction(connection, [&] {
      connection.run_script(m.sql);
      run(connection, "INSERT INTO migration(module, version, text, applied_us) VALUES (?, ?, ?, ?)",
          {m.module, m.version, m.sql, wall.count()});
    });
    log::info("sql_migrated", {{"module", m.module}, {"version", m.version}});
  }
}

}  // namespace falaj::sql
