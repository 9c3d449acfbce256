// SPDX-License-Identifier: Apache-2.0
// Answers taken chunk by chunk, and tables filled row by row.
#include <optional>

#include <duckdb/main/appender.hpp>

#include "storage/table/rep.h"

namespace falaj::table {
namespace {

// DuckDB's own exceptions do not leave this directory.
template <class F>
auto translated(F&& f) {
  try {
    return f();
  } catch (const duckdb::Exception& e) {
    throw error_of(duckdb::ErrorData(e));
  }
}

}  // namespace

struct Workspace::Cursor::Rep {
  explicit Rep(Workspace::Rep& room) : of(room), connection(*room.database) {}
  Workspace::Rep& of;
  duckdb::Connection connection;  // of its own: a connection has one answer at a time
  duckdb::unique_ptr<duckdb::PreparedStatement> prepared;
  duckdb::unique_ptr<duckdb::QueryResult> result;
  duckdb::unique_ptr<duckdb::DataChunk> held;
  std::optional<Flattened> flat;
  std::optional<Chunk> chunk;
};

Workspace::Cursor::Cursor(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Workspace::Cursor::Cursor(Cursor&&) noexcept = default;
Workspace::Cursor::~Cursor() = default;

Workspace::Cursor Workspace::open(const std::string& sql, std::span<const Value> values) {
  auto rep = std::make_unique<Cursor::Rep>(*rep_);
  rep->prepared = rep_->prepare(rep->connection, sql);
  rep->result = rep_->start(*rep->prepared, values, {});
  return Cursor(std::move(rep));
}

const Chunk* Workspace::Cursor::next() {
  auto& r = *rep_;
  r.chunk.reset();
  r.flat.reset();
  r.held = r.of.fetch(*r.result, {});
  if (!r.held) return nullptr;
  translated([&] { r.flat.emplace(*r.connection.context, *r.held); });
  r.chunk.emplace(r.flat->chunk());
  return &*r.chunk;
}

struct Workspace::Filler::Rep {
  Rep(Workspace::Rep& room, const std::string& table) : connection(*room.database), appender(connection, table) {}
  duckdb::Connection connection;
  duckdb::Appender appender;
};

Workspace::Filler::Filler(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Workspace::Filler::Filler(Filler&&) noexcept = default;
Workspace::Filler::~Filler() = default;

Workspace::Filler Workspace::fill(const std::string& table) {
  return translated([&] { return Filler(std::make_unique<Filler::Rep>(*rep_, table)); });
}

void Workspace::Filler::null() {
  translated([&] { rep_->appender.Append(nullptr); });
}
void Workspace::Filler::add(std::int64_t value) {
  translated([&] { rep_->appender.Append<int64_t>(value); });
}
void Workspace::Filler::add(double value) {
  translated([&] { rep_->appender.Append<double>(value); });
}
void Workspace::Filler::add(std::string_view value) {
  translated([&] { rep_->appender.Append(value.data(), static_cast<uint32_t>(value.size())); });
}
void Workspace::Filler::end_row() {
  translated([&] { rep_->appender.EndRow(); });
}
void Workspace::Filler::finish() {
  translated([&] { rep_->appender.Close(); });
}

}  // namespace falaj::table
