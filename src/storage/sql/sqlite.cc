// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "storage/sql/connection.h"
#include "storage/sql/schema.h"

namespace falaj::sql {

namespace {

constexpr std::size_t kStatementsKeptMax = 1024;
constexpr int kCheckpointPages = 1000;            // copy the log back into the file from here on
constexpr int kCheckpointPagesForced = 64 * 256;  // 64 MiB: wait for readers then, but not long
constexpr int kBusyMs = 5000;
constexpr int kCheckpointBusyMs = 50;

Code code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_CONSTRAINT:
      switch (result) {
        case SQLITE_CONSTRAINT_UNIQUE:
        case SQLITE_CONSTRAINT_PRIMARYKEY:
        case SQLITE_CONSTRAINT_ROWID:
        case SQLITE_CONSTRAINT_FOREIGNKEY:
          return Code::conflict;
        default:
          return Code::invalid;
      }
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
      return Code::invalid;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Code::exhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return Code::unavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::corrupt;
    default:
      return Code::internal;
  }
}

[[noreturn]] void fail(sqlite3* db, int result, std::string_view doing) {
  const auto code = code_of(result);
  throw Error(code, fmt::format("{}: {}", doing, sqlite3_errmsg(db)));
}

class SqliteRow final : public Row {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement), columns_(sqlite3_column_count(statement)) {}
  bool is_null(int column) const override { return type(column) == SQLITE_NULL; }
  std::int64_t integer(int column) const override {
    expect(column, SQLITE_INTEGER, "an integer");
    return sqlite3_column_int64(statement_, column);
  }
  double real(int column) const override {
    expect(column, SQLITE_FLOAT, "a real number");
    return sqlite3_column_double(statement_, column);
  }
  std::string_view text(int column) const override {
    expect(column, SQLITE_TEXT, "text");
    const auto* begin = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return {begin, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }
  BytesView bytes(int column) const override {
    expect(column, SQLITE_BLOB, "bytes");
    const auto* begin = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
    return {begin, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  int type(int column) const {
    if (column < 0 || column >= columns_)
      throw Error(Code::internal, fmt::format("no such column in this row: {}", column));
    return sqlite3_column_type(statement_, column);
  }
  void expect(int column, int wanted, const char* what) const {
    if (type(column) != wanted) throw Error(Code::internal, fmt::format("column {} does not hold {}", column, what));
  }
  sqlite3_stmt* statement_;
  const int columns_;
};

// A prepared statement. `busy` while its rows are being handed out.
struct Statement {
  sqlite3_stmt* handle = nullptr;
  bool busy = false;
  Statement() = default;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(handle); }
};

class SqliteConnection final : public Connection {
 public:
  SqliteConnection(const std::string& path, bool writer);
  ~SqliteConnection() override;

  std::int64_t run(std::string_view text, Params params, const EachRow* each) override;
  void run_script(std::string_view statements) override { execute(sqlite_schema(statements)); }
  void stream(std::string_view text, const EachRow& each) override { run(text, {}, &each); }
  std::vector<CatalogTable> catalog() override;
  void begin_read() override { run("BEGIN", {}, nullptr); }
  void begin_write() override { run("BEGIN IMMEDIATE", {}, nullptr); }
  void savepoint() override { run("SAVEPOINT w", {}, nullptr); }
  void release_savepoint() override { run("RELEASE w", {}, nullptr); }
  void rollback_to_savepoint() override {
    run("ROLLBACK TO w", {}, nullptr);
    run("RELEASE w", {}, nullptr);
  }
  bool commit() override;
  void rollback() noexcept override;
  bool in_transaction() const override { return sqlite3_get_autocommit(db_) == 0; }
  bool alive() override { return true; }
  void scrub(std::span<const std::string_view> tables) override;
  void tidy() override;
  bool untidy() const override { return log_pages_ >= kCheckpointPages; }

 private:
  void execute(const std::string& script);
  std::unique_ptr<Statement> prepare(std::string_view text);
  Statement& statement(std::string_view text, std::unique_ptr<Statement>& own);
  void bind(sqlite3_stmt* handle, Params params);

  sqlite3* db_ = nullptr;
  int log_pages_ = 0;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::unique_ptr<Statement>, Hash, std::equal_to<>> statements_;
};

SqliteConnection::SqliteConnection(const std::string& path, bool writer) {
  const int result =
      sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  try {
    if (result != SQLITE_OK) fail(db_, result, "open database");
    sqlite3_busy_timeout(db_, kBusyMs);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_limit(db_, SQLITE_LIMIT_ATTACHED, 0);
    // No mmap: with it a failing disk is a SIGBUS instead of an error. One checkpointer, the writer (tidy).
    execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF;"
        "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; PRAGMA wal_autocheckpoint=0;"
        "PRAGMA journal_size_limit=67108864");
    // Deleted bytes are overwritten, so that what somebody has a right to see erased is not left in free pages.
    execute(writer ? "PRAGMA cache_size=-65536; PRAGMA secure_delete=ON"
                   : "PRAGMA cache_size=-16384; PRAGMA query_only=ON");
    if (writer)
      sqlite3_wal_hook(
          db_,
          [](void* self, sqlite3*, const char*, int pages) {
            static_cast<SqliteConnection*>(self)->log_pages_ = pages;
            return SQLITE_OK;
          },
          this);
  } catch (...) {
    sqlite3_close_v2(db_);
    throw;
  }
}

SqliteConnection::~SqliteConnection() {
  statements_.clear();
  sqlite3_close_v2(db_);
}

void SqliteConnection::execute(const std::string& script) {
  const int result = sqlite3_exec(db_, script.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(db_, result, "run script");
}

std::unique_ptr<Statement> SqliteConnection::prepare(std::string_view text) {
  auto made = std::make_unique<Statement>();
  const char* rest = nullptr;
  const int result = sqlite3_prepare_v3(db_, text.data(), static_cast<int>(text.size()), SQLITE_PREPARE_PERSISTENT,
                                        &made->handle, &rest);
  if (result != SQLITE_OK) {
    log::warn("sql_prepare_failed", {{"query", text}, {"reason", sqlite3_errmsg(db_)}});
    fail(db_, result, "prepare statement");
  }
  if (!made->handle || !trim({rest, static_cast<std::size_t>(text.data() + text.size() - rest)}).empty())
    throw Error(Code::internal, "prepare statement: not exactly one statement");
  return made;
}

// The kept statement of this text; a fresh one in `own` when that is in use further up the stack.
Statement& SqliteConnection::statement(std::string_view text, std::unique_ptr<Statement>& own) {
  const auto found = statements_.find(text);
  if (found != statements_.end() && !found->second->busy) return *found->second;
  auto made = prepare(text);
  if (found != statements_.end() || statements_.size() >= kStatementsKeptMax) return *(own = std::move(made));
  return *(statements_[std::string(text)] = std::move(made));
}

void SqliteConnection::bind(sqlite3_stmt* handle, Params params) {
  if (static_cast<int>(params.size()) != sqlite3_bind_parameter_count(handle))
    throw Error(Code::internal, fmt::format("statement wants {} parameters, got {}",
                                            sqlite3_bind_parameter_count(handle), params.size()));
  struct Bind {
    sqlite3_stmt* handle;
    int at;
    int operator()(Null) const { return sqlite3_bind_null(handle, at); }
    int operator()(std::int64_t v) const { return sqlite3_bind_int64(handle, at, v); }
    int operator()(double v) const { return sqlite3_bind_double(handle, at, v); }
    int operator()(std::string_view v) const {
      refuse_bad_text(v);
      return sqlite3_bind_text64(handle, at, v.data() ? v.data() : "", v.size(), SQLITE_STATIC, SQLITE_UTF8);
    }
    int operator()(BytesView v) const {
      return sqlite3_bind_blob64(handle, at, v.data() ? static_cast<const void*>(v.data()) : "", v.size(),
                                 SQLITE_STATIC);
    }
  };
  for (int i = 0; i < static_cast<int>(params.size()); ++i) {
    const int result = std::visit(Bind{handle, i + 1}, params[static_cast<std::size_t>(i)]);
    if (result != SQLITE_OK) fail(db_, result, "bind parameter");
  }
}

std::int64_t SqliteConnection::run(std::string_view text, Params params, const EachRow* each) {
  std::unique_ptr<Statement> own;
  auto& used = statement(text, own);
  // Also forgets the parameters: they borrow from the caller.
  struct Reset {
    Statement& used;
    ~Reset() {
      used.busy = false;
      sqlite3_reset(used.handle);
      sqlite3_clear_bindings(used.handle);
    }
  } reset{used};
  used.busy = true;
  bind(used.handle, params);
  const SqliteRow row(used.handle);
  int result;
  while ((result = sqlite3_step(used.handle)) == SQLITE_ROW)
    if (each) (*each)(row);
  if (result != SQLITE_DONE) fail(db_, result, "run statement");
  return sqlite3_stmt_readonly(used.handle) ? 0 : sqlite3_changes64(db_);
}

Kind kind_of(std::string_view declared) {
  if (declared == "BIGINT" || declared == "INTEGER") return Kind::integer;
  if (declared == "DOUBLE PRECISION") return Kind::real;
  if (declared == "TEXT") return Kind::text;
  if (declared == "BYTEA") return Kind::bytes;
  throw Error(Code::internal, fmt::format("a column has a type that is not ours: {}", declared));
}

std::vector<CatalogTable> SqliteConnection::catalog() {
  std::vector<CatalogTable> tables;
  const EachRow add = [&](const Row& row) { tables.push_back({{std::string(row.text(0)), {}}, {}, {}}); };
  run("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'", {}, &add);
  for (auto& t : tables) {
    const Param name[] = {std::string_view(t.table.name)};
    const EachRow column = [&](const Row& row) {
      t.table.columns.push_back({std::string(row.text(0)), kind_of(row.text(1))});
    };
    run("SELECT name, type FROM pragma_table_info(?) ORDER BY cid", name, &column);
    const EachRow key = [&](const Row& row) { t.key.emplace_back(row.text(0)); };
    run("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", name, &key);
    const EachRow refers = [&](const Row& row) { t.refers_to.emplace_back(row.text(0)); };
    run("SELECT DISTINCT \"table\" FROM pragma_foreign_key_list(?)", name, &refers);
  }
  return tables;
}

bool SqliteConnection::commit() {
  try {
    run("COMMIT", {}, nullptr);
    return true;
  } catch (const Error& error) {
    const int result = sqlite3_extended_errcode(db_);
    if ((result & 0xff) == SQLITE_IOERR) {
      // What the disk holds is unknown now; going on could acknowledge writes that are lost.
      std::fprintf(stderr, "commit failed on the disk (%d): %s\n", result, error.what());
      std::abort();
    }
    throw;
  }
}

void SqliteConnection::rollback() noexcept {
  if (!in_transaction()) return;
  try {
    run("ROLLBACK", {}, nullptr);
  } catch (const std::exception& error) {
    // Fails only where SQLite had rolled back by itself already.
    log::warn("sql_rollback_failed", {{"reason", error.what()}});
  }
}

// Pages that were freed are overwritten already (secure_delete). Others keep, between their rows, bytes of rows that
// were moved away when pages were split or joined; a table that is emptied gives up all its pages.
void SqliteConnection::scrub(std::span<const std::string_view> tables) {
  for (const auto table : tables) {
    begin_write();
    try {
      execute(
          fmt::format("CREATE TEMP TABLE scrubbed AS SELECT * FROM main.{0}; DELETE FROM main.{0};"
                      "INSERT INTO main.{0} SELECT * FROM scrubbed; DROP TABLE scrubbed",
                      table));
      commit();
    } catch (...) {
      rollback();
      throw;
    }
  }
  sqlite3_busy_timeout(db_, kCheckpointBusyMs);  // writers wait meanwhile
  const int result = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(db_, kBusyMs);
  if ((result & 0xff) == SQLITE_BUSY)
    throw Error(Code::unavailable, "the log cannot be emptied while old snapshots are read");
  if (result != SQLITE_OK) fail(db_, result, "empty the log");
  log_pages_ = 0;
}

void SqliteConnection::tidy() {
  if (!untidy()) return;
  // A passive checkpoint waits for nobody; when steady readers keep it from starting the log over, a bounded wait does.
  const bool forced = log_pages_ >= kCheckpointPagesForced;
  if (forced) sqlite3_busy_timeout(db_, kCheckpointBusyMs);
  const int result = sqlite3_wal_checkpoint_v2(
      db_, nullptr, forced ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (forced) sqlite3_busy_timeout(db_, kBusyMs);
  if ((result & 0xff) == SQLITE_IOERR) {
    std::fprintf(stderr, "checkpoint failed on the disk (%d): %s\n", result, sqlite3_errmsg(db_));
    std::abort();
  }
  log_pages_ = 0;  // the next commit says how long the log really is
}

class SqliteEngine final : public Engine {
 public:
  explicit SqliteEngine(const std::string& path);
  ~SqliteEngine() override { ::close(lock_); }
  std::string_view name() const override { return "sqlite"; }
  std::unique_ptr<Connection> connect_writer() override { return std::make_unique<SqliteConnection>(path_, true); }
  std::unique_ptr<Connection> connect_reader() override { return std::make_unique<SqliteConnection>(path_, false); }
  std::optional<bool> find_out(Connection&, const std::string&) override { return false; }

 private:
  const std::string path_;
  int lock_ = -1;
};

int open_0600(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) throw Error(Code::unavailable, fmt::format("open database: {}", strerror(errno)));
  return fd;
}

// The lock has a file of its own: closing any descriptor of the database file would drop SQLite's locks on it.
SqliteEngine::SqliteEngine(const std::string& path) : path_(path), lock_(open_0600(path + ".lock")) {
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw Error(Code::conflict, "open database: another process has it open");
  }
  try {
    ::close(open_0600(path));
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

}  // namespace

std::unique_ptr<Engine> make_sqlite_engine(const std::string& path) { return std::make_unique<SqliteEngine>(path); }

}  // namespace falaj::sql
