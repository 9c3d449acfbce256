// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/testing.h"

#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/sys/process.h"

namespace falaj::sql {

namespace {

constexpr const char* kServerPrograms = "/usr/lib/postgresql/15/bin";

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
    const int result = sqlite3_exec(db, ("PRAGMA synchronous=OFF;" + statements).c_str(), nullptr, nullptr, nullptr);
    const std::string why = sqlite3_errmsg(db);
    sqlite3_close(db);
    if (result != SQLITE_OK) throw Error(Code::internal, "tamper: " + why);
  }

 private:
  const TempDirectory directory_;
  const std::string file_ = directory_.path() + "/falaj.db";
};

void run_on_postgresql(const std::string& conninfo, const std::string& statements) {
  PGconn* connection = PQconnectdb(conninfo.c_str());
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  PGresult* result = PQexec(connection, statements.c_str());
  const auto status = PQresultStatus(result);
  const std::string why = PQerrorMessage(connection);
  PQclear(result);
  PQfinish(connection);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) throw Error(Code::internal, "tamper: " + why);
}

class RealPostgresqlServer final : public PostgresqlServer {
 public:
  RealPostgresqlServer() {
    if (const auto* user = ::getuid() == 0 ? ::getpwnam("postgres") : nullptr)
      CHECK(::chown(directory_.path().c_str(), user->pw_uid, user->pw_gid) == 0, "the directory can be given away");
    run_to_end(
        {"initdb", "-D", data(), "-U", "app", "-A", "trust", "-N", "--no-instructions", "-E", "UTF8", "--locale=C"});
    start();
  }
  ~RealPostgresqlServer() override { kill(); }

  void start() override {
    server_ = launch({"postgres", "-D", data(), "-c", "listen_addresses=", "-c",
                      "unix_socket_directories=" + directory_.path(), "-c", "fsync=off", "-c", "full_page_writes=off",
                      "-c", "shared_buffers=32MB", "-c", "max_connections=60", "-c", "logging_collector=off"});
    while (PQping(conninfo("postgres").c_str()) != PQPING_OK)
      CHECK(!server_->wait(std::chrono::milliseconds(10)), "the PostgreSQL server stays up");
  }
  void kill() override {
    server_->signal(SIGQUIT);  // every process of it ends at once and in the middle of what it does; then it recovers
    server_->wait(std::chrono::seconds(10));
  }
  std::string make_database() override {
    const auto name = fmt::format("d{}", ++databases_);
    run_on_postgresql(conninfo("postgres"), "CREATE DATABASE " + name);
    return conninfo(name);
  }

 private:
  std::string data() const { return directory_.path() + "/data"; }
  std::string conninfo(const std::string& name) const {
    return fmt::format("host={} user=app dbname={}", directory_.path(), name);
  }
  // PostgreSQL refuses to run as root.
  std::unique_ptr<sys::Child> launch(std::vector<std::string> argv) {
    argv[0] = fmt::format("{}/{}", kServerPrograms, argv[0]);
    if (::getuid() == 0) {
      const std::vector<std::string> as{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
                                        "--pdeathsig=KILL"};
      argv.insert(argv.begin(), as.begin(), as.end());
    }
    sys::Command command;
    command.argv = std::move(argv);
    command.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
    command.directory = directory_.path();
    command.stdout_file = command.stderr_file = directory_.path() + "/server.log";
    return processes_.start(command);
  }
  void run_to_end(std::vector<std::string> argv) {
    const auto exit = launch(std::move(argv))->wait(std::chrono::seconds(60));
    CHECK(exit && exit->status == 0 && exit->signal == 0, "initdb succeeds");
  }

  const TempDirectory directory_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> server_;
  int databases_ = 0;
};

class PostgresqlScratch final : public Scratch {
 public:
  std::unique_ptr<Database> open(Metrics& metrics, Limits limits) override {
    return open_postgresql(conninfo_, metrics, limits);
  }
  const std::string& where() const override { return conninfo_; }
  void tamper(const std::string& statements) override { run_on_postgresql(conninfo_, statements); }

 private:
  const std::string conninfo_ = PostgresqlServer::shared().make_database();
};

}  // namespace

PostgresqlServer& PostgresqlServer::shared() {
  static RealPostgresqlServer server;
  return server;
}

std::unique_ptr<Scratch> make_scratch(std::string_view engine) {
  if (engine == "postgresql") return std::make_unique<PostgresqlScratch>();
  return std::make_unique<SqliteScratch>();
}

std::vector<std::string> engines() {
  if (std::filesystem::exists(std::string(kServerPrograms) + "/postgres")) return {"sqlite", "postgresql"};
  std::fprintf(stderr, "SKIPPED: every test on PostgreSQL, because %s has no server\n", kServerPrograms);
  return {"sqlite"};
}

}  // namespace falaj::sql
