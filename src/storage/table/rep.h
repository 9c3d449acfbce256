// SPDX-License-Identifier: Apache-2.0
// Private to storage/table: DuckDB behind a workspace, its cursors and its fillers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <duckdb/common/types/data_chunk.hpp>
#include <duckdb/main/config.hpp>
#include <duckdb/main/connection.hpp>
#include <duckdb/main/database.hpp>
#include <duckdb/main/pending_query_result.hpp>
#include <duckdb/main/prepared_statement.hpp>
#include <duckdb/main/query_result.hpp>
#include <duckdb/parser/sql_statement.hpp>

#include "foundation/base/error.h"
#include "storage/table/doors.h"
#include "storage/table/workspace.h"

namespace falaj::table {

Error error_of(const duckdb::ErrorData& data);
Type type_of(const duckdb::LogicalType& type);  // what a type of DuckDB's is here
duckdb::LogicalType logical(Type type);

// The columns of a chunk as plain arrays of our types; holds what had to be converted.
class Flattened {
 public:
  Flattened(duckdb::ClientContext& context, duckdb::DataChunk& chunk);
  Chunk chunk() const { return {columns_, rows_}; }

 private:
  void add(Type type, duckdb::Vector& vector);
  const std::size_t rows_;
  std::vector<duckdb::unique_ptr<duckdb::Vector>> converted_;
  std::vector<Chunk::Vector> columns_;
};

struct Workspace::Rep {
  Rep(const Limits& limits, sys::Files& scratch);

  // The error of a door, if one was the cause, else DuckDB's own.
  [[noreturn]] void fail(const duckdb::ErrorData& data);
  duckdb::unique_ptr<duckdb::SQLStatement> parse(const std::string& sql);
  duckdb::unique_ptr<duckdb::PreparedStatement> prepare(duckdb::Connection& on, const std::string& sql);
  // Runs until there is a first chunk, or all is done; the watch is called between the engine's pieces of work.
  duckdb::unique_ptr<duckdb::QueryResult> start(duckdb::PreparedStatement& prepared, std::span<const Value> values,
                                                const Watch& watch);
  void check(const Watch& watch);
  // The engine's threads work on a statement until they have heard of its end; before that it must not go.
  void stop(duckdb::PendingQueryResult& pending);
  // The next rows of an answer; null at its end. The watch is called while they are long in coming.
  duckdb::unique_ptr<duckdb::DataChunk> fetch(duckdb::QueryResult& result, const Watch& watch);

  const std::uint64_t memory_bytes;
  const std::shared_ptr<DoorList> doors;
  const std::unique_ptr<duckdb::DuckDB> database;
  duckdb::Connection connection;
  bool confined = false;
};

}  // namespace falaj::table
