// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "foundation/base/metrics.h"
#include "foundation/net/server.h"
#include "foundation/net/testing.h"
#include "foundation/sys/clock.h"

namespace falaj::api {
namespace {

using ::testing::HasSubstr;

struct DatasetRoutes : testing::Test {
  DatasetRoutes() {
    declare("delays");
    declare("secrets");
    ingest("delays", "id,name\n1,a\n2,b\n");
    ingest("secrets", "id,name\n7,x\n");
    // Ada may read one of the two, and nothing else.
    api.apply(
        "{apiVersion: falaj/v1, kind: Role, metadata: {tenant: acme, name: reads-delays}, spec: {rules: [{effect: "
        "allow, "
        "actions: [dataset.read], resources: [dataset/delays]}]}}\n---\n"
        "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada-reads}, spec: "
        "{role: acme/reads-delays, subjects: [user/ada]}}");
  }
  void declare(const std::string& name) {
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: Dataset, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {{columns: [{{name: id, type: int64}}, {{name: name, type: text}}], key: [id]}}}}",
                    name));
  }
  std::string begin(const std::string& name) {
    const auto answer = api.post("/v1/datasets/" + name + "/uploads?" + kProject, "{}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.json().at("id").as_string());
  }
  Answer part(const std::string& name, const std::string& id, int number, const std::string& bytes) {
    return api.call(Question{Method::put,
                             fmt::format("/v1/datasets/{}/uploads/{}/parts/{}?{}", name, id, number, kProject),
                             bytes,
                             {{"Content-Type", "application/octet-stream"}}}
                        .by(api.admin));
  }
  Answer finish(const std::string& name, const std::string& id, const std::string& body = R"({"format":"csv"})") {
    return api.post("/v1/datasets/" + name + "/uploads/" + id + "/finish?" + kProject, body);
  }
  Answer ingest(const std::string& name, const std::string& csv) {
    const auto id = begin(name);
    EXPECT_EQ(part(name, id, 0, csv).status, 200);
    auto answer = finish(name, id);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer;
  }
  Answer sql(const std::string& select, const std::string& token, const std::string& more = "") {
    const auto body = json::serialize(json::object{{"sql", select}});
    return api.call(
        Question{Method::post, "/v1/datasets/sql?" + kProject, body.substr(0, body.size() - 1) + more + "}"}.by(token));
  }
  Answer as_ada(const std::string& target, Method method = Method::get) {
    return api.call(Question{method, target}.by(api.ada));
  }

  TestApi api;
};

TEST_F(DatasetRoutes, ARoleMayBeForOneDatasetOnly) {
  EXPECT_EQ(as_ada("/v1/datasets/delays?" + kProject).status, 200);
  EXPECT_EQ(as_ada("/v1/datasets/delays/versions/newest/rows?" + kProject).status, 200);
  EXPECT_EQ(as_ada("/v1/datasets/delays/versions/1/export?format=csv&" + kProject).body, "id,name\n1,a\n2,b\n");
  for (const std::string path : {"", "/versions", "/versions/1", "/versions/1/rows", "/diff?from=1&to=1", "/checks",
                                 "/versions/1/export?format=csv", "/uploads/00", "/uploads/00/columns?format=csv"}) {
    const auto target = "/v1/datasets/secrets" + path + (path.find('?') == std::string::npos ? "?" : "&") + kProject;
    EXPECT_EQ(as_ada(target).status, 403) << target;
  }
  // Reading is not writing.
  EXPECT_EQ(as_ada("/v1/datasets/delays/uploads?" + kProject, Method::post).status, 403);
  EXPECT_EQ(as_ada("/v1/datasets/delays/versions/1?" + kProject, Method::del).status, 403);
  EXPECT_EQ(as_ada("/v1/datasets/delays/versions?" + kProject, Method::del).status, 403);
  EXPECT_EQ(as_ada("/v1/datasets?" + kProject).status, 403);  // a list is of the project
}

// As a program that predicts rows does: it is found again after a break, and lineage goes through what it made.
TEST_F(DatasetRoutes, AnUploadIsFoundByItsKeyAndSaysWhatItWasMadeOf) {
  declare("answers");
  const auto begin_keyed = [&](const std::string& name, const std::string& key) {
    const auto answer = api.post("/v1/datasets/" + name + "/uploads?" + kProject, R"({"key":")" + key + "\"}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.json().at("id").as_string());
  };
  const auto id = begin_keyed("answers", "same");
  EXPECT_EQ(begin_keyed("answers", "same"), id);
  EXPECT_NE(begin_keyed("answers", "other"), id);
  EXPECT_NE(begin_keyed("delays", "same"), id);
  EXPECT_EQ(part("answers", id, 0, "id,name\n1,late\n").status, 200);
  const auto look = "/v1/datasets/answers/uploads/" + id + "?" + kProject;
  EXPECT_FALSE(api.get(look).json().as_object().contains("version"));
  const auto made_of = [](const std::string& dataset, const std::string& column) {
    return fmt::format(
        R"({{"format":"csv","mode":"overwrite","made_of":[{{"dataset":"{}","version":1,"columns":["{}"]}}],)"
        R"("answered_by":{{"model":"delay","version":2}}}})",
        dataset, column);
  };
  EXPECT_EQ(finish("answers", id, made_of("nothing", "id")).status, 404);
  EXPECT_EQ(finish("answers", id, made_of("delays", "colour")).status, 400);
  const auto made = finish("answers", id, made_of("delays", "id"));
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(canonical(made.json().at("inputs")), R"(["delays@1"])");
  EXPECT_EQ(made.json().at("answered_by"), json::value("delay/2"));
  EXPECT_EQ(finish("answers", begin_keyed("answers", "same"), made_of("delays", "id")).json().at("number"),
            made.json().at("number"));
  EXPECT_EQ(api.get(look).json().at("version"), made.json().at("number"));
  const auto lineage = api.get("/v1/lineage?thing=answers@1&way=up&" + kProject).json();
  EXPECT_THAT(json::serialize(lineage.at("edges")), HasSubstr(R"("how":"rows")"));
  EXPECT_THAT(json::serialize(lineage.at("edges")), HasSubstr(R"({"from":"version/delay/2","to":"dataset/answers@)"));
}

TEST_F(DatasetRoutes, SqlSeesWhatTheCallerMayRead) {
  const auto mine = sql("SELECT sum(id) AS s FROM delays", api.ada);
  ASSERT_EQ(mine.status, 200) << mine.body;
  EXPECT_EQ(canonical(mine.json().at("rows")), "[[3]]");
  for (const std::string select :
       {"SELECT * FROM secrets", "SELECT * FROM delays, secrets", "SELECT (SELECT count(*) FROM \"secrets@1\")",
        "WITH s AS (SELECT * FROM secrets) SELECT * FROM s", "SELECT * FROM query('SELECT * FROM secrets')",
        "SELECT * FROM query_table('secrets')", "SELECT * FROM delays WHERE id IN (FROM secrets SELECT id)"}) {
    const auto answer = sql(select, api.ada);
    EXPECT_EQ(answer.status, 403) << select << ": " << answer.body;
    EXPECT_THAT(answer.body, testing::Not(HasSubstr("\"x\"")));
  }
  EXPECT_EQ(sql("SELECT * FROM delays, secrets", api.admin).status, 200);
  EXPECT_EQ(sql("SELECT 1", api.ada).status, 403);  // of no dataset: for those who may read them all
}

TEST_F(DatasetRoutes, SqlIsLockedIn) {
  for (const std::string select :
       {"SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_parquet('data/1')", "SELECT * FROM glob('/*')",
        "ATTACH '/tmp/x.db'", "INSTALL httpfs", "LOAD httpfs", "SET memory_limit = '1TB'", "RESET memory_limit",
        "CREATE TABLE t AS SELECT 1", "COPY delays TO '/tmp/x.csv'", "EXPORT DATABASE '/tmp/x'", "SELECT 1; SELECT 2",
        "CALL pragma_version()", "SELECT * FROM 'https://example.org/x.csv'", "SELECT getenv('HOME')",
        "CREATE SECRET (TYPE s3)"}) {
    const auto answer = sql(select, api.admin);
    EXPECT_GE(answer.status, 400) << select << ": " << answer.body;
    EXPECT_LT(answer.status, 500) << select << ": " << answer.body;
    EXPECT_THAT(answer.body, testing::Not(HasSubstr("root:"))) << select;
  }
  EXPECT_EQ(sql("SELECT 1", api.admin).status, 200);
}

TEST_F(DatasetRoutes, SqlHasLimits) {
  const auto rows = sql("SELECT * FROM range(10) t(i)", api.admin, R"(,"rows":3)").json();
  EXPECT_EQ(rows.at("rows").as_array().size(), 3U);
  EXPECT_FALSE(rows.at("whole").as_bool());
  EXPECT_EQ(sql("SELECT 1", api.admin, R"(,"rows":100001)").status, 400);
  const auto memory = sql("SELECT list(i || repeat('x', 1000)) FROM range(10000000) t(i)", api.admin);
  EXPECT_EQ(memory.error(), "exhausted") << memory.body;
  const auto bytes = sql("SELECT repeat('x', 1000000) FROM range(100)", api.admin).json();
  EXPECT_LT(bytes.at("rows").as_array().size(), 40U);
  EXPECT_FALSE(bytes.at("whole").as_bool());
  EXPECT_EQ(sql("SELECT 1", api.admin).status, 200);  // every turn was given back
}

TEST_F(DatasetRoutes, AnUploadGoesOnAfterABreakAndIsMadeOnce) {
  const auto id = begin("delays");
  const auto path = "/v1/datasets/delays/uploads/" + id;
  EXPECT_EQ(part("delays", id, 1, ",c\n").status, 200);
  EXPECT_THAT(finish("delays", id).body, HasSubstr("part 0 of the upload is missing"));
  EXPECT_EQ(part("delays", id, 0, "id,name\n3").status, 200);
  EXPECT_EQ(canonical(api.get(path + "?" + kProject).json().at("parts")),
            R"([{"bytes":9,"number":0},{"bytes":3,"number":1}])");
  const auto first = finish("delays", id);
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(first.json().at("number"), 2);
  EXPECT_EQ(first.json().at("rows"), 3);
  EXPECT_EQ(finish("delays", id).json().at("number"), 2);  // the same again
  EXPECT_EQ(part("delays", id, 0, "x").status, 409);
  EXPECT_EQ(api.get("/v1/datasets/secrets/uploads/" + id + "?" + kProject).status, 404);  // of another dataset
  EXPECT_EQ(part("delays", begin("delays"), 10'000, "x").status, 400);
}

TEST_F(DatasetRoutes, AnotherProjectHasNoneOfIt) {
  api.apply("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: cargo}, spec: {zone: uae}}");
  EXPECT_EQ(api.get("/v1/datasets/delays?scope=/t/acme/p/cargo").status, 404);
  EXPECT_EQ(api.get("/v1/datasets?scope=/t/acme/p/cargo").json().at("items").as_array().size(), 0U);
  const auto answer = api.post("/v1/datasets/sql?scope=/t/acme/p/cargo", R"({"sql":"SELECT * FROM delays"})");
  EXPECT_EQ(answer.status, 404) << answer.body;
}

TEST_F(DatasetRoutes, VersionsGo) {
  ingest("delays", "id,name\n3,c\n");
  EXPECT_EQ(api.del("/v1/datasets/delays/versions/1?" + kProject).status, 200);
  EXPECT_EQ(api.get("/v1/datasets/delays/versions/1?" + kProject).status, 404);
  EXPECT_EQ(api.get("/v1/datasets/delays/versions/2/rows?" + kProject).json().at("rows").as_array().size(), 3U);
  EXPECT_EQ(api.del("/v1/datasets/delays/versions/1?" + kProject).status, 404);
  EXPECT_EQ(api.del("/v1/datasets/delays/versions/newest?" + kProject).status, 200);
  EXPECT_EQ(api.get("/v1/datasets/delays?" + kProject).json().at("versions"), 0);
  EXPECT_GE(api.audited("dataset.delete"), 2U);
}

TEST_F(DatasetRoutes, ADatasetThatIsNeededKeepsItsVersionsAndItsDeclaration) {
  const auto target = "/v1/datasets/delays?" + kProject;
  EXPECT_EQ(as_ada(target, Method::del).status, 403);
  api.apply(
      "{apiVersion: falaj/v1, kind: Expectation, metadata: {tenant: acme, project: flights, name: sane}, spec: "
      "{dataset: delays, rules: [{check: unique, columns: [id]}]}}");
  const auto refused = api.del(target);
  EXPECT_EQ(refused.status, 409) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("is still needed by Expectation acme/flights/sane"));
  EXPECT_EQ(api.get(target).json().at("versions"), 1);
  EXPECT_EQ(api.get("/v1/datasets/delays/versions/1/rows?" + kProject).json().at("rows").as_array().size(), 2U);

  EXPECT_EQ(api.del("/v1/resources/expectations/sane?" + kProject).status, 200);
  const auto removed = api.del(target);
  EXPECT_EQ(removed.status, 200) << removed.body;
  EXPECT_GT(removed.json().at("bytes").as_int64(), 0);
  EXPECT_EQ(api.get(target).status, 404);
  EXPECT_EQ(api.get("/v1/resources/datasets/delays?" + kProject).status, 404);
  EXPECT_EQ(api.del(target).status, 404);
  declare("delays");
  EXPECT_EQ(ingest("delays", "id,name\n1,a\n").json().at("number"), 2);  // numbers are not given again
}

// A server on a real socket: who goes away takes nothing with him.
struct DatasetServer : DatasetRoutes {
  std::string request(const std::string& method, const std::string& target, const std::string& body = "") const {
    return fmt::format(
        "{} {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        method, target, api.admin, body.size(), body);
  }
  std::string select(const std::string& sql) const {
    return request("POST", "/v1/datasets/sql?" + kProject,
                   json::serialize(json::object{{"sql", sql}, {"time", 3'600'000'000}}));
  }
  // Asks until the answer has that status.
  bool comes_to(int status) {
    net::RawConnection asking(server.port());
    for (const auto until = real.now() + std::chrono::minutes(1); real.now() < until;) {
      if (asking.ask(select("SELECT 1")).status == status) return true;
      api.clock.advance(std::chrono::milliseconds(1));  // or it would be told that it asks too often
    }
    return false;
  }
  ~DatasetServer() override { api.clock.advance(std::chrono::hours(2)); }  // ends what was not stopped

  sys::RealClock real;
  sys::Ids ids{real, api.random};
  Metrics metrics;
  net::Server server{"127.0.0.1", 0, std::nullopt, {}, *api.service, real, ids, metrics};
};

TEST_F(DatasetServer, StopsReadingForWhoHasGone) {
  const auto endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = -1";
  std::vector<net::RawConnection> clients;
  std::vector<pollfd> answers;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(server.port());
    answers.push_back({clients.back().descriptor(), POLLIN, 0});
    ASSERT_TRUE(clients.back().send(select(endless)));
  }
  // One of them finds every room taken.
  ASSERT_EQ(::poll(answers.data(), answers.size(), 60'000), 1);
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i].revents != 0) {
      EXPECT_EQ(clients[i].read_answer().status, 429);
    }
  clients.clear();
  EXPECT_TRUE(comes_to(200));
}

// Who takes it slowly holds a room as long.
TEST_F(DatasetServer, BreaksAnExportOffWhenItsTimeIsOver) {
  declare("many");
  std::string csv = "id,name\n";
  for (int i = 0; i < 300'000; ++i) csv += fmt::format("{},{:0100}\n", i, i);
  ingest("many", csv);
  net::RawConnection client(server.port());
  client.receive_buffer(4096);
  ASSERT_TRUE(client.send(request("GET", "/v1/datasets/many/versions/1/export?format=csv&time=30m&" + kProject)));
  auto got = client.read_some(1);
  ASSERT_EQ(got, "H");
  api.clock.advance(std::chrono::hours(1));
  got += client.read_until_closed();
  EXPECT_THAT(got, HasSubstr("HTTP/1.1 200"));
  EXPECT_FALSE(got.ends_with("\r\n0\r\n\r\n"));
  EXPECT_LT(got.size(), csv.size());
}

TEST_F(DatasetRoutes, AnExportHasALimitOfTimeAsAQueryHas) {
  EXPECT_EQ(api.get("/v1/datasets/delays/versions/1/export?format=csv&time=2h&" + kProject).status, 400);
  EXPECT_EQ(api.get("/v1/datasets/delays/versions/1/export?format=csv&time=1h&" + kProject).body,
            "id,name\n1,a\n2,b\n");
}

}  // namespace
}  // namespace falaj::api
