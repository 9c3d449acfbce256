// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/dataset_kind.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lifecycle/data/tables.h"

namespace falaj::data {
namespace {

void check_names(const DatasetSpec& spec, Faults& faults) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < spec.columns.size(); ++i) {
    const auto at = fmt::format("spec.columns[{}].name", i);
    // DuckDB, like SQL, does not tell 'Delay' from 'delay'.
    if (!seen.insert(lower(spec.columns[i].name)).second)
      faults.push_back(
          {at, fmt::format("'{}' is there twice; upper and lower case are the same", spec.columns[i].name)});
    if (std::any_of(spec.columns[i].name.begin(), spec.columns[i].name.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
      faults.push_back({at, "must not hold control characters"});
  }
}

void check_column(const table::Schema& schema, const std::string& name, std::string_view field, Faults& faults) {
  if (!table::find(schema, name))
    faults.push_back({std::string(field), fmt::format("'{}' is none of the columns", name)});
}

void check(const resource::World&, const resource::Metadata&, const DatasetSpec& spec, Faults& faults) {
  check_names(spec, faults);
  const auto schema = spec.schema();
  for (const auto& name : spec.key) check_column(schema, name, "spec.key", faults);
  if (!spec.time.empty()) {
    const auto* time = table::find(schema, spec.time);
    if (!time || (time->type != table::Type::timestamp && time->type != table::Type::date))
      faults.push_back({"spec.time", fmt::format("'{}' is not a column of type timestamp or date", spec.time)});
  } else if (spec.partition != "none") {
    faults.push_back({"spec.partition", "needs spec.time, the column to cut by"});
  }
  if (spec.personal) check_column(schema, spec.personal->subject_key, "spec.personal.subjectKey", faults);
}

void changed(const resource::ChangeOf<DatasetSpec>& c) {
  const auto& m = c.metadata;
  if (c.before && c.after && c.after->major <= c.before->major)
    if (const auto faults = breaking(c.before->schema(), c.after->schema()); !faults.empty())
      throw Error(Code::invalid, fmt::format("spec.columns: {}; raise spec.major to {} if that is meant",
                                             fmt::join(faults, "; "), c.before->major + 1));
  if (!c.before) return add_dataset(c.writer, m.tenant, m.project, m.name);
  if (!c.after) remove_empty_dataset(c.writer, m.tenant, m.project, m.name);
}

}  // namespace

std::vector<std::string> breaking(const table::Schema& before, const table::Schema& after) {
  std::vector<std::string> out;
  for (const auto& old : before) {
    const auto* now = table::find(after, old.name);
    if (!now)
      out.push_back(fmt::format("'{}' is gone", old.name));
    else if (now->type != old.type)
      out.push_back(fmt::format("'{}' is {} and was {}", old.name, table::name(now->type), table::name(old.type)));
    else if (!now->nullable && old.nullable)
      out.push_back(fmt::format("'{}' may not be missing any more", old.name));
  }
  for (const auto& now : after)
    if (!now.nullable && !table::find(before, now.name))
      out.push_back(fmt::format("'{}' is new and older rows do not have it: it must be nullable", now.name));
  return out;
}

resource::Kind dataset_kind() {
  resource::KindOf<DatasetSpec> kind{
      "Dataset", "datasets", "Rows of one shape, kept in versions that never change.", {.project = true}, check,
      {},        changed};
  return resource::make_kind(std::move(kind));
}

}  // namespace falaj::data
