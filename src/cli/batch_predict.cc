// SPDX-License-Identifier: Apache-2.0
// predict --dataset
#include "cli/batch_predict.h"

#include <algorithm>
#include <deque>
#include <future>
#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/datasets.h"
#include "cli/progress.h"
#include "cli/serving_target.h"
#include "foundation/base/text.h"
#include "foundation/base/yaml.h"
#include "foundation/crypto/hash.h"
#include "foundation/sys/random.h"

namespace falaj::cli {
namespace {

constexpr std::uint64_t kPartRowsMax = 20'000, kPartRowsMin = 100, kParts = 9'000;
constexpr std::uint64_t kReadBytes = 8 << 20;  // of values, at most about
constexpr std::uint64_t kPackedTimes = 8;      // how much longer values may be than in a file
constexpr std::size_t kAskRows = 256;          // in one request
constexpr int kStoreTries = 4;
constexpr std::string_view kModelColumn = "model_version";

std::string sql_name(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

bool is_time(std::string_view type) { return type == "timestamp" || type == "date"; }

// Answers of JSON round times to milliseconds; models take microseconds since 1970, and what is kept stays as it was.
std::string as_input(const ColumnType& column) {
  return is_time(column.type) ? fmt::format("epoch_us(CAST({} AS TIMESTAMP))", sql_name(column.name))
                              : sql_name(column.name);
}
std::string as_kept(const ColumnType& column) {
  return is_time(column.type) ? fmt::format("CAST({} AS VARCHAR)", sql_name(column.name)) : sql_name(column.name);
}

std::string type_for(const std::string& datatype) {
  if (datatype == "BYTES") return "text";
  if (datatype == "BOOL") return "boolean";
  if (datatype == "FP64") return "float64";
  if (datatype == "FP32" || datatype == "FP16" || datatype == "BF16") return "float32";
  return "int64";
}

std::vector<ColumnType> output_columns(std::span<const PortShape> outputs) {
  std::vector<ColumnType> out;
  for (const auto& port : outputs)
    for (std::size_t i = 0; i < port.width(); ++i)
      out.push_back({port.width() == 1 ? port.name : fmt::format("{}_{}", port.name, i), type_for(port.datatype)});
  return out;
}

void flatten_answer(const json::value& value, std::vector<json::value>& out) {
  if (!value.is_array()) return out.push_back(value);
  for (const auto& one : value.get_array()) flatten_answer(one, out);
}

}  // namespace

std::string BatchPlan::select(std::string_view table, std::uint64_t part) const {
  std::string list;
  for (const auto& column : carried) list += (list.empty() ? "" : ", ") + as_kept(column);
  for (const auto& column : fed) list += (list.empty() ? "" : ", ") + as_input(column);
  return fmt::format("SELECT {} FROM {} LIMIT {} OFFSET {}", list, sql_name(table), part_rows, part * part_rows);
}

json::object BatchPlan::ask(const json::array& row) const {
  json::object out;
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const auto& value = row.at(carried.size() + i);
    const bool nan = value.is_string() && value.get_string() == "NaN" && fed[i].type.starts_with("float");
    out[inputs[i].name] = nan ? json::value(nullptr) : value;
  }
  return out;
}

json::array BatchPlan::columns() const {
  json::array out;
  const auto add = [&](const ColumnType& column) {
    out.push_back(json::object{{"name", column.name}, {"type", column.type}});
  };
  for (const auto& column : carried) add(column);
  for (const auto& column : output_columns(outputs)) add(column);
  add({std::string(kModelColumn), "text"});
  return out;
}

json::object BatchPlan::answer(const json::array& row, const json::object& said, std::string_view model_version) const {
  json::object out;
  for (std::size_t i = 0; i < carried.size(); ++i) out[carried[i].name] = row.at(i);
  const auto columns = output_columns(outputs);
  std::size_t next = 0;
  for (const auto& port : outputs) {
    std::vector<json::value> values;
    flatten_answer(said.at(port.name), values);
    if (values.size() != port.width())
      throw Error(Code::internal, fmt::format("output '{}' has {} values in a row, and {} were announced", port.name,
                                              values.size(), port.width()));
    for (auto& value : values) out[columns[next++].name] = std::move(value);
  }
  out[kModelColumn] = model_version;
  return out;
}

BatchPlan plan_batch(const json::value& version, const json::value& spec, const std::vector<std::string>& keep,
                     std::vector<PortShape> inputs, std::vector<PortShape> outputs) {
  BatchPlan plan;
  std::vector<ColumnType> all;
  for (const auto& column : version.at("columns").as_array())
    all.push_back({std::string(column.at("name").as_string()), std::string(column.at("type").as_string())});
  const auto find = [&](const std::string& name) -> const ColumnType& {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& column) { return column.name == name; });
    if (found == all.end())
      throw Error(Code::invalid,
                  fmt::format("'{}' is no column of {}@{}", name, std::string_view(version.at("dataset").as_string()),
                              version.at("number").to_number<std::int64_t>()));
    return *found;
  };
  auto names = keep;
  if (names.empty()) {
    if (const auto* key = spec.as_object().if_contains("key"))
      for (const auto& name : key->as_array()) names.emplace_back(name.as_string());
    if (const auto* time = spec.as_object().if_contains("time"); time && !time->as_string().empty())
      if (std::find(names.begin(), names.end(), time->as_string().c_str()) == names.end())
        names.emplace_back(time->as_string());
  }
  if (names.empty())
    plan.carried = all;
  else
    for (const auto& name : names) plan.carried.push_back(find(name));
  for (const auto& input : inputs) {
    try {
      plan.fed.push_back(find(input.name));
    } catch (const Error& e) {
      throw Error(Code::invalid, fmt::format("input {}, which the endpoint needs", e.what()));
    }
    if (plan.fed.back().type == "bytes" || input.width() != 1)
      throw Error(Code::invalid, fmt::format("input '{}' takes {} values of type {} a row: a column holds one number, "
                                             "truth, time or text",
                                             input.name, input.width(), input.datatype));
  }
  plan.inputs = std::move(inputs);
  plan.outputs = std::move(outputs);
  std::set<std::string> given;
  for (const auto& column : plan.columns())
    if (!given.emplace(column.at("name").as_string()).second)
      throw Error(Code::invalid,
                  fmt::format("'{}' would be a column twice, of the rows and of the answers: choose with --columns",
                              std::string_view(column.at("name").as_string())));
  const auto rows = std::max<std::uint64_t>(version.at("rows").to_number<std::uint64_t>(), 1);
  const auto row_bytes = version.at("bytes").to_number<std::uint64_t>() * kPackedTimes / rows + 1;
  plan.part_rows = std::max(std::clamp(kReadBytes / row_bytes, kPartRowsMin, kPartRowsMax), rows / kParts + 1);
  return plan;
}

namespace {

// Which version of which model answers: the variant with the greatest share. Rows of one version of predictions come
// from one version of a model, whatever happens to the endpoint meanwhile.
struct Answerer {
  std::string variant, model;
  std::int64_t version = 0;
  std::string name() const { return fmt::format("{}/{}", model, version); }
};

Answerer answerer_of(const json::value& endpoint) {
  const json::value* best = nullptr;
  for (const auto& variant : endpoint.at("variants").as_array()) {
    if (variant.at("shadow").as_bool()) continue;
    if (!best || variant.at("weight").to_number<double>() > best->at("weight").to_number<double>()) best = &variant;
  }
  if (!best) throw Error(Code::unavailable, "the endpoint has no variant that answers");
  return {std::string(best->at("name").as_string()), std::string(best->at("model").as_string()),
          best->at("version").to_number<std::int64_t>()};
}

class BatchRun {
 public:
  BatchRun(Session& session, const BatchOptions& options)
      : session_(session),
        options_(options),
        serving_(serving_target(session, options.endpoint, options.server)),
        direct_(serving_.server, kAskTries) {}

  json::value run() {
    const auto [name, number] = version_of(options_.dataset);
    version_ = session_.api().get(dataset_path(name, fmt::format("/versions/{}", number)), scope());
    by_ = answerer_of(
        session_.api().get(fmt::format("/v1/serving/endpoints/{}", client::path_element(options_.endpoint)), scope()));
    const auto about = direct_.get(serving_.path(fmt::format("/versions/{}", by_.version)));
    const auto resource =
        session_.api().get(fmt::format("/v1/resources/datasets/{}", client::path_element(name)), scope());
    plan_ = plan_batch(version_, resource.at("spec"), options_.columns, ports_of(about, "inputs"),
                       ports_of(about, "outputs"));
    rows_ = version_.at("rows").to_number<std::uint64_t>();
    if (rows_ == 0) throw Error(Code::invalid, fmt::format("{} has no rows", table()));
    to_ = options_.to.empty() ? options_.endpoint + "-predictions" : options_.to;
    declare();
    if (begin()) return session_.api().get(dataset_path(to_, fmt::format("/versions/{}", made_)), scope());
    predict_parts();
    return session_.api().post(path("/finish"),
                               {{"format", "jsonl"},
                                {"mode", "overwrite"},
                                {"source", fmt::format("predictions of {} by {}", table(), by_.name())},
                                {"made_of", json::array{made_of()}},
                                {"answered_by", {{"model", by_.model}, {"version", by_.version}}}},
                               scope());
  }

 private:
  client::Query scope() { return {{"scope", session_.project_scope()}}; }
  std::string table() const {
    return fmt::format("{}@{}", std::string_view(version_.at("dataset").as_string()),
                       version_.at("number").to_number<std::int64_t>());
  }
  std::string path(std::string_view more = "") const {
    return dataset_path(to_, fmt::format("/uploads/{}{}", client::path_element(upload_), more));
  }
  json::object made_of() const {
    json::array columns;
    for (const auto& column : plan_.carried) columns.push_back(json::value(column.name));
    return {{"dataset", version_.at("dataset")}, {"version", version_.at("number")}, {"columns", std::move(columns)}};
  }

  void declare() {
    try {
      session_.api().get(dataset_path(to_), scope());
      return;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
    const auto project = session_.project_scope();
    const auto parts = split(project, '/');  // "", t, TENANT, p, PROJECT
    const json::object resource{
        {"apiVersion", "falaj/v1"},
        {"kind", "Dataset"},
        {"metadata", json::object{{"tenant", parts.at(2)}, {"project", parts.at(4)}, {"name", to_}}},
        {"spec", json::object{{"columns", plan_.columns()}}}};
    session_.api().post("/v1/apply",
                        {{"sources", {{{"file", "predict"}, {"text", to_yaml(resource)}}}}, {"dry_run", false}});
  }

  // Finds the upload of the same question, or begins it. True when it is a version already.
  bool begin() {
    json::object asked{{"version", version_.at("id")},
                       {"endpoint", options_.endpoint},
                       {"by", by_.name()},
                       {"columns", plan_.columns()},
                       {"part_rows", plan_.part_rows}};
    if (options_.again) asked["again"] = sys::RealRandom().next();
    for (int attempt = 0;; ++attempt) {
      asked["attempt"] = attempt;
      const auto key = crypto::sha256(as_bytes(canonical(asked))).hex();
      upload_ = session_.api().post(dataset_path(to_, "/uploads"), {{"key", key}}, scope()).at("id").as_string();
      try {
        const auto state = session_.api().get(path(), scope());
        for (const auto& part : state.at("parts").as_array())
          there_.insert(part.at("number").to_number<std::uint64_t>());
        if (const auto& made = at_path(state, "version"); made.is_number()) {
          made_ = made.to_number<std::int64_t>();
          return true;
        }
        return false;
      } catch (const Error& e) {  // what it became was removed: a new one is wanted
        if (e.code() != Code::not_found || attempt >= 100) throw;
      }
    }
  }

  void predict_parts() {
    Progress progress("predicting " + table(), rows_, Progress::Unit::items, session_.clock(), session_.quiet);
    for (std::uint64_t part = 0; part * plan_.part_rows < rows_; ++part) {
      const auto rows = std::min(plan_.part_rows, rows_ - part * plan_.part_rows);
      if (there_.contains(part))
        progress.add(rows);
      else
        store(part, predict_part(part, rows, progress));
    }
  }

  std::string predict_part(std::uint64_t part, std::uint64_t count, Progress& progress) {
    const auto read = session_.api().post(
        "/v1/datasets/sql", {{"sql", plan_.select(table(), part)}, {"rows", count}, {"time", kReadTimeUs}}, scope());
    const auto& rows = read.at("rows").as_array();
    if (rows.size() != count)
      throw Error(
          Code::exhausted,
          fmt::format("rows of {} are too long to be read {} at a time: keep fewer with --columns", table(), count));
    std::string out;
    std::deque<std::future<std::string>> under_way;
    const auto take = [&] {
      out += under_way.front().get();
      under_way.pop_front();
    };
    for (std::size_t from = 0; from < rows.size(); from += kAskRows) {
      const auto some = std::min(kAskRows, rows.size() - from);
      if (under_way.size() == kUnderWay) take();
      under_way.push_back(std::async(
          std::launch::async, [this, &rows, from, some] { return answers(std::span(rows.data() + from, some)); }));
      progress.add(some);
    }
    while (!under_way.empty()) take();
    return out;
  }

  // As lines of JSON. On any thread.
  std::string answers(std::span<const json::value> rows) {
    json::array asked;
    for (const auto& row : rows) asked.push_back(plan_.ask(row.as_array()));
    const auto said =
        direct_.post(serving_.path(fmt::format("/versions/{}/predict", by_.version)), {{"rows", std::move(asked)}});
    const auto& answers = said.at("rows").as_array();
    const auto& variant = at_path(said, "variant");
    if (answers.size() != rows.size()) throw Error(Code::internal, "as many answers as rows were expected");
    if (variant.is_string() && variant.get_string() != by_.variant)
      throw Error(Code::conflict, fmt::format("variant {} answers for version {}, and not {}: give them other versions",
                                              std::string_view(variant.get_string()), by_.version, by_.variant));
    std::string out;
    for (std::size_t i = 0; i < rows.size(); ++i)
      out += json::serialize(plan_.answer(rows[i].as_array(), answers[i].as_object(), by_.name())) + "\n";
    return out;
  }

  void store(std::uint64_t part, const std::string& lines) {
    for (int attempt = 1;; ++attempt) {
      try {
        std::size_t sent = 0;
        session_.api().upload(
            path(fmt::format("/parts/{}", part)), scope(),
            [&] {
              const auto piece = as_bytes(lines).subspan(sent, std::min(kPieceBytes, lines.size() - sent));
              sent += piece.size();
              return Bytes(piece.begin(), piece.end());
            },
            lines.size(), net::Method::put);
        return;
      } catch (const Error& e) {
        if (e.code() != Code::unavailable || attempt >= kStoreTries) throw;
      }
    }
  }

  Session& session_;
  const BatchOptions& options_;
  const ServingTarget serving_;
  client::ApiClient direct_;
  json::value version_;
  Answerer by_;
  BatchPlan plan_;
  std::uint64_t rows_ = 0;
  std::string to_, upload_;
  std::set<std::uint64_t> there_;  // parts
  std::int64_t made_ = 0;
};

}  // namespace

std::shared_ptr<BatchOptions> add_batch_options(CLI::App& command) {
  auto options = std::make_shared<BatchOptions>();
  command.add_option("--dataset", options->dataset, "Predict all rows of NAME, or NAME@VERSION, into another dataset");
  command
      .add_option("--columns", options->columns,
                  "Columns of it to keep beside the predictions (default: its key and time, or all)")
      ->delimiter(',');
  command.add_option("--to", options->to, "The dataset that gets the predictions (default: NAME-predictions)");
  command.add_flag("--again", options->again, "Also when the same was predicted before");
  return options;
}

json::value predict_dataset(Session& session, const BatchOptions& options) { return BatchRun(session, options).run(); }

}  // namespace falaj::cli
