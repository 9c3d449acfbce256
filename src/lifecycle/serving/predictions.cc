// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/serving/predictions.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::serving {
namespace {

constexpr sql::Migration kPredictionMigrations[] = {
    {1, "predictions",
     "CREATE TABLE predictions_stream(tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " upload TEXT NOT NULL, columns TEXT NOT NULL, began_us BIGINT NOT NULL, bytes BIGINT NOT NULL,"
     " parts BIGINT NOT NULL, PRIMARY KEY(tenant, project, dataset));"
     "CREATE TABLE predictions_segment(segment TEXT PRIMARY KEY, at_us BIGINT NOT NULL);"
     "CREATE INDEX predictions_segment_at ON predictions_segment(at_us);"
     "CREATE TABLE predictions_label(number BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " endpoint TEXT NOT NULL, prediction TEXT NOT NULL, variant TEXT NOT NULL, version BIGINT NOT NULL,"
     " value DOUBLE PRECISION NOT NULL, at_us BIGINT NOT NULL, predicted_us BIGINT NOT NULL, upload TEXT NOT NULL);"
     "CREATE UNIQUE INDEX predictions_label_name ON predictions_label(tenant, project, endpoint, prediction);"
     "CREATE INDEX predictions_label_upload ON predictions_label(upload, number);"
     "CREATE TABLE predictions_sum(tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, labels BIGINT NOT NULL, total DOUBLE PRECISION NOT NULL,"
     " squares DOUBLE PRECISION NOT NULL, PRIMARY KEY(tenant, project, endpoint, variant, version));"
     "CREATE TABLE predictions_experiment(tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,"
     " rule TEXT NOT NULL, since_us BIGINT NOT NULL, PRIMARY KEY(tenant, project, endpoint));"
     "CREATE TABLE predictions_exposure(tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,"
     " variant TEXT NOT NULL, version BIGINT NOT NULL, server TEXT NOT NULL, seen BIGINT NOT NULL,"
     " total BIGINT NOT NULL, PRIMARY KEY(tenant, project, endpoint, variant, version, server))"}};

constexpr std::int64_t kMinuteUs = 60'000'000, kHourUs = 60 * kMinuteUs, kDayUs = 24 * kHourUs;
constexpr std::int64_t kStreamBytesMax = 8 << 20, kStreamBytesSome = 1 << 20;
constexpr std::int64_t kSegmentsKeptUs = 7 * kDayUs;  // their names: nothing is sent again after so long
constexpr std::size_t kFilesMax = 500;                // of a version, before they are put together
constexpr std::string_view kLoggedTypes[] = {"boolean", "int64", "float64", "text", "timestamp"};

const resource::Authorise kForTheLog = [](std::string_view, const iam::Scope&) { return std::optional<std::string>(); };

sql::Act log_act(const Where& where, const std::string& dataset, const char* verb) {
  return {"system/serving", verb, iam::Scope::of(where.tenant.str(), where.project.str(), "dataset", dataset).str(),
          ""};
}

bool fits(const json::value& value, std::string_view type) {
  if (value.is_null()) return true;
  if (type == "boolean") return value.is_bool();
  if (type == "int64") return value.is_int64();
  if (type == "float64") return value.is_number();
  if (type == "timestamp") return value.is_string() && parse_time(std::string_view(value.get_string()));
  return !value.is_structured();
}

// A row as it is kept: what is called otherwise in the dataset is renamed. Throws invalid.
void append_row(std::string& to, std::string_view line, const std::vector<LoggedColumn>& columns,
                const std::vector<std::string>& names) {
  const auto row = parse_json(line);
  const auto refuse = [](std::string_view what) {
    throw Error(Code::invalid, fmt::format("a row of the prediction log {}", what));
  };
  if (!row.is_object()) refuse("is no object");
  const auto& fields = row.get_object();
  const auto* id = fields.if_contains("prediction_id");
  if (!id || !id->is_string()) refuse("has no prediction_id");
  traffic::parse_prediction(id->get_string());
  json::object out;
  std::size_t known = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto* value = fields.if_contains(columns[i].name);
    known += value != nullptr;
    if (value && !fits(*value, columns[i].type))
      refuse(fmt::format("has '{}' that is no {}", columns[i].name, columns[i].type));
    out[names[i]] = value ? *value : json::value(nullptr);
  }
  if (known != fields.size()) refuse("has fields that are no columns");
  to += json::serialize(out);
  to += '\n';
}

void append_rows(std::string& to, const LoggedSegment& segment, const std::vector<LoggedColumn>& columns,
                 const std::vector<std::string>& names) {
  std::int64_t rows = 0;
  for (const auto line : split(segment.lines, '\n')) {
    if (line.empty()) continue;
    append_row(to, line, columns, names);
    ++rows;
  }
  if (rows != segment.rows)
    throw Error(Code::invalid, fmt::format("segment {} has {} rows, not {}", segment.segment, rows, segment.rows));
}

void check_columns_of(const LoggedBatch& batch) {
  Faults faults;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < batch.columns.size(); ++i) {
    const auto& column = batch.columns[i];
    if (!seen.insert(lower(column.name)).second)
      faults.push_back({fmt::format("columns[{}].name", i), fmt::format("'{}' is there twice", column.name)});
    if (std::find(std::begin(kLoggedTypes), std::end(kLoggedTypes), column.type) == std::end(kLoggedTypes))
      faults.push_back({fmt::format("columns[{}].type", i), fmt::format("'{}' is no type of a log", column.type)});
  }
  if (!seen.contains("prediction_id")) faults.push_back({"columns", "prediction_id is missing"});
  refuse_if_any("prediction log", std::move(faults));
}

}  // namespace

std::string predictions_dataset(const std::string& endpoint) { return "predictions-" + endpoint; }
std::string labels_dataset(const std::string& endpoint) { return "labels-" + endpoint; }

std::span<const sql::Migration> PredictionLog::migrations() { return kPredictionMigrations; }

PredictionLog::PredictionLog(Parts parts, Metrics& metrics)
    : parts_(parts),
      rows_(metrics.counter("falaj_serving_log_rows_total", "Rows taken into prediction logs.")),
      lost_(metrics.counter("falaj_serving_log_lost_total", "Uploads of prediction logs that became no version.")),
      labels_(metrics.counter("falaj_serving_labels_total", "Labels of predictions taken.")) {}

// ---- rows on their way into a dataset

std::optional<PredictionLog::Stream> PredictionLog::stream(const Where& where, const std::string& dataset) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT upload, columns, began_us, bytes, parts FROM predictions_stream WHERE tenant = ? AND project = ? AND "
        "dataset = ?",
        {where.tenant.str(), where.project.str(), dataset}, [](const sql::Row& row) {
          return Stream{std::string(row.text(0)), std::string(row.text(1)), row.integer(2), row.integer(3),
                        row.integer(4)};
        });
  });
}

PredictionLog::Stream PredictionLog::begin(const Where& where, const std::string& dataset, const std::string& columns) {
  Stream out;
  out.columns = columns;
  out.began_us = parts_.clock.wall().count();
  const auto act = log_act(where, dataset, "predictions.begin");
  out.upload = parts_.datasets.begin(where, dataset, act);
  parts_.database.write(act, [&](sql::Writer& w) {
    w.execute(
        "INSERT INTO predictions_stream(tenant, project, dataset, upload, columns, began_us, bytes, parts) VALUES (?, "
        "?, ?, ?, ?, ?, 0, 0)",
        {where.tenant.str(), where.project.str(), dataset, out.upload, out.columns, out.began_us});
  });
  return out;
}

// What cannot become a version, as somebody declared the dataset otherwise, is not tried for ever.
void PredictionLog::finish(const Where& where, const std::string& dataset) {
  const auto open = stream(where, dataset);
  if (!open) return;
  const auto act = log_act(where, dataset, "predictions.version");
  try {
    if (open->parts > 0)
      parts_.datasets.finish(where, dataset, open->upload,
                             {data::Format::jsonl, data::Mode::append, "answers of the endpoint", "", {}}, act);
  } catch (const Error& e) {
    if (e.code() != Code::invalid && e.code() != Code::not_found && e.code() != Code::corrupt &&
        e.code() != Code::conflict)
      throw;
    log::error("predictions_lost", {{"dataset", dataset}, {"bytes", open->bytes}, {"why", e.what()}});
    lost_.Increment();
  }
  parts_.database.write(act, [&](sql::Writer& w) {
    w.execute("DELETE FROM predictions_stream WHERE tenant = ? AND project = ? AND dataset = ? AND upload = ?",
              {where.tenant.str(), where.project.str(), dataset, open->upload});
  });
}

// Declares what the dataset lacks. Returns how it calls each column: one that has another type than what was there
// before under its name gets a name of its own.
std::vector<std::string> PredictionLog::declare(const Where& where, const std::string& dataset,
                                                const std::vector<LoggedColumn>& columns) {
  const resource::Key key{"Dataset", where.tenant.str(), where.project.str(), dataset};
  std::optional<resource::Stored> stored;
  try {
    stored = parts_.resources.get(key);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  data::DatasetSpec spec;
  if (stored)
    spec = decode<data::DatasetSpec>(stored->resource.spec, "dataset");
  else
    spec.time = "time", spec.partition = "day";
  bool changed = !stored;
  std::vector<std::string> names;
  for (const auto& column : columns) {
    auto name = column.name;
    for (bool again = false;; again = true) {
      const auto same = [&](const data::ColumnSpec& c) { return lower(c.name) == lower(name); };
      const auto found = std::find_if(spec.columns.begin(), spec.columns.end(), same);
      if (found == spec.columns.end()) {
        spec.columns.push_back({name, column.type, true, ""});
        changed = true;
      } else if (found->type == column.type || found->type == "text" ||
                 (found->type == "float64" && column.type == "int64")) {
        name = found->name;
      } else if (!again) {
        name = fmt::format("{}_{}", column.name, column.type);
        continue;
      } else {
        throw Error(Code::invalid, fmt::format("dataset {}: column {} is {}, and {} is needed", dataset, name,
                                               found->type, column.type));
      }
      break;
    }
    names.push_back(std::move(name));
  }
  if (!changed) return names;
  json::object body{
      {"apiVersion", "falaj/v1"},
      {"kind", "Dataset"},
      {"metadata", json::object{{"name", dataset}, {"tenant", where.tenant.str()}, {"project", where.project.str()}}}};
  if (stored) {
    body = stored->resource.body().as_object();
    body["metadata"].as_object()["revision"] = stored->revision;
  }
  body["spec"] = encode(spec);
  const std::vector<resource::Document> documents = {resource::json_document("predictions", body)};
  parts_.resources.apply(log_act(where, dataset, "predictions.declare"), documents, kForTheLog);
  return names;
}

void PredictionLog::accept(const LoggedBatch& batch) {
  const Where where{TenantName::parse(batch.tenant), ProjectName::parse(batch.project)};
  const auto stored = parts_.resources.get({"Endpoint", batch.tenant, batch.project, batch.endpoint});
  if (!decode<EndpointSpec>(stored.resource.spec, "endpoint").log)
    throw Error(Code::invalid, fmt::format("endpoint {} keeps no log of its predictions (spec.log)", batch.endpoint));
  check_columns_of(batch);
  Lock lock(taking_);
  std::vector<const LoggedSegment*> fresh;
  parts_.database.read([&](sql::Reader& r) {
    for (const auto& segment : batch.segments)
      if (!r.first("SELECT at_us FROM predictions_segment WHERE segment = ?", {segment.segment},
                   [](const sql::Row& row) { return row.integer(0); }))
        fresh.push_back(&segment);
  });
  if (fresh.empty()) return;
  const auto dataset = predictions_dataset(batch.endpoint);
  const auto names = declare(where, dataset, batch.columns);
  std::string lines;
  std::int64_t rows = 0;
  for (const auto* segment : fresh) {
    append_rows(lines, *segment, batch.columns, names);
    rows += segment->rows;
  }
  std::string columns;
  for (const auto& name : names) columns += name + "\n";
  auto open = stream(where, dataset);
  if (open && open->columns != columns) {  // a reader takes the columns of the first rows for those of all
    finish(where, dataset);
    open.reset();
  }
  if (!open) open = begin(where, dataset, columns);
  const auto act = log_act(where, dataset, "predictions.take");
  const auto put = [&] {
    parts_.datasets.put_part(where, dataset, open->upload, open->parts, blob::source_of(as_bytes(lines)), act);
  };
  // A kill after this is repaired by the same part's coming again: until the write below it has no name.
  try {
    put();
  } catch (const Error& e) {
    if (e.code() != Code::conflict && e.code() != Code::not_found) throw;
    finish(where, dataset);  // a kill left it finished, or an erasure gave it up
    open = begin(where, dataset, columns);
    put();
  }
  parts_.database.write(act, [&](sql::Writer& w) {
    for (const auto* segment : fresh)
      w.execute("INSERT INTO predictions_segment(segment, at_us) VALUES (?, ?)",
                {segment->segment, parts_.clock.wall().count()});
    w.execute("UPDATE predictions_stream SET parts = ?, bytes = ? WHERE tenant = ? AND project = ? AND dataset = ?",
              {open->parts + 1, open->bytes + static_cast<std::int64_t>(lines.size()), where.tenant.str(),
               where.project.str(), dataset});
  });
  rows_.Increment(static_cast<double>(rows));
}

void PredictionLog::flush(const Where& where, const std::string& endpoint) {
  Lock lock(taking_);
  finish(where, predictions_dataset(endpoint));
  export_labels(where, endpoint);
}

// ---- now and then

void PredictionLog::finish_due() {
  struct Open {
    Where where;
    std::string dataset, columns;
    std::int64_t began_us, bytes;
  };
  const auto streams = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT tenant, project, dataset, columns, began_us, bytes FROM predictions_stream", {},
                 [](const sql::Row& row) {
                   return Open{{{std::string(row.text(0))}, {std::string(row.text(1))}},
                               std::string(row.text(2)),
                               std::string(row.text(3)),
                               row.integer(4),
                               row.integer(5)};
                 });
  });
  const auto now = parts_.clock.wall().count();
  for (const auto& open : streams) {
    if (open.columns == kLabelStream) {  // a kill left it
      export_labels(open.where, open.dataset.substr(labels_dataset("").size()));
      continue;
    }
    const auto age = now - open.began_us;
    if (open.bytes >= kStreamBytesMax || age >= 10 * kMinuteUs || (age >= kMinuteUs && open.bytes >= kStreamBytesSome))
      finish(open.where, open.dataset);
  }
}

void PredictionLog::upkeep() {
  Lock lock(taking_);
  finish_due();
  keep_exposures();
  const auto now = parts_.clock.wall().count();
  if (now < next_tidy_us_) return;
  next_tidy_us_ = now + 10 * kMinuteUs;
  struct Labelled {
    Where where;
    std::string endpoint;
  };
  const auto labelled = parts_.database.read([&](sql::Reader& r) {
    return r.all("SELECT DISTINCT tenant, project, endpoint FROM predictions_label WHERE upload = ''", {},
                 [](const sql::Row& row) {
                   return Labelled{{{std::string(row.text(0))}, {std::string(row.text(1))}}, std::string(row.text(2))};
                 });
  });
  for (const auto& one : labelled) export_labels(one.where, one.endpoint);
  forget_old();
}

void PredictionLog::forget_old() {
  const auto now = parts_.clock.wall().count();
  const auto old = parts_.database.read([&](sql::Reader& r) {
    return r.first("SELECT COUNT(*) FROM predictions_segment WHERE at_us < ?", {now - kSegmentsKeptUs},
                   [](const sql::Row& row) { return row.integer(0); });
  });
  if (old.value_or(0) > 0)
    parts_.database.write({"system/serving", "predictions.forget", "/", ""}, [&](sql::Writer& w) {
      w.execute("DELETE FROM predictions_segment WHERE at_us < ?", {now - kSegmentsKeptUs});
    });
  resource::ListOptions options;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list("Endpoint", options, kForTheLog);
    for (const auto& stored : page.items) {
      const auto spec = decode<EndpointSpec>(stored.resource.spec, "endpoint");
      if (!spec.log) continue;
      const auto& metadata = stored.resource.metadata;
      const Where where{TenantName::parse(metadata.tenant), ProjectName::parse(metadata.project)};
      // In steps, so that not every look makes all versions anew.
      const auto step = std::clamp<std::int64_t>(spec.log->keep_us / 10, 1, kDayUs);
      const auto edge = (now - spec.log->keep_us) / step * step;
      for (const auto& dataset : {predictions_dataset(metadata.name), labels_dataset(metadata.name)})
        forget_rows(where, dataset, edge);
      forget_labels(where, metadata.name, edge);
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
}

void PredictionLog::forget_rows(const Where& where, const std::string& dataset, std::int64_t before_us) {
  const auto act = log_act(where, dataset, "predictions.forget");
  try {
    auto version = parts_.datasets.version(where, dataset, std::nullopt);
    auto files = parts_.datasets.files(version);
    if (files.size() > kFilesMax) {
      const auto room = parts_.datasets.room();
      parts_.datasets.open(*room, where, version, "v");
      parts_.datasets.store(where, dataset, *room, "SELECT * FROM v",
                            {data::Format::parquet, data::Mode::overwrite, "the same rows in fewer files", "", {}},
                            act);
    }
    const auto is_old = [&](const data::File& file) { return file.first_us && *file.first_us < before_us; };
    if (std::any_of(files.begin(), files.end(), is_old))
      parts_.datasets.cut(where, dataset, {{}, std::nullopt, "time", before_us}, {}, act);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) log::warn("predictions_not_tidied", {{"dataset", dataset}, {"why", e.what()}});
  }
}

}  // namespace falaj::serving
