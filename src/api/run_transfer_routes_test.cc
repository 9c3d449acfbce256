// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::HasSubstr;

const std::string kOther = "scope=/t/acme/p/arrivals";

struct RunTransfer : testing::Test {
  RunTransfer() {
    api.apply("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: arrivals}, spec: {zone: uae}}");
  }
  std::string run(const std::string& name, const std::string& depth = "5") {
    api.clock.advance(std::chrono::seconds(1));
    const auto id = api.track->create_run(where, {0, name, "ada", {}, {}}, act).info.run_id;
    api.track->log(where, id, {{{"loss", {1, 1, 0.5}, "", "", ""}}, {{"depth", depth}}, {}}, act);
    const std::string text = "bytes of " + name;
    api.vault->put(where, std::nullopt, track::run_artifact(id, "out/file"), blob::source_of(as_bytes(text)), act);
    return id;
  }
  std::string exported(const std::string& body) {
    const auto answer = api.post("/v1/runs/export?" + kProject, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.find("Content-Type"), "application/x-tar");
    return answer.body;
  }
  Answer import(const std::string& file, const std::string& more = "") {
    return api.call(Question{Method::post, "/v1/runs/import?" + kOther + more, file}
                        .with("Content-Type", "application/x-tar")
                        .by(api.admin));
  }
  std::size_t runs_there() { return api.get("/v1/runs?" + kOther).json().at("items").as_array().size(); }

  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};
};

TEST_F(RunTransfer, TakesRunsFromOneProjectToAnother) {
  const auto id = run("a", "1");
  run("b", "2");
  const auto imported = import(exported(R"({"filter":"params.depth = '1'"})"));
  ASSERT_EQ(imported.status, 200) << imported.body;
  EXPECT_EQ(canonical(imported.json()),
            R"({"bytes":10,"changed":0,"experiments":[],"files":1,"made":1,"points":1,"runs":1})");
  const auto there = api.get("/v1/runs/" + id + "?" + kOther).json();
  EXPECT_EQ(there.at("params").at("depth"), "1");
  EXPECT_EQ(there.at("metrics").at("loss").at("value"), 0.5);
  EXPECT_EQ(runs_there(), 1U);
  EXPECT_EQ(api.audited("run.export"), 1U);
  EXPECT_GE(api.audited("run.import"), 2U);
  const auto again = import(exported(R"({"experiments":["Default"]})"));
  EXPECT_EQ(again.json().at("made"), 1) << again.body;
  EXPECT_EQ(again.json().at("changed"), 0);
}

TEST_F(RunTransfer, SaysWhatIsWrongBeforeTheFileBegins) {
  const auto message = [&](const std::string& body, int status) {
    const auto answer = api.post("/v1/runs/export?" + kProject, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    return answer.body;
  };
  EXPECT_THAT(message("{}", 404), HasSubstr("no run matches"));
  run("a");
  EXPECT_THAT(message(R"({"runs":["00000000000000000000000000000000"]})", 404), HasSubstr("no run with id"));
  EXPECT_THAT(message(R"({"runs":["x"],"filter":"y"})", 400), HasSubstr("either the runs"));
  EXPECT_THAT(message(R"({"filter":"nonsense"})", 400), HasSubstr("nonsense"));
  EXPECT_THAT(message(R"({"experiments":["nowhere"]})", 404), HasSubstr("nowhere"));
  // Every turn was given back.
  for (int i = 0; i < 10; ++i) exported("{}");
}

TEST_F(RunTransfer, RefusesWhatIsNoExport) {
  for (const std::string& bad : {std::string("hello"), std::string(2048, '\0'), std::string()}) {
    const auto answer = import(bad);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("not an export of runs"));
  }
  EXPECT_EQ(import(exported(fmt::format(R"({{"runs":["{}"]}})", run("a"))), "&key=123").status, 400);
  EXPECT_EQ(runs_there(), 0U);
}

TEST_F(RunTransfer, TrustsAnotherPlatformOnlyWhenToldTo) {
  run("a");
  const auto file = exported("{}");
  TestApi other;
  const auto ask = [&](const std::string& more) {
    return other.call(Question{Method::post, "/v1/runs/import?" + kProject + more, file}
                          .with("Content-Type", "application/x-tar")
                          .by(other.admin));
  };
  const auto key = std::string(api.get("/v1/runs/export/key?" + kProject).json().at("public_key").as_string());
  const auto refused = ask("");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("give it with --key: " + key));
  const auto done = ask("&key=" + key);
  EXPECT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(done.json().at("made"), 1);
}

TEST_F(RunTransfer, NeedsThePermissionsOfReadingAndWriting) {
  run("a");
  const auto file = exported("{}");
  const auto by_ada = [&](Method method, const std::string& target, const std::string& body) {
    return api.call(Question{method, target, body}.by(api.ada)).status;
  };
  EXPECT_EQ(by_ada(Method::post, "/v1/runs/export?" + kProject, "{}"), 403);
  EXPECT_EQ(by_ada(Method::post, "/v1/runs/import?" + kOther, file), 403);
  EXPECT_EQ(by_ada(Method::get, "/v1/runs/export/key?" + kProject, ""), 403);
  EXPECT_EQ(runs_there(), 0U);
}

}  // namespace
}  // namespace falaj::api
