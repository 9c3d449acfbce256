// SPDX-License-Identifier: Apache-2.0
// Endpoints that look features up: what serving programs are told of them, and what they are not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "foundation/base/text.h"
#include "lifecycle/features/online.h"
#include "lifecycle/lookup/feature.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMinuteUs = 60'000'000;

struct ServingFeatures : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};

  ServingFeatures() {
    api.models->create_model(where, "delay", {}, "", act);
    const auto run = api.track->create_run(where, {}, act).info.run_id;
    api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes("one")), act);
    api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
    declare("Dataset", "delays",
            "{columns: [{name: at, type: timestamp, nullable: false}, {name: origin, type: text}, {name: delay, type: "
            "int64}], time: at}");
    declare("Entity", "origin", "{key: [{name: origin, type: text}]}");
    declare_view("3h");
    declare("FeatureService", "late", "{features: [\"airport:last_delay\", \"airport:mean\"]}");
    declare("Endpoint", "delay", "{variants: [{name: a, model: delay, version: 1}], features: {service: late}}");
  }
  void declare(const std::string& kind, const std::string& name, const std::string& spec) {
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: {}, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {}}}",
                    kind, name, spec));
  }
  void declare_view(const std::string& window) {
    declare("FeatureView", "airport",
            "{entity: origin, dataset: delays, time: at, ttl: 1d, tile: 30m, features: [{name: last_delay, column: "
            "delay}], aggregates: [{name: mean, aggregate: mean, of: delay, window: " +
                window + "}]}");
  }
  void ingest() {
    const auto base = "/v1/datasets/delays/uploads";
    const auto id = std::string(api.post(base + ("?" + kProject), "{}").json().at("id").as_string());
    const auto csv = fmt::format("at,origin,delay\n{},SEA,10\n{},SEA,30\n", time(90), time(30));
    EXPECT_EQ(api.call(Question{Method::put,
                                fmt::format("{}/{}/parts/0?{}", base, id, kProject),
                                csv,
                                {{"Content-Type", "application/octet-stream"}}}
                           .by(api.admin))
                  .status,
              200);
    const auto done = api.post(fmt::format("{}/{}/finish?{}", base, id, kProject), R"({"format":"csv"})");
    EXPECT_EQ(done.status, 200) << done.body;
  }
  std::string time(std::int64_t minutes_ago) const {
    return format_time(api.clock.wall().count() - minutes_ago * kMinuteUs);
  }
  void materialise(bool full = false) {
    const auto done =
        api.post("/v1/features/materialize?" + kProject, fmt::format(R"({{"view":"airport","full":{}}})", full));
    EXPECT_EQ(done.status, 200) << done.body;
  }
  traffic::Features planned() {
    const auto plan = decode<traffic::Plan>(api.get("/v1/serving/plan").json().at("plan"), "plan");
    return plan.endpoints.at(0).features.value();
  }
  traffic::SpaceKeys keys_of(const std::string& space) {
    const auto answer = api.post("/v1/serving/spaces/" + space, "{}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return decode<traffic::SpaceKeys>(answer.json(), "keys");
  }
  // As falaj-serve makes one of what it was told.
  static online::Space space_of(const traffic::SpaceKeys& keys) {
    online::Space::Secret secret{{}, crypto::Key::from(from_hex(keys.address)), {}};
    const auto prefix = from_hex(keys.space);
    std::copy(prefix.begin(), prefix.end(), secret.prefix.begin());
    for (const auto& one : keys.keys)
      secret.keys.push_back({static_cast<std::uint32_t>(one.number), crypto::Key::from(from_hex(one.key))});
    return online::Space(std::move(secret));
  }
  bool is_whole(const online::Space& space) {
    const auto snapshot = api.online_store->snapshot();
    return lookup::has_mark(*snapshot, space);
  }
};

TEST_F(ServingFeatures, ThePlanSaysWhatIsReadOrWhyNothingCanBe) {
  EXPECT_EQ(planned().problem,
            "feature view 'airport' is not online: 'falaj features materialize airport' brings it there");
  EXPECT_TRUE(planned().views.empty());
  const auto shown = api.get("/v1/serving/endpoints/delay?" + kProject).json();
  EXPECT_THAT(std::string(shown.at("features").at("problem").as_string()), HasSubstr("is not online"));
  ingest();
  materialise();
  const auto features = planned();
  EXPECT_EQ(features.problem, "");
  EXPECT_EQ(features.service, "late");
  ASSERT_EQ(features.views.size(), 1u);
  const auto& view = features.views[0];
  EXPECT_EQ(view.name, "airport");
  EXPECT_EQ(view.revision, 1);
  EXPECT_EQ(view.space.size(), 32u);
  EXPECT_EQ(view.key.at(0).name, "origin");
  EXPECT_EQ(view.rows.at(0).type, "int64");
  EXPECT_EQ(view.windows.at(0).aggregate, "mean");
  EXPECT_EQ(view.windows.at(0).window_us, 180 * kMinuteUs);
  EXPECT_EQ(view.ttl_us, 24 * 60 * kMinuteUs);
  EXPECT_THAT(view.features, ElementsAre("last_delay", "mean"));
}

TEST_F(ServingFeatures, KeysAreToldApartFromThePlanForItsSpacesOnlyAndOpenTheRows) {
  ingest();
  materialise();
  const auto view = planned().views.at(0);
  const auto keys = keys_of(view.space);
  EXPECT_EQ(api.audited("serving.share_features"), 1u);
  const auto plan = api.get("/v1/serving/plan").body;
  EXPECT_THAT(plan, HasSubstr(view.space));
  EXPECT_THAT(plan, Not(HasSubstr(keys.address)));
  for (const auto& key : keys.keys) EXPECT_THAT(plan, Not(HasSubstr(key.key)));
  EXPECT_EQ(api.post("/v1/serving/spaces/" + std::string(32, '0'), "{}").status, 404);
  EXPECT_EQ(api.call(Question{Method::post, "/v1/serving/spaces/" + view.space, "{}"}.by(api.ada)).status, 403);

  const auto space = space_of(keys);
  const auto snapshot = api.online_store->snapshot();
  const lookup::Value name = std::string("SEA");
  const auto key = lookup::entity_key(std::vector{online::Type::text}, std::span(&name, 1));
  const BytesView wanted[] = {key};
  std::optional<online::Row> row[1];
  snapshot->get(space, wanted, row);
  EXPECT_TRUE(row[0].has_value());
}

TEST_F(ServingFeatures, AnotherGenerationIsAnotherSpaceAndTheOldOneEndsAfterServersMovedOn) {
  ingest();
  materialise();
  const auto first = planned().views.at(0).space;
  const auto old = space_of(keys_of(first));
  EXPECT_TRUE(is_whole(old));
  materialise(true);
  EXPECT_NE(planned().views.at(0).space, first);
  EXPECT_TRUE(is_whole(old)) << "who has not heard of the new one yet reads on";
  EXPECT_EQ(api.post("/v1/serving/spaces/" + first, "{}").status, 404) << "nobody begins with the old one";
  api.clock.advance(sys::Micros(kMinuteUs));
  api.online->upkeep([] { return true; });
  EXPECT_FALSE(is_whole(old));
  EXPECT_TRUE(is_whole(space_of(keys_of(planned().views.at(0).space))));
}

TEST_F(ServingFeatures, AChangedDefinitionReachesThePlan) {
  ingest();
  materialise();
  const auto before = planned();
  declare_view("6h");
  EXPECT_THAT(planned().problem, HasSubstr("is not online")) << "what was kept means something else";
  materialise();
  EXPECT_EQ(planned().views.at(0).windows.at(0).window_us, 360 * kMinuteUs);
  EXPECT_EQ(planned().views.at(0).revision, 2);
  EXPECT_NE(planned().views.at(0).space, before.views.at(0).space);
  declare("FeatureService", "late", "{features: [\"airport:mean\"]}");
  EXPECT_THAT(planned().views.at(0).features, ElementsAre("mean"));
  EXPECT_EQ(planned().revision, 2);
}

TEST_F(ServingFeatures, AServiceThatIsNamedMustBeThereAndStays) {
  const auto unknown = api.post(
      "/v1/apply",
      json::serialize(json::object{
          {"sources", json::array{json::object{{"file", "endpoint"},
                                               {"text",
                                                "{apiVersion: falaj/v1, kind: Endpoint, metadata: {tenant: acme, "
                                                "project: flights, name: other}, spec: {variants: [{name: a, model: "
                                                "delay, version: 1}], features: {service: nobody}}}"}}}},
          {"dry_run", false}}));
  EXPECT_EQ(unknown.status, 400) << unknown.body;
  EXPECT_THAT(unknown.body, HasSubstr("spec.features.service"));
}

TEST_F(ServingFeatures, WhoMaySeeWhatIsLookedUp) {
  ingest();
  materialise();
  const auto explains = [&](const std::string& token) {
    const auto id = iam::parse_credential(iam::CredentialKind::token, token)->id.str();
    const auto plan = decode<traffic::Plan>(api.get("/v1/serving/plan").json().at("plan"), "plan");
    for (const auto& caller : plan.callers)
      if (caller.credential == id) return caller.explains.size();
    return std::size_t{99};
  };
  EXPECT_EQ(explains(api.token_of("user/admin")), 1u);
  api.apply(
      "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada-calls}, spec: "
      "{role: caller, subjects: [user/ada]}}");
  EXPECT_EQ(explains(api.token_of("user/ada")), 0u) << "may ask, and not read features";
}

}  // namespace
}  // namespace falaj::api
