// SPDX-License-Identifier: Apache-2.0
#include "api/service.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"

namespace falaj::api {
namespace {

CallLimits limits(iam::Rate caller, iam::Rate anyone, iam::Rate denied) {
  CallLimits out;
  out.caller = caller;
  out.anyone = anyone;
  out.denied = denied;
  return out;
}
constexpr iam::Rate kPlenty{1e6, 1e6};

std::string field_of(const Answer& answer, std::size_t i = 0) {
  return std::string(answer.json().at("error").at("details").at(i).at("field").as_string());
}

TEST(Service, AnswersWhatThereIsNot) {
  TestApi api;
  EXPECT_EQ(api.get("/v1/nothing").status, 404);
  EXPECT_EQ(api.get("/v1/version/").status, 404);
  EXPECT_EQ(api.get("/").status, 404);
  const auto wrong = api.call({Method::put, "/v1/tokens"});
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.find("Allow"), "POST, GET, HEAD");
  EXPECT_EQ(api.call({Method::head, "/v1/version"}).status, 200);
}

TEST(Service, ReadsPercentEncodedNames) {
  TestApi api;
  EXPECT_EQ(api.get("/v1/resources/project/fl%69ghts?scope=%2Ft%2Facme").status, 200);
  EXPECT_EQ(api.get("/v1/resources/project/fl%2569ghts?scope=/t/acme").status, 400);  // decoded once: no name has a '%'
}

TEST(Service, AsksWhoItIsBeforeAnythingElse) {
  TestApi api;
  const auto nobody = api.call({Method::post, "/v1/tokens", "not json"});
  EXPECT_EQ(nobody.status, 401);
  EXPECT_EQ(nobody.headers.find("WWW-Authenticate"), "Bearer realm=\"falaj\"");
  EXPECT_EQ(api.call(Question{Method::post, "/v1/keys/rotate", "not json"}.by(api.ada)).status, 403);
  EXPECT_EQ(api.post("/v1/keys/rotate", "not json").status, 400);
}

TEST(Service, RecordsWhatItDenies) {
  TestApi api;
  EXPECT_EQ(api.call(Question{Method::get, "/v1/status"}.by(api.ada)).status, 403);
  EXPECT_EQ(api.audited("status.read", "denied"), 1U);
  // Found out by the handler, when it knew what was asked for:
  EXPECT_EQ(
      api.call(Question{Method::post, "/v1/tokens", R"({"name":"x","principal":"user/admin"})"}.by(api.ada)).status,
      403);
  EXPECT_EQ(api.audited("token.create", "denied"), 1U);
  EXPECT_EQ(api.call({Method::post, "/v1/login", R"({"user":"ada","password":"a guess"})"}).status, 401);
  EXPECT_EQ(api.audited("session.create", "denied"), 1U);
  audit::Filter filter;
  filter.verb = "session.create";
  const auto record = api.audit->log(filter, std::nullopt, 1).records.at(0);
  EXPECT_EQ(record.actor, "anyone");
  EXPECT_EQ(record.resource, "/user/ada");
  EXPECT_EQ(record.details.find("guess"), std::string::npos);
}

TEST(Service, LimitsTheRateOfACaller) {
  TestApi api(limits({2, 3}, kPlenty, kPlenty));
  const auto ask = [&](const std::string& token) { return api.call(Question{Method::get, "/v1/whoami"}.by(token)); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(api.admin).status, 200);
  const auto refused = ask(api.admin);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error(), "exhausted");
  EXPECT_TRUE(refused.headers.find("Retry-After"));
  EXPECT_EQ(ask(api.ada).status, 200);  // another principal
  api.clock.advance(std::chrono::milliseconds(500));
  EXPECT_EQ(ask(api.admin).status, 200);
  EXPECT_EQ(ask(api.admin).status, 429);
}

TEST(Service, AQuotaLimitsCallsOfEachPrincipalWhereItHolds) {
  TestApi api(limits(kPlenty, kPlenty, kPlenty));
  api.apply(
      "apiVersion: falaj/v1\nkind: Project\nmetadata: {tenant: acme, name: rockets}\nspec: {zone: uae}\n---\n"
      "apiVersion: falaj/v1\nkind: Quota\nmetadata: {tenant: acme, name: few}\n"
      "spec: {project: flights, requestsPerSecond: 1}\n");
  const auto list = [&](const std::string& project) { return api.get("/v1/jobs?scope=/t/acme/p/" + project); };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(list("flights").status, 200);
  const auto refused = list("flights");
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.find("Retry-After"));
  EXPECT_NE(refused.body.find("by quota acme/few"), std::string::npos) << refused.body;
  EXPECT_EQ(list("rockets").status, 200) << "another project";
  EXPECT_EQ(api.call(Question{Method::get, "/v1/jobs?" + kProject}.by(api.ada)).status, 403) << "asked before that";
  api.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(list("flights").status, 200);
}

TEST(Service, LimitsCallersItDoesNotKnowByAddress) {
  TestApi api(limits(kPlenty, {1, 2}, kPlenty));
  EXPECT_EQ(api.call({Method::get, "/v1/version"}).status, 200);
  EXPECT_EQ(api.call({Method::get, "/healthz"}).status, 200);
  EXPECT_EQ(api.call({Method::get, "/v1/version"}).status, 429);
  EXPECT_EQ(api.get("/v1/whoami").status, 200);
  api.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(api.call({Method::get, "/v1/version"}).status, 200);
}

TEST(Service, GuessingDoesNotFillTheAuditLog) {
  TestApi api(limits(kPlenty, kPlenty, {1, 3}));
  const auto size = [&] { return api.audit->head().head.size; };
  const auto before = size();
  for (int i = 0; i < 20; ++i) {
    const auto answer =
        i % 2 ? api.call({Method::get, "/v1/whoami"})
              : api.call(Question{Method::post, "/v1/tokens", R"({"name":"x","principal":"user/admin"})"}.by(api.ada));
    EXPECT_EQ(answer.status, i >= 3 ? 429 : i % 2 ? 401 : 403) << i;
  }
  EXPECT_EQ(size(), before + 3);
  api.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(api.call({Method::get, "/v1/whoami"}).status, 401);
  EXPECT_EQ(size(), before + 4);
}

TEST(Service, NamesWhatIsWrongWithARequest) {
  TestApi api;
  const auto misspelt = api.get("/v1/audit?limti=3");
  EXPECT_EQ(misspelt.status, 400);
  EXPECT_EQ(field_of(misspelt), "limti");
  EXPECT_EQ(field_of(api.get("/v1/audit?limit=3&limit=4")), "limit");
  EXPECT_EQ(field_of(api.get("/v1/audit?limit=many")), "limit");
  EXPECT_EQ(field_of(api.post("/v1/tokens", R"({"name":"x","ttk":"1h"})")), "ttk");
  const auto both = api.post("/v1/tokens", R"({"ttl":"1s","restrictions":[{"scope":"nowhere"}]})");
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.json().at("error").at("details").as_array().size(), 3U) << both.body;  // all at once
  EXPECT_EQ(api.get("/v1/blobs?scope=nowhere").status, 400);
  EXPECT_EQ(api.get("/v1/blobs?scope=/t/acme").status, 400);  // not a project
  EXPECT_EQ(api.get("/v1/resources/nokind").status, 404);
}

TEST(Service, ReadsJsonOnly) {
  TestApi api;
  const Question question = Question{Method::post, "/v1/tokens", R"({"name":"x"})"}.by(api.admin);
  EXPECT_EQ(api.call(question.with("Content-Type", "text/plain")).status, 400);
  EXPECT_EQ(api.call(question.with("Content-Type", "Application/JSON; charset=utf-8")).status, 200);
  for (const auto* body : {"{", "[]", "1", "null", "{} {}", "{\"name\":\"x\",}", "\xff\xfe"})
    EXPECT_EQ(api.post("/v1/tokens", body).status, 400) << body;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  EXPECT_EQ(api.post("/v1/tokens", deep).status, 400);
}

TEST(Service, ErrorsSayNothingAboutTheMachine) {
  TestApi api;
  const std::string project = "scope=/t/acme/p/flights";
  std::vector<Answer> answers = {
      api.get("/v1/blobs/content?" + project + "&name=../../etc/passwd"),
      api.get("/v1/blobs/info?" + project + "&name=%27%3B+DROP+TABLE+x"),
      api.get("/v1/resources/project/%27%22--"),
      api.get("/v1/audit?verb=%25%27&cursor=%27"),
      api.get("/v1/audit/99999999/proof"),
      api.post("/v1/apply", R"({"sources":[{"file":"/etc/passwd","text":"kind: [\n"}]})"),
      api.post("/v1/keys/rotate", R"({"level":"zone","zone":"none"})"),
      api.post("/v1/keys/rotate", R"({"level":"zone","zone":"../x"})"),
      api.call({Method::post, "/v1/login", R"({"user":"ada","password":"x"})"}),
  };
  api.database->write({"user/test", "test.break", "/", ""},
                      [](sql::Writer& w) { w.execute("ALTER TABLE blob_name RENAME TO gone", {}); });
  answers.push_back(api.get("/v1/blobs?" + project));
  EXPECT_EQ(answers.back().status, 500);
  EXPECT_EQ(answers.back().error(), "internal");
  for (const auto& answer : answers) {
    EXPECT_GE(answer.status, 400) << answer.body;
    EXPECT_NE(answer.error(), "") << answer.body;
    EXPECT_NE(answer.body.find(answer.request_id), std::string::npos);
    for (const std::string& leak :
         {api.dir.path(), std::string("SELECT"), std::string("sqlite"), std::string("blob_name"), std::string("src/"),
          std::string(".cc"), std::string("boost")})
      EXPECT_EQ(answer.body.find(leak), std::string::npos) << leak << " in " << answer.body;
  }
}

TEST(Access, ASessionIsOpenedByAPasswordAndEndedByLogout) {
  TestApi api;
  ASSERT_EQ(api.post("/v1/users/ada/password", R"({"password":"correct horse battery"})").status, 200);
  const auto login = api.call({Method::post, "/v1/login", R"({"user":"ada","password":"correct horse battery"})"});
  ASSERT_EQ(login.status, 200) << login.body;
  const std::string session(login.json().at("session").as_string());
  const Question who = Question{Method::get, "/v1/whoami"}.with("Cookie", "a=b; falaj_session=" + session);
  EXPECT_EQ(api.call(who).json().at("principal").as_string(), "user/ada");
  EXPECT_EQ(api.call(Question{Method::post, "/v1/logout"}.with("Cookie", "falaj_session=" + session)).status, 200);
  EXPECT_EQ(api.call(who).status, 401);
}

TEST(Access, ASessionIsNoBearer) {
  TestApi api;
  ASSERT_EQ(api.post("/v1/users/ada/password", R"({"password":"correct horse battery"})").status, 200);
  const auto login = api.call({Method::post, "/v1/login", R"({"user":"ada","password":"correct horse battery"})"});
  const std::string session(login.json().at("session").as_string());
  EXPECT_EQ(api.call(Question{Method::get, "/v1/whoami"}.by(session)).status, 401);
  EXPECT_EQ(api.call(Question{Method::get, "/v1/whoami"}.with("Cookie", "falaj_session=" + session)).status, 200);
}

TEST(Access, ThePasswordOfATenantsUserIsThatUsers) {
  TestApi api;
  api.apply("{apiVersion: falaj/v1, kind: User, metadata: {tenant: acme, name: ada}, spec: {}}");
  const auto set = [&](const std::string& scope, const std::string& password) {
    return api.post("/v1/users/ada/password?scope=" + scope, fmt::format(R"({{"password":"{}"}})", password)).status;
  };
  const auto login = [&](const std::string& user, const std::string& password) {
    return api.call({Method::post, "/v1/login", fmt::format(R"({{"user":"{}","password":"{}"}})", user, password)})
        .status;
  };
  EXPECT_EQ(set("/", "of the platform's ada"), 200);
  EXPECT_EQ(set("/t/acme", "of the tenant's ada"), 200);
  EXPECT_EQ(login("ada", "of the platform's ada"), 200);
  EXPECT_EQ(login("acme/ada", "of the tenant's ada"), 200);
  EXPECT_EQ(login("acme/ada", "of the platform's ada"), 401);
  EXPECT_EQ(set("/t/none", "of nobody, really"), 404);
}

TEST(Access, ARestrictedTokenMakesNoBetterOne) {
  TestApi api;
  const auto weak = api.token_of("user/admin", 3'600'000'000, {{{"*"}, iam::Scope::parse("/t/acme")}});
  EXPECT_EQ(api.call(Question{Method::post, "/v1/tokens", R"({"name":"x"})"}.by(weak)).status, 403);
  const auto same = api.call(
      Question{Method::post, "/v1/tokens", R"({"name":"x","restrictions":[{"actions":["*"],"scope":"/t/acme"}]})"}.by(
          weak));
  EXPECT_EQ(same.status, 200) << same.body;
}

TEST(Access, TokensEndWithTime) {
  TestApi api;
  const auto token = api.token_of("user/ada", 60'000'000);
  const auto ask = [&] { return api.call(Question{Method::get, "/v1/whoami"}.by(token)).status; };
  api.clock.advance(std::chrono::microseconds(59'999'999));
  EXPECT_EQ(ask(), 200);
  api.clock.advance(std::chrono::microseconds(1));
  EXPECT_EQ(ask(), 401);
}

TEST(Resources, AReadShowsTheLastChange) {
  TestApi api;
  const std::string zone = "/v1/resources/zone/spare";
  for (int i = 1; i <= 3; ++i) {
    const auto yaml = fmt::format(
        "{{apiVersion: falaj/v1, kind: Zone, metadata: {{name: spare, description: '{}'}}, "
        "spec: {{residency: AE}}}}",
        i);
    const json::value body{{"sources", json::array{{{"file", "x.yaml"}, {"text", yaml}}}}};
    ASSERT_EQ(api.post("/v1/apply", json::serialize(body)).status, 200);
    for (int again = 0; again < 2; ++again) {  // from the database, then from memory
      const auto read = api.get(zone).json();
      EXPECT_EQ(read.at("metadata").at("description").as_string(), std::to_string(i));
      EXPECT_EQ(read.at("status").at("revision").as_int64(), i);
    }
    EXPECT_EQ(api.call(Question{Method::get, zone}.by(api.ada)).status, 403)
        << "what is in memory is not for everybody";
  }
  ASSERT_EQ(api.post(zone + "/rollback", R"({"revision":1})").status, 200);
  EXPECT_EQ(api.get(zone).json().at("metadata").at("description").as_string(), "1");
  ASSERT_EQ(api.del(zone).status, 200);
  EXPECT_EQ(api.get(zone).status, 404);
}

TEST(Blobs, ABatchIsWholeOrNothing) {
  TestApi api;
  const std::string target = "/v1/blobs/batch?scope=/t/acme/p/flights";
  const auto file = [](std::string_view name, std::string_view bytes) {
    ByteWriter out;
    out.text(name);
    out.u64(bytes.size());
    out.raw(as_bytes(bytes));
    return std::string(as_text(out.bytes()));
  };
  const std::string good = file("a", "first") + file("b/c", "second");
  ByteWriter endless;
  endless.u32(vault::kNameBytesMax + 1);
  for (std::size_t n = 1; n < good.size(); ++n) {
    if (n == file("a", "first").size()) continue;  // a batch of one file
    EXPECT_EQ(api.post(target, good.substr(0, n)).status, 400) << "cut off after " << n;
  }
  for (const auto& bad : {std::string(as_text(endless.bytes())), file("", "x"), file("a\nb", "x"), file("a\x7f", "x"),
                          file("\xff\xff", "x"), file(std::string(vault::kNameBytesMax + 1, 'n'), "x")})
    EXPECT_EQ(api.post(target, good + bad).status, 400);
  EXPECT_TRUE(api.get("/v1/blobs?scope=/t/acme/p/flights").json().at("items").as_array().empty());
  EXPECT_EQ(api.post(target, good + file(std::string(vault::kNameBytesMax, 'n'), "x")).status, 200);
  EXPECT_EQ(api.get("/v1/blobs/content?scope=/t/acme/p/flights&name=b/c").body, "second");
  EXPECT_EQ(api.post(target, "").status, 200);  // of nothing
}

}  // namespace
}  // namespace falaj::api
