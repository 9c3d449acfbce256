// SPDX-License-Identifier: Apache-2.0
#include "storage/table/rep.h"

#include <algorithm>
#include <chrono>
#include <future>

#include <duckdb/common/vector_operations/vector_operations.hpp>
#include <duckdb/common/virtual_file_system.hpp>

#include <fmt/format.h>

namespace falaj::table {
namespace {

using duckdb::ErrorData;
using duckdb::ExceptionType;
using duckdb::LogicalType;
using duckdb::LogicalTypeId;

// Rows of text are short here: an error that quotes a whole file is of no use.
constexpr std::size_t kMessageBytesMax = 2000;
constexpr std::chrono::milliseconds kWatchEvery{20};

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

std::unique_ptr<duckdb::DuckDB> open_database(const Limits& limits, const std::shared_ptr<DoorList>& doors) {
  duckdb::DBConfig config;
  configure(config, limits, doors);
  return std::make_unique<duckdb::DuckDB>(nullptr, &config);
}

}  // namespace

Error error_of(const ErrorData& data) {
  auto message = data.RawMessage();
  std::replace(message.begin(), message.end(), '\n', ' ');  // it ends up in one line of JSON, of a log, of a table
  if (message.size() > kMessageBytesMax) message = message.substr(0, kMessageBytesMax) + "...";
  return Error(code_of(data.Type()), std::move(message));
}

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

Flattened::Flattened(duckdb::ClientContext& context, duckdb::DataChunk& chunk) : rows_(chunk.size()) {
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

void Flattened::add(Type type, duckdb::Vector& vector) {
  vector.Flatten(rows_);
  columns_.push_back({type, duckdb::FlatVector::GetData(vector), duckdb::FlatVector::Validity(vector).GetData()});
}

Workspace::Rep::Rep(const Limits& limits, sys::Files& scratch)
    : memory_bytes(limits.memory_bytes),
      doors(std::make_shared<DoorList>(scratch, limits.spill_bytes)),
      database(open_database(limits, doors)),
      connection(*database) {}

void Workspace::Rep::fail(const ErrorData& data) {
  if (const auto thrown = doors->take_thrown()) std::rethrow_exception(thrown);
  throw error_of(data);
}

duckdb::unique_ptr<duckdb::SQLStatement> Workspace::Rep::parse(const std::string& sql) {
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

duckdb::unique_ptr<duckdb::PreparedStatement> Workspace::Rep::prepare(duckdb::Connection& on, const std::string& sql) {
  auto prepared = on.Prepare(parse(sql));
  if (prepared->HasError()) fail(prepared->error);
  // After binding: what stands in the text may have been a SELECT and more than that.
  if (confined && (prepared->GetStatementType() != duckdb::StatementType::SELECT_STATEMENT ||
                   !prepared->GetStatementProperties().IsReadOnly()))
    throw Error(Code::denied, "only a SELECT that reads is allowed here");
  return prepared;
}

duckdb::unique_ptr<duckdb::QueryResult> Workspace::Rep::start(duckdb::PreparedStatement& prepared,
                                                              std::span<const Value> values, const Watch& watch) {
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

void Workspace::Rep::stop(duckdb::PendingQueryResult& pending) {
  connection.Interrupt();
  for (;;) {
    const auto state = pending.ExecuteTask();
    if (state == duckdb::PendingExecutionResult::EXECUTION_ERROR || duckdb::PendingQueryResult::IsResultReady(state))
      return;
  }
}

void Workspace::Rep::check(const Watch& watch) {
  if (!watch) return;
  const auto done = connection.GetQueryProgress();
  watch(done < 0 ? -1 : done / 100);
}

duckdb::unique_ptr<duckdb::DataChunk> Workspace::Rep::fetch(duckdb::QueryResult& result, const Watch& watch) {
  duckdb::unique_ptr<duckdb::DataChunk> chunk;
  ErrorData error;
  const auto next = [&] { return result.TryFetch(chunk, error); };
  if (watch) {
    // The engine comes back when it has many rows, or no more: where few are left of very many that may be never.
    auto fetched = std::async(std::launch::async, next);
    try {
      while (fetched.wait_for(kWatchEvery) != std::future_status::ready) check(watch);
    } catch (...) {
      connection.Interrupt();
      fetched.wait();
      throw;
    }
    if (!fetched.get()) fail(error);
  } else if (!next()) {
    fail(error);
  }
  if (chunk && chunk->size() == 0) chunk.reset();
  return chunk;
}

}  // namespace falaj::table
