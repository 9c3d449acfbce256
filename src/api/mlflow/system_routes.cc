// SPDX-License-Identifier: Apache-2.0
#include "api/mlflow/protocol.h"
#include "api/mlflow/routes.h"

namespace falaj::api {

namespace mlflow {
namespace {

// The version of the protocol that is spoken here. Below 3.4 clients keep traces in artifacts and send no spans.
constexpr std::string_view kProtocolVersion = "3.3.0";

net::Response plain(std::string_view text) {
  net::Response response;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.body = std::string(text);
  return response;
}

void add_probes(Routes& routes) {
  const auto probe = [](std::string_view path, std::string_view summary) {
    return Declaration{Method::get, path, Permission::anyone(), BodyLimit::none(), Audit::read(), Place::here, summary};
  };
  routes.add_foreign(probe("/health", "MLflow: whether the server answers."), nullptr,
                     [](Call&, net::Request&) { return plain("OK"); });
  routes.add_foreign(probe("/version", "MLflow: the version of its protocol that is spoken here."), nullptr,
                     [](Call&, net::Request&) { return plain(kProtocolVersion); });
  routes.add_foreign(
      probe("/api/3.0/mlflow/server-info", "MLflow: what this server can do."), nullptr, [](Call&, net::Request&) {
        return text_response(R"({"store_type":"SqlStore","workspaces_enabled":false,"trace_archival_enabled":false,)"
                             R"("multipart_uploads_enabled":true,"multipart_downloads_enabled":true})");
      });
}

}  // namespace
}  // namespace mlflow

void add_mlflow_routes(Routes& routes, Platform& platform) {
  mlflow::add_probes(routes);
  mlflow::add_experiment_routes(routes, platform);
  mlflow::add_run_routes(routes, platform);
  mlflow::add_artifact_routes(routes, platform);
  mlflow::add_upload_routes(routes, platform);
  mlflow::add_logged_model_routes(routes, platform);
  mlflow::add_registry_routes(routes, platform);
  mlflow::add_webhook_routes(routes, platform);
}

}  // namespace falaj::api
