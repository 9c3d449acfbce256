// SPDX-License-Identifier: Apache-2.0
// features

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"

namespace falaj::cli {

void add_feature_commands(CLI::App& app, Session& session) {
  struct Options {
    std::string service, spine, time, into;
  };
  const auto options = std::make_shared<Options>();
  auto* features = app.add_subcommand("features", "Features of entities, as they were known at any moment");
  features->require_subcommand(1);
  auto* made = features->add_subcommand(
      "train-set", "Describe every row of a dataset by features as they were known at the row's own time");
  made->add_option("--service", options->service, "The FeatureService whose features are wanted")->required();
  made->add_option("--spine", options->spine, "The rows to describe: DATASET, or DATASET@VERSION")->required();
  made->add_option("--time", options->time, "Its column that says as of when; the dataset's own time when absent");
  made->add_option("--into", options->into, "The dataset whose next version it becomes; declared when missing")
      ->required();
  made->callback([&session, options] {
    const auto answer = session.api().post(
        "/v1/features/train-set",
        json::object{
            {"service", options->service}, {"spine", options->spine}, {"time", options->time}, {"into", options->into}},
        {{"scope", session.project_scope()}});
    using As = Column::As;
    session.output().details(answer, {{"dataset", "dataset"},
                                      {"version", "version"},
                                      {"rows", "rows"},
                                      {"bytes", "bytes", As::bytes},
                                      {"columns", "columns"},
                                      {"made of", "source"}});
  });
}

}  // namespace falaj::cli
