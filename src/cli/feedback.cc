// SPDX-License-Identifier: Apache-2.0
#include "cli/feedback.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

std::string feedback_path(const std::string& name, std::string_view what) {
  return fmt::format("/v1/serving/endpoints/{}/{}", client::path_element(name), what);
}

json::value label_value(std::string_view text, std::string_view where) {
  if (text == "true" || text == "false") return text == "true";
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    throw Error(Code::invalid, fmt::format("{}: '{}' is not a number, true or false", where, text));
  return value;
}

std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> out;
  for (auto field : split(line, ',')) {
    field = trim(field);
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') field = field.substr(1, field.size() - 2);
    out.emplace_back(field);
  }
  return out;
}

json::object label_of(const std::vector<std::string>& head, std::string_view line, std::size_t number) {
  const auto where = fmt::format("line {}", number);
  const auto fields = csv_fields(line);
  if (fields.size() != head.size())
    throw Error(Code::invalid, fmt::format("{}: has {} fields, its head {}", where, fields.size(), head.size()));
  json::object out;
  for (std::size_t i = 0; i < head.size(); ++i) {
    if (head[i] == "prediction_id" || head[i] == "at") {
      if (!fields[i].empty()) out[head[i]] = fields[i];
    } else if (head[i] == "value" || head[i] == "label") {
      out["value"] = label_value(fields[i], where);
    }
  }
  return out;
}

struct LabelOptions {
  std::string name, prediction, value, at, file;
};

void send_labels(Session& session, const LabelOptions& options) {
  json::array labels;
  if (!options.file.empty()) {
    std::ifstream in(options.file, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", options.file));
    labels = read_labels(in);
  } else if (options.prediction.empty() || options.value.empty()) {
    throw Error(Code::invalid, "which? --prediction ID --value V, or --file labels.csv");
  } else {
    json::object one{{"prediction_id", options.prediction}, {"value", label_value(options.value, "--value")}};
    if (!options.at.empty()) one["at"] = options.at;
    labels.push_back(std::move(one));
  }
  std::int64_t added = 0, known = 0, conflicting = 0;
  for (std::size_t first = 0; first < labels.size(); first += kLabelsAtOnce) {
    const auto end = std::min(labels.size(), first + kLabelsAtOnce);
    json::array some(labels.begin() + static_cast<std::ptrdiff_t>(first),
                     labels.begin() + static_cast<std::ptrdiff_t>(end));
    const auto taken =
        session.api().post(feedback_path(options.name, "labels"), json::object{{"labels", std::move(some)}},
                           {{"scope", session.project_scope()}});
    added += taken.at("added").to_number<std::int64_t>();
    known += taken.at("known").to_number<std::int64_t>();
    conflicting += taken.at("conflicting").to_number<std::int64_t>();
  }
  const auto output = session.output();
  const json::object sum{{"added", added}, {"known", known}, {"conflicting", conflicting}};
  if (!output.for_people()) return output.value(sum);
  output.line(
      fmt::format("{} added, {} known before, {} known with another value, which stays", added, known, conflicting));
}

void add_label(CLI::App& endpoint, Session& session) {
  const auto options = std::make_shared<LabelOptions>();
  auto* label = endpoint.add_subcommand("label", "Say what became of predictions");
  label->add_option("name", options->name, "The endpoint")->required();
  label->add_option("--prediction", options->prediction, "As its answer called it: prediction_id");
  label->add_option("--value", options->value, "A number, true or false");
  label->add_option("--at", options->at, "When it was known, such as 2026-01-31T12:00:00Z; now when absent");
  label->add_option("--file", options->file, "Many: CSV with prediction_id,value[,at], or JSON, one a line");
  label->callback([&session, options] { send_labels(session, *options); });
}

void add_predictions(CLI::App& endpoint, Session& session) {
  const auto name = std::make_shared<std::string>(), since = std::make_shared<std::string>();
  const auto labelled = std::make_shared<bool>(false);
  const auto limit = std::make_shared<std::int64_t>(20);
  auto* command = endpoint.add_subcommand("predictions", "What it answered, with the labels that came, newest first");
  command->add_option("name", *name, "The endpoint")->required();
  command->add_flag("--labelled", *labelled, "Only those with a label");
  command->add_option("--since", *since, "Only those made from then on, such as 2026-01-31T12:00:00Z");
  command->add_option("--limit", *limit, "Most rows")->capture_default_str();
  command->callback([&session, name, since, labelled, limit] {
    client::Query query{{"scope", session.project_scope()}, {"limit", std::to_string(*limit)}};
    if (*labelled) query.emplace_back("labelled", "true");
    if (!since->empty()) query.emplace_back("since", *since);
    const auto items = session.api().get(feedback_path(*name, "predictions"), query).at("items").as_array();
    const auto output = session.output();
    if (!output.for_people()) return output.value(items);
    std::vector<std::string> names;
    for (const auto& item : items)
      for (const auto& field : item.as_object())
        if (std::find(names.begin(), names.end(), field.key()) == names.end()) names.emplace_back(field.key());
    // Names of inputs may hold dots, which are paths to a table.
    std::vector<std::string> places;
    for (std::size_t i = 0; i < names.size(); ++i) places.push_back(std::to_string(i));
    std::vector<Column> columns;
    for (std::size_t i = 0; i < names.size(); ++i) columns.push_back({names[i], places[i]});
    json::array rows;
    for (const auto& item : items) {
      json::object row;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (const auto* value = item.as_object().if_contains(names[i])) row[places[i]] = *value;
      rows.push_back(std::move(row));
    }
    output.table(rows, columns);
  });
}

void add_experiment(CLI::App& endpoint, Session& session) {
  const auto name = std::make_shared<std::string>();
  auto* command = endpoint.add_subcommand("experiment", "How its variants compare so far, by what became of answers");
  command->add_option("name", *name, "The endpoint")->required();
  command->callback([&session, name] {
    const auto seen = session.api().get(feedback_path(*name, "experiment"), {{"scope", session.project_scope()}});
    const auto output = session.output();
    if (!output.for_people()) return output.value(seen);
    output.details(seen, {{"metric", "rule.metric"},
                          {"better", "rule.better"},
                          {"baseline", "rule.baseline"},
                          {"confidence", "rule.confidence"},
                          {"bandit", "rule.bandit"},
                          {"since", "since"}});
    output.line("");
    output.table(seen.at("variants").as_array(), {{"VARIANT", "variant"},
                                                  {"EXPOSURES", "exposures"},
                                                  {"LABELS", "labels"},
                                                  {"MEAN", "mean"},
                                                  {"DIFFERENCE", "difference"},
                                                  {"LOW", "low"},
                                                  {"HIGH", "high"},
                                                  {"P", "p"},
                                                  {"SAYS", "says"}});
  });
}

}  // namespace

json::array read_labels(std::istream& in) {
  json::array out;
  std::vector<std::string> head;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto text = trim(line);
    if (text.empty()) continue;
    if (text.front() == '{') {
      out.push_back(parse_json(text));
    } else if (head.empty()) {
      head = csv_fields(text);
      const auto has = [&](std::string_view name) { return std::find(head.begin(), head.end(), name) != head.end(); };
      if (!has("prediction_id") || has("value") == has("label"))
        throw Error(Code::invalid,
                    fmt::format("line {}: must name the fields prediction_id and value, and perhaps at", number));
    } else {
      out.push_back(label_of(head, text, number));
    }
  }
  if (out.empty()) throw Error(Code::invalid, "the file has no labels");
  return out;
}

void add_endpoint_feedback(CLI::App& endpoint, Session& session) {
  add_label(endpoint, session);
  add_predictions(endpoint, session);
  add_experiment(endpoint, session);
}

}  // namespace falaj::cli
