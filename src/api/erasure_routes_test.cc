// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"

namespace falaj::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kProject = "scope=/t/acme/p/flights";

struct ErasureRoutes : testing::Test {
  ErasureRoutes() {
    api.apply(
        "{apiVersion: falaj/v1, kind: Dataset, metadata: {tenant: acme, project: flights, name: people}, spec: "
        "{columns: "
        "[{name: person, type: text}, {name: at, type: timestamp}], time: at, personal: {subjectKey: person, purpose: "
        "test, basis: consent, retention: 221d}}}");
    const auto begun = ask("/v1/datasets/people/uploads", "{}");
    const std::string id(begun.at("id").as_string());
    const auto part = api.call(Question{Method::put,
                                        fmt::format("/v1/datasets/people/uploads/{}/parts/0?{}", id, kProject),
                                        "person,at\nada,2001-09-01\nbob,2001-09-01\nold,2001-01-01\n",
                                        {{"Content-Type", "application/octet-stream"}}}
                                   .by(api.admin));
    EXPECT_EQ(part.status, 200) << part.body;
    version = ask(fmt::format("/v1/datasets/people/uploads/{}/finish", id), R"({"format":"csv"})");
  }
  json::value ask(const std::string& path, const std::string& body) {
    const auto answer = api.post(path + "?" + kProject, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  json::value mlflow(const std::string& call, const json::value& body) {
    const auto answer = api.post("/mlflow/acme/flights/api/2.0/mlflow/" + call, json::serialize(body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  json::value rows() { return api.get("/v1/datasets/people/versions/newest/rows?" + kProject).json().at("rows"); }

  TestApi api;
  json::value version;
};

TEST_F(ErasureRoutes, EraseAndListWhatWasMadeOfTheRows) {
  const auto run = mlflow("runs/create", {{"experiment_id", "0"}}).at("run").at("info").at("run_id");
  const json::object used{{"name", "people"},
                          {"digest", std::string(version.at("id").as_string()).substr(0, 32)},
                          {"source_type", "falaj"},
                          {"source", "x"}};
  mlflow("runs/log-inputs", {{"run_id", run}, {"datasets", json::array{json::object{{"dataset", used}}}}});
  const auto other = mlflow("runs/create", {{"experiment_id", "0"}});
  mlflow("registered-models/create", {{"name", "late"}});
  mlflow("model-versions/create",
         {{"name", "late"}, {"source", "runs:/" + std::string(run.as_string()) + "/model"}, {"run_id", run}});

  const auto plan = ask("/v1/erasures/plan", R"({"subject":"ada"})");
  EXPECT_EQ(plan.at("runs"), (json::array{run}));
  EXPECT_EQ(rows().as_array().size(), 3U);
  const auto begun = ask("/v1/erasures", R"({"subject":"ada"})");
  EXPECT_EQ(begun.at("state"), "begun");
  const std::string id(begun.at("id").as_string());
  const auto done = ask("/v1/erasures/" + id + "/finish", "{}");
  EXPECT_EQ(done.at("state"), "done");
  EXPECT_EQ(done.at("report").at("runs"), (json::array{run}));
  EXPECT_EQ(done.at("report").at("models"), (json::array{"late/1"}));
  EXPECT_EQ(rows().as_array().size(), 2U);
  const auto listed = api.get("/v1/erasures?" + kProject);
  EXPECT_EQ(listed.json().at("items").as_array().size(), 1U);
  EXPECT_THAT(listed.body, Not(HasSubstr("\"ada\"")));
  const auto gone = api.get("/v1/datasets/people/versions/1/rows?" + kProject);
  EXPECT_EQ(gone.status, 404);
  EXPECT_THAT(gone.body, HasSubstr("version 2"));
  EXPECT_GE(api.audited("data.erase"), 2U);
}

TEST_F(ErasureRoutes, AreForAdministratorsOnly) {
  const auto ask_as_ada = [&](Method method, const std::string& path, const std::string& body) {
    return api.call(Question{method, path + "?" + kProject, body}.by(api.ada)).status;
  };
  api.apply(
      "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, name: ada-operates}, spec: {role: operator, "
      "subjects: [user/ada]}}");
  EXPECT_EQ(ask_as_ada(Method::get, "/v1/erasures", ""), 200);
  for (const std::string path : {"/v1/erasures", "/v1/erasures/plan"})
    EXPECT_EQ(ask_as_ada(Method::post, path, R"({"subject":"bob"})"), 403) << path;
  EXPECT_EQ(ask_as_ada(Method::post, "/v1/erasures/none/finish", "{}"), 403);
  EXPECT_EQ(api.post("/v1/erasures?" + kProject, R"({"subject":""})").status, 400);
  EXPECT_EQ(api.get("/v1/erasures/none?" + kProject).status, 404);
}

TEST_F(ErasureRoutes, RowsPastTheirRetentionGoWithTheRetentionPass) {
  EXPECT_EQ(api.get("/v1/retention?" + kProject).json().at("due").at("erased_rows"), 1);
  EXPECT_EQ(rows().as_array().size(), 3U);
  EXPECT_EQ(ask("/v1/retention/run", "{}").at("erased_rows"), 1);
  EXPECT_EQ(rows().as_array().size(), 2U);
  EXPECT_EQ(ask("/v1/retention/run", "{}").at("erased_rows"), 0);
  EXPECT_EQ(api.get("/v1/erasures?" + kProject).json().at("items").at(0).at("kind"), "retention");
}

}  // namespace
}  // namespace falaj::api
