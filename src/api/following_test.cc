// SPDX-License-Identifier: Apache-2.0
// servers that follow the plan: many at once, and while a new version's file is read
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/net/testing.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

struct Following : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};

  Following() {
    api.models->create_model(where, "delay", {}, "", act);
    add_version("one");
    api.models->set_alias(where, "delay", "champion", 1, act);
    api.apply(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {name: delay, tenant: acme, project: flights}\n"
        "spec: {variants: [{name: champion, model: delay, alias: champion}]}\n");
  }
  void add_version(const std::string& bytes) {
    const auto run = api.track->create_run(where, {}, act).info.run_id;
    api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes(bytes)), act);
    api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
  }
};

TEST_F(Following, ManyServersHoldNoWorkers) {
  constexpr std::size_t kFollowers = 64;
  net::ServerLimits limits;
  limits.worker_threads = 2;
  sys::Ids ids(api.clock, api.random);
  sys::RealClock clock;
  Metrics metrics;
  net::Server server("127.0.0.1", 0, std::nullopt, limits, *api.service, clock, ids, metrics);
  const auto head = [&](const std::string& target) {
    return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", target, api.admin);
  };
  const auto known = api.endpoints->current().fingerprint;
  std::vector<net::RawConnection> followers;
  for (std::size_t i = 0; i < kFollowers; ++i) {
    followers.emplace_back(server.port());
    ASSERT_TRUE(followers.back().send(head("/v1/serving/plan?wait_us=20000000&after=" + known)));
  }
  for (int i = 0; i < 10; ++i) {  // with two workers, and time that stands still, these would wait for ever
    net::RawConnection other(server.port());
    EXPECT_EQ(other.ask(head("/v1/serving/endpoints/delay?" + kProject)).status, 200);
  }
  const auto token = api.token_of("user/admin");  // another caller is another plan
  for (auto& follower : followers) {
    const auto answer = follower.read_answer();
    ASSERT_EQ(answer.status, 200);
    EXPECT_NE(parse_json(answer.body).at("fingerprint").as_string(), known);
    EXPECT_TRUE(parse_json(answer.body).at("plan").is_object());
  }
  net::RawConnection last(server.port());
  const auto now = api.endpoints->current().fingerprint;
  last.send(head("/v1/serving/plan?wait_us=20000000&after=" + now));
  api.endpoints->stop();  // nobody waits for one that stops
  EXPECT_EQ(parse_json(last.read_answer().body).at("fingerprint").as_string(), now);
  server.stop(1'000'000);
}

TEST_F(Following, WrongQuestionsAreAnsweredAtOnce) {
  EXPECT_EQ(api.get("/v1/serving/plan?wait_us=99000000").status, 400);
  EXPECT_EQ(api.call(Question{Method::get, "/v1/serving/plan"}.by(api.ada)).status, 403);
  EXPECT_EQ(api.call(Question{Method::get, "/v1/serving/plan"}).status, 401);
}

TEST_F(Following, ANewVersionIsNotWaitedForAndUntilItsFileIsReadAllStays) {
  const auto token = api.token_of("user/admin");
  const auto before = *api.endpoints->current().plan;
  api.endpoints->stop();  // whoever stops reads no more files: the next is never read
  add_version("two");
  api.models->set_alias(where, "delay", "champion", 2, act);
  ASSERT_EQ(api.del("/v1/tokens/" + iam::parse_credential(iam::CredentialKind::token, token)->id.str()).status, 200);
  const auto seen = [&](serving::Endpoints& endpoints) {
    const auto now = endpoints.current();
    EXPECT_EQ(now.awaited.size(), 1u);
    ASSERT_EQ(now.plan->endpoints.size(), 1u);
    ASSERT_EQ(now.plan->endpoints[0].variants.size(), 1u);
    EXPECT_EQ(now.plan->endpoints[0].variants[0].version, 1);
    EXPECT_EQ(now.plan->models.size(), 1u);
    EXPECT_EQ(now.plan->callers.size() + 1, before.callers.size()) << "who may no longer ask is told all the same";
  };
  seen(*api.endpoints);
  EXPECT_FALSE(api.get("/v1/serving/endpoints/delay?" + kProject).json().at("ready").as_bool());
  EXPECT_EQ(api.endpoints->history(where, "delay", 10).size(), 1u);
  // As after a start: what was recorded tells how it was, and now the file is read.
  serving::Endpoints again(
      {*api.database, *api.resources, *api.directory, *api.models, *api.promotions, *api.vault, *api.online,
       *api.predictions, api.clock},
      [this] { return api.audit->head().head.size; }, api.metrics);
  auto now = again.current();
  for (; !now.awaited.empty(); now = again.current()) {
    ASSERT_EQ(now.plan->endpoints.size(), 1u);
    EXPECT_EQ(now.plan->endpoints[0].variants.at(0).version, 1);
  }
  EXPECT_EQ(now.plan->endpoints.at(0).variants.at(0).version, 2);
}

}  // namespace
}  // namespace falaj::api
