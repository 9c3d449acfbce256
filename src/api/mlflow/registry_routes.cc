// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api::mlflow {
namespace {

struct ModelIn {
  std::string name, new_name, description, key, value, alias, version;
  std::vector<PairIn> tags;
  std::vector<std::string> stages;
};
struct SearchModelsIn {
  std::string filter, page_token;
  std::vector<std::string> order_by;
  std::optional<std::int64_t> max_results;
};
struct VersionIn {
  std::string name, version, source, run_id, run_link, description, model_id, stage, key, value, path;
  std::vector<PairIn> tags;
  bool archive_existing_versions = false;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<ModelIn> {
  static constexpr std::string_view name = "MlflowRegisteredModelRequest";
  static Fields fields() {
    return {field("name", &ModelIn::name, "Which model.").required(),
            field("new_name", &ModelIn::new_name, "To rename it."),
            field("description", &ModelIn::description, "For people."),
            field("key", &ModelIn::key, "Of a tag."),
            field("value", &ModelIn::value, "Of a tag."),
            field("alias", &ModelIn::alias, "An alias."),
            field("version", &ModelIn::version, "A version's number."),
            field("tags", &ModelIn::tags, "Tags."),
            field("stages", &ModelIn::stages, "None, Staging, Production, Archived.")};
  }
};
template <>
struct Shape<SearchModelsIn> {
  static constexpr std::string_view name = "MlflowSearchRegistry";
  static Fields fields() {
    return {field("filter", &SearchModelsIn::filter, "Comparisons joined by AND."),
            field("page_token", &SearchModelsIn::page_token, "From the page before."),
            field("order_by", &SearchModelsIn::order_by, "Keys with ASC or DESC."),
            field("max_results", &SearchModelsIn::max_results, "Most in a page.")};
  }
};
template <>
struct Shape<VersionIn> {
  static constexpr std::string_view name = "MlflowModelVersionRequest";
  static Fields fields() {
    return {
        field("name", &VersionIn::name, "Which model.").required(),
        field("version", &VersionIn::version, "Its number."),
        field("source", &VersionIn::source, "Where its files are: runs:/, models:/ or mlflow-artifacts:/."),
        field("run_id", &VersionIn::run_id, "The run that made it."),
        field("run_link", &VersionIn::run_link, "A link."),
        field("description", &VersionIn::description, "For people."),
        field("model_id", &VersionIn::model_id, "The logged model it is."),
        field("stage", &VersionIn::stage, "None, Staging, Production or Archived."),
        field("archive_existing_versions", &VersionIn::archive_existing_versions, "Whether the others there leave it."),
        field("key", &VersionIn::key, "Of a tag."),
        field("value", &VersionIn::value, "Of a tag."),
        field("path", &VersionIn::path, "Of an artifact."),
        field("tags", &VersionIn::tags, "Tags.")};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using models::Registry;
using track::Where;

std::string model_scope(const Where& where, std::string_view name) {
  const bool plain = !name.empty() && name.size() <= models::kNameBytesMax && name.find('/') == std::string_view::npos;
  return plain ? iam::Scope::of(where.tenant.str(), where.project.str(), "model", name).str() : where.scope().str();
}

Declaration reads_model(Method method, std::string_view path, std::string_view summary) {
  return {method, path, allowed_in_project("model.read"), kMessageMax, Audit::read(), Place::worker, summary};
}
Declaration writes_model(Method method, std::string_view path, std::string_view verb, std::string_view summary) {
  return {method, path, allowed_in_project("model.write"), kMessageMax, Audit::verb(verb), Place::worker, summary};
}

std::int64_t number_of(const std::string& version) {
  const auto number = parse_int(version);
  if (!number || *number < 1)
    throw Error(Code::invalid, fmt::format("version: a whole number from 1, not '{}'", version.substr(0, 40)));
  return *number;
}

models::Stage stage_of(const std::string& text) {
  const auto stage = models::parse_stage(text);
  if (!stage)
    throw Error(Code::invalid,
                fmt::format("stage: None, Staging, Production or Archived, not '{}'", text.substr(0, 40)));
  return *stage;
}

void put(Text& out, const models::Version& v) {
  out.open('{').key("name").string(v.model).key("version").string(std::to_string(v.number));
  out.key("creation_timestamp").number(v.created_ms).key("last_updated_timestamp").number(v.updated_ms);
  out.text_member("user_id", v.created_by).key("current_stage").string(models::name(v.stage));
  out.text_member("description", v.description).key("source").string(v.source);
  out.text_member("run_id", v.run_id).key("status").string("READY").text_member("run_link", v.run_link);
  out.text_member("model_id", v.model_id);
  if (!v.tags.empty()) put(out.key("tags"), v.tags);
  if (!v.aliases.empty()) {
    out.key("aliases").open('[');
    for (const auto& alias : v.aliases) out.string(alias);
    out.close(']');
  }
  out.close('}');
}

void put(Text& out, const models::Model& m) {
  out.open('{').key("name").string(m.name).key("creation_timestamp").number(m.created_ms);
  out.key("last_updated_timestamp").number(m.updated_ms).text_member("user_id", m.created_by);
  out.text_member("description", m.description);
  if (!m.latest.empty()) {
    out.key("latest_versions").open('[');
    for (const auto& version : m.latest) put(out, version);
    out.close(']');
  }
  if (!m.tags.empty()) put(out.key("tags"), m.tags);
  if (!m.aliases.empty()) {
    out.key("aliases").open('[');
    for (const auto& alias : m.aliases)
      out.open('{').key("alias").string(alias.alias).key("version").string(std::to_string(alias.version)).close('}');
    out.close(']');
  }
  out.close('}');
}

template <class T>
std::string answer(std::string_view member, const T& value) {
  Text out;
  put(out.open('{').key(member), value);
  return out.close('}').take();
}

template <class T>
std::string page(std::string_view member, const track::Found<T>& found, std::size_t offset) {
  Text out;
  out.open('{');
  if (!found.items.empty()) {
    out.key(member).open('[');
    for (const auto& item : found.items) put(out, item);
    out.close(']');
  }
  if (found.more) out.key("next_page_token").string(page_token(offset + found.items.size()));
  return out.close('}').take();
}

void add_models(Routes& routes, Registry& registry) {
  rpc<ModelIn>(routes,
               writes_model(Method::post, "/api/2.0/mlflow/registered-models/create", "model.create",
                            "MLflow: register a model."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 return answer("registered_model",
                               registry.create_model(where, in.name, pairs_of(in.tags), in.description,
                                                     call.act(model_scope(where, in.name))));
               });
  rpc<ModelIn>(routes, reads_model(Method::get, "/api/2.0/mlflow/registered-models/get", "MLflow: a registered model."),
               [&](Call&, const Where& where, const ModelIn& in) {
                 return answer("registered_model", registry.model(where, in.name));
               });
  rpc<ModelIn>(routes,
               writes_model(Method::patch, "/api/2.0/mlflow/registered-models/update", "model.update",
                            "MLflow: describe a registered model."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 return answer("registered_model", registry.describe_model(where, in.name, in.description,
                                                                           call.act(model_scope(where, in.name))));
               });
  rpc<ModelIn>(routes,
               writes_model(Method::post, "/api/2.0/mlflow/registered-models/rename", "model.rename",
                            "MLflow: rename a registered model."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 return answer("registered_model", registry.rename_model(where, in.name, in.new_name,
                                                                         call.act(model_scope(where, in.name))));
               });
  rpc<ModelIn>(routes,
               writes_model(Method::del, "/api/2.0/mlflow/registered-models/delete", "model.delete",
                            "MLflow: delete a registered model and its versions."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 registry.delete_model(where, in.name, call.act(model_scope(where, in.name)));
                 return std::string(kEmpty);
               });
  rpc<SearchModelsIn>(
      routes, reads_model(Method::get, "/api/2.0/mlflow/registered-models/search", "MLflow: search registered models."),
      [&](Call&, const Where& where, const SearchModelsIn& in) {
        const models::Search search{in.filter, in.order_by, parse_page_token(in.page_token),
                                    limit_of(in.max_results, 100, models::kSearchModelsMax)};
        return page("registered_models", registry.search_models(where, search), search.offset);
      });
  const auto latest = [&](Call&, const Where& where, const ModelIn& in) {
    std::vector<models::Stage> stages;
    for (const auto& stage : in.stages) stages.push_back(stage_of(stage));
    return page("model_versions",
                track::Found<models::Version>{registry.latest_versions(where, in.name, stages), false}, 0);
  };
  for (const auto method : {Method::post, Method::get})
    rpc<ModelIn>(routes,
                 reads_model(method, "/api/2.0/mlflow/registered-models/get-latest-versions",
                             "MLflow: the newest version of each stage."),
                 latest);
  rpc<ModelIn>(routes,
               writes_model(Method::post, "/api/2.0/mlflow/registered-models/set-tag", "model.update",
                            "MLflow: tag a registered model."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 registry.set_model_tag(where, in.name, {in.key, in.value}, call.act(model_scope(where, in.name)));
                 return std::string(kEmpty);
               });
  rpc<ModelIn>(routes,
               writes_model(Method::del, "/api/2.0/mlflow/registered-models/delete-tag", "model.update",
                            "MLflow: remove a tag of a registered model."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 registry.delete_model_tag(where, in.name, in.key, call.act(model_scope(where, in.name)));
                 return std::string(kEmpty);
               });
}

void add_aliases(Routes& routes, Registry& registry) {
  rpc<ModelIn>(
      routes,
      reads_model(Method::get, "/api/2.0/mlflow/registered-models/alias", "MLflow: the version an alias points at."),
      [&](Call&, const Where& where, const ModelIn& in) {
        return answer("model_version", registry.by_alias(where, in.name, in.alias));
      });
  rpc<ModelIn>(routes,
               writes_model(Method::post, "/api/2.0/mlflow/registered-models/alias", "model.alias",
                            "MLflow: point an alias at a version."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 registry.set_alias(where, in.name, in.alias, number_of(in.version),
                                    call.act(model_scope(where, in.name)));
                 return std::string(kEmpty);
               });
  rpc<ModelIn>(routes,
               writes_model(Method::del, "/api/2.0/mlflow/registered-models/alias", "model.alias",
                            "MLflow: take an alias away."),
               [&](Call& call, const Where& where, const ModelIn& in) {
                 registry.delete_alias(where, in.name, in.alias, call.act(model_scope(where, in.name)));
                 return std::string(kEmpty);
               });
}

void add_versions(Routes& routes, Registry& registry) {
  rpc<VersionIn>(routes,
                 writes_model(Method::post, "/api/2.0/mlflow/model-versions/create", "model.version",
                              "MLflow: make a version of a model."),
                 [&](Call& call, const Where& where, const VersionIn& in) {
                   return answer("model_version",
                                 registry.create_version(where,
                                                         {in.name, in.source, in.run_id, in.run_link, in.model_id,
                                                          in.description, pairs_of(in.tags)},
                                                         call.act(model_scope(where, in.name))));
                 });
  rpc<VersionIn>(routes,
                 reads_model(Method::get, "/api/2.0/mlflow/model-versions/get", "MLflow: a version of a model."),
                 [&](Call&, const Where& where, const VersionIn& in) {
                   return answer("model_version", registry.version(where, in.name, number_of(in.version)));
                 });
  rpc<VersionIn>(routes,
                 writes_model(Method::patch, "/api/2.0/mlflow/model-versions/update", "model.update",
                              "MLflow: describe a version."),
                 [&](Call& call, const Where& where, const VersionIn& in) {
                   return answer("model_version",
                                 registry.describe_version(where, in.name, number_of(in.version), in.description,
                                                           call.act(model_scope(where, in.name))));
                 });
  rpc<VersionIn>(routes,
                 writes_model(Method::del, "/api/2.0/mlflow/model-versions/delete", "model.delete",
                              "MLflow: delete a version and the aliases that point at it."),
                 [&](Call& call, const Where& where, const VersionIn& in) {
                   registry.delete_version(where, in.name, number_of(in.version),
                                           call.act(model_scope(where, in.name)));
                   return std::string(kEmpty);
                 });
  rpc<SearchModelsIn>(
      routes, reads_model(Method::get, "/api/2.0/mlflow/model-versions/search", "MLflow: search versions of models."),
      [&](Call&, const Where& where, const SearchModelsIn& in) {
        const models::Search search{in.filter, in.order_by, parse_page_token(in.page_token),
                                    limit_of(in.max_results, 10'000, models::kSearchVersionsMax)};
        return page("model_versions", registry.search_versions(where, search), search.offset);
      });
  rpc<VersionIn>(routes,
                 reads_model(Method::get, "/api/2.0/mlflow/model-versions/get-download-uri",
                             "MLflow: where the files of a version are."),
                 [&](Call&, const Where& where, const VersionIn& in) {
                   const auto version = registry.version(where, in.name, number_of(in.version));
                   Text out;
                   out.open('{').key("artifact_uri").string(models::artifact_uri(version)).close('}');
                   return out.take();
                 });
  rpc<VersionIn>(routes,
                 writes_model(Method::post, "/api/2.0/mlflow/model-versions/transition-stage", "model.stage",
                              "MLflow, deprecated: move a version to a stage."),
                 [&](Call& call, const Where& where, const VersionIn& in) {
                   return answer("model_version", registry.set_stage(where, in.name, number_of(in.version),
                                                                     stage_of(in.stage), in.archive_existing_versions,
                                                                     call.act(model_scope(where, in.name))));
                 });
  rpc<VersionIn>(
      routes,
      writes_model(Method::post, "/api/2.0/mlflow/model-versions/set-tag", "model.update", "MLflow: tag a version."),
      [&](Call& call, const Where& where, const VersionIn& in) {
        registry.set_version_tag(where, in.name, number_of(in.version), {in.key, in.value},
                                 call.act(model_scope(where, in.name)));
        return std::string(kEmpty);
      });
  rpc<VersionIn>(routes,
                 writes_model(Method::del, "/api/2.0/mlflow/model-versions/delete-tag", "model.update",
                              "MLflow: remove a tag of a version."),
                 [&](Call& call, const Where& where, const VersionIn& in) {
                   registry.delete_version_tag(where, in.name, number_of(in.version), in.key,
                                               call.act(model_scope(where, in.name)));
                   return std::string(kEmpty);
                 });
}

}  // namespace

void add_registry_routes(Routes& routes, Platform& platform) {
  add_models(routes, platform.models);
  add_aliases(routes, platform.models);
  add_versions(routes, platform.models);
  routes.add_foreign(reads_model(Method::get, "/model-versions/get-artifact", "MLflow: one file of a version."),
                     schema_of<VersionIn>, [&platform](Call& call, net::Request& request) {
                       const auto in = read<VersionIn>(call, request, Method::get);
                       const auto where = where_of(call.parameters(), call.caller());
                       const auto version = platform.models.version(where, in.name, number_of(in.version));
                       return send_entry(platform, call, where,
                                         platform.models.file(where, version.model_row, version.number,
                                                              track::checked_artifact_path(in.path)));
                     });
}

}  // namespace falaj::api::mlflow
