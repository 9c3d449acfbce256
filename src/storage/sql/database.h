// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "foundation/base/metrics.h"
#include "storage/sql/table.h"
#include "storage/sql/value.h"

namespace falaj::sql {

// SQL text known at compile time: no string built at run time can become a statement.
// Parameters are '?', in order, on both engines.
class Query {
 public:
  template <std::size_t N>
  consteval Query(const char (&text)[N]) : text_(text, N - 1) {}
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// One row, valid until the next. Reading a column as another type than it has throws internal.
class Row {
 public:
  virtual ~Row() = default;
  virtual bool is_null(int column) const = 0;
  virtual std::int64_t integer(int column) const = 0;
  virtual double real(int column) const = 0;
  virtual std::string_view text(int column) const = 0;
  virtual BytesView bytes(int column) const = 0;
  Digest digest(int column) const;  // 32 bytes, or corrupt
};

using Params = std::span<const Param>;
using EachRow = std::function<void(const Row&)>;

// A consistent view of the database: one snapshot for its whole life. Used by one thread.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual void query(Query query, Params params, const EachRow& each) = 0;
  // The whole database as this snapshot sees it, tables that are referred to before those that refer to them, rows in
  // the order of their keys. Writers go on meanwhile.
  virtual void dump(TableSink& into) = 0;

  void query(Query q, std::initializer_list<Param> params, const EachRow& each) {
    query(q, Params(params.begin(), params.size()), each);
  }
  // The first row mapped to a value, or nothing.
  template <class F>
  auto first(Query q, std::initializer_list<Param> params, F map)
      -> std::optional<std::invoke_result_t<F, const Row&>> {
    std::optional<std::invoke_result_t<F, const Row&>> out;
    query(q, params, [&](const Row& row) {
      if (!out) out.emplace(map(row));
    });
    return out;
  }
  template <class F>
  auto all(Query q, std::initializer_list<Param> params, F map) -> std::vector<std::invoke_result_t<F, const Row&>> {
    std::vector<std::invoke_result_t<F, const Row&>> out;
    query(q, params, [&](const Row& row) { out.push_back(map(row)); });
    return out;
  }
};

// Who does what to which thing, and under which API call. Every write has one; there is no other way to write.
struct Act {
  std::string actor;       // "user/ada", "service/ci", "system/migration"
  std::string verb;        // "project.create"
  std::string resource;    // "/t/acme/p/flights"
  std::string request_id;  // "" when no API call asked for it
  std::string outcome = "ok";
  std::string details{};  // JSON, or "" for none; kept in the audit record as it is
};

// What a write changed: digests of the thing before and after (nothing = it was not there). Several per write are fine.
struct Effect {
  std::string resource;
  std::optional<Digest> before, after;
};

// The inside of one write: reads see what it wrote so far. If the function that got it throws, nothing of it happened.
class Writer : public Reader {
 public:
  virtual std::int64_t execute(Query query, Params params) = 0;  // rows changed
  std::int64_t execute(Query q, std::initializer_list<Param> params) {
    return execute(q, Params(params.begin(), params.size()));
  }

  // Becomes part of the audit record of this write.
  virtual void record(Effect effect) = 0;
  // Runs once this write is durable and before its caller returns, on a thread that is the only one then; must not
  // throw. For publishing snapshots made from what was written.
  virtual void after_commit(std::function<void()> publish) = 0;
};

// Turns each write into an audit record. Given by governance/audit; called by one thread at a time, inside the
// transaction.
class Ledger {
 public:
  virtual ~Ledger() = default;
  // Called once per write, after its function succeeded.
  virtual void append(Writer& in, const Act& act, std::span<const Effect> effects) = 0;
  // Called once per transaction before it commits, and told whether it did.
  virtual void seal(Writer& in) = 0;
  virtual void committed(bool success) = 0;
};

struct Migration {
  std::int64_t version;     // 1, 2, 3, ... without gaps within a module
  std::string_view module;  // "audit", "iam": each module owns its tables and their history
  std::string_view sql;     // statements separated by ';'
};

// One metadata store over SQLite or PostgreSQL. Thread-safe.
// Errors: conflict (unique or foreign key; also exists is the caller's to decide), unavailable (the server is gone; the
// write did not happen or, after a lost connection during commit, is found out and answered truly), exhausted (too many
// writes waiting), cancelled (stopping), corrupt.
class Database {
 public:
  virtual ~Database() = default;

  // Applies what is missing, in order, each in its own transaction with its row in `migration`; resumable after a
  // kill. Refuses (corrupt) when an applied migration's text has changed, or the database is newer than the program.
  virtual void migrate(std::span<const Migration> migrations) = 0;

  // From now on each write is recorded there. Requires: set once, after migrate, before the first write.
  virtual void set_ledger(Ledger& ledger) = 0;

  // Runs `work` in one transaction shared with other waiting writers, records it, and returns when it is durable.
  // `work` may run more than once (a batch that failed is run again one by one), so it must not have other effects.
  virtual void write_erased(const Act& act, const std::function<void(Writer&)>& work) = 0;
  template <class F>
  auto write(const Act& act, F&& work) -> std::invoke_result_t<F, Writer&> {
    using Result = std::invoke_result_t<F, Writer&>;
    if constexpr (std::is_void_v<Result>) {
      write_erased(act, [&](Writer& w) { work(w); });
    } else {
      std::optional<Result> result;
      write_erased(act, [&](Writer& w) { result.emplace(work(w)); });
      return std::move(*result);
    }
  }

  virtual void read_erased(const std::function<void(Reader&)>& work) = 0;
  template <class F>
  auto read(F&& work) -> std::invoke_result_t<F, Reader&> {
    using Result = std::invoke_result_t<F, Reader&>;
    if constexpr (std::is_void_v<Result>) {
      read_erased([&](Reader& r) { work(r); });
    } else {
      std::optional<Result> result;
      read_erased([&](Reader& r) { result.emplace(work(r)); });
      return std::move(*result);
    }
  }

  // Puts in what dump gave, in one transaction and without audit records: the audit log is part of what is loaded.
  // A row that refers to one of its own table must have the greater key. Requires: migrated, no ledger set.
  // Errors: conflict (not empty, or another schema), invalid.
  virtual void load_into_empty(const std::function<void(TableSink&)>& fill) = 0;

  // What was deleted or overwritten in these tables, in writes that have returned, is in no file of the database any
  // more when it returns; but PostgreSQL keeps it in its own log until that is recycled. Writes the tables anew: for
  // small ones, which no others refer to. Throws unavailable when long reads keep it from that: try again.
  virtual void scrub(std::span<const std::string_view> tables) = 0;

  virtual std::string_view engine() const = 0;  // "sqlite" or "postgresql"
  // Stops taking writes, finishes those taken. Idempotent.
  virtual void stop() = 0;
};

struct Limits {
  std::size_t writes_waiting_max = 4096;  // more are answered with exhausted
  std::size_t writes_per_commit_max = 512;
  std::size_t readers_max = 8;
};

// `path` is the database file, made when missing (mode 0600).
std::unique_ptr<Database> open_sqlite(const std::string& path, Metrics& metrics, Limits limits = {});
// `conninfo` as libpq takes it. Holds an advisory lock: a second control plane on the same database is refused
// (conflict).
std::unique_ptr<Database> open_postgresql(const std::string& conninfo, Metrics& metrics, Limits limits = {});

}  // namespace falaj::sql
