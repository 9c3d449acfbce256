// SPDX-License-Identifier: Apache-2.0
#include "storage/table/workspace.h"

#include <algorithm>

#include <duckdb/common/types/string_type.hpp>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "storage/table/rep.h"

namespace falaj::table {

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

Workspace::Workspace(const Limits& limits, sys::Files& scratch) {
  try {
    rep_ = std::make_unique<Rep>(limits, scratch);
  } catch (const duckdb::Exception& e) {
    throw error_of(duckdb::ErrorData(e));
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
std::uint64_t Workspace::memory_bytes() const { return rep_->memory_bytes; }

void Workspace::run(const std::string& sql, std::span<const Value> values, const Watch& watch) {
  query(
      sql, values, [](const Chunk&) { return true; }, watch);
}

Schema Workspace::query(const std::string& sql, std::span<const Value> values,
                        const std::function<bool(const Chunk&)>& each, const Watch& watch) {
  auto& rep = *rep_;
  const auto prepared = rep.prepare(rep.connection, sql);
  const auto result = rep.start(*prepared, values, watch);
  Schema schema;
  for (std::size_t i = 0; i < result->names.size(); ++i)
    schema.push_back({result->names[i], type_of(result->types[i]), true});
  for (;;) {
    const auto chunk = rep.fetch(*result, watch);
    if (!chunk) break;
    rep.check(watch);
    std::optional<Flattened> flat;
    try {
      flat.emplace(*rep.connection.context, *chunk);
    } catch (const duckdb::Exception& e) {
      throw error_of(duckdb::ErrorData(e));
    }
    if (!each(flat->chunk())) break;
  }
  return schema;
}

Schema Workspace::describe(const std::string& sql) {
  const auto prepared = rep_->prepare(rep_->connection, sql);
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
  if (prepared->error.Type() != duckdb::ExceptionType::CATALOG || type == about.end() || name == about.end() ||
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

}  // namespace falaj::table
