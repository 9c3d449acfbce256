// SPDX-License-Identifier: Apache-2.0
// Two tenants walk the protocol at random with ids they should not know. Everything a tenant writes holds its canary;
// the other's must never be in an answer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/base/text.h"

namespace falaj::api {
namespace {

constexpr int kCalls = 4000;  // FALAJ_WALK_CALLS for more

struct Tenant {
  std::string name, project, canary, token;
};

class TenantsApart : public testing::Test {
 protected:
  TenantsApart() : api(CallLimits{{1e9, 1e9}, {1e9, 1e9}, {1e9, 1e9}}) {
    api.apply(R"({apiVersion: falaj/v1, kind: Tenant, metadata: {name: globex}, spec: {zones: [uae]}})");
    api.apply(R"({apiVersion: falaj/v1, kind: Project, metadata: {tenant: globex, name: rockets}, spec: {zone: uae}})");
    for (auto& t : tenants) {
      api.apply(
          fmt::format("{{apiVersion: falaj/v1, kind: User, metadata: {{tenant: {}, name: eve}}, spec: {{}}}}", t.name));
      api.apply(
          fmt::format("{{apiVersion: falaj/v1, kind: RoleBinding, metadata: {{tenant: {0}, name: eve}}, spec: "
                      "{{role: admin, subjects: [user/{0}/eve]}}}}",
                      t.name));
      t.token = api.token_of(fmt::format("user/{}/eve", t.name), 3'600'000'000'000);
    }
  }

  template <class T>
  const T& pick(const std::vector<T>& of) {
    return of[random() % of.size()];
  }

  TestApi api;
  std::vector<Tenant> tenants{{"acme", "flights", "CANARY-of-acme-4f1e", ""},
                              {"globex", "rockets", "CANARY-of-globex-9c2b", ""}};
  std::mt19937_64 random{20261116};
};

TEST_F(TenantsApart, NeverSeeEachOthersBytes) {
  const char* more = std::getenv("FALAJ_WALK_CALLS");
  const int calls = more ? std::atoi(more) : kCalls;
  std::vector<std::string> runs{"0"}, models{"m-0"}, names{"none"};  // of both, so that each asks for the other's
  std::size_t served = 0, refused = 0;
  for (int i = 0; i < calls; ++i) {
    const auto& me = tenants[random() % 2];
    const auto& other = &me == &tenants[0] ? tenants[1] : tenants[0];
    // Mostly at home, sometimes straight at the other's address.
    const auto& at = random() % 8 == 0 ? other : me;
    const auto base = fmt::format("/mlflow/{}/{}", at.name, at.project);
    const auto run = pick(runs), model = pick(models), name = pick(names);
    const auto experiment = std::to_string(random() % 4);
    Question q;
    const auto post = [&](const std::string& path, json::object body) {
      q = {Method::post, base + "/api/2.0/mlflow/" + path, json::serialize(body)};
    };
    const auto get = [&](const std::string& path) { q = {Method::get, base + path}; };
    switch (random() % 17) {
      case 0:
        post("experiments/create", {{"name", fmt::format("{}-{}", me.canary, random() % 50)}});
        break;
      case 1:
        post("runs/create", {{"experiment_id", experiment}, {"run_name", me.canary}});
        break;
      case 2:
        post("runs/log-batch", {{"run_id", run},
                                {"params", {{{"key", fmt::format("p{}", random() % 9)}, {"value", me.canary}}}},
                                {"tags", {{{"key", "t"}, {"value", me.canary}}}},
                                {"metrics", {{{"key", me.canary}, {"value", 1}, {"timestamp", 1}, {"step", i}}}}});
        break;
      case 3:
        post("runs/search", {{"experiment_ids", {"0", "1", "2", "3"}}, {"max_results", 50}});
        break;
      case 4:
        get("/api/2.0/mlflow/runs/get?run_id=" + run);
        break;
      case 5:
        get(fmt::format("/api/2.0/mlflow/metrics/get-history?run_id={}&metric_key={}", run, other.canary));
        break;
      case 6:
        q = {Method::put,
             fmt::format("{}/api/2.0/mlflow-artifacts/artifacts/{}/{}/artifacts/model/f{}", base, experiment, run,
                         random() % 3),
             me.canary};
        break;
      case 7:
        get(fmt::format("/api/2.0/mlflow-artifacts/artifacts/{}/{}/artifacts/model/f{}", experiment, run,
                        random() % 3));
        break;
      case 8:
        get(fmt::format("/api/2.0/mlflow/artifacts/list?run_id={}&path=model", run));
        break;
      case 9:
        post("experiments/search", {{"max_results", 100}});
        break;
      case 10:
        post("logged-models", {{"experiment_id", experiment}, {"name", me.canary}, {"source_run_id", run}});
        break;
      case 11:
        get("/api/2.0/mlflow/logged-models/" + model);
        break;
      case 12:
        post("registered-models/create",
             {{"name", fmt::format("{}-{}", me.canary, random() % 20)}, {"description", me.canary}});
        break;
      case 13:
        post("model-versions/create", {{"name", name}, {"source", "runs:/" + run + "/model"}, {"run_id", run}});
        break;
      case 14:
        get("/api/2.0/mlflow/registered-models/search");
        break;
      case 15:
        get(fmt::format("/api/2.0/mlflow-artifacts/artifacts/@versions/{}/{}/f{}", 1 + random() % 6, 1 + random() % 3,
                        random() % 3));
        break;
      default:
        get(fmt::format("/api/2.0/mlflow/model-versions/search?filter=name%20LIKE%20%27%25%27&max_results=50"));
        break;
    }
    const auto answer = api.call(q.by(me.token));
    EXPECT_LT(answer.status, 500) << q.target << ": " << answer.body;
    if (at.name != me.name) {
      EXPECT_EQ(answer.status, 403) << q.target;
    }
    (answer.status == 200 ? served : refused) += 1;
    // What was asked for may be said back in an error; what is told of is only in an answer.
    if (answer.status == 200) {
      ASSERT_EQ(answer.body.find(other.canary), std::string::npos) << q.target << "\n" << answer.body;
      if (answer.body.starts_with('{')) {
        const auto value = answer.json();
        const auto& object = value.as_object();
        if (object.contains("run") && q.method == Method::post)
          runs.emplace_back(value.at("run").at("info").at("run_id").as_string());
        if (object.contains("model") && q.method == Method::post)
          models.emplace_back(value.at("model").at("info").at("model_id").as_string());
        if (object.contains("registered_model"))
          names.emplace_back(value.at("registered_model").at("name").as_string());
      }
      if (runs.size() > 60) runs.erase(runs.begin(), runs.begin() + 30);
    }
  }
  fmt::print("{} calls, {} served, {} refused, no canary crossed\n", calls, served, refused);
  EXPECT_GT(served, static_cast<std::size_t>(calls / 5));
}

}  // namespace
}  // namespace falaj::api
