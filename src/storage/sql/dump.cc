// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/dump.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace falaj::sql {

namespace {

constexpr std::string_view kMigration = "migration";

// Only names that the engine's own catalogue gave are ever quoted into a statement.
std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
  return out;
}

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& column : table.columns) names.push_back(column.name);
  return names;
}

// `migration` first, then each table behind those it refers to.
std::vector<CatalogTable> in_order(std::vector<CatalogTable> tables) {
  std::sort(tables.begin(), tables.end(), [](const auto& a, const auto& b) {
    return std::pair(a.table.name != kMigration, a.table.name) < std::pair(b.table.name != kMigration, b.table.name);
  });
  std::vector<CatalogTable> out;
  std::set<std::string> placed;
  while (!tables.empty()) {
    const auto ready = std::find_if(tables.begin(), tables.end(), [&](const CatalogTable& t) {
      return std::all_of(t.refers_to.begin(), t.refers_to.end(),
                         [&](const std::string& other) { return other == t.table.name || placed.contains(other); });
    });
    if (ready == tables.end()) throw Error(Code::internal, "tables refer to each other in a circle");
    placed.insert(ready->table.name);
    out.push_back(std::move(*ready));
    tables.erase(ready);
  }
  return out;
}

Value value_of(const Row& row, int column, Kind kind) {
  if (row.is_null(column)) return Null{};
  switch (kind) {
    case Kind::integer:
      return row.integer(column);
    case Kind::real:
      return row.real(column);
    case Kind::text:
      return std::string(row.text(column));
    case Kind::bytes:
      return Bytes(row.bytes(column).begin(), row.bytes(column).end());
  }
  return Null{};
}

Param borrow(const Value& value) {
  struct Borrow {
    Param operator()(Null) const { return Null{}; }
    Param operator()(std::int64_t v) const { return v; }
    Param operator()(double v) const { return v; }
    Param operator()(const std::string& v) const { return std::string_view(v); }
    Param operator()(const Bytes& v) const { return BytesView(v); }
  };
  return std::visit(Borrow{}, value);
}

class Loader final : public TableSink {
 public:
  explicit Loader(Connection& connection) : connection_(connection) {
    for (auto& t : connection.catalog()) tables_.emplace(t.table.name, std::move(t.table));
    refuse_rows();
    const EachRow each = [&](const Row& row) {
      migrations_.insert({std::string(row.text(0)), row.integer(1), std::string(row.text(2))});
    };
    connection_.run("SELECT module, version, text FROM migration", {}, &each);
  }

  void table(const Table& table) override {
    const auto found = tables_.find(table.name);
    if (found == tables_.end() || found->second != table)
      throw Error(Code::invalid, "load: this database has no such table, or with other columns: " + table.name);
    into_migration_ = table.name == kMigration;
    std::string marks;
    for (std::size_t i = 0; i < table.columns.size(); ++i) marks += i == 0 ? "?" : ", ?";
    insert_ = fmt::format("INSERT INTO {}({}) VALUES ({})", quoted(table.name), joined(names_of(table)), marks);
    columns_ = table.columns.size();
  }

  void row(std::span<const Value> values) override {
    if (insert_.empty() || values.size() != columns_) throw Error(Code::invalid, "load: a row does not fit its table");
    if (into_migration_) return check_migration(values);
    std::vector<Param> params;
    for (const auto& value : values) params.push_back(borrow(value));
    connection_.run(insert_, params, nullptr);
  }

  void finish() const {
    if (!migrations_.empty()) throw Error(Code::conflict, "load: what is loaded comes from an older program");
  }

 private:
  void refuse_rows() {
    for (const auto& [name, table] : tables_) {
      if (name == kMigration) continue;
      const EachRow each = [&](const Row&) { throw Error(Code::conflict, "load: the database is not empty"); };
      connection_.run(fmt::format("SELECT 1 FROM {} LIMIT 1", quoted(name)), {}, &each);
    }
  }
  // The schema is made by migrating, never by loading: both must have come the same way.
  void check_migration(std::span<const Value> values) {
    const auto* module = std::get_if<std::string>(&values[0]);
    const auto* version = std::get_if<std::int64_t>(&values[1]);
    const auto* text = std::get_if<std::string>(&values[2]);
    if (!module || !version || !text || migrations_.erase({*module, *version, *text}) == 0)
      throw Error(Code::conflict, "load: what is loaded has another schema than this program");
  }

  Connection& connection_;
  std::map<std::string, Table> tables_;
  std::set<std::tuple<std::string, std::int64_t, std::string>> migrations_;
  std::string insert_;
  std::size_t columns_ = 0;
  bool into_migration_ = false;
};

}  // namespace

void dump(Connection& connection, TableSink& into) {
  for (const auto& entry : in_order(connection.catalog())) {
    const auto& table = entry.table;
    into.table(table);
    std::vector<Value> values(table.columns.size());
    auto text = fmt::format("SELECT {} FROM {}", joined(names_of(table)), quoted(table.name));
    if (!entry.key.empty()) text += " ORDER BY " + joined(entry.key);
    connection.stream(text, [&](const Row& row) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = value_of(row, static_cast<int>(i), table.columns[i].kind);
      into.row(values);
    });
  }
}

void load_into_empty(Connection& connection, const std::function<void(TableSink&)>& fill) {
  connection.begin_write();
  try {
    Loader loader(connection);
    fill(loader);
    loader.finish();
    if (!connection.commit()) throw Error(Code::unavailable, "load: the database went away");
  } catch (...) {
    connection.rollback();
    throw;
  }
}

}  // namespace falaj::sql
