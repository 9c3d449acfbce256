// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/sys/random.h"
#include "storage/sql/connection.h"
#include "storage/sql/group_commit.h"
#include "storage/sql/postgresql_wire.h"
#include "storage/sql/schema.h"

namespace falaj::sql {

namespace {

constexpr std::size_t kPreparedMax = 1024;
constexpr std::string_view kSavepoint = "SAVEPOINT w", kRelease = "RELEASE w";
constexpr std::string_view kMark = "UPDATE commit_marker SET token = ?";

// A connection that always speaks in pipelines: what needs no answer (BEGIN, SAVEPOINT, RELEASE) travels with the
// statement behind it, so a write costs one round trip for each of its own statements and none for ours.
class PostgresqlConnection final : public Connection {
 public:
  PostgresqlConnection(const std::string& conninfo, std::string token_prefix);
  ~PostgresqlConnection() override { PQfinish(connection_); }

  std::int64_t run(std::string_view text, Params params, const EachRow* each) override;
  void run_script(std::string_view statements) override;
  void scrub(std::span<const std::string_view> tables) override;
  void stream(std::string_view text, const EachRow& each) override;
  std::vector<CatalogTable> catalog() override;
  void begin_read() override { later("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); }
  void begin_write() override;
  void savepoint() override { later(kSavepoint); }
  void release_savepoint() override;
  void rollback_to_savepoint() override;
  bool commit() override;
  void rollback() noexcept override;
  bool in_transaction() const override;
  bool alive() override;
  std::string transaction() const override { return token_; }

 private:
  struct Statement {
    std::string name;
    std::vector<Oid> types;
  };
  struct Later {
    std::string_view text;
    std::string param;  // none when empty
  };
  struct Answer {
    Result result;
    enum { ahead, preparing, running } stage = running;  // which part of the pipeline it answers
  };

  void later(std::string_view text, std::string param = {}) { later_.push_back({text, std::move(param)}); }
  int send(std::string_view text, const WireParams& params);  // how many answers it will have
  Answer exchange(std::string_view text, const WireParams& params);
  void drop_owed();
  void sync();
  void check(const Result& result, std::string_view text);
  [[noreturn]] void gone();

  PGconn* connection_;
  const std::string token_prefix_;
  std::uint64_t transactions_ = 0;
  std::string token_;
  std::vector<Later> later_;
  int owed_syncs_ = 0;    // pipelines sent whose answers nobody needs
  bool spoiled_ = false;  // something sent ahead failed: the whole transaction is lost, not only one write
  std::uint64_t named_ = 0, cursors_ = 0;
  std::unordered_map<std::string, Statement> statements_;
};

// What the user did not say: give up on a silent network within a minute.
PGconn* connect(const std::string& conninfo) {
  char* why = nullptr;
  PQconninfoOption* options = PQconninfoParse(conninfo.c_str(), &why);
  if (!options) {
    PQfreemem(why);
    throw Error(Code::invalid, "the PostgreSQL connection string cannot be read");
  }
  std::vector<std::string> names, values;
  const auto add = [&](const char* name, const char* value) { names.emplace_back(name), values.emplace_back(value); };
  add("connect_timeout", "5");
  add("keepalives_idle", "10");
  add("tcp_user_timeout", "30000");
  add("application_name", "falaj");
  for (const auto* o = options; o->keyword; ++o)
    if (o->val) add(o->keyword, o->val);  // the later of two wins
  PQconninfoFree(options);
  add("client_encoding", "UTF8");
  std::vector<const char*> name_pointers, value_pointers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    name_pointers.push_back(names[i].c_str());
    value_pointers.push_back(values[i].c_str());
  }
  name_pointers.push_back(nullptr);
  value_pointers.push_back(nullptr);
  return PQconnectdbParams(name_pointers.data(), value_pointers.data(), 0);
}

PostgresqlConnection::PostgresqlConnection(const std::string& conninfo, std::string token_prefix)
    : connection_(connect(conninfo)), token_prefix_(std::move(token_prefix)) {
  if (PQstatus(connection_) != CONNECTION_OK) {
    log::warn("sql_connect_failed", {{"reason", PQerrorMessage(connection_)}});
    PQfinish(connection_);
    throw Error(Code::unavailable, "cannot connect to the PostgreSQL server");
  }
  PQsetNoticeProcessor(
      connection_, [](void*, const char*) {}, nullptr);
  PQenterPipelineMode(connection_);
  try {
    // Acknowledged means durable, whatever the server's default is.
    run("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'", {},
        nullptr);
    run("SET standard_conforming_strings = on", {}, nullptr);
  } catch (...) {
    PQfinish(connection_);
    throw;
  }
}

void PostgresqlConnection::gone() {
  log::warn("sql_connection_lost", {{"reason", PQerrorMessage(connection_)}});
  throw Error(Code::unavailable, "the connection to the PostgreSQL server is lost");
}

void PostgresqlConnection::check(const Result& result, std::string_view text) {
  const auto status = PQresultStatus(result.get());
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return;
  const char* state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
  const char* message = PQresultErrorField(result.get(), PG_DIAG_MESSAGE_PRIMARY);
  if (!state) gone();
  const auto code = code_of_sqlstate(state);
  if (code == Code::internal || code == Code::corrupt)
    log::warn("sql_statement_failed", {{"query", text}, {"state", state}, {"reason", message}});
  throw Error(code, fmt::format("run statement: {}", message ? message : state));
}

int PostgresqlConnection::send(std::string_view text, const WireParams& params) {
  int answers = 1;
  auto found = statements_.find(std::string(text));
  const auto fits = [&](const Statement& s) {
    if (s.types.size() != params.types().size()) return false;
    for (std::size_t i = 0; i < s.types.size(); ++i)
      if (params.types()[i] != 0 && params.types()[i] != s.types[i]) return false;
    return true;
  };
  if (found == statements_.end() || !fits(found->second)) {
    // A parameter that was NULL the first time had its type guessed; a fresh statement takes the type it has now.
    auto name = statements_.size() < kPreparedMax ? fmt::format("s{}", ++named_) : std::string();
    if (!PQsendPrepare(connection_, name.c_str(), numbered_parameters(text).c_str(), params.count(),
                       params.types().data()))
      gone();
    ++answers;
    found = statements_.insert_or_assign(std::string(text), Statement{std::move(name), params.types()}).first;
  }
  if (!PQsendQueryPrepared(connection_, found->second.name.c_str(), params.count(), params.values(), params.lengths(),
                           params.formats(), 1))
    gone();
  if (found->second.name.empty()) statements_.erase(found);
  return answers;
}

void PostgresqlConnection::sync() {
  if (!PQpipelineSync(connection_)) gone();
}

// An answer stands between two ends. Of a server that said goodbye and died, libpq may give ends for ever and still
// call the connection good.
constexpr int kEndsInARowMax = 1;

void PostgresqlConnection::drop_owed() {
  for (int ends = 0; owed_syncs_ > 0;) {
    const Result result(PQgetResult(connection_));
    if (PQresultStatus(result.get()) == PGRES_PIPELINE_SYNC) --owed_syncs_;
    ends = result ? 0 : ends + 1;
    if (ends > kEndsInARowMax || PQstatus(connection_) != CONNECTION_OK) gone();
  }
}

// Sends what was put off, then the statement, in one go; returns the first failure, or the statement's answer.
PostgresqlConnection::Answer PostgresqlConnection::exchange(std::string_view text, const WireParams& params) {
  if (PQstatus(connection_) != CONNECTION_OK) gone();
  const auto ahead = std::exchange(later_, {});
  int answers_ahead = 0;
  for (const auto& l : ahead) {
    const Param param = std::string_view(l.param);
    answers_ahead += send(l.text, WireParams(l.param.empty() ? Params() : Params(&param, 1)));
  }
  const int answers_prepare = send(text, params) - 1;
  sync();
  drop_owed();
  Answer answer;
  int seen = 0, ends = 0;
  bool failed = false;
  while (true) {
    Result result(PQgetResult(connection_));
    if (!result) {  // the end of one statement's answers
      if (++ends > kEndsInARowMax || PQstatus(connection_) != CONNECTION_OK) gone();
      ++seen;
      continue;
    }
    ends = 0;
    const auto status = PQresultStatus(result.get());
    if (status == PGRES_PIPELINE_SYNC) return answer;
    if (failed) continue;
    failed = status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK;
    answer.result = std::move(result);
    answer.stage = seen < answers_ahead                     ? Answer::ahead
                   : seen < answers_ahead + answers_prepare ? Answer::preparing
                                                            : Answer::running;
  }
}

std::int64_t PostgresqlConnection::run(std::string_view text, Params params, const EachRow* each) {
  const WireParams wire(params);
  const auto answer = exchange(text, wire);
  try {
    check(answer.result, text);
  } catch (...) {
    // What was not prepared is asked for again at its next use.
    if (answer.stage == Answer::preparing) statements_.erase(std::string(text));
    if (answer.stage == Answer::ahead) {
      statements_.clear();
      spoiled_ = true;
    }
    throw;
  }
  const int rows = PQntuples(answer.result.get());
  if (each)
    for (int row = 0; row < rows; ++row) (*each)(PostgresqlRow(answer.result.get(), row));
  const char* changed = PQcmdTuples(answer.result.get());
  return *changed && std::string_view(PQcmdStatus(answer.result.get())).substr(0, 6) != "SELECT" ? std::atoll(changed)
                                                                                                 : 0;
}

// Several statements in one text need the simple protocol, which pipelines do not speak.
void PostgresqlConnection::run_script(std::string_view statements) {
  run("SELECT 1", {}, nullptr);  // sends what was put off
  if (!PQexitPipelineMode(connection_)) gone();
  const Result result(PQexec(connection_, postgresql_schema(statements).c_str()));
  PQenterPipelineMode(connection_);
  statements_.clear();  // their result types may have changed; names are never used again
  check(result, statements);
}

// A plain VACUUM leaves the bytes of dead rows in the holes of their pages; this writes the tables anew.
void PostgresqlConnection::scrub(std::span<const std::string_view> tables) {
  for (const auto table : tables) run_script(fmt::format("VACUUM FULL {}", table));
}

void PostgresqlConnection::stream(std::string_view text, const EachRow& each) {
  // A name of its own for each: the server remembers what a prepared FETCH gave.
  const auto cursor = fmt::format("c{}", ++cursors_);
  run(fmt::format("DECLARE {} NO SCROLL CURSOR FOR {}", cursor, text), {}, nullptr);
  const auto fetch = fmt::format("FETCH FORWARD 1000 FROM {}", cursor);
  bool more = true;
  const EachRow counted = [&](const Row& row) {
    more = true;
    each(row);
  };
  while (std::exchange(more, false)) run(fetch, {}, &counted);
  run("CLOSE " + cursor, {}, nullptr);
}

Kind kind_of_type(std::string_view type) {
  if (type == "int8") return Kind::integer;
  if (type == "float8") return Kind::real;
  if (type == "text") return Kind::text;
  if (type == "bytea") return Kind::bytes;
  throw Error(Code::internal, fmt::format("a column has a type that is not ours: {}", type));
}

std::vector<CatalogTable> PostgresqlConnection::catalog() {
  std::vector<CatalogTable> tables;
  const EachRow add = [&](const Row& row) { tables.push_back({{std::string(row.text(0)), {}}, {}, {}}); };
  run("SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
      " WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname <> 'commit_marker'",
      {}, &add);
  for (auto& t : tables) {
    const Param name[] = {std::string_view(t.table.name)};
    const EachRow column = [&](const Row& row) {
      t.table.columns.push_back({std::string(row.text(0)), kind_of_type(row.text(1))});
    };
    run("SELECT a.attname, y.typname FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid"
        " WHERE a.attrelid = quote_ident(?)::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        name, &column);
    const EachRow key = [&](const Row& row) { t.key.emplace_back(row.text(0)); };
    run("SELECT a.attname FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place), pg_attribute a"
        " WHERE i.indrelid = quote_ident(?)::regclass AND i.indisprimary AND a.attrelid = i.indrelid"
        " AND a.attnum = k.attnum ORDER BY k.place",
        name, &key);
    const EachRow refers = [&](const Row& row) { t.refers_to.emplace_back(row.text(0)); };
    run("SELECT DISTINCT r.relname FROM pg_constraint f JOIN pg_class r ON r.oid = f.confrelid"
        " WHERE f.conrelid = quote_ident(?)::regclass AND f.contype = 'f'",
        name, &refers);
  }
  return tables;
}

void PostgresqlConnection::begin_write() {
  // A row that says who committed last. pg_xact_status would not do: after a crash an id may be given out again.
  token_ = fmt::format("{}-{}", token_prefix_, ++transactions_);
  later("BEGIN");
  later(kMark, token_);
}

void PostgresqlConnection::release_savepoint() {
  if (!later_.empty() && later_.back().text == kSavepoint)
    later_.pop_back();  // nothing happened since
  else
    later(kRelease);
}

void PostgresqlConnection::rollback_to_savepoint() {
  if (!later_.empty() && later_.back().text == kSavepoint) {
    later_.pop_back();
    return;
  }
  later("ROLLBACK TO w");
  run(kRelease, {}, nullptr);
}

bool PostgresqlConnection::commit() {
  Answer answer;
  try {
    answer = exchange("COMMIT", WireParams({}));
    check(answer.result, "COMMIT");
  } catch (const Error&) {
    if (!alive()) return false;
    throw;
  }
  // A transaction that had failed answers COMMIT with a rollback.
  if (std::string_view(PQcmdStatus(answer.result.get())) != "COMMIT")
    throw Error(Code::internal, "commit: the transaction had failed before");
  return true;
}

void PostgresqlConnection::rollback() noexcept {
  later_.clear();
  spoiled_ = false;
  if (owed_syncs_ > 0) return;  // rolled back, and not used since
  if (PQstatus(connection_) != CONNECTION_OK || PQtransactionStatus(connection_) == PQTRANS_IDLE) return;
  try {
    // Nobody waits for the answer: the next use of this connection skips it.
    send("ROLLBACK", WireParams({}));
    sync();
    ++owed_syncs_;
    PQflush(connection_);
  } catch (const std::exception& error) {
    log::warn("sql_rollback_failed", {{"reason", error.what()}});
  }
}

bool PostgresqlConnection::in_transaction() const {
  if (spoiled_) return false;
  return !later_.empty() || PQtransactionStatus(connection_) != PQTRANS_IDLE;
}

bool PostgresqlConnection::alive() {
  // Twice: the first call may read a last message, the second then finds the end of the stream.
  return PQstatus(connection_) == CONNECTION_OK && PQconsumeInput(connection_) && PQconsumeInput(connection_) &&
         PQstatus(connection_) == CONNECTION_OK;
}

class PostgresqlEngine final : public Engine {
 public:
  explicit PostgresqlEngine(const std::string& conninfo) : conninfo_(conninfo) {
    sys::RealRandom random;
    run_token_ = fmt::format("{:016x}", random.next());
  }
  std::string_view name() const override { return "postgresql"; }
  std::unique_ptr<Connection> connect_writer() override;
  std::unique_ptr<Connection> connect_reader() override {
    return std::make_unique<PostgresqlConnection>(conninfo_, std::string());
  }
  std::optional<bool> find_out(Connection& writer, const std::string& transaction) override;

 private:
  const std::string conninfo_;
  std::string run_token_;
  int connections_ = 0;  // of writers; on one thread at a time
};

std::unique_ptr<Connection> PostgresqlEngine::connect_writer() {
  auto made = std::make_unique<PostgresqlConnection>(conninfo_, fmt::format("{}-{}", run_token_, ++connections_));
  // Belongs to the session: it is free again when the connection ends, however it ends. The server may need a
  // moment to see that a session before ours ended.
  try {
    made->run("SET lock_timeout = '1s'", {}, nullptr);
    made->run("SELECT pg_advisory_lock(7809634712234)", {}, nullptr);
    made->run("SET lock_timeout = 0", {}, nullptr);
  } catch (const Error& error) {
    if (!made->alive()) throw;
    throw Error(Code::conflict, "another control plane uses this PostgreSQL database");
  }
  made->run_script(
      "CREATE TABLE IF NOT EXISTS commit_marker(token TEXT NOT NULL);"
      "INSERT INTO commit_marker SELECT '' WHERE NOT EXISTS (SELECT 1 FROM commit_marker)");
  return made;
}

// Having the advisory lock again means the old session has ended, so its last transaction is decided.
std::optional<bool> PostgresqlEngine::find_out(Connection& writer, const std::string& transaction) {
  bool committed = false;
  const EachRow each = [&](const Row& row) { committed = row.text(0) == transaction; };
  writer.run("SELECT token FROM commit_marker", {}, &each);
  return committed;
}

}  // namespace

std::unique_ptr<Engine> make_postgresql_engine(const std::string& conninfo) {
  return std::make_unique<PostgresqlEngine>(conninfo);
}

std::unique_ptr<Database> open_postgresql(const std::string& conninfo, Metrics& metrics, Limits limits) {
  return std::make_unique<GroupCommitDatabase>(make_postgresql_engine(conninfo), metrics, limits);
}

}  // namespace falaj::sql
