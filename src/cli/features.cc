// SPDX-License-Identifier: Apache-2.0
// features

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/datasets.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/random.h"

namespace falaj::cli {
namespace {

using As = Column::As;

struct Options {
  std::string service, spine, spine_name, time, into;
  std::vector<std::string> features, entities, views;
  std::string as_of, end, source, dataset, file, id;
  std::int64_t batch = 1000;
  bool full = false;
};

// A dataset, by its name or NAME@VERSION; or a file, which becomes a version of a dataset: what a training set was made
// of is known as long as the set is, and can be erased.
std::string spine_of(Session& session, const Options& options) {
  // What may be a dataset's name is one, unless its ending says otherwise.
  const bool is_file = !options.spine_name.empty() || !format_by_name(options.spine).empty() ||
                       !is_name(options.spine.substr(0, options.spine.rfind('@')));
  if (!is_file) return options.spine;
  const auto dataset = options.spine_name.empty() ? options.into + "-spine" : options.spine_name;
  const auto version = replace_rows(session, {dataset, options.spine, options.time});
  return fmt::format("{}@{}", dataset, version.at("number").as_int64());
}

void train_set(Session& session, const Options& options) {
  auto& api = session.api();
  const auto spine = spine_of(session, options);
  const client::Query scope{{"scope", session.project_scope()}};
  const auto key = fmt::format("train-set {:016x}", sys::RealRandom().next());
  const auto uploads = fmt::format("/v1/datasets/{}/uploads", client::path_element(options.into));
  const std::string upload(api.post(uploads, json::object{{"key", key}}, scope).at("id").as_string());
  const auto answer = with_progress(
      "making " + options.into, session.clock(), session.quiet,
      [&] {
        return api.post("/v1/features/train-set",
                        json::object{{"service", options.service},
                                     {"spine", spine},
                                     {"time", options.time},
                                     {"into", options.into},
                                     {"key", key}},
                        scope);
      },
      [&] { return api.get(uploads + "/" + upload, scope).at("done").to_number<double>(); });
  session.output().details(answer, {{"dataset", "dataset"},
                                    {"version", "version"},
                                    {"rows", "rows"},
                                    {"bytes", "bytes", As::bytes},
                                    {"columns", "columns"},
                                    {"made of", "source"}});
}

// "origin=SEA,LAX": numbers as numbers where they are.
json::object entities_of(const std::vector<std::string>& given) {
  json::object out;
  for (const auto& text : given) {
    const auto equals = text.find('=');
    if (equals == std::string::npos)
      throw Error(Code::invalid, fmt::format("--entity: '{}' must be COLUMN=VALUE,VALUE,...", text));
    json::array values;
    std::size_t at = equals + 1;
    while (at <= text.size()) {
      const auto comma = std::min(text.find(',', at), text.size());
      const auto word = text.substr(at, comma - at);
      try {
        auto value = parse_json(word);
        values.push_back(value.is_object() || value.is_array() ? json::value(word) : value);
      } catch (const Error&) {
        values.emplace_back(word);
      }
      at = comma + 1;
    }
    out[text.substr(0, equals)] = std::move(values);
  }
  return out;
}

void get(Session& session, const Options& options) {
  json::object question{{"entities", entities_of(options.entities)}, {"as_of", options.as_of}};
  if (!options.service.empty()) question["service"] = options.service;
  if (!options.features.empty()) question["features"] = json::value_from(options.features);
  const auto answer = session.api().post("/v1/features/get", question, {{"scope", session.project_scope()}});
  // A row for each entity and feature reads better than columns of unknown number.
  json::array rows;
  const auto& keys = question["entities"].as_object();
  for (const auto& column : answer.at("columns").as_array()) {
    const auto& values = column.at("values").as_array();
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::string who;
      for (const auto& key : keys) {
        const auto& value = key.value().as_array().at(i);
        who += fmt::format("{}{}", who.empty() ? "" : " ",
                           value.is_string() ? std::string(value.get_string()) : json::serialize(value));
      }
      rows.push_back(json::object{{"entity", who},
                                  {"view", column.at("view")},
                                  {"feature", column.at("feature")},
                                  {"value", values[i]},
                                  {"status", column.at("statuses").as_array().at(i)},
                                  {"time", column.at("times").as_array().at(i)}});
    }
  }
  if (session.format != Format::table) return session.output().details(answer, {});
  session.output().table(rows, {{"ENTITY", "entity"},
                                {"VIEW", "view"},
                                {"FEATURE", "feature"},
                                {"VALUE", "value"},
                                {"STATUS", "status"},
                                {"TIME", "time"}});
}

void materialise(Session& session, const Options& options) {
  json::array done;
  for (const auto& view : options.views) {
    const auto call = [&] {
      return session.api().post("/v1/features/materialize",
                                json::object{{"view", view}, {"end", options.end}, {"full", options.full}},
                                {{"scope", session.project_scope()}});
    };
    const auto how_far = [&] {
      const auto all = session.api().get("/v1/features/views", {{"scope", session.project_scope()}});
      for (const auto& one : all.at("views").as_array()) {
        const std::string_view name(one.at("view").as_string());
        if (name == view || fmt::format("{}@{}", name, one.at("revision").as_int64()) == view)
          return one.at("done").to_number<double>();
      }
      return 0.0;
    };
    done.push_back(with_progress("materialising " + view, session.clock(), session.quiet, call, how_far));
  }
  session.output().table(
      done,
      {{"VIEW", "view"}, {"DATASET", "dataset"}, {"VERSION", "version"}, {"UP TO", "end"}, {"FEATURES", "features"}});
}

void push(Session& session, const Options& options) {
  std::ifstream file;
  if (options.file != "-") {
    file.open(options.file);
    if (!file) throw Error(Code::not_found, fmt::format("cannot read {}", options.file));
  }
  std::istream& in = options.file == "-" ? std::cin : file;
  std::int64_t rows = 0, batches = 0;
  Progress progress("pushing", 0, Progress::Unit::items, session.clock(), session.quiet);
  json::array batch;
  std::string dataset = options.dataset;
  const auto send = [&] {
    if (batch.empty()) return;
    json::object body{{"rows", batch}, {"as_of", options.as_of}};
    body[options.source.empty() ? "dataset" : "source"] = options.source.empty() ? options.dataset : options.source;
    // Repeated after a failure, what was taken already is not taken twice.
    if (!options.id.empty()) body["id"] = fmt::format("{}/{}", options.id, batches);
    const auto answer = session.api().post("/v1/features/push", body, {{"scope", session.project_scope()}});
    dataset = answer.at("dataset").as_string();
    rows += static_cast<std::int64_t>(batch.size());
    ++batches;
    progress.add(batch.size());
    batch.clear();
  };
  std::size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty()) continue;
    try {
      batch.push_back(parse_json(line));
    } catch (const Error& e) {
      throw Error(Code::invalid, fmt::format("{}:{}: {}", options.file, line_number, e.what()));
    }
    if (batch.size() == static_cast<std::size_t>(options.batch)) send();
  }
  send();
  progress.finish();
  session.output().details(json::object{{"dataset", dataset}, {"rows", rows}, {"pushes", batches}},
                           {{"dataset", "dataset"}, {"rows", "rows"}, {"pushes", "pushes"}});
}

void list_views(Session& session) {
  const auto answer = session.api().get("/v1/features/views", {{"scope", session.project_scope()}});
  session.output().table(answer.at("views").as_array(), {{"VIEW", "view"},
                                                         {"REVISION", "revision"},
                                                         {"ENTITY", "entity"},
                                                         {"DATASET", "dataset"},
                                                         {"ONLINE", "online"},
                                                         {"VERSION", "version"},
                                                         {"NEWEST", "newest_version"},
                                                         {"UP TO", "end"},
                                                         {"USED", "used"},
                                                         {"PROBLEM", "problem"}});
}

}  // namespace

void add_feature_commands(CLI::App& app, Session& session) {
  const auto options = std::make_shared<Options>();
  auto* features = app.add_subcommand("features", "Features of entities, as they were known at any moment");
  features->require_subcommand(1);

  auto* made = features->add_subcommand(
      "train-set", "Describe every row of a dataset by features as they were known at the row's own time");
  made->add_option("--service", options->service, "The FeatureService whose features are wanted")->required();
  made->add_option(
          "--spine", options->spine,
          "The rows to describe: DATASET, DATASET@VERSION, or a FILE (CSV, JSON lines, Parquet; ./NAME when it "
          "is called as a dataset may be), which becomes a version of a dataset")
      ->required();
  made->add_option("--spine-name", options->spine_name,
                   "The dataset that a spine FILE becomes a version of; declared when missing (default: INTO-spine)");
  made->add_option("--time", options->time,
                   "Its column that says as of when; the dataset's own time when absent, or the only time in a FILE");
  made->add_option("--into", options->into, "The dataset whose next version it becomes; declared when missing")
      ->required();
  made->callback([&session, options] { train_set(session, *options); });

  auto* materialised = features->add_subcommand("materialize", "Bring the newest rows of views online");
  materialised->add_option("VIEW", options->views, "Which views; VIEW@REVISION for what one was, as services pin it")
      ->required();
  materialised->add_option("--end", options->end, "Events up to then, such as 2001-03-31T23:59:00Z; now when absent");
  materialised->add_flag("--full", options->full, "From the beginning, not only what is new");
  materialised->callback([&session, options] { materialise(session, *options); });

  auto* read = features->add_subcommand("get", "Features as they are known now");
  read->add_option("--service", options->service, "The FeatureService whose features are wanted");
  read->add_option("--feature", options->features, "Or VIEW:FEATURE, VIEW:*, VIEW@REVISION:FEATURE; may be repeated");
  read->add_option("--entity", options->entities, "COLUMN=VALUE,VALUE,... for each column of the key")->required();
  read->add_option("--as-of", options->as_of, "When; now if absent, and not before the last write");
  read->callback([&session, options] { get(session, *options); });

  auto* pushed = features->add_subcommand("push", "Events, a JSON object a line, that are known online at once");
  pushed->add_option("FILE", options->file, "Where the lines are; - is standard input")->required();
  auto* to = pushed->add_option_group("to")->require_option(1);
  to->add_option("--source", options->source, "The PushSource that takes them");
  to->add_option("--dataset", options->dataset, "Or the dataset whose rows they are");
  pushed->add_option("--id", options->id, "Names this push: repeated within a day, nothing is taken twice");
  pushed->add_option("--batch", options->batch, "Lines of one push")->check(CLI::Range(1, 10'000));
  pushed->add_option("--as-of", options->as_of, "What the time is, to play history back");
  pushed->callback([&session, options] { push(session, *options); });

  auto* flushed = features->add_subcommand("flush", "Make a version of a dataset of what was pushed so far");
  flushed->add_option("DATASET", options->dataset, "Whose pushed rows")->required();
  flushed->callback([&session, options] {
    const auto answer = session.api().post("/v1/features/flush", json::object{{"dataset", options->dataset}},
                                           {{"scope", session.project_scope()}});
    session.output().details(answer, {{"dataset", "dataset"}, {"version", "version"}, {"rows", "rows"}});
  });

  features->add_subcommand("ls", "Views, and what of them is online")->callback([&session] { list_views(session); });

  auto* checks = features->add_subcommand("checks", "What a view's expectations found in rows, refused ones too");
  const auto checked = std::make_shared<std::string>();
  checks->add_option("view", *checked, "NAME of the view")->required();
  checks->callback([&session, checked] {
    const auto found = session.api()
                           .get(fmt::format("/v1/features/views/{}/checks", client::path_element(*checked)),
                                {{"scope", session.project_scope()}})
                           .at("checks");
    session.output().table(found.as_array(), {{"version", "version"},
                                              {"when", "at_us", As::time},
                                              {"check", "check"},
                                              {"column", "column"},
                                              {"held", "held"},
                                              {"action", "action"},
                                              {"said", "said"},
                                              {"examples", "examples"}});
  });

  features->add_subcommand("prune", "Remove rows of earlier definitions that no service names any more")
      ->callback([&session] {
        const auto answer =
            session.api().post("/v1/features/remove-unused", json::object{}, {{"scope", session.project_scope()}});
        session.output().details(answer, {{"removed", "removed"}});
      });
}

}  // namespace falaj::cli
