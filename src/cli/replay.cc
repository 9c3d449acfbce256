// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"

#include <algorithm>
#include <deque>
#include <future>
#include <span>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/feedback.h"
#include "cli/progress.h"
#include "cli/serving_target.h"
#include "foundation/base/error.h"

namespace falaj::cli {
namespace {

constexpr std::uint64_t kPageRows = 20'000;
constexpr std::size_t kLabelsTogether = 2'000;

struct ReplayOptions {
  std::string name, query, label, known, time, server;
  std::size_t rows = 50;
};

class Replay {
 public:
  Replay(Session& session, const ReplayOptions& options)
      : session_(session),
        options_(options),
        serving_(serving_target(session, options.name, options.server)),
        direct_(serving_.server, kAskTries) {}

  json::object run() {
    Progress progress("replaying", 0, Progress::Unit::items, session_.clock(), session_.quiet);
    for (std::uint64_t offset = 0;; offset += kPageRows) {
      const auto page = session_.api().post(
          "/v1/datasets/sql",
          {{"sql",
            fmt::format("{} LIMIT {} OFFSET {}", replay_query(options_.query, options_.time), kPageRows, offset)},
           {"rows", kPageRows},
           {"time", kReadTimeUs}},
          scope());
      columns_ = replay_columns(page.at("columns").as_array(), options_.label, options_.known, options_.time);
      const auto& rows = page.at("rows").as_array();
      ask_all(rows, progress);
      if (rows.size() < kPageRows) break;
    }
    send(due_.take_all());
    if (rows_ == 0) throw Error(Code::invalid, "the query has no rows");
    return {{"rows", rows_}, {"requests", requests_}, {"labels", labels_}};
  }

 private:
  struct Asked {
    std::span<const json::value> rows;
    std::future<std::string> prediction;  // how the first is called
  };
  client::Query scope() { return {{"scope", session_.project_scope()}}; }

  void ask_all(const json::array& rows, Progress& progress) {
    std::deque<Asked> under_way;
    const auto take = [&] {
      auto asked = std::move(under_way.front());
      under_way.pop_front();
      note(asked.rows, asked.prediction.get());
      progress.add(asked.rows.size());
    };
    for (std::size_t from = 0; from < rows.size(); from += options_.rows) {
      const std::span some(rows.data() + from, std::min(options_.rows, rows.size() - from));
      if (under_way.size() == kUnderWay) take();
      under_way.push_back({some, std::async(std::launch::async, [this, some] { return ask(some); })});
    }
    while (!under_way.empty()) take();
  }

  // On any thread.
  std::string ask(std::span<const json::value> rows) {
    json::array asked;
    for (const auto& row : rows) asked.push_back(columns_.ask(row.as_array()));
    const auto said = direct_.post(serving_.path("/predict"), {{"rows", std::move(asked)}});
    const auto& name = at_path(said, "prediction_id");
    return name.is_string() ? std::string(name.get_string()) : "";
  }

  void note(std::span<const json::value> rows, const std::string& prediction) {
    ++requests_;
    rows_ += rows.size();
    if (!columns_.label) return;
    if (prediction.empty())
      throw Error(Code::conflict, fmt::format("endpoint {} does not say how its predictions are called, so they cannot "
                                              "be labelled: let it log them",
                                              options_.name));
    const auto text = [](const json::value& value) {
      return value.is_string() ? std::string(value.get_string()) : std::string();
    };
    std::string now;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto& row = rows[i].as_array();
      if (columns_.time) now = std::max(now, text(row.at(*columns_.time)));
      if (row.at(*columns_.label).is_null()) continue;  // nobody knows
      due_.add(columns_.known ? text(row.at(*columns_.known)) : "", prediction_of_row(prediction, i),
               row.at(*columns_.label));
    }
    for (auto& one : columns_.known ? due_.take(now) : due_.take_all()) ready_.push_back(std::move(one));
    if (ready_.size() >= kLabelsTogether) send({});
  }

  void send(json::array more) {
    for (auto& one : more) ready_.push_back(std::move(one));
    for (std::size_t from = 0; from < ready_.size(); from += kLabelsAtOnce) {
      const auto end = std::min(ready_.size(), from + kLabelsAtOnce);
      json::array some(ready_.begin() + static_cast<std::ptrdiff_t>(from),
                       ready_.begin() + static_cast<std::ptrdiff_t>(end));
      labels_ += some.size();
      session_.api().post(fmt::format("/v1/serving/endpoints/{}/labels", client::path_element(options_.name)),
                          json::object{{"labels", std::move(some)}}, scope());
    }
    ready_.clear();
  }

  Session& session_;
  const ReplayOptions& options_;
  const ServingTarget serving_;
  client::ApiClient direct_;
  ReplayColumns columns_;
  LabelsDue due_;
  json::array ready_;  // to be sent
  std::uint64_t rows_ = 0, requests_ = 0, labels_ = 0;
};

}  // namespace

json::object ReplayColumns::ask(const json::array& row) const {
  json::object out;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (i != label && i != known) out[names[i]] = row.at(i);
  return out;
}

ReplayColumns replay_columns(const json::array& columns, const std::string& label, const std::string& known,
                             const std::string& time) {
  ReplayColumns out;
  for (const auto& column : columns) out.names.emplace_back(column.at("name").as_string());
  const auto find = [&](const std::string& name) -> std::optional<std::size_t> {
    if (name.empty()) return std::nullopt;
    const auto found = std::find(out.names.begin(), out.names.end(), name);
    if (found == out.names.end()) throw Error(Code::invalid, fmt::format("the query has no column '{}'", name));
    return static_cast<std::size_t>(found - out.names.begin());
  };
  out.label = find(label);
  out.known = find(known);
  out.time = find(time);
  if (out.known && (!out.label || !out.time))
    throw Error(Code::invalid, "--known says when a --label was known, beside the --time of its row: give all three");
  return out;
}

std::string replay_query(const std::string& query, const std::string& time) {
  if (time.empty()) return fmt::format("SELECT * FROM ({})", query);
  std::string quoted;
  for (const char c : time) quoted.append(c == '"' ? 2 : 1, c);
  return fmt::format("SELECT * FROM ({}) AS asked ORDER BY \"{}\", hash(asked)", query, quoted);
}

std::string prediction_of_row(std::string_view first, std::size_t row) {
  return row == 0 ? std::string(first) : fmt::format("{}:{}", first, row);
}

void LabelsDue::add(std::string known, std::string prediction, json::value value) {
  due_.push_back({std::move(known), std::move(prediction), std::move(value)});
  std::push_heap(due_.begin(), due_.end(), [](const Due& a, const Due& b) { return a.known > b.known; });
}

json::array LabelsDue::take(std::string_view now) {
  json::array out;
  while (!due_.empty() && (now.empty() || due_.front().known <= now)) {
    std::pop_heap(due_.begin(), due_.end(), [](const Due& a, const Due& b) { return a.known > b.known; });
    out.push_back(json::object{{"prediction_id", due_.back().prediction}, {"value", std::move(due_.back().value)}});
    due_.pop_back();
  }
  return out;
}

void add_endpoint_replay(CLI::App& endpoint, Session& session) {
  const auto options = std::make_shared<ReplayOptions>();
  auto* replay = endpoint.add_subcommand(
      "replay",
      "Ask an endpoint the rows of a query, in their order, and tell it what became of them when it was known");
  replay->add_option("name", options->name, "The endpoint")->required();
  replay->add_option("query", options->query, "A SELECT over datasets, ordered by time")->required();
  replay->add_option("--label", options->label, "The column that says what became of a row; not asked");
  replay->add_option("--known", options->known,
                     "The column that says when that was known; not asked. At once if absent");
  replay->add_option("--time", options->time, "The column that says when the row was");
  replay->add_option("--rows", options->rows, "In one request")->capture_default_str()->check(CLI::Range(1, 10'000));
  replay->add_option("--server", options->server, "Which server to ask; the first that serves it when absent");
  replay->callback([&session, options] {
    const auto done = Replay(session, *options).run();
    const auto output = session.output();
    if (!output.for_people()) return output.value(done);
    output.line(fmt::format("{} rows asked in {} requests, {} labels told", done.at("rows").to_number<std::uint64_t>(),
                            done.at("requests").to_number<std::uint64_t>(),
                            done.at("labels").to_number<std::uint64_t>()));
  });
}

}  // namespace falaj::cli
