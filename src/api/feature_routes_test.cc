// SPDX-License-Identifier: Apache-2.0
// Training sets and Feast's materialize: who may have which features, and what is brought online.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "foundation/base/text.h"
#include "lifecycle/features/online.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kMinute = 60'000'000;

struct FeatureRoutes : testing::Test {
  FeatureRoutes() {
    declare("Dataset", "delays", columns(""));
    declare("Dataset", "secrets", columns(", personal: {subjectKey: origin, purpose: test, basis: consent}"));
    declare("Dataset", "empty", columns(""));
    declare("Dataset", "spine", "{columns: [{name: at, type: timestamp}, {name: origin, type: text}], time: at}");
    declare("Entity", "origin", "{key: [{name: origin, type: text}]}");
    for (const std::string name : {"delays", "secrets", "empty"}) declare_view(name, "1d");
    declare("FeatureService", "open", "{features: [\"of-delays:*\"]}");
    declare("FeatureService", "closed", "{features: [\"of-delays:*\", \"of-secrets:secrets\"]}");
    for (const std::string name : {"delays", "secrets"})
      ingest(name, fmt::format("at,origin,delay\n{},SEA,10\n{},SEA,30\n", ago(90), ago(30)));
    ingest("spine", fmt::format("at,origin\n{},SEA\n", ago(10)));
    // Ada may make training sets and read one of the two views.
    api.apply(
        "{apiVersion: falaj/v1, kind: Role, metadata: {tenant: acme, name: trains}, spec: {rules: ["
        "{effect: allow, actions: [dataset.write, dataset.create, job.create]},"
        "{effect: allow, actions: [dataset.read], resources: [dataset/spine]},"
        "{effect: allow, actions: [feature.read]},"
        "{effect: forbid, actions: [feature.read], resources: [featureview/of-secrets]}]}}\n---\n"
        "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada-trains}, spec: "
        "{role: acme/trains, subjects: [user/ada]}}");
  }
  static std::string columns(const std::string& more) {
    return "{columns: [{name: at, type: timestamp, nullable: false}, {name: origin, type: text}, {name: delay, type: "
           "int64}], time: at" +
           more + "}";
  }
  void declare(const std::string& kind, const std::string& name, const std::string& spec) {
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: {}, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {}}}",
                    kind, name, spec));
  }
  void declare_view(const std::string& dataset, const std::string& ttl) {
    declare(
        "FeatureView", "of-" + dataset,
        fmt::format("{{entity: origin, dataset: {0}, time: at, ttl: {1}, features: [{{name: {0}, column: delay}}]}}",
                    dataset, ttl));
  }
  void ingest(const std::string& name, const std::string& csv) {
    const auto base = fmt::format("/v1/datasets/{}/uploads", name);
    const auto id = std::string(api.post(base + ("?" + kProject), "{}").json().at("id").as_string());
    api.call(Question{Method::put,
                      fmt::format("{}/{}/parts/0?{}", base, id, kProject),
                      csv,
                      {{"Content-Type", "application/octet-stream"}}}
                 .by(api.admin));
    const auto done = api.post(fmt::format("{}/{}/finish?{}", base, id, kProject), R"({"format":"csv"})");
    EXPECT_EQ(done.status, 200) << done.body;
  }
  std::string ago(std::int64_t minutes_ago) const {
    return format_time(api.clock.wall().count() - minutes_ago * kMinute);
  }
  Answer train_set(const std::string& token, const std::string& service, const std::string& spine) {
    return api.call(Question{Method::post, "/v1/features/train-set?" + kProject,
                             fmt::format(R"({{"service":"{}","spine":"{}","into":"train"}})", service, spine)}
                        .by(token));
  }
  Answer feast(const std::string& path, const std::string& body) {
    return api.post("/feast/acme/flights/" + path, body);
  }
  std::vector<std::string> online() {
    std::vector<std::string> out;
    const auto views = api.get("/v1/features/views?" + kProject).json();
    for (const auto& view : views.at("views").as_array())
      if (view.at("online").as_bool()) out.emplace_back(view.at("view").as_string());
    return out;
  }
  std::string value(const std::string& view, const std::string& feature) {
    const auto answer =
        api.post("/v1/features/get?" + kProject,
                 fmt::format(R"({{"features":["{}:{}"],"entities":{{"origin":["SEA"]}}}})", view, feature));
    return answer.status == 200 ? json::serialize(answer.json().at("columns").at(0).at("values")) : answer.body;
  }

  TestApi api;
};

TEST_F(FeatureRoutes, ATrainingSetNeedsWhatReadingItsViewsNeeds) {
  const auto mine = train_set(api.ada, "open", "spine");
  ASSERT_EQ(mine.status, 200) << mine.body;
  EXPECT_EQ(api.audited("features.read"), 0U);
  EXPECT_EQ(train_set(api.ada, "open", "delays").status, 403);  // may not read those rows
  const auto refused = train_set(api.ada, "closed", "spine");
  EXPECT_EQ(refused.status, 403) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("feature.read on /t/acme/p/flights/featureview/of-secrets"));
  EXPECT_EQ(api.audited("features.train_set", "denied"), 2U);
  EXPECT_EQ(api.get("/v1/datasets/train?" + kProject).json().at("versions"), 1);
}

TEST_F(FeatureRoutes, ATrainingSetOfPersonalRowsIsOnRecordAsAReadIs) {
  const auto made = train_set(api.admin, "closed", "spine");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(api.audited("features.read"), 1U);
}

TEST_F(FeatureRoutes, AJobWhoseRowsAreMadeNeedsTheSame) {
  const auto submit = [&](const std::string& service) {
    return api.call(Question{Method::post, "/v1/jobs?" + kProject,
                             fmt::format(R"({{"jobs":[{{"name":"train","spec":{{"command":["true"],"inputs":[)"
                                         R"({{"name":"rows","service":"{}","spine":"spine"}}]}}}}]}})",
                                         service)}
                        .by(api.ada));
  };
  const auto refused = submit("closed");
  EXPECT_EQ(refused.status, 403) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("feature.read on /t/acme/p/flights/featureview/of-secrets"));
  EXPECT_EQ(submit("open").status, 200) << submit("open").body;
}

TEST_F(FeatureRoutes, MaterializeForFeastBringsEveryViewThatHasRowsOnlineAndEachOnce) {
  const auto done = feast("materialize", R"({"start_ts":"2001-01-01T00:00:00Z"})");
  ASSERT_EQ(done.status, 200) << done.body;
  EXPECT_THAT(online(), ElementsAre("of-delays", "of-secrets"));
  EXPECT_EQ(value("of-delays", "delays"), "[30]");
  // Rows of another revision are there beside: it is the view of today that is filled, once.
  api.apply(
      "{apiVersion: falaj/v1, kind: FeatureView, metadata: {tenant: acme, project: flights, name: of-delays}, spec: "
      "{entity: origin, dataset: delays, time: at, features: [{name: delays, column: delay}, {name: more, column: "
      "delay}]}}");
  const auto passes = [&](const std::string& body) {
    const auto before = api.audited("features.materialize");
    EXPECT_EQ(feast("materialize", body).status, 200);
    return api.audited("features.materialize") - before;
  };
  passes("{}");
  const auto once = passes(R"({"feature_views":["of-delays","of-secrets"]})");
  EXPECT_GT(once, 0U);
  EXPECT_EQ(passes("{}"), once);
  EXPECT_EQ(passes(R"({"feature_views":["of-delays","of-secrets","of-delays"]})"), once);
  EXPECT_EQ(value("of-delays", "more"), "[30]");
}

TEST_F(FeatureRoutes, MaterializeForFeastRefusesBeforeItBegins) {
  EXPECT_EQ(feast("materialize", R"({"feature_views":["of-delays","none"]})").status, 404);
  EXPECT_THAT(online(), ElementsAre());
  EXPECT_EQ(feast("materialize", R"({"start_ts":"2001-01-02T00:00:00Z","end_ts":"2001-01-01T00:00:00Z"})").status, 422);
  EXPECT_EQ(feast("materialize", R"({"start_ts":"soon"})").status, 422);
  EXPECT_THAT(online(), ElementsAre());
}

TEST_F(FeatureRoutes, MaterializeForFeastBeginsAnewOnlyWhenItIsAskedForWhatIsOnlineAlready) {
  const auto generation = [&] {
    std::int64_t out = 0;
    for (const auto& row : api.online->views().list(std::nullopt))
      if (row.view == "of-delays" && row.done) out = row.done->generation;
    return out;
  };
  ASSERT_EQ(feast("materialize", R"({"feature_views":["of-delays"]})").status, 200);
  const auto first = generation();
  ingest("delays", fmt::format("at,origin,delay\n{},SEA,50\n", ago(5)));
  api.clock.advance(std::chrono::minutes(1));
  ASSERT_EQ(feast("materialize", fmt::format(R"({{"feature_views":["of-delays"],"start_ts":"{}"}})", ago(0))).status,
            200);
  EXPECT_EQ(generation(), first);
  EXPECT_EQ(value("of-delays", "delays"), "[50]");
  ASSERT_EQ(feast("materialize", fmt::format(R"({{"feature_views":["of-delays"],"start_ts":"{}"}})", ago(60))).status,
            200);
  EXPECT_NE(generation(), first);
}

}  // namespace
}  // namespace falaj::api
