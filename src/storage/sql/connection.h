// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to this directory: what an engine must give so that GroupCommitDatabase can be a Database over it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "foundation/base/error.h"
#include "storage/sql/database.h"

namespace falaj::sql {

// A table as the engine's catalogue knows it.
struct CatalogTable {
  Table table;
  std::vector<std::string> key;  // columns of the primary key
  std::vector<std::string> refers_to;
};

// One connection, used by one thread at a time. Statements are prepared once and kept.
class Connection {
 public:
  virtual ~Connection() = default;

  // Runs one statement; returns the rows it changed. Rows go to `each`, or nowhere when it is null.
  virtual std::int64_t run(std::string_view text, Params params, const EachRow* each) = 0;
  // Runs statements separated by ';', without parameters. For migrations.
  virtual void run_script(std::string_view statements) = 0;

  // Runs a query whose result may be larger than memory. Requires: inside a transaction.
  virtual void stream(std::string_view text, const EachRow& each) = 0;
  virtual std::vector<CatalogTable> catalog() = 0;  // of our tables, not the engine's

  virtual void begin_read() = 0;
  virtual void begin_write() = 0;
  virtual void savepoint() = 0;
  virtual void release_savepoint() = 0;
  virtual void rollback_to_savepoint() = 0;
  // Throws when the transaction certainly did not commit. False: the connection broke and nobody knows;
  // ask Engine::find_out with transaction().
  virtual bool commit() = 0;
  virtual void rollback() noexcept = 0;

  // False after an error that ended the whole transaction, not only the statement.
  virtual bool in_transaction() const = 0;
  // False once it broke: drop it and connect again.
  virtual bool alive() = 0;
  // Names the open write transaction for Engine::find_out.
  virtual std::string transaction() const { return {}; }
  // As Database::scrub. Requires: no transaction is open.
  virtual void scrub(std::span<const std::string_view> tables) = 0;
  // Called between transactions, when nobody waits for the last one any more; at the latest when it is untidy.
  virtual void tidy() {}
  virtual bool untidy() const { return false; }
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Connection> connect_writer() = 0;  // holds the lock that keeps other control planes out
  virtual std::unique_ptr<Connection> connect_reader() = 0;
  // Whether a write transaction of a connection that broke did commit. Nothing: still being decided; ask again.
  virtual std::optional<bool> find_out(Connection& writer, const std::string& transaction) = 0;
};

std::unique_ptr<Engine> make_sqlite_engine(const std::string& path);
std::unique_ptr<Engine> make_postgresql_engine(const std::string& conninfo);

}  // namespace falaj::sql
