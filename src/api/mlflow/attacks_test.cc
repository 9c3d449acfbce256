// SPDX-License-Identifier: Apache-2.0
// Published attacks on servers of this protocol, replayed: each names its class and must be refused without effect.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/base/text.h"

namespace falaj::api {
namespace {

class MlflowAttacks : public testing::Test {
 protected:
  MlflowAttacks() {
    api.apply(R"({apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada},
                  spec: {role: developer, subjects: [user/ada]}})");
    run = at_string(post("/api/2.0/mlflow/runs/create", R"({"experiment_id":"0"})"), {"run", "info", "run_id"});
    EXPECT_EQ(run.size(), 32U);
    EXPECT_EQ(put(fmt::format("0/{}/artifacts/model/MLmodel", run), "flavors: {}").status, 200);
    EXPECT_EQ(post("/api/2.0/mlflow/registered-models/create", R"({"name":"m"})").status, 200);
  }

  static std::string at_string(const Answer& answer, std::initializer_list<const char*> path) {
    json::value value = answer.json();
    for (const auto* key : path) {
      const json::value inner = value.at(key);
      value = inner;
    }
    return std::string(value.as_string());
  }
  static std::string in_project(const std::string& path) { return "/mlflow/acme/flights" + path; }
  Answer post(const std::string& path, const std::string& body) {
    return api.call(Question{Method::post, in_project(path), body}.by(api.ada));
  }
  Answer get(const std::string& path) { return api.call(Question{Method::get, in_project(path)}.by(api.ada)); }
  Answer put(const std::string& path, const std::string& bytes) {
    return api.call(
        Question{Method::put, in_project("/api/2.0/mlflow-artifacts/artifacts/" + path), bytes}.by(api.ada));
  }
  // Refused as a fault of the caller: no 2xx, nothing that clients retry, and nothing of this machine in the answer.
  void refused(const char* of_class, const Answer& answer) {
    ++replayed;
    EXPECT_GE(answer.status, 400) << of_class << ": " << answer.body;
    EXPECT_LT(answer.status, 500) << of_class << ": " << answer.body;
    EXPECT_EQ(answer.body.find("root:"), std::string::npos) << of_class;
    EXPECT_EQ(answer.body.find(api.dir.path()), std::string::npos) << of_class << ": names a path of this machine";
  }

  TestApi api;
  std::string run;
  int replayed = 0;
};

// A head that the server's parser already refuses never reaches a route; these get past it and are refused here.
TEST_F(MlflowAttacks, AreRefused) {
  const std::string files = "/api/2.0/mlflow-artifacts/artifacts/";
  const std::string root = fmt::format("0/{}/artifacts", run);

  const char* traversal = "path traversal in artifact paths";
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=../../../../etc/passwd", run)));
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=..%2f..%2fetc%2fpasswd", run)));
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=%252e%252e%252fetc%252fpasswd", run)));
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=/etc/passwd", run)));
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=//proc/self/root/etc/passwd", run)));
  refused(traversal, get(fmt::format("/get-artifact?run_id={}&path=model%5c..%5c..%5cetc", run)));
  refused(traversal, get(fmt::format("/api/2.0/mlflow/artifacts/list?run_id={}&path=../..", run)));
  refused(traversal, get(files + root + "/%252e%252e/%252e%252e/falaj.db"));
  refused(traversal, get(files + "0/" + run + "/artifacts/model%23x"));
  refused(traversal, put(root + "/%252e%252e%252f%252e%252e%252fevil", "x"));
  refused(traversal, put(root + "/a%5cb", "x"));
  refused(traversal, put("falaj.db", "x"));
  refused(traversal, put("@run/" + run + "/model/MLmodel", "x"));
  refused("artifact path without a run", put("0/artifacts/x", "x"));
  refused("artifact of a run that is not there", put("0/00000000000000000000000000000000/artifacts/x", "x"));
  refused("artifact under a wrong experiment", put("7/" + run + "/artifacts/x", "x"));
  refused("overwriting a registered version", put("@versions/1/1/MLmodel", "x"));

  const char* source = "source of a model version that is not an artifact of the project";
  for (const auto* uri :
       {"file:///etc", "/etc/passwd", "file://localhost/etc/passwd", "http://169.254.169.254/latest/meta-data",
        "https://evil.example/model", "ftp://evil.example/x", "s3://bucket/key", "dbfs:/databricks", "hdfs://host/x",
        "mlflow-artifacts:/../../etc", "mlflow-artifacts://evil.example/0/x/artifacts",
        "mlflow-artifacts:/0/%2e%2e/%2e%2e/etc", "runs:/../../etc/passwd", "models:/m/../../etc", "gopher://x/1",
        "./../x", "mlflow-artifacts:/0/00000000000000000000000000000000/artifacts/model"})
    refused(source, post("/api/2.0/mlflow/model-versions/create",
                         json::serialize(json::value{{"name", "m"}, {"source", uri}})));

  const char* location = "artifact location elsewhere";
  for (const auto* uri : {"file:///etc", "http://169.254.169.254/", "s3://bucket", "../../etc", "/tmp/x#/../../etc"})
    refused(location, post("/api/2.0/mlflow/experiments/create",
                           json::serialize(json::value{{"name", "e"}, {"artifact_location", uri}})));

  const char* names = "names that mean something elsewhere";
  for (const auto* name : {"../m", "a/b", "a:b", "", "..", "m\n2"})
    refused(names, post("/api/2.0/mlflow/registered-models/create", json::serialize(json::value{{"name", name}})));
  ASSERT_EQ(post("/api/2.0/mlflow/model-versions/create",
                 json::serialize(json::value{{"name", "m"}, {"source", "runs:/" + run + "/model"}}))
                .status,
            200);
  for (const auto* alias : {"latest", "LATEST", "v1", "V12", "", "a/b", "a b", "@champion"})
    refused("alias that shadows another name",
            post("/api/2.0/mlflow/registered-models/alias",
                 json::serialize(json::value{{"name", "m"}, {"alias", alias}, {"version", "1"}})));
  refused("version that is no number", get("/api/2.0/mlflow/model-versions/get?name=m&version=1%20OR%201%3D1"));

  refused("statement in a filter",
          post("/api/2.0/mlflow/runs/search",
               R"({"experiment_ids":["0"],"filter":"params.a = 'x' OR 1=1; DROP TABLE track_run"})"));
  refused("statement in an order",
          post("/api/2.0/mlflow/runs/search", R"x({"experiment_ids":["0"],"order_by":["(SELECT 1)"]})x"));
  refused("oversized filter",
          post("/api/2.0/mlflow/runs/search",
               json::serialize(json::value{{"experiment_ids", {"0"}},
                                           {"filter", "params.a = '" + std::string(70'000, 'x') + "'"}})));
  refused("oversized key",
          post("/api/2.0/mlflow/runs/set-tag",
               json::serialize(json::value{{"run_id", run}, {"key", std::string(10'000, 'k')}, {"value", "v"}})));
  refused("too many results",
          post("/api/2.0/mlflow/runs/search", R"({"experiment_ids":["0"],"max_results":100000000})"));
  refused("deeply nested body", post("/api/2.0/mlflow/runs/log-batch", std::string(100'000, '[')));
  refused("forged page token",
          post("/api/2.0/mlflow/runs/search", R"({"experiment_ids":["0"],"page_token":"eyJvZmZzZXQiOi01fQ=="})"));
  refused("experiment id that is no number", get("/api/2.0/mlflow/experiments/get?experiment_id=../0"));

  const char* unknown = "routes that other servers forgot to protect";
  for (const auto* path :
       {"/api/3.0/mlflow/jobs", "/api/3.0/jobs/", "/ajax-api/3.0/jobs/create", "/graphql",
        "/api/2.0/mlflow/users/create", "/api/2.0/mlflow/gateway-proxy", "/ajax-api/2.0/mlflow/gateway-proxy",
        "/signup", "/api/2.0/mlflow/upload-artifact", "/ajax-api/2.0/mlflow/upload-artifact"})
    refused(unknown, post(path, "{}"));

  // Without a credential nothing but the probes answers, whatever the method.
  for (const auto& route : api.routes.all()) {
    if (route->permission.kind() == Permission::Kind::anyone) continue;
    std::string path;
    for (const auto element : split(route->path.substr(1), '/'))
      path += element.starts_with('{') ? "/1" : fmt::format("/{}", element);
    const auto answer = api.call(Question{route->method, path, route->method == Method::get ? "" : "{}"});
    EXPECT_TRUE(answer.status == 401 || answer.status == 429) << route->path << ": " << answer.body;
  }
  fmt::print("{} attacks replayed, all refused\n", replayed);
  EXPECT_GE(replayed, 25);
}

TEST_F(MlflowAttacks, AFileIsNeverShownAsAPage) {
  ASSERT_EQ(put(fmt::format("0/{}/artifacts/x.html", run), "<script>alert(1)</script>").status, 200);
  const auto answer = get(fmt::format("/get-artifact?run_id={}&path=x.html", run));
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.find("Content-Disposition"), "attachment");
  EXPECT_EQ(answer.headers.find("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(answer.headers.find("Content-Type"), "application/octet-stream");
}

TEST_F(MlflowAttacks, FilesOfRunsCannotBeChangedAsBlobs) {
  const auto name = "@run/" + run + "/model/MLmodel";
  EXPECT_EQ(api.post("/v1/blobs?scope=/t/acme/p/flights&name=" + name, "evil").status, 400);
  EXPECT_EQ(api.del("/v1/blobs?scope=/t/acme/p/flights&name=" + name).status, 400);
}

}  // namespace
}  // namespace falaj::api
