// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "foundation/base/bytes.h"
#include "foundation/sys/files.h"
#include "storage/table/schema.h"

namespace falaj::table {

// Bytes that a query reads. Called by several threads at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;  // Requires: within size()
};

// Bytes that a query writes, in their order. What was written is whole only when run() has returned.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(BytesView bytes) = 0;
};

std::shared_ptr<Sink> sink_to(std::function<void(BytesView)> put);

using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;  // monostate: null

// Rows of an answer, column by column. Valid until the callback that got it returns.
class Chunk {
 public:
  struct Vector {
    Type type = Type::text;
    const void* values = nullptr;          // of the type's width; text and bytes by text() only
    const std::uint64_t* valid = nullptr;  // a bit a row; null when all are
  };
  Chunk(std::span<const Vector> columns, std::size_t rows) : columns_(columns), rows_(rows) {}

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_.size(); }
  Type type(std::size_t column) const { return columns_[column].type; }
  bool is_null(std::size_t column, std::size_t row) const {
    const auto* valid = columns_[column].valid;
    return valid && !(valid[row / 64] >> (row % 64) & 1);
  }
  // The column as an array of bool, int32_t (also date), int64_t (also timestamp), float or double. Null rows hold
  // anything.
  template <class T>
  std::span<const T> as(std::size_t column) const {
    return {static_cast<const T*>(columns_[column].values), rows_};
  }
  std::string_view text(std::size_t column, std::size_t row) const;  // also bytes
  // Any type that is a number, a time or a boolean, widened.
  double real(std::size_t column, std::size_t row) const;
  std::int64_t integer(std::size_t column, std::size_t row) const;

 private:
  const std::span<const Vector> columns_;
  const std::size_t rows_;
};

struct Limits {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint64_t spill_bytes = std::uint64_t{64}
                              << 30;  // beyond memory; sealed under a key that dies with the workspace
  unsigned threads = 2;
};

// A columnar engine (DuckDB) of its own, in memory, in a room without doors: it reaches no disk, no network and no
// extension, only the sources and sinks that were put under a name here. read_parquet('name') and
// COPY ... TO 'name' see those; what does not fit into memory goes to a scratch file, encrypted.
// Used by one thread at a time. A statement that is to be stopped is stopped by its watch.
// Errors: invalid (the SQL, or data that does not fit it), exhausted (memory, spill), and whatever a source, a sink or
// a watch threw.
class Workspace {
 public:
  Workspace(const Limits& limits, sys::Files& scratch);
  ~Workspace();

  void put(std::string name, std::shared_ptr<const Source> source);
  void put(std::string name, std::shared_ptr<Sink> sink);
  void drop(const std::string& name);  // a source or sink
  std::uint64_t memory_bytes() const;  // that it may take

  // Called now and then while a statement runs, with how much of it is done (0 to 1, or -1 where that is not known);
  // what it throws stops the statement and is thrown on.
  using Watch = std::function<void(double done)>;

  void run(const std::string& sql, std::span<const Value> values = {}, const Watch& watch = {});
  // Gives the rows in chunks of some thousand; `each` returns false when it has enough.
  Schema query(const std::string& sql, std::span<const Value> values, const std::function<bool(const Chunk&)>& each,
               const Watch& watch = {});
  Schema describe(const std::string& sql);  // the columns it would give
  // A table that the statement needs and that is not here, if there is one; other faults are thrown.
  std::optional<std::string> missing_table(const std::string& sql);

  // The answer of a SELECT, taken chunk by chunk; several may be open at once, beside other statements.
  class Cursor {
   public:
    ~Cursor();
    Cursor(Cursor&&) noexcept;
    const Chunk* next();  // null at the end; valid until the next call

   private:
    friend class Workspace;
    struct Rep;
    explicit Cursor(std::unique_ptr<Rep> rep);
    std::unique_ptr<Rep> rep_;
  };
  Cursor open(const std::string& sql, std::span<const Value> values = {});

  // Rows for a table that is there, value by value.
  class Filler {
   public:
    ~Filler();
    Filler(Filler&&) noexcept;
    void null();
    void add(std::int64_t value);
    void add(double value);
    void add(std::string_view value);
    void end_row();
    void finish();  // all rows are in the table when it returns

   private:
    friend class Workspace;
    struct Rep;
    explicit Filler(std::unique_ptr<Rep> rep);
    std::unique_ptr<Rep> rep_;
  };
  Filler fill(const std::string& table);

  // Before anything else is done with SQL of a user: throws unless it is one SELECT that calls nothing which is known
  // to take the process down (functions that walk JSON as deep as it is), or runs SQL that is hidden in a text.
  void check_user_sql(const std::string& sql);
  // Whether each row of the answer comes of one row of one table, whatever the others are, and will always be the same:
  // then new rows can be looked at alone.
  bool is_row_by_row(const std::string& sql);
  // For SQL of a user: from here on settings are fixed and only one SELECT at a time is taken.
  void confine();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::table
