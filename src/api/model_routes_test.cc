// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/crypto/sign.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::HasSubstr;

const std::string kInProject = "?scope=/t/acme/p/flights";

struct ModelRoutes : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};
  std::string run_id;

  ModelRoutes() {
    run_id = api.track->create_run(where, {}, act).info.run_id;
    api.track->log_inputs(where, run_id, {{{"flights", "3f2a", "", "", "", ""}, {}}}, {}, act);
    api.vault->put(where, {}, track::run_artifact(run_id, "model/m"), blob::source_of(to_bytes("weights")), act);
    api.models->create_model(where, "delay", {}, "", act);
    for (int i = 0; i < 2; ++i)
      api.models->create_version(where, {"delay", "runs:/" + run_id + "/model", run_id, "", "", std::to_string(i), {}},
                                 act);
  }
  json::value get(const std::string& path, const std::string& more = "") {
    const auto answer = api.get(path + kInProject + more);
    EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
    return answer.json();
  }
  Answer promote(std::int64_t version, const std::string& token) {
    return api.call(
        Question{Method::post, "/v1/models/delay/promote" + kInProject,
                 fmt::format(R"({{"version":{},"to":"champion","why":"better","evidence":{{"mae":7}}}})", version)}
            .by(token));
  }
};

TEST_F(ModelRoutes, ShowVersionsByNumberAliasAndNewest) {
  api.models->set_alias(where, "delay", "champion", 1, act);
  const auto number = [&](const std::string& version) {
    return get("/v1/models/delay/versions/" + version).at("version").at("version").as_int64();
  };
  EXPECT_EQ(number("1"), 1);
  EXPECT_EQ(number("@champion"), 1);
  EXPECT_EQ(number("latest"), 2);
  EXPECT_EQ(api.get("/v1/models/delay/versions/x" + kInProject).error(), "invalid");
  EXPECT_EQ(api.get("/v1/models/delay/versions/3" + kInProject).status, 404);
  const auto model = get("/v1/models/delay");
  EXPECT_EQ(model.at("model").at("aliases"), (json::value{{"champion", 1}}));
  EXPECT_EQ(model.at("versions").at(0).at("version").as_int64(), 2);
}

TEST_F(ModelRoutes, FindTheVersionsOfOneModelWhateverItIsCalled) {
  api.models->create_model(where, "it's", {}, "", act);
  api.models->create_version(where, {"it's", "runs:/" + run_id + "/model", run_id, "", "", "", {}}, act);
  EXPECT_EQ(get("/v1/models/it's").at("versions").as_array().size(), 1U);
}

TEST_F(ModelRoutes, GiveAManifestThatAnybodyCanVerify) {
  const auto manifest = get("/v1/models/delay/versions/1").at("manifest");
  crypto::PublicKey key{};
  crypto::Signature signature{};
  const auto fill = [&](auto& out, std::string_view member) {
    const auto bytes = from_hex(manifest.at(member).as_string());
    ASSERT_EQ(bytes.size(), out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
  };
  fill(key, "public_key");
  fill(signature, "signature");
  const std::string text = "falaj model manifest 1\n" + std::string(manifest.at("text").as_string());
  EXPECT_TRUE(crypto::verify(key, as_bytes(text), signature));
  EXPECT_EQ(manifest.at("files").at(0).at("path").as_string(), "m");
}

TEST_F(ModelRoutes, PromoteWithAReasonOnceForARepeatedCall) {
  const auto body = R"({"version":1,"to":"champion","why":"better"})";
  const auto ask = [&] {
    return api
        .call(Question{Method::post, "/v1/models/delay/promote" + kInProject, body}.by(api.admin).with(
            "Idempotency-Key", "k"))
        .json();
  };
  const auto first = ask();
  EXPECT_EQ(first.at("state").as_string(), "done");
  EXPECT_EQ(ask(), first);
  EXPECT_EQ(get("/v1/models/delay/history").at("promotions").as_array().size(), 1U);
  EXPECT_EQ(api.audited("model.promote"), 1U);
}

TEST_F(ModelRoutes, NameTheFieldThatIsWrongWithAPromotion) {
  const auto message = [&](const std::string& body) {
    const auto answer = api.post("/v1/models/delay/promote" + kInProject, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.body;
  };
  EXPECT_THAT(message(R"({"version":1,"to":"champion"})"), HasSubstr("why"));
  EXPECT_THAT(message(R"({"to":"champion","why":"x"})"), HasSubstr("version"));
  EXPECT_THAT(message(R"({"version":1,"from":"a","to":"champion","why":"x"})"), HasSubstr("version"));
  EXPECT_THAT(message(R"({"version":1,"to":"latest","why":"x"})"), HasSubstr("alias"));
  EXPECT_THAT(message(R"({"version":0,"to":"champion","why":"x"})"), HasSubstr("version"));
}

TEST_F(ModelRoutes, LetASecondPersonDecideWhoMayApprove) {
  api.apply("{apiVersion: falaj/v1, kind: User, metadata: {name: boss}, spec: {}}");
  api.apply(
      "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {name: boss}, spec: {role: admin, subjects: "
      "[user/boss]}}");
  const auto boss = api.token_of("user/boss");
  ASSERT_EQ(api.post("/v1/models/delay/approval" + kInProject, R"({"required":true})").status, 200);
  const auto asked = promote(2, api.admin).json();
  EXPECT_EQ(asked.at("state").as_string(), "pending");
  EXPECT_EQ(get("/v1/promotions").at("items").as_array().size(), 1U);
  const auto decide = fmt::format("/v1/promotions/{}/decide{}", asked.at("id").as_int64(), kInProject);
  const auto by = [&](const std::string& token, const std::string& body) {
    return api.call(Question{Method::post, decide, body}.by(token));
  };
  EXPECT_EQ(by(api.admin, R"({"approve":true})").error(), "denied");
  EXPECT_EQ(by(api.ada, R"({"approve":true})").error(), "denied");
  EXPECT_EQ(by(boss, R"({"approve":false})").error(), "invalid");  // a rejection needs words
  const auto done = by(boss, R"({"approve":true,"why":"seen"})");
  ASSERT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(done.json().at("decided_by").as_string(), "user/boss");
  EXPECT_EQ(by(boss, R"({"approve":true})").error(), "conflict");
  EXPECT_EQ(api.audited("model.decide"), 1U);
  EXPECT_EQ(api.audited("model.decide", "denied"), 1U);   // who asked may not decide
  EXPECT_EQ(api.audited("model.approve", "denied"), 1U);  // ada may not at all
}

TEST_F(ModelRoutes, KnowWhatAnAliasPointedAtAtATime) {
  const auto before = api.clock.wall().count();
  api.clock.advance(std::chrono::seconds(10));
  promote(1, api.admin);
  api.clock.advance(std::chrono::seconds(10));
  promote(2, api.admin);
  const auto at = [&](std::int64_t us) {
    const auto answer = get("/v1/models/delay/alias-at", fmt::format("&alias=champion&time={}", us));
    const auto* version = answer.as_object().if_contains("version");
    return version ? version->as_int64() : 0;
  };
  EXPECT_EQ(at(before), 0);
  EXPECT_EQ(at(before + 15'000'000), 1);
  EXPECT_EQ(at(before + 20'000'000), 2);
  EXPECT_EQ(api.get("/v1/models/delay/alias-at" + kInProject + "&alias=champion&time=now").error(), "invalid");
}

TEST_F(ModelRoutes, TellWhereThingsCameFromInEverySpelling) {
  for (const auto& thing : {std::string("version/delay/1"), std::string("delay/1")}) {
    const auto up = get("/v1/lineage", "&thing=" + thing);
    EXPECT_EQ(up.at("things"), (json::value{"version/delay/1", "run/" + run_id, "dataset/flights@3f2a"})) << thing;
  }
  const auto down = get("/v1/lineage", "&way=down&thing=flights@3f2a");
  EXPECT_EQ(down.at("things").as_array().size(), 4U);
  EXPECT_EQ(get("/v1/lineage", "&thing=" + run_id).at("edges").at(0),
            (json::value{{"from", "dataset/flights@3f2a"}, {"to", "run/" + run_id}, {"how", "input"}}));
  EXPECT_EQ(get("/v1/lineage", "&format=openlineage&thing=run/" + run_id).at("events").at(0).at("eventType"), "START");
  EXPECT_EQ(api.get("/v1/lineage" + kInProject + "&format=openlineage&thing=delay/1").error(), "invalid");
  EXPECT_EQ(api.get("/v1/lineage" + kInProject + "&thing=x").error(), "invalid");
}

TEST_F(ModelRoutes, NeverGiveOutTheSecretOfAWebhook) {
  const auto made =
      api.post("/v1/webhooks" + kInProject,
               R"({"name":"x","url":"https://example.org/","events":["promotion.done"],"secret":"s3cr3t"})");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_TRUE(made.json().at("has_secret").as_bool());
  const std::string id(made.json().at("id").as_string());
  EXPECT_EQ((made.body + api.get("/v1/webhooks" + kInProject).body).find("s3cr3t"), std::string::npos);
  promote(1, api.admin);
  const auto deliveries = get("/v1/webhooks/" + id + "/deliveries", "&state=waiting").at("items");
  ASSERT_EQ(deliveries.as_array().size(), 1U);
  EXPECT_EQ(deliveries.at(0).at("event").as_string(), "promotion.done");
  EXPECT_EQ(api.del("/v1/webhooks/" + id + kInProject).status, 200);
  EXPECT_EQ(api.get("/v1/webhooks/" + id + "/deliveries" + kInProject).status, 404);
}

}  // namespace
}  // namespace falaj::api
