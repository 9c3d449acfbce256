// SPDX-License-Identifier: Apache-2.0
// data: erasure of a person's rows

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/runs.h"
#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

struct EraseOptions {
  std::string subject;
  bool dry_run = false;
};

client::Query in_project(Session& session) { return {{"scope", session.project_scope()}}; }

void print_erasure(const Output& output, const json::value& report) {
  const auto& datasets = report.at("datasets").as_array();
  if (datasets.empty()) return output.line("nothing found");
  output.table(datasets, {{"dataset", "dataset"}, {"rows", "rows"}, {"versions", "held"}, {"left in", "version"}});
  const auto list = [&](std::string_view what, std::string_view key) {
    for (const auto& name : report.at(key).as_array())
      output.line(fmt::format("{} {}", what, harmless(name.as_string())));
  };
  bool any = false;
  for (const auto* key : {"versions", "runs", "logged_models", "models"}) any |= !report.at(key).as_array().empty();
  if (any) output.line("\nmade of those rows, and still there:");
  list("dataset", "versions");
  list("run", "runs");
  list("logged_model", "logged_models");
  list("model", "models");
}

// The server does it whoever waits; it is asked now and then how far it is.
json::value carry_out(Session& session, const std::string& id) {
  auto& api = session.api();
  const auto query = in_project(session);
  const auto path = fmt::format("/v1/erasures/{}", client::path_element(id));
  return with_progress(
      "erasing", session.clock(), session.quiet, [&] { return api.post(path + "/finish", json::object{}, query); },
      [&] { return api.get(path, query).at("done").to_number<double>(); });
}

void erase(Session& session, const EraseOptions& options) {
  const auto output = session.output();
  const json::object body{{"subject", options.subject}};
  if (options.dry_run) {
    const auto report = session.api().post("/v1/erasures/plan", body, in_project(session));
    return output.for_people() ? print_erasure(output, report) : output.value(report);
  }
  const auto begun = session.api().post("/v1/erasures", body, in_project(session));
  const std::string id(begun.at("id").as_string());
  json::value erased;
  try {
    erased = carry_out(session, id);
  } catch (const Error& e) {
    throw Error(e.code(),
                fmt::format("{}; it is on record as {} and goes on by itself: 'falaj data erasures' shows it, "
                            "the same command again waits for it",
                            e.what(), id));
  }
  if (!output.for_people()) return output.value(erased);
  print_erasure(output, erased.at("report"));
  output.line(fmt::format("\nerased; on record as {}", id));
}

void list_erasures(Session& session) {
  const auto items = get_items(session, "/v1/erasures", in_project(session), 100'000);
  session.output().table(items, {{"id", "id"},
                                 {"kind", "kind"},
                                 {"state", "state"},
                                 {"begun", "begun_us", As::time},
                                 {"by", "begun_by"},
                                 {"done", "done_us", As::time},
                                 {"subject", "subject"}});
}

}  // namespace

void add_data_commands(CLI::App& app, Session& session) {
  auto* data = app.add_subcommand("data", "People's rows: erase them everywhere, see what was erased");
  data->require_subcommand(1);
  const auto options = std::make_shared<EraseOptions>();
  auto* command = data->add_subcommand(
      "erase", "Take somebody's rows out of every dataset of the project, and list what was made of them");
  command->add_option("--subject", options->subject, "Who: a value of the column that personal.subjectKey names")
      ->required();
  command->add_flag("--dry-run", options->dry_run, "Only say what would be done");
  command->callback([&session, options] { erase(session, *options); });
  data->add_subcommand("erasures", "What was erased, by whom and when; who it was, only as a keyed hash")
      ->callback([&session] { list_erasures(session); });
}

}  // namespace falaj::cli
