// SPDX-License-Identifier: Apache-2.0
// features: training sets

#include <fmt/format.h>

#include "api/call.h"
#include "api/features.h"
#include "api/project.h"
#include "api/turn.h"

namespace falaj::api {
namespace {

constexpr int kTrainSetsMax = 2;  // each sorts all rows of the spine and of its views

struct TrainSetIn {
  std::string service, spine, time, into, key;
};
struct TrainSetOut {
  std::string dataset, source;
  std::int64_t version = 0, rows = 0, bytes = 0;
  std::vector<std::string> columns;
};

}  // namespace
}  // namespace falaj::api

template <>
struct falaj::Shape<falaj::api::TrainSetIn> {
  using T = api::TrainSetIn;
  static constexpr std::string_view name = "TrainSet";
  static Fields fields() {
    return {
        field("service", &T::service, "The FeatureService whose features are wanted.")
            .required()
            .text({is_name, kNameRule}),
        field("spine", &T::spine, "The rows to describe: DATASET, or DATASET@VERSION.").required().length(1, 100),
        field("time", &T::time, "The column that says as of when; the dataset's own time when absent.").length(0, 255),
        field("into", &T::into, "The dataset whose next version it becomes; declared when it is not there.")
            .required()
            .text({is_name, kNameRule}),
        field("key", &T::key,
              "Of the caller's choice: with the same one the set is made once, and an upload to `into` that was begun "
              "with it says how far it is.")
            .length(0, 100)};
  }
};

template <>
struct falaj::Shape<falaj::api::TrainSetOut> {
  using T = api::TrainSetOut;
  static constexpr std::string_view name = "MadeTrainSet";
  static Fields fields() {
    return {field("dataset", &T::dataset, "Which dataset got a version."),
            field("version", &T::version, "Its number."),
            field("rows", &T::rows, "As many as the spine has."),
            field("bytes", &T::bytes, "Of its files."),
            field("columns", &T::columns, "Of the spine, then features."),
            field("source", &T::source, "The versions it was made of.")};
  }
};

namespace falaj::api {

data::Version make_train_set(Platform& platform, Call& call, const vault::Where& where,
                             const features::TrainSet& wanted) {
  call.require("dataset.write", where.scope());
  features::Features features(platform.database, platform.resources, platform.datasets, platform.online.definitions());
  return features.train_set(where, wanted, authorise(call), call.act(where.scope().str()));
}

void add_feature_routes(Routes& routes, Platform& platform) {
  const auto turns = std::make_shared<Turns>(kTrainSetsMax, "training sets");
  routes.add<TrainSetIn, TrainSetOut>(
      {Method::post, "/v1/features/train-set", Permission::of("dataset.write", "{scope}"), BodyLimit{16 * 1024},
       Audit::verb("features.train_set"), Place::worker,
       "Every row of a spine with the features of a service as they were known at the row's time."},
      [&platform, turns](Call& call, const TrainSetIn& in) {
        const Turn turn(*turns);
        const auto made = make_train_set(platform, call, project_of(call),
                                         {in.service, data::parse_version_name(in.spine), in.time, in.into, in.key});
        TrainSetOut out{made.dataset, made.source, made.number, made.rows, made.bytes, {}};
        for (const auto& column : made.schema) out.columns.push_back(column.name);
        return out;
      });
}

}  // namespace falaj::api
