// SPDX-License-Identifier: Apache-2.0
#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "lifecycle/track/track.h"

namespace falaj::api::mlflow {
namespace {

struct NewExperiment {
  std::string name, artifact_location;
  std::vector<PairIn> tags;
};
struct ExperimentIn {
  std::string experiment_id, experiment_name, new_name, key, value;
};
struct SearchIn {
  std::optional<std::int64_t> max_results;
  std::string page_token, filter, view_type;
  std::vector<std::string> order_by;
};
struct DatasetsIn {
  std::vector<std::string> experiment_ids;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<NewExperiment> {
  static constexpr std::string_view name = "MlflowNewExperiment";
  static Fields fields() {
    return {field("name", &NewExperiment::name, "Unique in the project.").required(),
            field("artifact_location", &NewExperiment::artifact_location, "Not to be given: artifacts are kept here."),
            field("tags", &NewExperiment::tags, "Tags.")};
  }
};
template <>
struct Shape<ExperimentIn> {
  static constexpr std::string_view name = "MlflowExperimentRequest";
  static Fields fields() {
    return {field("experiment_id", &ExperimentIn::experiment_id, "Which."),
            field("experiment_name", &ExperimentIn::experiment_name, "Which, by name."),
            field("new_name", &ExperimentIn::new_name, "To rename it."), field("key", &ExperimentIn::key, "Of a tag."),
            field("value", &ExperimentIn::value, "Of a tag.")};
  }
};
template <>
struct Shape<SearchIn> {
  static constexpr std::string_view name = "MlflowSearchExperiments";
  static Fields fields() {
    return {field("max_results", &SearchIn::max_results, "Most in a page."),
            field("page_token", &SearchIn::page_token, "From the page before."),
            field("filter", &SearchIn::filter, "Comparisons joined by AND."),
            field("order_by", &SearchIn::order_by, "Keys with ASC or DESC."),
            field("view_type", &SearchIn::view_type, "ACTIVE_ONLY, DELETED_ONLY or ALL.")};
  }
};
template <>
struct Shape<DatasetsIn> {
  static constexpr std::string_view name = "MlflowSearchDatasets";
  static Fields fields() {
    return {field("experiment_ids", &DatasetsIn::experiment_ids, "Of which experiments.").required()};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

std::string experiment_scope(const track::Where& where, std::string_view id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "experiment", id).str();
}

std::string answer(const track::Experiment& experiment) {
  Text out;
  put(out.open('{').key("experiment"), experiment);
  return out.close('}').take();
}

std::string search(track::Track& track, const track::Where& where, const SearchIn& in) {
  track::SearchExperiments search;
  search.filter = in.filter;
  search.order_by = in.order_by;
  search.view = parse_view(in.view_type);
  search.limit = limit_of(in.max_results, 1000, track::kSearchMax);
  search.offset = parse_page_token(in.page_token);
  const auto found = track.search_experiments(where, search);
  Text out;
  out.open('{').key("experiments").open('[');
  for (const auto& experiment : found.items) put(out, experiment);
  out.close(']');
  if (found.more) out.key("next_page_token").string(page_token(search.offset + found.items.size()));
  return out.close('}').take();
}

}  // namespace

void add_experiment_routes(Routes& routes, Platform& platform) {
  auto& track = platform.track;
  const auto reads = [](Method method, std::string_view path, std::string_view summary) {
    return Declaration{method,        path,   allowed_in_project("experiment.read"), kMessageMax, Audit::read(),
                       Place::worker, summary};
  };
  const auto writes = [](std::string_view path, std::string_view verb, std::string_view summary) {
    return Declaration{Method::post,  path,   allowed_in_project("experiment.write"), kMessageMax, Audit::verb(verb),
                       Place::worker, summary};
  };
  rpc<NewExperiment>(
      routes, writes("/api/2.0/mlflow/experiments/create", "experiment.create", "MLflow: make an experiment."),
      [&track](Call& call, const track::Where& where, const NewExperiment& in) {
        // A location elsewhere would have clients write past our access rules, zones and audit.
        if (!in.artifact_location.empty() && !in.artifact_location.starts_with("mlflow-artifacts:/"))
          throw Error(Code::invalid, "artifact_location: artifacts are kept by the platform; leave it out");
        const auto number = track.create_experiment(where, in.name, pairs_of(in.tags), call.act(where.scope().str()));
        Text out;
        out.open('{').key("experiment_id").string(std::to_string(number)).close('}');
        return out.take();
      });
  rpc<ExperimentIn>(routes, reads(Method::get, "/api/2.0/mlflow/experiments/get", "MLflow: an experiment."),
                    [&track](Call&, const track::Where& where, const ExperimentIn& in) {
                      return answer(track.experiment(where, experiment_number(in.experiment_id)));
                    });
  rpc<ExperimentIn>(routes,
                    reads(Method::get, "/api/2.0/mlflow/experiments/get-by-name", "MLflow: an experiment by its name."),
                    [&track](Call&, const track::Where& where, const ExperimentIn& in) {
                      return answer(track.experiment_by_name(where, in.experiment_name));
                    });
  const auto find = [&track](Call&, const track::Where& where, const SearchIn& in) { return search(track, where, in); };
  rpc<SearchIn>(routes, reads(Method::post, "/api/2.0/mlflow/experiments/search", "MLflow: search experiments."), find);
  rpc<SearchIn>(routes, reads(Method::get, "/api/2.0/mlflow/experiments/search", "MLflow: search experiments."), find);
  rpc<ExperimentIn>(routes,
                    writes("/api/2.0/mlflow/experiments/update", "experiment.update", "MLflow: rename an experiment."),
                    [&track](Call& call, const track::Where& where, const ExperimentIn& in) {
                      track.rename_experiment(where, experiment_number(in.experiment_id), in.new_name,
                                              call.act(experiment_scope(where, in.experiment_id)));
                      return std::string(kEmpty);
                    });
  for (const bool deletes : {true, false})
    rpc<ExperimentIn>(routes,
                      deletes ? writes("/api/2.0/mlflow/experiments/delete", "experiment.hide",
                                       "MLflow: delete an experiment and its runs; restore brings them back.")
                              : writes("/api/2.0/mlflow/experiments/restore", "experiment.restore",
                                       "MLflow: bring a deleted experiment back."),
                      [&track, deletes](Call& call, const track::Where& where, const ExperimentIn& in) {
                        track.set_experiment_stage(where, experiment_number(in.experiment_id),
                                                   deletes ? track::Stage::deleted : track::Stage::active,
                                                   call.act(experiment_scope(where, in.experiment_id)));
                        return std::string(kEmpty);
                      });
  rpc<ExperimentIn>(
      routes,
      writes("/api/2.0/mlflow/experiments/set-experiment-tag", "experiment.update", "MLflow: tag an experiment."),
      [&track](Call& call, const track::Where& where, const ExperimentIn& in) {
        track.set_experiment_tag(where, experiment_number(in.experiment_id), {in.key, in.value},
                                 call.act(experiment_scope(where, in.experiment_id)));
        return std::string(kEmpty);
      });
  rpc<ExperimentIn>(routes,
                    writes("/api/2.0/mlflow/experiments/delete-experiment-tag", "experiment.update",
                           "MLflow: remove a tag of an experiment."),
                    [&track](Call& call, const track::Where& where, const ExperimentIn& in) {
                      track.delete_experiment_tag(where, experiment_number(in.experiment_id), in.key,
                                                  call.act(experiment_scope(where, in.experiment_id)));
                      return std::string(kEmpty);
                    });
  rpc<DatasetsIn>(
      routes,
      reads(Method::post, "/api/2.0/mlflow/experiments/search-datasets", "MLflow: the datasets runs were given."),
      [&track](Call&, const track::Where& where, const DatasetsIn& in) {
        std::vector<std::int64_t> numbers;
        for (const auto& id : in.experiment_ids) numbers.push_back(experiment_number(id));
        Text out;
        out.open('{').key("dataset_summaries").open('[');
        for (const auto& d : track.datasets(where, numbers)) {
          out.open('{').key("experiment_id").string(std::to_string(d.experiment)).key("name").string(d.name);
          out.key("digest").string(d.digest).text_member("context", d.context).close('}');
        }
        return out.close(']').close('}').take();
      });
}

}  // namespace falaj::api::mlflow
