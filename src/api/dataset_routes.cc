// SPDX-License-Identifier: Apache-2.0
// datasets: versions, uploads, rows, SQL

#include <cmath>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "api/turn.h"
#include "foundation/base/produced.h"
#include "lifecycle/data/ask.h"
#include "lifecycle/data/datasets.h"

namespace falaj::api {
namespace {

constexpr int kRoomsMax = 4;  // each may take as much memory as its limit
constexpr std::int64_t kRowsMax = 100'000;
constexpr std::int64_t kLongestUs = 3'600'000'000;  // that anybody may have a room for one answer
constexpr std::string_view kDataFormats[] = {"csv", "jsonl", "parquet"};
constexpr std::string_view kModes[] = {"append", "overwrite"};

struct DatasetQuery {
  std::string cursor;
  std::int64_t limit = kPageItems;
};
struct ColumnOut {
  std::string name, type;
  bool nullable = true;
};
struct DatasetVersionOut {
  std::string dataset, id, mode, source, created_by;
  std::int64_t number = 0, major = 1, rows = 0, bytes = 0, created_us = 0;
  std::optional<std::int64_t> parent;
  std::vector<ColumnOut> columns;
  std::vector<data::ColumnStats> stats;
  std::vector<std::string> warnings, inputs;
  std::optional<std::string> answered_by;
  std::optional<std::int64_t> erased_us, replaced_by;
};
struct DatasetOut {
  std::string name;
  std::int64_t versions = 0;
  std::optional<DatasetVersionOut> newest;
};
struct UploadIn {
  std::string key;
};
struct UploadOut {
  std::string id;
};
struct PartOut {
  std::int64_t number = 0, bytes = 0;
};
struct PartsOut {
  std::vector<PartOut> parts;
  double done = 0;
  std::optional<std::int64_t> version;
};
struct FormatQuery {
  std::string format;
};
struct ExportQuery {
  std::string format;
  std::int64_t time_us = kLongestUs;
};
struct ColumnsOut {
  std::vector<ColumnOut> columns;
};
struct MadeOfIn {
  std::string dataset;
  std::int64_t version = 0;
  std::vector<std::string> columns;
};
struct AnsweredByIn {
  std::string model;
  std::int64_t version = 0;
};
struct FinishIn {
  std::string format, mode = "append", source;
  std::vector<MadeOfIn> made_of;
  std::optional<AnsweredByIn> answered_by;
};
struct RowsQuery {
  std::int64_t limit = 10;
};
struct RowsOut {
  std::vector<ColumnOut> columns;
  json::value rows = json::array{};
  bool whole = true;
};
struct SqlIn {
  std::string sql;
  std::int64_t rows = 1000;
  std::int64_t time_us = 60'000'000;
};
struct DiffQuery {
  std::int64_t from = 0, to = 0;
};
struct DiffOut {
  std::vector<std::string> schema;
  std::int64_t rows_before = 0, rows_after = 0, added = 0, removed = 0;
  std::optional<std::int64_t> changed;
};
struct ChecksQuery {
  std::optional<std::int64_t> version;
  std::int64_t limit = kPageItems;
};
struct ChecksOut {
  std::vector<data::CheckResult> checks;
};
struct RemovedDatasetOut {
  std::int64_t bytes = 0;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<DatasetQuery> {
  using T = DatasetQuery;
  static constexpr std::string_view name = "DatasetListQuery";
  static Fields fields() {
    return {field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most items.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<ColumnOut> {
  using T = ColumnOut;
  static constexpr std::string_view name = "DatasetColumn";
  static Fields fields() {
    return {field("name", &T::name, "As queries call it."), field("type", &T::type, "What it holds."),
            field("nullable", &T::nullable, "Whether a value may be missing.")};
  }
};
template <>
struct Shape<DatasetVersionOut> {
  using T = DatasetVersionOut;
  static constexpr std::string_view name = "DatasetVersion";
  static Fields fields() {
    return {field("dataset", &T::dataset, "Of which dataset."),
            field("number", &T::number, "1, 2, 3, ...; never used again."),
            field("id", &T::id, "Digest of its columns and the content of its files."),
            field("mode", &T::mode, "append or overwrite."),
            field("parent", &T::parent, "The version it was appended to."),
            field("major", &T::major, "Of its columns."),
            field("rows", &T::rows, "In all."),
            field("bytes", &T::bytes, "Of its files, as Parquet."),
            field("source", &T::source, "What it was made of."),
            field("created_us", &T::created_us, "When, in microseconds since 1970."),
            field("created_by", &T::created_by, "By whom."),
            field("columns", &T::columns, "Its columns."),
            field("stats", &T::stats, "Of the rows that came in with it."),
            field("warnings", &T::warnings, "Expectations that did not hold."),
            field("inputs", &T::inputs, "NAME@NUMBER of the versions that it was made of."),
            field("answered_by", &T::answered_by, "MODEL/NUMBER of the version of a model whose answers it holds."),
            field("erased_us", &T::erased_us, "When it was erased; absent: it was not. An erased one cannot be read."),
            field("replaced_by", &T::replaced_by, "The version that has what is left of an erased one.")};
  }
};
template <>
struct Shape<DatasetOut> {
  using T = DatasetOut;
  static constexpr std::string_view name = "Dataset";
  static Fields fields() {
    return {field("name", &T::name, "Its name."), field("versions", &T::versions, "How many it has."),
            field("newest", &T::newest, "The last of them.")};
  }
};
template <>
struct Shape<UploadIn> {
  static constexpr std::string_view name = "DatasetNewUpload";
  static Fields fields() {
    return {field("key", &UploadIn::key,
                  "Of the caller's choice: the same key finds the same upload again, for seven days.")
                .length(0, 200)};
  }
};
template <>
struct Shape<UploadOut> {
  static constexpr std::string_view name = "DatasetUpload";
  static Fields fields() { return {field("id", &UploadOut::id, "For the parts, and to finish it.")}; }
};
template <>
struct Shape<PartOut> {
  static constexpr std::string_view name = "DatasetPart";
  static Fields fields() {
    return {field("number", &PartOut::number, "0, 1, 2, ..."), field("bytes", &PartOut::bytes, "Durable already.")};
  }
};
template <>
struct Shape<PartsOut> {
  static constexpr std::string_view name = "DatasetParts";
  static Fields fields() {
    return {field("parts", &PartsOut::parts, "Those that are there."),
            field("done", &PartsOut::done, "How much of finishing it is done, 0 to 1."),
            field("version", &PartsOut::version, "The version that it became; absent until it has.")};
  }
};
template <>
struct Shape<FormatQuery> {
  static constexpr std::string_view name = "DatasetFormatQuery";
  static Fields fields() {
    return {field("format", &FormatQuery::format, "What the bytes are.").required().one_of(kDataFormats)};
  }
};
template <>
struct Shape<ExportQuery> {
  static constexpr std::string_view name = "DatasetExportQuery";
  static Fields fields() {
    return {field("format", &ExportQuery::format, "What the bytes shall be.").required().one_of(kDataFormats),
            field("time", &ExportQuery::time_us, "Break it off after this long; an hour when absent, and at most.")
                .duration()
                .range(1'000, kLongestUs)};
  }
};
template <>
struct Shape<ColumnsOut> {
  static constexpr std::string_view name = "DatasetColumns";
  static Fields fields() { return {field("columns", &ColumnsOut::columns, "As the bytes seem to have.")}; }
};
template <>
struct Shape<MadeOfIn> {
  using T = MadeOfIn;
  static constexpr std::string_view name = "DatasetMadeOf";
  static Fields fields() {
    return {
        field("dataset", &T::dataset, "Of this project.").required(),
        field("version", &T::version, "Which of its versions.").required().range(1, INT64_MAX),
        field("columns", &T::columns, "Those that the new version has too, with the same meaning.").length(0, 2000)};
  }
};
template <>
struct Shape<AnsweredByIn> {
  using T = AnsweredByIn;
  static constexpr std::string_view name = "DatasetAnsweredBy";
  static Fields fields() {
    return {field("model", &T::model, "A registered model of this project.").required().length(1, 255),
            field("version", &T::version, "Which of its versions.").required().range(1, INT64_MAX)};
  }
};
template <>
struct Shape<FinishIn> {
  using T = FinishIn;
  static constexpr std::string_view name = "DatasetFinish";
  static Fields fields() {
    return {field("format", &T::format, "What the bytes are.").required().one_of(kDataFormats),
            field("mode", &T::mode, "append: to the newest version; overwrite: instead of it.").one_of(kModes),
            field("source", &T::source, "In words, such as the file's name.").length(0, 1000),
            field("made_of", &T::made_of, "Versions that the rows were made of: lineage and erasure follow them.")
                .length(0, 100),
            field("answered_by", &T::answered_by, "The version of a model whose answers the rows hold.")};
  }
};
template <>
struct Shape<RowsQuery> {
  static constexpr std::string_view name = "DatasetRowsQuery";
  static Fields fields() { return {field("limit", &RowsQuery::limit, "How many rows.").range(1, kRowsMax)}; }
};
template <>
struct Shape<RowsOut> {
  using T = RowsOut;
  static constexpr std::string_view name = "DatasetRows";
  static Fields fields() {
    return {field("columns", &T::columns, "Of the answer."),
            field("rows", &T::rows, "Lists of values: numbers, text, booleans, null; times as RFC 3339."),
            field("whole", &T::whole, "False when there are more rows than were asked for.")};
  }
};
template <>
struct Shape<SqlIn> {
  using T = SqlIn;
  static constexpr std::string_view name = "DatasetSql";
  static Fields fields() {
    return {
        field("sql", &T::sql, "One SELECT; tables are datasets, or \"NAME@VERSION\".").required().length(1, 100'000),
        field("rows", &T::rows, "Most rows of the answer.").range(1, kRowsMax),
        field("time", &T::time_us, "Stop it after this long.").duration().range(1'000, kLongestUs)};
  }
};
template <>
struct Shape<DiffQuery> {
  static constexpr std::string_view name = "DatasetDiffQuery";
  static Fields fields() {
    return {field("from", &DiffQuery::from, "A version.").required().range(1, INT64_MAX),
            field("to", &DiffQuery::to, "Another.").required().range(1, INT64_MAX)};
  }
};
template <>
struct Shape<DiffOut> {
  using T = DiffOut;
  static constexpr std::string_view name = "DatasetDiff";
  static Fields fields() {
    return {field("schema", &T::schema, "How columns differ, in words."),
            field("rows_before", &T::rows_before, "In all."),
            field("rows_after", &T::rows_after, "In all."),
            field("added", &T::added, "Rows (by key, if there is one) only in the second."),
            field("removed", &T::removed, "Rows only in the first."),
            field("changed", &T::changed, "Rows of the same key that differ.")};
  }
};
template <>
struct Shape<ChecksQuery> {
  using T = ChecksQuery;
  static constexpr std::string_view name = "DatasetChecksQuery";
  static Fields fields() {
    return {field("version", &T::version, "Only of rows that became this one.").range(1, INT64_MAX),
            field("limit", &T::limit, "Most results.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<ChecksOut> {
  static constexpr std::string_view name = "DatasetChecks";
  static Fields fields() {
    return {field("checks", &ChecksOut::checks,
                  "Of a version in their order; of all, those of refused rows too, last first.")};
  }
};
template <>
struct Shape<RemovedDatasetOut> {
  static constexpr std::string_view name = "DatasetRemoved";
  static Fields fields() {
    return {field("bytes", &RemovedDatasetOut::bytes, "That no version has any more; freed by the next collection.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

using vault::Where;

std::vector<ColumnOut> out_of(const table::Schema& schema) {
  std::vector<ColumnOut> out;
  for (const auto& c : schema) out.push_back({c.name, std::string(table::name(c.type)), c.nullable});
  return out;
}

DatasetVersionOut out_of(const data::Version& v) {
  DatasetVersionOut out;
  out.dataset = v.dataset;
  out.number = v.number;
  out.id = v.id.hex();
  out.mode = data::name(v.mode);
  out.parent = v.parent;
  out.major = v.major;
  out.rows = v.rows;
  out.bytes = v.bytes;
  out.source = v.source;
  out.created_us = v.created_us;
  out.created_by = v.created_by;
  out.columns = out_of(v.schema);
  out.stats = v.stats;
  out.warnings = v.warnings;
  for (const auto& input : v.inputs) out.inputs.push_back(fmt::format("{}@{}", input.dataset, input.number));
  if (v.answered_by) out.answered_by = fmt::format("{}/{}", v.answered_by->model, v.answered_by->version);
  if (v.erased) {
    out.erased_us = v.erased->at_us;
    out.replaced_by = v.erased->replaced_by;
  }
  return out;
}

DatasetOut out_of(const data::Dataset& d) {
  DatasetOut out{d.name, d.versions, std::nullopt};
  if (d.newest) out.newest = out_of(*d.newest);
  return out;
}

// JSON has no NaN, and its readers no integers beyond 2^53 but as text.
json::value cell(const table::Chunk& chunk, std::size_t column, std::size_t row) {
  if (chunk.is_null(column, row)) return nullptr;
  switch (chunk.type(column)) {
    case table::Type::boolean:
      return chunk.as<bool>(column)[row];
    case table::Type::int32:
    case table::Type::int64:
      return chunk.integer(column, row);
    case table::Type::float32:
    case table::Type::float64: {
      const auto value = chunk.real(column, row);
      if (std::isfinite(value)) return value;
      return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    }
    case table::Type::date:
      return json::value(format_time(chunk.integer(column, row) * 86'400'000'000).substr(0, 10));
    case table::Type::timestamp:
      return json::value(format_time(chunk.integer(column, row)));
    case table::Type::bytes:
      return json::value(to_base64(as_bytes(chunk.text(column, row))));
    case table::Type::text:
      return json::value(chunk.text(column, row));
  }
  return nullptr;
}

void add_rows(json::array& out, const table::Chunk& chunk, std::size_t rows) {
  for (std::size_t r = 0; r < rows; ++r) {
    json::array row;
    row.reserve(chunk.columns());
    for (std::size_t c = 0; c < chunk.columns(); ++c) row.push_back(cell(chunk, c, r));
    out.push_back(std::move(row));
  }
}

iam::Scope scope_of(const Where& where, const std::string& dataset) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "dataset", dataset);
}

// "3" or "newest".
std::optional<std::int64_t> number_of(const std::string& text) {
  if (text == "newest") return std::nullopt;
  const auto number = parse_int(text);
  if (!number || *number < 1) throw Error(Code::invalid, fmt::format("version: a number, or newest, not '{}'", text));
  return number;
}

// A role may be for some datasets only; lists and SQL are of the project.
std::string_view dataset_scope(std::string_view path) {
  return path.find("{name}") == std::string_view::npos ? "{scope}" : "{scope}/dataset/{name}";
}
Declaration reads_dataset(std::string_view path, std::string_view summary) {
  return {Method::get,   path,   Permission::of("dataset.read", dataset_scope(path)), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}
Declaration writes_dataset(Method method, std::string_view path, std::string_view verb, std::string_view summary) {
  return {method,
          path,
          Permission::of(method == Method::del ? "dataset.delete" : "dataset.write", dataset_scope(path)),
          BodyLimit{method == Method::del ? 0U : 64U * 1024},
          Audit::verb(verb),
          Place::worker,
          summary};
}

RowsOut ask(Platform& platform, Call& call, const SqlIn& in) {
  const auto where = project_of(call);
  RowsOut out;
  auto& rows = out.rows.as_array();
  data::Ask question{in.sql, sys::Micros(in.time_us), static_cast<std::uint64_t>(in.rows)};
  question.is_abandoned = call.is_abandoned();
  const auto answered = data::ask(
      platform.datasets, where, question, platform.clock,
      [&](const std::string& dataset) {
        call.require("dataset.read", dataset.empty() ? where.scope() : scope_of(where, dataset));
      },
      [&](const table::Chunk& chunk, std::size_t n) { add_rows(rows, chunk, n); });
  out.columns = out_of(answered.schema);
  out.whole = answered.whole;
  return out;
}

net::Response send_rows(Platform& platform, Call& call, const ExportQuery& in, Turns& turns) {
  const auto where = project_of(call);
  auto turn = std::make_shared<Turn>(turns);
  const auto version = platform.datasets.version(where, call.parameter("name"), number_of(call.parameter("version")));
  std::shared_ptr<table::Workspace> room = platform.datasets.room();
  platform.datasets.open(*room, where, version, "rows");
  const std::string how = in.format == "csv"     ? "FORMAT csv, HEADER"
                          : in.format == "jsonl" ? "FORMAT json"
                                                 : "FORMAT parquet, COMPRESSION zstd";
  const auto watch = data::patience(platform.clock, sys::Micros(in.time_us), call.is_abandoned());
  auto produced = std::make_shared<Produced>([room, turn, how, watch](const std::function<void(BytesView)>& put) {
    room->put("out", table::sink_to(put));
    room->run(fmt::format("COPY (SELECT * FROM rows) TO 'out' ({})", how), {}, watch);
  });
  net::Response response;
  response.headers.add("Content-Type", in.format == "csv" ? "text/csv" : "application/octet-stream");
  response.body = net::StreamBody{[produced] { return produced->next(); }, std::nullopt};
  return response;
}

void add_dataset_reading(Routes& routes, Platform& platform, const std::shared_ptr<Turns>& turns) {
  auto& datasets = platform.datasets;
  routes.add<DatasetQuery, Page<DatasetOut>>(
      reads_dataset("/v1/datasets", "Datasets of a project with their newest versions."),
      [&datasets](Call& call, const DatasetQuery& in) {
        Page<DatasetOut> page;
        for (const auto& d : datasets.list(project_of(call), in.cursor, static_cast<std::size_t>(in.limit)))
          page.items.push_back(out_of(d));
        if (page.items.size() == static_cast<std::size_t>(in.limit)) page.next = page.items.back().name;
        return page;
      });
  routes.add<Nothing, DatasetOut>(reads_dataset("/v1/datasets/{name}", "A dataset and its newest version."),
                                  [&datasets](Call& call, const Nothing&) {
                                    return out_of(datasets.dataset(project_of(call), call.parameter("name")));
                                  });
  routes.add<DatasetQuery, Page<DatasetVersionOut>>(
      reads_dataset("/v1/datasets/{name}/versions", "Versions of a dataset, newest first."),
      [&datasets](Call& call, const DatasetQuery& in) {
        const auto below = in.cursor.empty() ? INT64_MAX : static_cast<std::int64_t>(offset_of(in.cursor));
        Page<DatasetVersionOut> page;
        for (const auto& v :
             datasets.versions(project_of(call), call.parameter("name"), below, static_cast<std::size_t>(in.limit)))
          page.items.push_back(out_of(v));
        if (page.items.size() == static_cast<std::size_t>(in.limit))
          page.next = std::to_string(page.items.back().number);
        return page;
      });
  routes.add<Nothing, DatasetVersionOut>(
      reads_dataset("/v1/datasets/{name}/versions/{version}", "A version: a number, or newest."),
      [&datasets](Call& call, const Nothing&) {
        return out_of(datasets.version(project_of(call), call.parameter("name"), number_of(call.parameter("version"))));
      });
  routes.add<ChecksQuery, ChecksOut>(
      reads_dataset("/v1/datasets/{name}/checks", "What expectations found in rows that came in, or were refused."),
      [&datasets](Call& call, const ChecksQuery& in) {
        return ChecksOut{
            datasets.checks(project_of(call), call.parameter("name"), in.version, static_cast<std::size_t>(in.limit))};
      });
  routes.add<DiffQuery, DiffOut>(reads_dataset("/v1/datasets/{name}/diff", "How two versions differ."),
                                 [&platform, &datasets, turns](Call& call, const DiffQuery& in) {
                                   const Turn turn(*turns);
                                   const auto where = project_of(call);
                                   const auto& name = call.parameter("name");
                                   const auto watch =
                                       data::patience(platform.clock, sys::Micros(kLongestUs), call.is_abandoned());
                                   const auto d = datasets.diff(where, datasets.version(where, name, in.from),
                                                                datasets.version(where, name, in.to), watch);
                                   return DiffOut{d.schema, d.rows_before, d.rows_after, d.added, d.removed, d.changed};
                                 });
  routes.add<RowsQuery, RowsOut>(
      reads_dataset("/v1/datasets/{name}/versions/{version}/rows", "The first rows of a version."),
      [&platform, turns](Call& call, const RowsQuery& in) {
        const Turn turn(*turns);
        auto table = call.parameter("name");
        if (const auto number = number_of(call.parameter("version"))) table += fmt::format("@{}", *number);
        return ask(
            platform, call,
            {fmt::format("SELECT * FROM {} LIMIT {}", table::identifier(table), in.limit), in.limit, 60'000'000});
      });
  routes.add<SqlIn, RowsOut>(
      // What is read decides: a role may be for some datasets only.
      {Method::post, "/v1/datasets/sql", Permission::signed_in("{scope}"), BodyLimit{200 * 1024}, Audit::read(),
       Place::worker, "The answer to a SELECT over datasets that the caller may read."},
      [&platform, turns](Call& call, const SqlIn& in) {
        const Turn turn(*turns);
        return ask(platform, call, in);
      });
  routes.add_stream<ExportQuery>(
      reads_dataset("/v1/datasets/{name}/versions/{version}/export", "All rows of a version as one file."),
      "application/octet-stream", [&platform, turns](Call& call, const ExportQuery& in, net::Request&) {
        return send_rows(platform, call, in, *turns);
      });
}

data::Finish finish_of(data::Datasets& datasets, Call& call, const Where& where, const FinishIn& in) {
  data::Finish out{*data::parse_format(in.format), *data::parse_mode(in.mode), in.source, ""};
  for (const auto& of : in.made_of) {
    call.require("dataset.read", scope_of(where, of.dataset));
    const auto version = datasets.version(where, of.dataset, of.version);
    for (const auto& column : of.columns)
      if (!table::find(version.schema, column))
        throw Error(Code::invalid, fmt::format("made_of: version {} of '{}' has no column '{}'", of.version, of.dataset,
                                               column.substr(0, 80)));
    out.inputs.push_back({version.dataset, version.row, version.number, of.columns});
  }
  if (in.answered_by) out.answered_by = data::AnsweredBy{in.answered_by->model, in.answered_by->version};
  return out;
}

void add_uploads(Routes& routes, Platform& platform, const std::shared_ptr<Turns>& turns) {
  auto& datasets = platform.datasets;
  routes.add<UploadIn, UploadOut>(
      writes_dataset(Method::post, "/v1/datasets/{name}/uploads", "dataset.upload", "Begin to bring rows in."),
      [&datasets](Call& call, const UploadIn& in) {
        const auto where = project_of(call);
        const auto& name = call.parameter("name");
        return UploadOut{datasets.begin(where, name, call.act(scope_of(where, name).str()), in.key)};
      });
  routes.add_stream<Nothing>(
      {Method::put, "/v1/datasets/{name}/uploads/{id}/parts/{number}",
       Permission::of("dataset.write", "{scope}/dataset/{name}"), BodyLimit{std::uint64_t{256} << 20},
       Audit::verb("dataset.upload"), Place::worker,
       "The body is one part of the bytes. Durable when it answers; putting it again replaces it."},
      "", [&datasets](Call& call, const Nothing&, net::Request& request) {
        const auto where = project_of(call);
        const auto number = parse_int(call.parameter("number"));
        if (!number) throw Error(Code::invalid, "part: must be a number");
        datasets.put_part(
            where, call.parameter("name"), call.parameter("id"), *number,
            [&](std::span<std::byte> out) { return request.body.read(out); }, call.act(where.scope().str()));
        return detail::json_response(json::object{});
      });
  routes.add<Nothing, PartsOut>(
      reads_dataset("/v1/datasets/{name}/uploads/{id}",
                    "Which parts are there, to go on after a break, and how far it is."),
      [&datasets](Call& call, const Nothing&) {
        PartsOut out;
        for (const auto& part : datasets.parts(project_of(call), call.parameter("name"), call.parameter("id")))
          out.parts.push_back({part.number, static_cast<std::int64_t>(part.bytes)});
        out.done = datasets.progress(call.parameter("id"));
        if (const auto made = datasets.finished(project_of(call), call.parameter("name"), call.parameter("id")))
          out.version = made->number;
        return out;
      });
  routes.add<FormatQuery, ColumnsOut>(
      reads_dataset("/v1/datasets/{name}/uploads/{id}/columns", "The columns that the bytes seem to have."),
      [&datasets, turns](Call& call, const FormatQuery& in) {
        const Turn turn(*turns);
        return ColumnsOut{out_of(datasets.infer(project_of(call), call.parameter("name"), call.parameter("id"),
                                                *data::parse_format(in.format)))};
      });
  routes.add<FinishIn, DatasetVersionOut>(
      writes_dataset(Method::post, "/v1/datasets/{name}/uploads/{id}/finish", "dataset.ingest",
                     "Make a version of the bytes: all or nothing, and once however often it is asked."),
      [&datasets, turns](Call& call, const FinishIn& in) {
        const Turn turn(*turns);
        const auto where = project_of(call);
        return out_of(datasets.finish(where, call.parameter("name"), call.parameter("id"),
                                      finish_of(datasets, call, where, in), call.act(where.scope().str())));
      });
}

}  // namespace

void add_dataset_routes(Routes& routes, Platform& platform) {
  const auto turns = std::make_shared<Turns>(kRoomsMax, "queries and ingests");
  add_dataset_reading(routes, platform, turns);
  add_uploads(routes, platform, turns);
  auto& datasets = platform.datasets;
  const auto remove = [&datasets](Call& call, std::optional<std::int64_t> number) {
    const auto where = project_of(call);
    const auto& name = call.parameter("name");
    return RemovedDatasetOut{
        static_cast<std::int64_t>(datasets.remove(where, name, number, call.act(scope_of(where, name).str())))};
  };
  routes.add<Nothing, RemovedDatasetOut>(
      writes_dataset(Method::del, "/v1/datasets/{name}/versions/{version}", "dataset.delete",
                     "Remove a version for good, with the files that only it has."),
      [remove, &datasets](Call& call, const Nothing&) {
        const auto number = number_of(call.parameter("version"));
        return remove(call, datasets.version(project_of(call), call.parameter("name"), number).number);
      });
  routes.add<Nothing, RemovedDatasetOut>(
      writes_dataset(Method::del, "/v1/datasets/{name}/versions", "dataset.delete", "Remove all versions for good."),
      [remove](Call& call, const Nothing&) { return remove(call, std::nullopt); });
  routes.add<Nothing, RemovedDatasetOut>(
      writes_dataset(
          Method::del, "/v1/datasets/{name}", "dataset.delete",
          "Remove a dataset for good: what declares it, and all versions. Refused, with nothing removed, while "
          "another resource needs it."),
      [&datasets](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const auto& name = call.parameter("name");
        return RemovedDatasetOut{static_cast<std::int64_t>(
            datasets.remove_whole(where, name, authorise(call), call.act(scope_of(where, name).str())))};
      });
}

}  // namespace falaj::api
