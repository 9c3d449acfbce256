// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/sign.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kServed = "?scope=/t/acme/p/flights";

std::string endpoint(const std::string& variants) {
  return fmt::format(
      "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {{name: delay, tenant: acme, project: flights}}\n"
      "spec: {{variants: [{}]}}\n",
      variants);
}
const std::string kByAlias = "{name: champion, model: delay, alias: champion, weight: 3}";
const std::string kByVersion = "{name: challenger, model: delay, version: 2}";

struct ServingRoutes : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};

  ServingRoutes() {
    api.models->create_model(where, "delay", {}, "", act);
    for (const auto* bytes : {"one", "two", "three"}) {
      const auto run = api.track->create_run(where, {}, act).info.run_id;
      api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes(bytes)), act);
      api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
    }
    api.models->set_alias(where, "delay", "champion", 1, act);
  }
  json::value get(const std::string& path) {
    const auto answer = api.get(path);
    EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
    return answer.json();
  }
  json::value view() { return get("/v1/serving/endpoints/delay" + kServed); }
  traffic::Plan plan() {
    api.plan();
    return decode<traffic::Plan>(get("/v1/serving/plan").at("plan"), "plan");
  }
  std::vector<std::int64_t> planned() {
    std::vector<std::int64_t> out;
    const auto made = plan();
    for (const auto& variant : made.endpoints.at(0).variants) out.push_back(variant.version);
    return out;
  }
};

TEST_F(ServingRoutes, PlanFollowsAliasesAndNamesSignedBytes) {
  api.apply(endpoint(kByAlias + ", " + kByVersion));
  EXPECT_THAT(planned(), ElementsAre(1, 2));
  const auto answer = get("/v1/serving/plan");
  const auto first = plan();
  ASSERT_EQ(first.models.size(), 2u);
  crypto::PublicKey key{};
  const auto hex = from_hex(answer.at("public_key").as_string());
  std::copy(hex.begin(), hex.end(), key.begin());
  for (const auto& model : first.models) {
    crypto::Signature signature{};
    const auto bytes = from_base64(model.signature);
    std::copy(bytes.begin(), bytes.end(), signature.begin());
    EXPECT_TRUE(crypto::verify(key, as_bytes(model.text), signature));
    const auto statement = decode<traffic::Statement>(parse_json(model.text), "statement");
    const auto file = api.get("/v1/serving/models/" + statement.sha256);
    EXPECT_EQ(crypto::sha256(file.body).hex(), statement.sha256);
  }
  api.models->set_alias(where, "delay", "champion", 3, act);
  EXPECT_THAT(planned(), ElementsAre(3, 2));
  EXPECT_EQ(api.get("/v1/serving/models/" + std::string(64, '0')).status, 404);
}

TEST_F(ServingRoutes, AFileIsReadOnceAndNeverByAPlan) {
  api.apply(endpoint(kByAlias));
  const auto got = [&] {
    return api.metrics.counter("falaj_blob_content_bytes_total", "Bytes of content put and got.", {{"way", "get"}})
        .Value();
  };
  const auto before = got();
  // As after a start: nothing is in memory.
  serving::Endpoints again(
      {*api.database, *api.resources, *api.directory, *api.models, *api.promotions, *api.vault, *api.online,
       *api.predictions, api.clock},
      [this] { return api.audit->head().head.size; }, api.metrics);
  const auto first = again.current();
  EXPECT_TRUE(first.awaited.empty());
  ASSERT_EQ(first.plan->endpoints.size(), 1u);
  EXPECT_EQ(first.plan->endpoints[0].variants.at(0).sha256, crypto::sha256(std::string_view("one")).hex());
  EXPECT_EQ(got(), before) << "it was read before, and its hash kept";
}

TEST_F(ServingRoutes, PlanListsWhoMayAskUntilTheirTokenIsRevoked) {
  api.apply(endpoint(kByAlias));
  const auto before = plan().callers.size();
  const auto token = api.token_of("user/admin");
  EXPECT_EQ(plan().callers.size(), before + 1);
  const auto id = iam::parse_credential(iam::CredentialKind::token, token)->id.str();
  EXPECT_EQ(api.del("/v1/tokens/" + id).status, 200);
  EXPECT_EQ(plan().callers.size(), before);
  const auto after = plan();
  for (const auto& caller : after.callers) EXPECT_NE(caller.credential, id);
}

TEST_F(ServingRoutes, PlanIsAnsweredAtOnceWhenItIsAnotherAndWaitsElse) {
  api.apply(endpoint(kByAlias));
  const auto known = std::string(get("/v1/serving/plan").at("fingerprint").as_string());
  const auto same = get("/v1/serving/plan?after=" + known);
  EXPECT_EQ(same.at("fingerprint").as_string(), known);
  EXPECT_FALSE(same.as_object().contains("plan") && !same.at("plan").is_null());
}

TEST_F(ServingRoutes, ShiftAndRollbackAreRevisionsAndHistoryKnowsThem) {
  api.apply(endpoint(kByAlias + ", " + kByVersion));
  plan();
  EXPECT_EQ(api.post("/v1/serving/endpoints/delay/shift" + kServed, R"({"weights":{"challenger":7}})").status, 200);
  EXPECT_EQ(plan().endpoints[0].variants[1].weight, 7);
  EXPECT_EQ(api.post("/v1/serving/endpoints/delay/shift" + kServed, R"({"weights":{"nobody":7}})").status, 404);
  api.models->set_alias(where, "delay", "champion", 3, act);
  EXPECT_THAT(planned(), ElementsAre(3, 2));
  EXPECT_EQ(api.post("/v1/serving/endpoints/delay/rollback" + kServed, "{}").status, 200);
  EXPECT_THAT(planned(), ElementsAre(1, 2)) << "the version, not the alias, which points at 3";
  const auto history = get("/v1/serving/endpoints/delay/history" + kServed).at("items").as_array();
  EXPECT_EQ(history.size(), 4u);
  EXPECT_EQ(api.audited("endpoint.rollback"), 1u);
  EXPECT_EQ(api.audited("endpoint.serve"), 4u);
  const auto at = std::string(history.back().at("at").as_string());
  const auto served = get("/v1/serving/endpoints/delay/served-at" + kServed + "&time=" + at).at("served");
  EXPECT_EQ(served.at("variants").at(0).at("version").as_int64(), 1);
}

TEST_F(ServingRoutes, RollbackWithNothingBeforeIsRefused) {
  api.apply(endpoint(kByAlias));
  plan();
  EXPECT_EQ(api.post("/v1/serving/endpoints/delay/rollback" + kServed, "{}").status, 409);
}

TEST_F(ServingRoutes, AVariantThatCannotBeServedIsSaidAndLeftOut) {
  api.apply(endpoint(kByAlias + ", {name: gone, model: delay, version: 17}, {name: none, model: nobody, alias: x}"));
  EXPECT_THAT(planned(), ElementsAre(1));
  const auto variants = view().at("variants").as_array();
  EXPECT_EQ(variants.at(0).at("problem").as_string(), "");
  EXPECT_THAT(std::string(variants.at(1).at("problem").as_string()), HasSubstr("17"));
  EXPECT_FALSE(view().at("ready").as_bool());
}

TEST_F(ServingRoutes, AnEndpointIsReadyWhenServersSaySo) {
  api.apply(endpoint(kByAlias));
  const auto fingerprint = std::string(get("/v1/serving/plan").at("fingerprint").as_string());
  EXPECT_FALSE(view().at("ready").as_bool());
  const auto report = [&](const std::string& state, const std::string& of) {
    return api.post("/v1/serving/reports",
                    fmt::format(R"({{"server":"s1","url":"http://127.0.0.1:1","grpc":"","fingerprint":"{}","variants":[
        {{"tenant":"acme","project":"flights","endpoint":"delay","variant":"champion","version":1,"state":"{}",
          "reason":"","requests":3,"failures":0,"p50_us":10,"p99_us":20}}]}})",
                                of, state));
  };
  EXPECT_EQ(report("failed", fingerprint).status, 200);
  EXPECT_FALSE(view().at("ready").as_bool());
  report("ready", fingerprint);
  EXPECT_TRUE(view().at("ready").as_bool());
  report("ready", "of another plan");
  EXPECT_FALSE(view().at("ready").as_bool());
  report("ready", fingerprint);
  api.clock.advance(sys::Micros(serving::Endpoints::report_life_us() + 1));
  EXPECT_FALSE(view().at("ready").as_bool()) << "nobody has heard of it lately";
}

TEST_F(ServingRoutes, ACanaryTakesOverStepByStepOrIsRolledBack) {
  const auto declare = [&] {
    api.apply(fmt::format(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {{name: delay, tenant: acme, project: flights}}\n"
        "spec:\n  variants: [{}, {}]\n  canary: {{variant: challenger, steps: [10, 50, 100], every: 60s}}\n",
        kByAlias, kByVersion));
  };
  const auto weights = [&] {
    std::vector<double> out;
    const auto made = plan();
    for (const auto& variant : made.endpoints.at(0).variants) out.push_back(variant.weight);
    return out;
  };
  const auto serve = [&](std::int64_t requests, std::int64_t failures) {
    serving::ServerReport report;
    report.server = "s1";
    report.variants = {{"acme", "flights", "delay", "champion", 1, "ready", "", 5'000, 0, 900, 2'000},
                       {"acme", "flights", "delay", "challenger", 2, "ready", "", requests, failures, 900, 2'000}};
    api.endpoints->report(report);
    api.endpoints->watch();
  };
  declare();
  serve(0, 0);
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  serve(500, 0);
  EXPECT_THAT(weights(), ElementsAre(90, 10)) << "a minute has not passed";
  api.clock.advance(sys::Micros(61'000'000));
  serve(500, 1);
  EXPECT_THAT(weights(), ElementsAre(50, 50));
  api.clock.advance(sys::Micros(61'000'000));
  serve(900, 1);
  EXPECT_THAT(weights(), ElementsAre(0, 100));
  api.clock.advance(sys::Micros(61'000'000));
  serve(2'000, 1);
  EXPECT_FALSE(
      api.resources->get({"Endpoint", "acme", "flights", "delay"}).resource.spec.as_object().contains("canary") &&
      !api.resources->get({"Endpoint", "acme", "flights", "delay"}).resource.spec.at("canary").is_null());
  declare();
  serve(2'000, 1);
  EXPECT_THAT(weights(), ElementsAre(90, 10)) << "declared again, it begins again";
  serve(2'050, 30);
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  const auto history = get("/v1/serving/endpoints/delay/history" + kServed).at("items").as_array();
  EXPECT_THAT(std::string(history.at(0).at("why").as_string()), HasSubstr("rolled back, as 29 of 79 requests failed"));
  EXPECT_EQ(history.at(0).at("by").as_string(), "system/canary");
}

TEST_F(ServingRoutes, AVersionThatCrashedItsServerIsTakenBack) {
  const auto declare = [&](std::int64_t version) {
    api.apply(endpoint(fmt::format("{{name: champion, model: delay, version: {}}}", version)));
    plan();
  };
  const auto report = [&](std::int64_t version, const std::string& state) {
    serving::ServerReport said;
    said.server = "s1";
    said.variants = {{"acme", "flights", "delay", "champion", version, state, "signal 11", 0, 0, 0, 0}};
    api.endpoints->report(said);
    api.endpoints->watch();
  };
  declare(1);
  report(1, "quarantined");
  EXPECT_THAT(planned(), ElementsAre(1)) << "there is nothing to go back to";
  report(1, "ready");
  declare(2);
  declare(3);
  report(2, "quarantined");
  EXPECT_THAT(planned(), ElementsAre(3)) << "that was another version";
  report(3, "quarantined");
  EXPECT_THAT(planned(), ElementsAre(2));
  const auto history = get("/v1/serving/endpoints/delay/history" + kServed).at("items").as_array();
  EXPECT_THAT(std::string(history.at(0).at("why").as_string()), HasSubstr("champion crashed its server"));
  report(2, "ready");
  EXPECT_THAT(planned(), ElementsAre(2));
}

TEST_F(ServingRoutes, BadDeclarationsAreRefusedWithTheirPlace) {
  const auto refused = [&](const std::string& variants) {
    const json::object source{{"file", "e.yaml"}, {"text", endpoint(variants)}};
    return api.post("/v1/apply", json::serialize(json::object{{"sources", json::array{source}}})).body;
  };
  EXPECT_THAT(refused("{name: a, model: m}"), HasSubstr("needs either a version or an alias"));
  EXPECT_THAT(refused("{name: a, model: m, version: 1, alias: x}"), HasSubstr("needs either"));
  EXPECT_THAT(refused("{name: a, model: m, version: 1, shadow: true}"), HasSubstr("must have a weight above 0"));
  EXPECT_THAT(refused(kByVersion + ", " + kByVersion), HasSubstr("is there twice"));
}

}  // namespace
}  // namespace falaj::api
