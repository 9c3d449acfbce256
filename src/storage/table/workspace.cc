// SPDX-License-Identifier: Apache-2.0
#include "storage/table/workspace.h"

#include <algorithm>

#include <duckdb/common/types/data_chunk.hpp>
#include <duckdb/common/types/string_type.hpp>
#include <duckdb/common/vector_operations/vector_operations.hpp>
#include <duckdb/common/virtual_file_system.hpp>
#include <duckdb/main/config.hpp>
#include <duckdb/main/connection.hpp>
#include <duckdb/main/database.hpp>
#include <duckdb/main/pending_query_result.hpp>
#include <duckdb/main/prepared_statement.hpp>
#include <duckdb/main/query_result.hpp>
#include <duckdb/parser/sql_statement.hpp>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "storage/table/doors.h"

namespace falaj::table {
namespace {

using duckdb::ErrorData;
using duckdb::ExceptionType;
using duckdb::LogicalType;
using duckdb::LogicalTypeId;

// Rows of text are short here: an error that quotes a whole file is of no use.
constexpr std::size_t kMessageBytesMax = 2000;

Code code_of(ExceptionType type) {
  switch (type) {
    case ExceptionType::OUT_OF_MEMORY:
      return Code::exhausted;
    case ExceptionType::INTERRUPT:
      return Code::cancelled;
    case ExceptionType::FATAL:
    case ExceptionType::INTERNAL:
    case ExceptionType::NULL_POINTER:
      return Code::internal;
    case ExceptionType::PERMISSION:
    case ExceptionType::MISSING_EXTENSION:
    case ExceptionType::AUTOLOAD:
      return Code::denied;
    default:
      return Code::invalid;  // the SQL, or data that it does not fit
  }
}

Error error_of(const ErrorData& data) {
  auto message = data.RawMessage();
  if (message.size() > kMessageBytesMax) message = message.substr(0, kMessageBytesMax) + "...";
  return Error(code_of(data.Type()), std::move(message));
}

// What a type of DuckDB's is here.
Type type_of(const LogicalType& type) {
  switch (type.id()) {
    case LogicalTypeId::BOOLEAN:
      return Type::boolean;
    case LogicalTypeId::TINYINT:
    case LogicalTypeId::SMALLINT:
    case LogicalTypeId::INTEGER:
    case LogicalTypeId::UTINYINT:
    case LogicalTypeId::USMALLINT:
      return Type::int32;
    case LogicalTypeId::UINTEGER:
    case LogicalTypeId::BIGINT:
    case LogicalTypeId::UBIGINT:
    case LogicalTypeId::HUGEINT:  // sums of integers: beyond 64 bits the cast says so
    case LogicalTypeId::UHUGEINT:
      return Type::int64;
    case LogicalTypeId::FLOAT:
      return Type::float32;
    case LogicalTypeId::DOUBLE:
    case LogicalTypeId::DECIMAL:
      return Type::float64;
    case LogicalTypeId::BLOB:
      return Type::bytes;
    case LogicalTypeId::DATE:
      return Type::date;
    case LogicalTypeId::TIMESTAMP:
    case LogicalTypeId::TIMESTAMP_SEC:
    case LogicalTypeId::TIMESTAMP_MS:
    case LogicalTypeId::TIMESTAMP_NS:
    case LogicalTypeId::TIMESTAMP_TZ:
      return Type::timestamp;
    default:
      return Type::text;
  }
}

LogicalType logical(Type type) {
  switch (type) {
    case Type::boolean:
      return LogicalType::BOOLEAN;
    case Type::int32:
      return LogicalType::INTEGER;
    case Type::int64:
      return LogicalType::BIGINT;
    case Type::float32:
      return LogicalType::FLOAT;
    case Type::float64:
      return LogicalType::DOUBLE;
    case Type::text:
      return LogicalType::VARCHAR;
    case Type::bytes:
      return LogicalType::BLOB;
    case Type::date:
      return LogicalType::DATE;
    case Type::timestamp:
      return LogicalType::TIMESTAMP;
  }
  CHECK(false, "every type is here");
  return LogicalType::VARCHAR;
}

duckdb::Value value_of(const Value& value) {
  struct Visit {
    duckdb::Value operator()(std::monostate) const { return duckdb::Value(); }
    duckdb::Value operator()(bool v) const { return duckdb::Value::BOOLEAN(v); }
    duckdb::Value operator()(std::int64_t v) const { return duckdb::Value::BIGINT(v); }
    duckdb::Value operator()(double v) const { return duckdb::Value::DOUBLE(v); }
    duckdb::Value operator()(const std::string& v) const { return duckdb::Value(v); }
  };
  return std::visit(Visit{}, value);
}

// The columns of a chunk as plain arrays of our types; holds what had to be converted.
class Flattened {
 public:
  Flattened(duckdb::ClientContext& context, duckdb::DataChunk& chunk) : rows_(chunk.size()) {
    for (auto& vector : chunk.data) {
      const auto type = type_of(vector.GetType());
      if (vector.GetType().id() != logical(type).id()) {
        auto converted = duckdb::make_uniq<duckdb::Vector>(logical(type), std::max<duckdb::idx_t>(rows_, 1));
        duckdb::VectorOperations::Cast(context, vector, *converted, rows_);
        converted_.push_back(std::move(converted));
        add(type, *converted_.back());
      } else {
        add(type, vector);
      }
    }
  }
  Chunk chunk() const { return {columns_, rows_}; }

 private:
  void add(Type type, duckdb::Vector& vector) {
    vector.Flatten(rows_);
    columns_.push_back({type, duckdb::FlatVector::GetData(vector), duckdb::FlatVector::Validity(vector).GetData()});
  }
  const std::size_t rows_;
  std::vector<duckdb::unique_ptr<duckdb::Vector>> converted_;
  std::vector<Chunk::Vector> columns_;
};

void configure(duckdb::DBConfig& config, const Limits& limits, const std::shared_ptr<DoorList>& doors) {
  config.file_system = duckdb::make_uniq<duckdb::VirtualFileSystem>(duckdb::make_uniq<DoorFileSystem>(doors));
  auto& options = config.options;
  options.maximum_memory = limits.memory_bytes;
  options.maximum_threads = limits.threads;
  options.use_temporary_directory = true;
  options.temporary_directory = kSpillDirectory;
  options.maximum_swap_space = limits.spill_bytes;
  options.autoload_known_extensions = false;
  options.autoinstall_known_extensions = false;
  options.allow_community_extensions = false;
  options.allow_unsigned_extensions = false;
}

}  // namespace

std::string_view Chunk::text(std::size_t column, std::size_t row) const {
  const auto& value = static_cast<const duckdb::string_t*>(columns_[column].values)[row];
  return {value.GetData(), value.GetSize()};
}

double Chunk::real(std::size_t column, std::size_t row) const {
  switch (type(column)) {
    case Type::float32:
      return as<float>(column)[row];
    case Type::float64:
      return as<double>(column)[row];
    default:
      return static_cast<double>(integer(column, row));
  }
}

std::int64_t Chunk::integer(std::size_t column, std::size_t row) const {
  switch (type(column)) {
    case Type::boolean:
      return as<bool>(column)[row];
    case Type::int32:
    case Type::date:
      return as<std::int32_t>(column)[row];
    case Type::int64:
    case Type::timestamp:
      return as<std::int64_t>(column)[row];
    default:
      throw Error(Code::internal, fmt::format("a column of {} is not made of integers", name(type(column))));
  }
}

std::shared_ptr<Sink> sink_to(std::function<void(BytesView)> put) {
  struct To final : Sink {
    explicit To(std::function<void(BytesView)> f) : put(std::move(f)) {}
    void write(BytesView bytes) override { put(bytes); }
    const std::function<void(BytesView)> put;
  };
  return std::make_shared<To>(std::move(put));
}

struct Workspace::Rep {
  Rep(const Limits& limits, sys::Files& scratch)
      : doors(std::make_shared<DoorList>(scratch, limits.spill_bytes)), database(open(limits)), connection(*database) {}

  std::unique_ptr<duckdb::DuckDB> open(const Limits& limits) const {
    duckdb::DBConfig config;
    configure(config, limits, doors);
    return std::make_unique<duckdb::DuckDB>(nullptr, &config);
  }

  const std::shared_ptr<DoorList> doors;
  const std::unique_ptr<duckdb::DuckDB> database;
  duckdb::Connection connection;
  bool confined = false;

  // The error of a door, if one was the cause, else DuckDB's own.
  [[noreturn]] void fail(const ErrorData& data) {
    if (const auto thrown = doors->take_thrown()) std::rethrow_exception(thrown);
    throw error_of(data);
  }

  duckdb::unique_ptr<duckdb::SQLStatement> parse(const std::string& sql) {
    doors->take_thrown();
    duckdb::vector<duckdb::unique_ptr<duckdb::SQLStatement>> statements;
    try {
      statements = connection.ExtractStatements(sql);
    } catch (const std::exception& e) {
      throw error_of(ErrorData(e));
    }
    if (statements.size() != 1)
      throw Error(Code::invalid, fmt::format("one statement is expected, not {}", statements.size()));
    return std::move(statements.front());
  }

  duckdb::unique_ptr<duckdb::PreparedStatement> prepare(const std::string& sql) {
    auto prepared = connection.Prepare(parse(sql));
    if (prepared->HasError()) fail(prepared->error);
    // After binding: what stands in the text may have been a SELECT and more than that.
    if (confined && (prepared->GetStatementType() != duckdb::StatementType::SELECT_STATEMENT ||
                     !prepared->GetStatementProperties().IsReadOnly()))
      throw Error(Code::denied, "only a SELECT that reads is allowed here");
    return prepared;
  }

  // Runs until there is a first chunk, or all is done; the watch is called between the engine's pieces of work.
  duckdb::unique_ptr<duckdb::QueryResult> start(duckdb::PreparedStatement& prepared, std::span<const Value> values,
                                                const Watch& watch) {
    duckdb::vector<duckdb::Value> bound;
    for (const auto& value : values) bound.push_back(value_of(value));
    auto pending = prepared.PendingQuery(bound, true);
    if (pending->HasError()) fail(pending->GetErrorObject());
    for (;;) {
      const auto state = pending->ExecuteTask();
      if (state == duckdb::PendingExecutionResult::EXECUTION_ERROR) fail(pending->GetErrorObject());
      if (duckdb::PendingQueryResult::IsResultReady(state)) break;
      try {
        check(watch);
      } catch (...) {
        stop(*pending);
        throw;
      }
    }
    auto result = pending->Execute();
    if (result->HasError()) fail(result->GetErrorObject());
    return result;
  }

  // The engine's threads work on a statement until they have heard of its end; before that it must not go.
  void stop(duckdb::PendingQueryResult& pending) {
    connection.Interrupt();
    for (;;) {
      const auto state = pending.ExecuteTask();
      if (state == duckdb::PendingExecutionResult::EXECUTION_ERROR || duckdb::PendingQueryResult::IsResultReady(state))
        return;
    }
  }

  void check(const Watch& watch) {
    if (!watch) return;
    const auto done = connection.GetQueryProgress();
    watch(done < 0 ? -1 : done / 100);
  }
};

Workspace::Workspace(const Limits& limits, sys::Files& scratch) {
  try {
    rep_ = std::make_unique<Rep>(limits, scratch);
  } catch (const duckdb::Exception& e) {
    throw error_of(ErrorData(e));
  }
  run("SET enable_progress_bar = true");
  run("SET enable_progress_bar_print = false");
  run("SET TimeZone = 'UTC'");
  run("SET preserve_insertion_order = true");
}
Workspace::~Workspace() = default;

void Workspace::put(std::string name, std::shared_ptr<const Source> source) {
  rep_->doors->put(std::move(name), std::move(source));
}
void Workspace::put(std::string name, std::shared_ptr<Sink> sink) {
  rep_->doors->put(std::move(name), std::move(sink));
}
void Workspace::drop(const std::string& name) { rep_->doors->drop(name); }

void Workspace::run(const std::string& sql, std::span<const Value> values, const Watch& watch) {
  query(
      sql, values, [](const Chunk&) { return true; }, watch);
}

Schema Workspace::query(const std::string& sql, std::span<const Value> values,
                        const std::function<bool(const Chunk&)>& each, const Watch& watch) {
  auto& rep = *rep_;
  const auto prepared = rep.prepare(sql);
  const auto result = rep.start(*prepared, values, watch);
  Schema schema;
  for (std::size_t i = 0; i < result->names.size(); ++i)
    schema.push_back({result->names[i], type_of(result->types[i]), true});
  for (;;) {
    duckdb::unique_ptr<duckdb::DataChunk> chunk;
    ErrorData error;
    if (!result->TryFetch(chunk, error)) rep.fail(error);
    if (!chunk || chunk->size() == 0) break;
    rep.check(watch);
    std::optional<Flattened> flat;
    try {
      flat.emplace(*rep.connection.context, *chunk);
    } catch (const duckdb::Exception& e) {
      throw error_of(ErrorData(e));
    }
    if (!each(flat->chunk())) break;
  }
  return schema;
}

Schema Workspace::describe(const std::string& sql) {
  const auto prepared = rep_->prepare(sql);
  Schema schema;
  for (std::size_t i = 0; i < prepared->ColumnCount(); ++i)
    schema.push_back({prepared->GetNames()[i], type_of(prepared->GetTypes()[i]), true});
  return schema;
}

std::optional<std::string> Workspace::missing_table(const std::string& sql) {
  auto& rep = *rep_;
  const auto prepared = rep.connection.Prepare(rep.parse(sql));
  if (!prepared->HasError()) return std::nullopt;
  const auto& about = prepared->error.ExtraInfo();
  const auto type = about.find("type"), name = about.find("name");
  if (prepared->error.Type() != ExceptionType::CATALOG || type == about.end() || name == about.end() ||
      type->second != "Table")
    rep.fail(prepared->error);
  return name->second;
}

void Workspace::confine() {
  std::string allowed;
  for (const auto& name : rep_->doors->sources()) allowed += (allowed.empty() ? "" : ", ") + literal(name);
  run("SET allowed_paths = [" + allowed + "]");
  run("SET enable_external_access = false");
  run("SET lock_configuration = true");
  rep_->confined = true;
}

void Workspace::interrupt() { rep_->connection.Interrupt(); }

}  // namespace falaj::table
