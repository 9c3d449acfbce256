// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::api::mlflow {
namespace {

constexpr BodyLimit kArtifactMax{std::uint64_t{1} << 40};

struct ListIn {
  std::string run_id, run_uuid, path;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<ListIn> {
  static constexpr std::string_view name = "MlflowListArtifacts";
  static Fields fields() {
    return {field("run_id", &ListIn::run_id, "Which run."), field("run_uuid", &ListIn::run_uuid, "The same."),
            field("path", &ListIn::path, "A directory; the root when absent.")};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using track::Where;

}  // namespace

Target target_of(Platform& platform, const Where& where, std::string_view given, bool writes) {
  const auto path = track::checked_artifact_path(given);
  const auto parts = split(path, '/');
  const auto below = [&](std::size_t skip) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < skip; ++i) at += parts[i].size() + 1;
    return at >= path.size() ? std::string() : path.substr(at);
  };
  const auto scope = [&](std::string_view kind, std::string_view id) {
    return iam::Scope::of(where.tenant.str(), where.project.str(), kind, id).str();
  };
  if (parts.size() >= 4 && parts[1] == "models" && parts[3] == "artifacts") {
    const std::string id(parts[2]);
    (void)platform.logged_models.get(where, id);  // of this project, and not deleted
    return {track::model_artifact(id, below(4)), scope("logged-model", id), below(4)};
  }
  if (parts.size() >= 3 && parts[2] == "artifacts") {
    const std::string id(parts[1]);
    const auto run = platform.track.run_info(where, id);
    if (run.experiment != experiment_number(std::string(parts[0])))
      throw Error(Code::not_found, fmt::format("the run {} is not of experiment {}", id, parts[0]));
    if (writes && run.stage != track::Stage::active)
      throw Error(Code::invalid, fmt::format("the run {} is deleted: restore it first", id));
    return {track::run_artifact(id, below(3)), scope("run", id), below(3)};
  }
  throw Error(Code::invalid, fmt::format("invalid path: artifacts belong to a run or a model, "
                                         "EXPERIMENT/RUN/artifacts/... : '{}'",
                                         path.substr(0, 200)));
}

namespace {

std::string_view type_of(std::string_view path) {
  const auto dot = path.rfind('.');
  const auto ending = dot == std::string_view::npos ? "" : lower(path.substr(dot + 1));
  for (const auto& [known, type] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"json", "application/json"}, {"txt", "text/plain"}, {"png", "image/png"}, {"csv", "text/csv"}})
    if (ending == known) return type;
  return "application/octet-stream";
}

}  // namespace

net::Response send_entry(Platform& platform, const Call& call, const Where& where, const vault::Entry& entry) {
  const auto range = net::apply_range(call.head(), entry.bytes);
  net::Response response;
  response.status = range.status;
  for (const auto [key, value] : range.headers) response.headers.add(key, value);
  response.headers.add("Content-Type", type_of(entry.name));
  response.headers.add("Content-Disposition", "attachment");  // never shown as a page of this site
  response.headers.add("X-Content-Type-Options", "nosniff");
  if (range.status == 416) return response;
  std::shared_ptr<blob::ObjectReader> reader = platform.vault.open(where, entry, range.offset, range.length);
  response.body = net::StreamBody{[reader] { return reader->next(); }, range.length};
  return response;
}

net::Response send_artifact(Platform& platform, const Call& call, const Where& where, const std::string& name) {
  return send_entry(platform, call, where, platform.vault.info(where, name));
}

void put_files(Text& out, const std::vector<track::ArtifactInfo>& files, const std::string& before) {
  if (files.empty()) return;
  out.key("files").open('[');
  for (const auto& file : files) {
    out.open('{').key("path").string(before.empty() ? file.path : before + "/" + file.path);
    out.key("is_dir").boolean(file.directory);
    if (!file.directory) out.key("file_size").number(static_cast<std::int64_t>(file.bytes));
    out.close('}');
  }
  out.close(']');
}

namespace {

// The files of a version are read, never written.
std::optional<models::VersionPath> version_path(std::string_view path) {
  if (!path.starts_with(models::kVersionsRoot) || path.size() <= models::kVersionsRoot.size()) return std::nullopt;
  return models::parse_version_path(path.substr(models::kVersionsRoot.size() + 1));
}

std::vector<track::ArtifactInfo> list_version(Platform& platform, const Where& where, const models::VersionPath& of) {
  const auto prefix = of.path.empty() ? "" : of.path + "/";
  std::vector<track::ArtifactInfo> out;
  for (const auto& entry : platform.models.files(where, of.model_row, of.number, prefix)) {
    const auto rest = entry.name.substr(prefix.size());
    const auto slash = rest.find('/');
    if (slash == std::string::npos)
      out.push_back({rest, false, entry.bytes});
    else if (out.empty() || !out.back().directory || out.back().path != rest.substr(0, slash))
      out.push_back({rest.substr(0, slash), true, 0});
  }
  return out;
}

}  // namespace

vault::Entry file_at(Platform& platform, const Where& where, std::string_view given) {
  const auto path = track::checked_artifact_path(given);
  if (const auto of = version_path(path)) return platform.models.file(where, of->model_row, of->number, of->path);
  return platform.vault.info(where, target_of(platform, where, path, false).root);
}

namespace {

Declaration declare(Method method, std::string_view path, std::string_view action, std::string_view verb,
                    BodyLimit limit, std::string_view summary) {
  return {method,        path,   allowed_in_project(action), limit, verb.empty() ? Audit::read() : Audit::verb(verb),
          Place::worker, summary};
}

void add_proxy(Routes& routes, Platform& platform) {
  const auto where_of_call = [](const Call& call) { return where_of(call.parameters(), call.caller()); };
  routes.add_foreign(declare(Method::put, "/api/2.0/mlflow-artifacts/artifacts/{path*}", "run.write", "artifact.put",
                             kArtifactMax, "MLflow: store an artifact. Durable when it answers."),
                     nullptr, [&platform, where_of_call](Call& call, net::Request& request) {
                       const auto where = where_of_call(call);
                       const auto target = target_of(platform, where, call.parameter("path"), true);
                       if (target.path.empty())
                         throw Error(Code::invalid, "invalid path: a file has a name below its root");
                       platform.vault.put(
                           where, std::nullopt, target.root,
                           [&](std::span<std::byte> out) { return request.body.read(out); }, call.act(target.resource));
                       return text_response(std::string(kEmpty));
                     });
  routes.add_foreign(declare(Method::get, "/api/2.0/mlflow-artifacts/artifacts/{path*}", "run.read", "",
                             BodyLimit::none(), "MLflow: the bytes of an artifact; Range is understood."),
                     nullptr, [&platform, where_of_call](Call& call, net::Request&) {
                       const auto where = where_of_call(call);
                       return send_entry(platform, call, where, file_at(platform, where, call.parameter("path")));
                     });
  routes.add_foreign(declare(Method::del, "/api/2.0/mlflow-artifacts/artifacts/{path*}", "run.write", "artifact.remove",
                             kMessageMax, "MLflow: remove an artifact, or a directory of them."),
                     nullptr, [&platform, where_of_call](Call& call, net::Request&) {
                       const auto where = where_of_call(call);
                       const auto target = target_of(platform, where, call.parameter("path"), true);
                       if (track::remove_artifacts(platform.vault, where, target.root, call.act(target.resource)) == 0)
                         throw Error(Code::not_found, fmt::format("no artifact at '{}'", target.path));
                       return text_response(std::string(kEmpty));
                     });
  rpc<ListIn>(routes,
              declare(Method::get, "/api/2.0/mlflow-artifacts/artifacts", "run.read", "", BodyLimit::none(),
                      "MLflow: what is directly below a directory of artifacts."),
              [&platform](Call&, const Where& where, const ListIn& in) {
                Text out;
                out.open('{');
                if (const auto of = version_path(track::checked_artifact_path(in.path))) {
                  put_files(out, list_version(platform, where, *of), "");
                  return out.close('}').take();
                }
                put_files(out,
                          track::list_artifacts(platform.vault, where, target_of(platform, where, in.path, false).root),
                          "");
                return out.close('}').take();
              });
}

}  // namespace

void add_artifact_routes(Routes& routes, Platform& platform) {
  add_proxy(routes, platform);
  rpc<ListIn>(routes,
              declare(Method::get, "/api/2.0/mlflow/artifacts/list", "run.read", "", BodyLimit::none(),
                      "MLflow: the artifacts of a run."),
              [&platform](Call&, const Where& where, const ListIn& in) {
                const auto run = platform.track.run_info(where, in.run_id.empty() ? in.run_uuid : in.run_id);
                const auto path = track::checked_artifact_path(in.path);
                Text out;
                out.open('{').key("root_uri").string(track::artifact_uri(run));
                put_files(out, track::list_artifacts(platform.vault, where, track::run_artifact(run.run_id, path)),
                          path);
                return out.close('}').take();
              });
  routes.add_foreign(declare(Method::get, "/get-artifact", "run.read", "", BodyLimit::none(),
                             "MLflow: one artifact of a run, as its pages ask for it."),
                     schema_of<ListIn>, [&platform](Call& call, net::Request& request) {
                       const auto in = read<ListIn>(call, request, Method::get);
                       const auto where = where_of(call.parameters(), call.caller());
                       const auto run = platform.track.run_info(where, in.run_id.empty() ? in.run_uuid : in.run_id);
                       return send_artifact(platform, call, where,
                                            track::run_artifact(run.run_id, track::checked_artifact_path(in.path)));
                     });
}

}  // namespace falaj::api::mlflow
