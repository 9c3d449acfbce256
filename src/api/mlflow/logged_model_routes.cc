// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/logged_models.h"

namespace falaj::api::mlflow {
namespace {

struct NewLoggedModelIn {
  std::string experiment_id, name, model_type, source_run_id;
  std::vector<PairIn> params, tags;
};
struct LoggedModelIn {
  std::string status, artifact_directory_path, artifact_file_path;
  bool allow_deleted = false;
  std::vector<PairIn> params, tags;
};
struct DatasetRefIn {
  std::string dataset_name, dataset_digest;
};
struct OrderByIn {
  std::string field_name, dataset_name, dataset_digest;
  std::optional<bool> ascending;
};
struct SearchLoggedModelsIn {
  std::vector<std::string> experiment_ids;
  std::string filter, page_token;
  std::vector<DatasetRefIn> datasets;
  std::vector<OrderByIn> order_by;
  std::optional<std::int64_t> max_results;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<NewLoggedModelIn> {
  static constexpr std::string_view name = "MlflowNewLoggedModel";
  static Fields fields() {
    return {field("experiment_id", &NewLoggedModelIn::experiment_id, "Its experiment.").required(),
            field("name", &NewLoggedModelIn::name, "A name; one is made up when absent."),
            field("model_type", &NewLoggedModelIn::model_type, "What kind."),
            field("source_run_id", &NewLoggedModelIn::source_run_id, "The run that makes it."),
            field("params", &NewLoggedModelIn::params, "Params."),
            field("tags", &NewLoggedModelIn::tags, "Tags.")};
  }
};
template <>
struct Shape<LoggedModelIn> {
  static constexpr std::string_view name = "MlflowLoggedModelRequest";
  static Fields fields() {
    return {field("status", &LoggedModelIn::status, "LOGGED_MODEL_READY or LOGGED_MODEL_UPLOAD_FAILED."),
            field("allow_deleted", &LoggedModelIn::allow_deleted, "Whether a deleted one is shown."),
            field("artifact_directory_path", &LoggedModelIn::artifact_directory_path, "A directory of its artifacts."),
            field("artifact_file_path", &LoggedModelIn::artifact_file_path, "A file of its artifacts."),
            field("params", &LoggedModelIn::params, "Params."),
            field("tags", &LoggedModelIn::tags, "Tags.")};
  }
};
template <>
struct Shape<DatasetRefIn> {
  static constexpr std::string_view name = "MlflowDatasetRef";
  static Fields fields() {
    return {field("dataset_name", &DatasetRefIn::dataset_name, "Name.").required(),
            field("dataset_digest", &DatasetRefIn::dataset_digest, "Digest.")};
  }
};
template <>
struct Shape<OrderByIn> {
  static constexpr std::string_view name = "MlflowLoggedModelOrder";
  static Fields fields() {
    return {field("field_name", &OrderByIn::field_name, "An attribute, or metrics.KEY.").required(),
            field("ascending", &OrderByIn::ascending, "True when absent."),
            field("dataset_name", &OrderByIn::dataset_name, "Only as measured on it."),
            field("dataset_digest", &OrderByIn::dataset_digest, "Its digest.")};
  }
};
template <>
struct Shape<SearchLoggedModelsIn> {
  static constexpr std::string_view name = "MlflowSearchLoggedModels";
  static Fields fields() {
    return {field("experiment_ids", &SearchLoggedModelsIn::experiment_ids, "Of which experiments."),
            field("filter", &SearchLoggedModelsIn::filter, "Comparisons joined by AND."),
            field("datasets", &SearchLoggedModelsIn::datasets, "Metrics count as measured on one of these."),
            field("order_by", &SearchLoggedModelsIn::order_by, "Fields."),
            field("max_results", &SearchLoggedModelsIn::max_results, "Most in a page."),
            field("page_token", &SearchLoggedModelsIn::page_token, "From the page before.")};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using track::Where;

std::string logged_model_scope(const Where& where, std::string_view id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "logged-model", id).str();
}

void put(Text& out, const track::LoggedModel& m, const std::vector<models::Registration>& registrations) {
  out.open('{').key("info").open('{').key("model_id").string(m.model_id);
  out.key("experiment_id").string(std::to_string(m.experiment)).key("name").string(m.name);
  out.key("creation_timestamp_ms").number(m.created_ms).key("last_updated_timestamp_ms").number(m.updated_ms);
  out.key("artifact_uri").string(track::artifact_uri(m)).key("status").string(track::name(m.status));
  out.text_member("model_type", m.type).text_member("source_run_id", m.source_run_id);
  if (!m.tags.empty()) put(out.key("tags"), m.tags);
  bool any = false;
  for (const auto& r : registrations) {
    if (r.model_id != m.model_id) continue;
    if (!any) out.key("registrations").open('[');
    any = true;
    out.open('{').key("name").string(r.name).key("version").string(std::to_string(r.version)).close('}');
  }
  if (any) out.close(']');
  out.close('}').key("data").open('{');
  if (!m.params.empty()) put(out.key("params"), m.params);
  if (!m.metrics.empty()) {
    out.key("metrics").open('[');
    for (const auto& metric : m.metrics) {
      const auto& point = metric.metric.point;
      out.open('{').key("key").string(metric.metric.key).key("value").number(point.value);
      out.key("timestamp").number(point.unix_ms).key("step").number(point.step);
      out.text_member("model_id", metric.metric.model_id).text_member("dataset_name", metric.metric.dataset_name);
      out.text_member("dataset_digest", metric.metric.dataset_digest).text_member("run_id", metric.run_id).close('}');
    }
    out.close(']');
  }
  out.close('}').close('}');
}

std::string answer(Platform& platform, const Where& where, const track::LoggedModel& model) {
  Text out;
  put(out.open('{').key("model"), model, platform.models.registrations(where, {model.model_id}));
  return out.close('}').take();
}

Declaration reads_logged_model(Method method, std::string_view path, std::string_view summary) {
  return {method, path, allowed_in_project("run.read"), kMessageMax, Audit::read(), Place::worker, summary};
}
Declaration writes_logged_model(Method method, std::string_view path, std::string_view verb, std::string_view summary) {
  return {method, path, allowed_in_project("run.write"), kMessageMax, Audit::verb(verb), Place::worker, summary};
}

std::string search(Platform& platform, const Where& where, const SearchLoggedModelsIn& in) {
  track::SearchLoggedModels search;
  for (const auto& id : in.experiment_ids) search.experiments.push_back(experiment_number(id));
  search.filter = in.filter;
  for (const auto& d : in.datasets) search.datasets.push_back({d.dataset_name, d.dataset_digest});
  for (const auto& o : in.order_by)
    search.order_by.push_back({o.field_name, o.ascending.value_or(true), {o.dataset_name, o.dataset_digest}});
  search.limit = limit_of(in.max_results, 100, track::kSearchMax);
  search.offset = parse_page_token(in.page_token);
  const auto found = platform.logged_models.search(where, search);
  std::vector<std::string> ids;
  for (const auto& model : found.items) ids.push_back(model.model_id);
  const auto registrations = platform.models.registrations(where, ids);
  Text out;
  out.open('{').key("models").open('[');
  for (const auto& model : found.items) put(out, model, registrations);
  out.close(']');
  if (found.more) out.key("next_page_token").string(page_token(search.offset + found.items.size()));
  return out.close('}').take();
}

}  // namespace

void add_logged_model_routes(Routes& routes, Platform& platform) {
  auto& logged = platform.logged_models;
  rpc<NewLoggedModelIn>(routes,
                        writes_logged_model(Method::post, "/api/2.0/mlflow/logged-models", "logged-model.create",
                                            "MLflow: begin to log a model."),
                        [&](Call& call, const Where& where, const NewLoggedModelIn& in) {
                          // The experiment is there before the first run of a project that nobody has used yet.
                          (void)platform.track.experiment(where, experiment_number(in.experiment_id));
                          return answer(platform, where,
                                        logged.create(where,
                                                      {experiment_number(in.experiment_id), in.name, in.model_type,
                                                       in.source_run_id, pairs_of(in.params), pairs_of(in.tags)},
                                                      call.act(where.scope().str())));
                        });
  rpc<LoggedModelIn>(
      routes, reads_logged_model(Method::get, "/api/2.0/mlflow/logged-models/{model_id}", "MLflow: a logged model."),
      [&](Call& call, const Where& where, const LoggedModelIn& in) {
        return answer(platform, where, logged.get(where, call.parameter("model_id"), in.allow_deleted));
      });
  rpc<LoggedModelIn>(
      routes,
      writes_logged_model(Method::patch, "/api/2.0/mlflow/logged-models/{model_id}", "logged-model.update",
                          "MLflow: say that a model is ready, or that its upload failed."),
      [&](Call& call, const Where& where, const LoggedModelIn& in) {
        auto status = track::parse_model_status(in.status);
        if (const auto number = parse_int(in.status); !status && number && *number >= 1 && *number <= 3)
          status = static_cast<track::ModelStatus>(*number);
        if (!status)
          throw Error(Code::invalid, fmt::format("status: LOGGED_MODEL_READY or LOGGED_MODEL_UPLOAD_FAILED, not '{}'",
                                                 in.status.substr(0, 40)));
        const auto& id = call.parameter("model_id");
        return answer(platform, where, logged.set_status(where, id, *status, call.act(logged_model_scope(where, id))));
      });
  rpc<LoggedModelIn>(routes,
                     writes_logged_model(Method::del, "/api/2.0/mlflow/logged-models/{model_id}", "logged-model.hide",
                                         "MLflow: delete a logged model."),
                     [&](Call& call, const Where& where, const LoggedModelIn&) {
                       const auto& id = call.parameter("model_id");
                       logged.remove(where, id, call.act(logged_model_scope(where, id)));
                       return std::string(kEmpty);
                     });
  rpc<SearchLoggedModelsIn>(
      routes, reads_logged_model(Method::post, "/api/2.0/mlflow/logged-models/search", "MLflow: search logged models."),
      [&](Call&, const Where& where, const SearchLoggedModelsIn& in) { return search(platform, where, in); });
  rpc<LoggedModelIn>(routes,
                     writes_logged_model(Method::patch, "/api/2.0/mlflow/logged-models/{model_id}/tags",
                                         "logged-model.update", "MLflow: tag a logged model."),
                     [&](Call& call, const Where& where, const LoggedModelIn& in) {
                       const auto& id = call.parameter("model_id");
                       logged.set_tags(where, id, pairs_of(in.tags), call.act(logged_model_scope(where, id)));
                       return answer(platform, where, logged.get(where, id));
                     });
  rpc<LoggedModelIn>(routes,
                     writes_logged_model(Method::del, "/api/2.0/mlflow/logged-models/{model_id}/tags/{tag_key*}",
                                         "logged-model.update", "MLflow: remove a tag of a logged model."),
                     [&](Call& call, const Where& where, const LoggedModelIn&) {
                       const auto& id = call.parameter("model_id");
                       logged.delete_tag(where, id, call.parameter("tag_key"), call.act(logged_model_scope(where, id)));
                       return std::string(kEmpty);
                     });
  rpc<LoggedModelIn>(routes,
                     writes_logged_model(Method::post, "/api/2.0/mlflow/logged-models/{model_id}/params",
                                         "logged-model.update", "MLflow: log params of a logged model."),
                     [&](Call& call, const Where& where, const LoggedModelIn& in) {
                       const auto& id = call.parameter("model_id");
                       logged.log_params(where, id, pairs_of(in.params), call.act(logged_model_scope(where, id)));
                       return std::string(kEmpty);
                     });
  rpc<LoggedModelIn>(
      routes,
      reads_logged_model(Method::get, "/api/2.0/mlflow/logged-models/{model_id}/artifacts/directories",
                         "MLflow: the artifacts of a logged model."),
      [&](Call& call, const Where& where, const LoggedModelIn& in) {
        const auto model = logged.get(where, call.parameter("model_id"));
        const auto path = track::checked_artifact_path(in.artifact_directory_path);
        Text out;
        out.open('{').key("root_uri").string(track::artifact_uri(model));
        put_files(out, track::list_artifacts(platform.vault, where, track::model_artifact(model.model_id, path)), path);
        return out.close('}').take();
      });
  routes.add_foreign(reads_logged_model(Method::get, "/api/2.0/mlflow/logged-models/{model_id}/artifacts/files",
                                        "MLflow: one artifact of a logged model."),
                     schema_of<LoggedModelIn>, [&](Call& call, net::Request& request) {
                       const auto in = read<LoggedModelIn>(call, request, Method::get);
                       const auto where = where_of(call.parameters(), call.caller());
                       const auto model = logged.get(where, call.parameter("model_id"));
                       return send_artifact(
                           platform, call, where,
                           track::model_artifact(model.model_id, track::checked_artifact_path(in.artifact_file_path)));
                     });
}

}  // namespace falaj::api::mlflow
