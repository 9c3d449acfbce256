// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "api/call.h"
#include "api/testing.h"

namespace falaj::api {
namespace {

struct Idempotency : testing::Test {
  TestApi api;

  Answer make_token(const std::string& key, const std::string& body = R"({"name":"ci"})", const std::string& by = "") {
    return api.call(
        Question{Method::post, "/v1/tokens", body}.by(by.empty() ? api.admin : by).with("Idempotency-Key", key));
  }
  std::size_t tokens() { return api.get("/v1/tokens").json().at("items").as_array().size(); }
  bool on_disk(const std::string& text) {
    for (const auto& entry : std::filesystem::directory_iterator(api.dir.path())) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      if (bytes.find(text) != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(Idempotency, ARepeatedCallGetsTheSameAnswerAndHasOneEffect) {
  const auto before = tokens(), recorded = api.audited("token.create");
  const auto first = make_token("k1"), second = make_token("k1");
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(first.body, second.body);  // the secret included
  EXPECT_EQ(tokens(), before + 1);
  EXPECT_EQ(api.audited("token.create"), recorded + 1);
  const std::string secret(first.json().at("token").as_string());
  EXPECT_EQ(api.call(Question{Method::get, "/v1/whoami"}.by(secret)).status, 200);
}

TEST_F(Idempotency, AKeyIsForOneRequest) {
  ASSERT_EQ(make_token("k1").status, 200);
  const auto other = make_token("k1", R"({"name":"other"})");
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(other.error(), "conflict");
  const auto elsewhere =
      api.call(Question{Method::post, "/v1/logout", R"({"name":"ci"})"}.by(api.admin).with("Idempotency-Key", "k1"));
  EXPECT_EQ(elsewhere.status, 400) << "unknown field, before the key is looked at";
  EXPECT_EQ(make_token("k2").status, 200);
}

TEST_F(Idempotency, ADeletionIsOneRequestToo) {
  const auto a = make_token("a").json(), b = make_token("b").json();
  const auto revoke = [&](const json::value& token) {
    return api.call(Question{Method::del, "/v1/tokens/" + std::string(token.at("id").as_string())}.by(api.admin).with(
        "Idempotency-Key", "gone"));
  };
  EXPECT_EQ(revoke(a).status, 200);
  EXPECT_EQ(revoke(a).status, 200);
  EXPECT_EQ(revoke(b).status, 409) << "another token is another request";
  EXPECT_EQ(api.call(Question{Method::get, "/v1/whoami"}.by(b.at("token").as_string())).status, 200);
}

TEST_F(Idempotency, KeysOfOthersAreOthers) {
  const auto mine = make_token("k1"), adas = make_token("k1", R"({"name":"ci"})", api.ada);
  EXPECT_EQ(adas.status, 200);
  EXPECT_NE(mine.body, adas.body);
  EXPECT_EQ(adas.json().at("principal").as_string(), "user/ada");
}

TEST_F(Idempotency, AtOnceHasOneEffectToo) {
  constexpr std::size_t kCallers = 8;
  const auto before = tokens();
  std::vector<Answer> answers(kCallers);
  std::vector<std::thread> callers;
  for (auto& answer : answers) callers.emplace_back([&] { answer = make_token("k1"); });
  for (auto& caller : callers) caller.join();
  for (const auto& answer : answers) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, answers[0].body);
  }
  EXPECT_EQ(tokens(), before + 1);
}

TEST_F(Idempotency, KeptAnswersAreSealed) {
  const auto made = make_token("k1").json();
  EXPECT_TRUE(on_disk(std::string(made.at("id").as_string()))) << "the search finds what is there";
  const std::string token(made.at("token").as_string());
  EXPECT_FALSE(on_disk(token));
  EXPECT_FALSE(on_disk(token.substr(token.size() - 49)));  // the secret part of it alone
}

TEST_F(Idempotency, AnswersAreForgottenAfterADay) {
  const auto first = make_token("k1");
  EXPECT_EQ(forget_old_answers(*api.platform), 0);
  api.clock.advance(std::chrono::hours(25));
  EXPECT_EQ(forget_old_answers(*api.platform), 1);
  EXPECT_EQ(forget_old_answers(*api.platform), 0);
  EXPECT_NE(make_token("k1").body, first.body);
}

TEST_F(Idempotency, KeysHaveALength) {
  EXPECT_EQ(make_token(std::string(128, 'k')).status, 200);
  EXPECT_EQ(make_token(std::string(129, 'k')).status, 400);
  EXPECT_EQ(make_token("").status, 400);
}

TEST_F(Idempotency, AFailureIsNotKept) {
  EXPECT_EQ(make_token("k1", R"({"name":"ci","principal":"user/nobody"})").status, 404);
  EXPECT_EQ(make_token("k1").status, 200);
}

}  // namespace
}  // namespace falaj::api
