// SPDX-License-Identifier: Apache-2.0
// Steps that make or judge versions of datasets: sql, trainSet, ingest, check.

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/features/features.h"
#include "lifecycle/flow/steps.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::flow {
namespace {

constexpr std::size_t kQueryTablesMax = 100, kSaidFailures = 5;

Done made(const data::Version& version) {
  return {Done::How::succeeded, fmt::format("{}@{}, {} rows", version.dataset, version.number, version.rows),
          json::object{{"dataset", fmt::format("{}@{}", version.dataset, version.number)},
                       {"name", version.dataset},
                       {"version", version.number},
                       {"rows", version.rows},
                       {"digest", version.id.hex()}},
          "", false};
}

// Names of what a query reads, as it writes them. Opens each in the room as `version_of` says.
void open_tables(data::Datasets& datasets, table::Workspace& room, const Where& where, const std::string& query,
                 const std::function<data::Version(const std::string& table)>& version_of) {
  room.check_user_sql(query);
  std::size_t many = 0;
  std::string last;
  while (const auto table = room.missing_table(query)) {
    if (++many > kQueryTablesMax || *table == last)
      throw Error(Code::invalid, fmt::format("query: '{}': a dataset is named alone, and there are at most {}", *table,
                                             kQueryTablesMax));
    last = *table;
    datasets.open(room, where, version_of(*table), *table);
  }
}

table::Workspace::Watch within(const sys::Clock& clock, const Task& task) {
  if (task.time_limit_us == 0) return {};
  return [&clock, end = clock.now() + sys::Micros(task.time_limit_us), limit = task.time_limit_us](double) {
    if (clock.now() > end)
      throw Error(Code::deadline, fmt::format("took longer than {} and was stopped", format_duration_us(limit)));
  };
}

}  // namespace

data::Version Steps::pinned(const Task& task, const std::string& name) const {
  const auto named = data::parse_version_name(name);
  require(task, "dataset.read", scope_of(task, "dataset", named.name));
  return parts_.datasets.version(task.where, named.name, named.number);
}

void Steps::declare_dataset(const Task& task, const std::string& name, const table::Schema& schema) const {
  try {
    parts_.datasets.spec(task.where, name);
    return;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  json::array columns;
  for (const auto& column : schema)
    columns.push_back(json::object{{"name", column.name}, {"type", table::name(column.type)}});
  const json::object resource{
      {"apiVersion", resource::kApiVersion},
      {"kind", "Dataset"},
      {"metadata",
       json::object{{"tenant", task.where.tenant.str()}, {"project", task.where.project.str()}, {"name", name}}},
      {"spec", json::object{{"columns", std::move(columns)}}}};
  const resource::Document documents[] = {resource::json_document("step " + task.step, resource)};
  auto act = act_of(task, "");
  act.resource = "";
  parts_.resources.apply(act, documents, authorise(task));
}

// ---- sql

Settled Steps::settle_sql(const Task& task) const {
  auto body = decode<SqlBody>(task.body, "sql");
  require(task, "dataset.write", scope_of(task, "dataset", body.into));
  json::object digests;
  const auto room = parts_.datasets.room();
  open_tables(parts_.datasets, *room, task.where, body.query, [&](const std::string& table) {
    const auto version = pinned(task, table);
    body.tables[table] = version.number;
    digests[table] = version.id.hex();
    return version;
  });
  return {encode(body), json::object{{"tables", std::move(digests)}}, std::nullopt};
}

Done Steps::run_sql(const Task& task) const {
  const auto body = decode<SqlBody>(task.body, "sql");
  const auto room = parts_.datasets.room();
  data::Finish how{data::Format::parquet, *data::parse_mode(body.mode), "", "", {}, {}};
  open_tables(parts_.datasets, *room, task.where, body.query, [&](const std::string& table) {
    const auto version =
        parts_.datasets.version(task.where, data::parse_version_name(table).name, body.tables.at(table));
    how.inputs.push_back({version.dataset, version.row, version.number});
    how.source += fmt::format("{}{}@{}", how.source.empty() ? "query of " : ", ", version.dataset, version.number);
    return version;
  });
  const auto act = act_of(task, "dataset.write");
  declare_dataset(task, body.into, room->describe(body.query));
  // The version and that this step made it are one write.
  how.upload = parts_.datasets.begin(task.where, body.into, act, task.id());
  if (const auto done = parts_.datasets.finished(task.where, body.into, how.upload)) return made(*done);
  return made(parts_.datasets.store(task.where, body.into, *room, body.query, how, act, within(parts_.clock, task)));
}

// ---- trainSet

Settled Steps::settle_train_set(const Task& task) const {
  auto body = decode<TrainSetBody>(task.body, "trainSet");
  require(task, "dataset.write");
  require(task, "dataset.read");
  const auto spine = pinned(task, body.spine);
  body.spine = fmt::format("{}@{}", spine.dataset, spine.number);
  json::object views;
  for (const auto& selected : *parts_.online.definitions().select_service(task.where, body.service)) {
    const auto& from = *selected.from;
    json::object view{{"revision", from.revision}, {"features", json::value_from(selected.features)}};
    if (!from.spec.dataset.empty())
      view["rows"] = parts_.datasets.version(task.where, from.spec.dataset, std::nullopt).id.hex();
    views[from.name] = std::move(view);
  }
  return {encode(body), json::object{{"spine", spine.id.hex()}, {"views", std::move(views)}}, std::nullopt};
}

Done Steps::make_train_set(const Task& task) const {
  const auto body = decode<TrainSetBody>(task.body, "trainSet");
  features::Features features(parts_.database, parts_.resources, parts_.datasets, parts_.online.definitions());
  features::TrainSet wanted{body.service, data::parse_version_name(body.spine), body.time, body.into, task.id()};
  return made(features.train_set(task.where, wanted, authorise(task), act_of(task, "features.train_set"),
                                 within(parts_.clock, task)));
}

// ---- ingest

vault::Entry Steps::source_of(const Task& task) const {
  const auto body = decode<IngestBody>(task.body, "ingest");
  require(task, "dataset.write", scope_of(task, "dataset", body.into));
  if (!body.blob.empty()) {
    require(task, "blob.read");
    if (body.blob.starts_with('@')) throw Error(Code::not_found, fmt::format("no blob '{}'", body.blob));
    return parts_.vault.info(task.where, body.blob);
  }
  require(task, "run.read");
  const auto slash = body.artifact.find('/');
  if (slash == std::string::npos) throw Error(Code::invalid, "artifact: must be RUN/path");
  const auto run = body.artifact.substr(0, slash);
  parts_.track.run_info(task.where, run);  // of this project
  return parts_.vault.info(task.where,
                           track::run_artifact(run, track::checked_artifact_path(body.artifact.substr(slash + 1))));
}

Settled Steps::settle_ingest(const Task& task) const {
  return {task.body, json::object{{"content", source_of(task).content.hex()}}, std::nullopt};
}

Done Steps::ingest(const Task& task) const {
  const auto body = decode<IngestBody>(task.body, "ingest");
  const auto act = act_of(task, "dataset.write");
  parts_.datasets.spec(task.where, body.into);
  const auto upload = parts_.datasets.begin(task.where, body.into, act, task.id());
  if (const auto done = parts_.datasets.finished(task.where, body.into, upload)) return made(*done);
  const auto entry = source_of(task);
  std::shared_ptr<blob::ObjectReader> reader = parts_.vault.open(task.where, entry, 0, entry.bytes);
  auto left = std::make_shared<Bytes>();
  const blob::Source source = [reader, left](std::span<std::byte> out) -> std::size_t {
    if (left->empty()) *left = reader->next();
    const auto n = std::min(out.size(), left->size());
    std::copy_n(left->begin(), n, out.begin());
    left->erase(left->begin(), left->begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  };
  parts_.datasets.put_part(task.where, body.into, upload, 0, source, act);
  data::Finish how{*data::parse_format(body.format),
                   *data::parse_mode(body.mode),
                   body.blob.empty() ? body.artifact : body.blob,
                   "",
                   {},
                   {}};
  return made(parts_.datasets.finish(task.where, body.into, upload, how, act, within(parts_.clock, task)));
}

// ---- check

std::vector<std::pair<std::string, data::ExpectationSpec>> Steps::expectations_of(const Task& task,
                                                                                  const std::string& dataset) const {
  std::vector<std::pair<std::string, data::ExpectationSpec>> out;
  resource::ListOptions options{task.where.tenant.str(), task.where.project.str(), "", "", 1000};
  do {
    const auto page =
        parts_.resources.list("Expectation", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) {
      auto spec = decode<data::ExpectationSpec>(stored.resource.spec, "expectation");
      if (spec.dataset == dataset) out.emplace_back(stored.resource.metadata.name, std::move(spec));
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

Settled Steps::settle_check(const Task& task) const {
  auto body = decode<CheckBody>(task.body, "check");
  const auto version = pinned(task, body.dataset);
  body.dataset = fmt::format("{}@{}", version.dataset, version.number);
  json::object rules;
  for (const auto& [name, spec] : expectations_of(task, version.dataset)) {
    // How old rows are depends on when one asks.
    for (const auto& rule : spec.rules)
      if (rule.check == "freshness") return {encode(body), nullptr, std::nullopt};
    rules[name] = encode(spec);
  }
  return {encode(body), json::object{{"rows", version.id.hex()}, {"rules", std::move(rules)}}, std::nullopt};
}

Done Steps::check(const Task& task) const {
  const auto body = decode<CheckBody>(task.body, "check");
  const auto named = data::parse_version_name(body.dataset);
  const auto version = parts_.datasets.version(task.where, named.name, named.number);
  const auto room = parts_.datasets.room();
  parts_.datasets.open(*room, task.where, version, "version rows");
  room->run("CREATE TEMP TABLE staged AS SELECT * FROM \"version rows\"", {}, within(parts_.clock, task));
  data::Checked in{*room, "staged", "", "", parts_.clock.wall().count(), within(parts_.clock, task)};
  std::int64_t rules = 0, failed = 0;
  std::vector<std::string> said;
  for (const auto& [name, spec] : expectations_of(task, named.name)) {
    if (spec.action == "warn" && !body.warnings) continue;
    for (const auto& rule : spec.rules) {
      in.reference.clear();
      if (rule.check == "distribution") {
        const auto reference = rule.version.value_or(version.number - 1);
        if (reference < 1) continue;  // nothing came before it
        in.reference = "reference";
        parts_.datasets.open(*room, task.where, parts_.datasets.version(task.where, named.name, reference),
                             "reference");
      }
      const auto result = data::run_rule(in, rule);
      ++rules;
      if (result.held) continue;
      ++failed;
      if (said.size() < kSaidFailures) said.push_back(fmt::format("{}: {}", name, result.said));
    }
  }
  json::object outputs{{"dataset", body.dataset}, {"rules", rules}, {"failed", failed}};
  if (failed == 0) return {Done::How::succeeded, fmt::format("{} rules hold", rules), std::move(outputs), "", false};
  return {Done::How::failed, fmt::format("{} of {} rules do not hold: {}", failed, rules, fmt::join(said, "; ")),
          std::move(outputs), "", false};
}

}  // namespace falaj::flow
