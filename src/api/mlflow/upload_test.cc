// SPDX-License-Identifier: Apache-2.0
// Files in parts, as clients send them, and every way to misuse the addresses that are handed out for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "lifecycle/track/uploads.h"

namespace falaj::api {
namespace {

class Upload : public testing::Test {
 protected:
  Upload() {
    api.apply(R"(
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: other}, spec: {zones: [uae]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: other, name: maps}, spec: {zone: uae}}
---
{apiVersion: falaj/v1, kind: User, metadata: {name: bob}, spec: {}}
---
{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: devs},
 spec: {role: developer, subjects: [user/ada, user/bob]}}
---
{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: other, project: maps, name: devs},
 spec: {role: developer, subjects: [user/bob]}}
)");
    bob = api.token_of("user/bob");
    run = make_run("acme/flights", api.ada);
  }

  std::string make_run(const std::string& project, const std::string& token) {
    return std::string(post(project, "/mlflow/runs/create", R"({"experiment_id":"0"})", token)
                           .json()
                           .at("run")
                           .at("info")
                           .at("run_id")
                           .as_string());
  }
  Answer post(const std::string& project, const std::string& path, const std::string& body, const std::string& token) {
    return api.call(Question{Method::post, fmt::format("/mlflow/{}/api/2.0{}", project, path), body}.by(token));
  }
  std::string place(const std::string& call, const std::string& dir = "data") const {
    return fmt::format("/mlflow-artifacts/mpu/{}/0/{}/artifacts/{}", call, run, dir);
  }
  struct Begun {
    std::string id;
    std::vector<std::string> targets;  // what follows the host
  };
  Begun begin(int parts, const std::string& file = "/home/ada/big file.bin") {
    const auto answer = post("acme/flights", place("create"),
                             json::serialize(json::object{{"path", file}, {"num_parts", parts}}), api.ada);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto value = answer.json();
    Begun begun{std::string(value.at("upload_id").as_string()), {}};
    for (const auto& credential : value.at("credentials").as_array()) {
      const std::string url(credential.at("url").as_string());
      EXPECT_TRUE(url.starts_with("http://localhost/mlflow/acme/flights/")) << url;
      begun.targets.push_back(url.substr(std::string("http://localhost").size()));
      EXPECT_EQ(credential.at("part_number").as_int64(), static_cast<std::int64_t>(begun.targets.size()));
    }
    return begun;
  }
  // As the client does it: no credential.
  Answer put(const std::string& target, const std::string& bytes) {
    return api.call(Question{Method::put, target, bytes}.with("Content-Type", "application/octet-stream"));
  }
  std::string tag(const Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.headers.find("ETag").value_or(""));
  }
  static std::string parts_of(const std::vector<std::string>& tags) {
    json::array parts;
    for (std::size_t i = 0; i < tags.size(); ++i)
      parts.push_back({{"part_number", i + 1}, {"etag", tags[i]}, {"url", "ignored"}});
    return json::serialize(parts);
  }
  Answer complete(const std::string& id, const std::vector<std::string>& tags, const std::string& file = "big file.bin",
                  const std::string& token = "") {
    return post("acme/flights", place("complete"),
                fmt::format(R"({{"path":"{}","upload_id":"{}","parts":{}}})", file, id, parts_of(tags)),
                token.empty() ? api.ada : token);
  }
  Answer abort(const std::string& id) {
    return post("acme/flights", place("abort"), fmt::format(R"({{"path":"big file.bin","upload_id":"{}"}})", id),
                api.ada);
  }
  Answer read(const std::string& path, const std::string& range = "") {
    Question question{
        Method::get,
        fmt::format("/mlflow/acme/flights/api/2.0/mlflow-artifacts/artifacts/0/{}/artifacts/{}", run, path)};
    return api.call((range.empty() ? question : question.with("Range", range)).by(api.ada));
  }
  std::size_t parts_stored() { return api.vault->list({{"acme"}, {"flights"}}, "@upload/", "", 1000).size(); }
  track::Uploads uploads() { return {*api.database, *api.vault, api.clock}; }

  TestApi api;
  std::string run, bob;
};

TEST_F(Upload, PartsInAnyOrderAndTwiceBecomeTheFile) {
  const auto begun = begin(3);
  const auto three = tag(put(begun.targets[2], "tail"));
  const auto wrong = tag(put(begun.targets[0], "a part that was cut sho"));
  const auto two = tag(put(begun.targets[1], std::string(100'000, 'b')));
  const auto one = tag(put(begun.targets[0], std::string(100'000, 'a')));
  EXPECT_NE(one, wrong);
  EXPECT_EQ(read("data/big%20file.bin").status, 404) << "nothing is seen before it is complete";
  EXPECT_EQ(complete(begun.id, {wrong, two, three}).status, 400);
  EXPECT_EQ(complete(begun.id, {one, two}).status, 400) << "all parts";
  EXPECT_EQ(complete(begun.id, {one, two, three}).status, 200);
  const auto whole = std::string(100'000, 'a') + std::string(100'000, 'b') + "tail";
  EXPECT_EQ(read("data/big%20file.bin").body, whole);
  EXPECT_EQ(parts_stored(), 0U);

  EXPECT_EQ(complete(begun.id, {one, two, three}).status, 200) << "asked again";
  EXPECT_EQ(complete(begun.id, {one, one, three}).status, 409);
  EXPECT_EQ(put(begun.targets[0], "replay").status, 409) << "the addresses are good for nothing any more";
  EXPECT_EQ(abort(begun.id).status, 409);
  EXPECT_EQ(read("data/big%20file.bin").body, whole);
}

TEST_F(Upload, APartThatNeverCameIsMissed) {
  const auto begun = begin(2);
  const auto one = tag(put(begun.targets[0], "1"));
  const auto answer = complete(begun.id, {one, one});
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, testing::HasSubstr("part 2"));
}

TEST_F(Upload, AbortedOrAbandonedLeavesNothing) {
  const auto aborted = begin(2);
  const auto one = tag(put(aborted.targets[0], "1"));
  EXPECT_EQ(abort(aborted.id).status, 200);
  EXPECT_EQ(abort(aborted.id).status, 200) << "asked again";
  EXPECT_EQ(parts_stored(), 0U);
  EXPECT_EQ(put(aborted.targets[1], "2").status, 409);
  EXPECT_EQ(complete(aborted.id, {one, one}).status, 409);

  const auto abandoned = begin(1);
  tag(put(abandoned.targets[0], "left behind"));
  EXPECT_EQ(uploads().sweep(), 0U);
  EXPECT_EQ(parts_stored(), 1U);
  api.clock.advance(sys::Micros(track::kUploadLifeUs + 1));
  EXPECT_EQ(uploads().sweep(), 2U);
  EXPECT_EQ(parts_stored(), 0U);
}

// A kill after the file has its name and before the upload is marked: the client asks again.
TEST_F(Upload, CompletingGoesOnAfterAKill) {
  const auto begun = begin(1);
  const auto one = tag(put(begun.targets[0], "content"));
  api.vault->put({{"acme"}, {"flights"}}, std::nullopt, fmt::format("@run/{}/data/big file.bin", run),
                 blob::source_of(as_bytes("content")), {"user/ada", "artifact.put", "/", ""});
  EXPECT_EQ(complete(begun.id, {one}).status, 200);
  EXPECT_EQ(read("data/big%20file.bin").body, "content");
  // A kill after the mark and before the parts went: the sweep takes them.
  const auto second = begin(1);
  const auto tag_of_second = tag(put(second.targets[0], "more"));
  api.database->write({"user/test", "test", "/", ""}, [&](sql::Writer& w) {
    w.execute("UPDATE track_upload SET state = 'done' WHERE upload_id = ?", {second.id});
  });
  EXPECT_EQ(parts_stored(), 1U);
  api.clock.advance(sys::Micros(track::kUploadLifeUs + 1));
  uploads().sweep();
  EXPECT_EQ(parts_stored(), 0U);
}

TEST_F(Upload, AnAddressIsGoodForOneThingOnly) {
  const auto begun = begin(2);
  const auto& good = begun.targets[0];
  const auto refused = [&](const std::string& target, int status = 401) {
    const auto answer = put(target, "x");
    EXPECT_EQ(answer.status, status) << target << ": " << answer.body;
  };
  const auto replaced = [&](const std::string& what, const std::string& by) {
    auto copy = good;
    const auto at = copy.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return copy.replace(at, what.size(), by);
  };
  refused(replaced("/1?", "/2?"));                    // another part
  refused(replaced(begun.id, begin(1).id));           // another upload
  refused(replaced("acme/flights", "other/maps"));    // another tenant
  refused(replaced("mlflow/acme/flights/", ""));      // no project
  refused(replaced("expires=", "expires=9"));         // a longer life
  refused(replaced("by=token%2F", "by=session%2F"));  // another credential
  refused(good.substr(0, good.size() - 1));           // a changed signature
  refused(good.substr(0, good.find('?')));            // none
  EXPECT_EQ(api.call(Question{Method::put, good.substr(0, good.find('?')), "x"}.by(api.ada)).status, 401)
      << "a bearer does not open it";
  EXPECT_NE(api.call(Question{Method::get, good}).status, 200);
  // Its signature opens nothing else.
  const auto query = good.substr(good.find('?'));
  EXPECT_EQ(
      put(fmt::format("/mlflow/acme/flights/api/2.0/mlflow-artifacts/artifacts/0/{}/artifacts/x{}", run, query), "x")
          .status,
      401);
  EXPECT_EQ(api.call(Question{Method::get, "/v1/whoami" + query}).status, 401);
  EXPECT_EQ(parts_stored(), 0U);
  EXPECT_GE(api.audited("run.write", "denied"), 8U) << "each is on record";
  EXPECT_EQ(put(good, "x").status, 200) << "and itself works";
}

TEST_F(Upload, AnAddressEndsWithItsTimeItsTokenAndItsRights) {
  const auto begun = begin(1);
  const auto other = begin(1);
  api.apply(R"({apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: devs},
                spec: {role: viewer, subjects: [user/ada]}})");
  EXPECT_EQ(put(begun.targets[0], "x").status, 403) << "ada may not write any more";
  api.apply(R"({apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: devs},
                spec: {role: developer, subjects: [user/ada]}})");
  EXPECT_EQ(put(begun.targets[0], "x").status, 200);
  const auto id = iam::parse_credential(iam::CredentialKind::token, api.ada)->id;
  api.database->write({"user/test", "token.revoke", "/", ""},
                      [&](sql::Writer& w) { api.directory->revoke_token(w, id); });
  EXPECT_EQ(put(begun.targets[0], "x").status, 401) << "the token is revoked";
  api.ada = api.token_of("user/ada", iam::kTokenLifeMaxUs);
  const auto late = begin(1);
  api.clock.advance(std::chrono::hours(6));
  EXPECT_EQ(put(late.targets[0], "x").status, 401) << "too old";
}

TEST_F(Upload, BelongsToWhoBeganItAndToItsPath) {
  const auto begun = begin(1);
  const auto one = tag(put(begun.targets[0], "x"));
  EXPECT_EQ(complete(begun.id, {one}, "big file.bin", bob).status, 404) << "somebody else of the project";
  EXPECT_EQ(complete(begun.id, {one}, "another.bin").status, 404) << "another file";
  EXPECT_EQ(complete(begun.id, {one}, "../../../escape").status, 404) << "only the last element counts";
  EXPECT_EQ(complete(begun.id, {one}, "..").status, 400);
  EXPECT_EQ(complete("00000000000000000000000000000000", {one}).status, 404);
  const auto theirs = make_run("other/maps", bob);
  EXPECT_EQ(
      post("other/maps", fmt::format("/mlflow-artifacts/mpu/complete/0/{}/artifacts/data", theirs),
           fmt::format(R"({{"path":"big file.bin","upload_id":"{}","parts":{}}})", begun.id, parts_of({one})), bob)
          .status,
      404)
      << "another tenant";
  EXPECT_EQ(complete(begun.id, {one}).status, 200);
}

TEST_F(Upload, IsBounded) {
  const auto create = [&](const std::string& parts) {
    return post("acme/flights", place("create"), fmt::format(R"({{"path":"f","num_parts":{}}})", parts), api.ada)
        .status;
  };
  for (const auto* parts : {"0", "-1", "10001", "9223372036854775807"}) EXPECT_EQ(create(parts), 400) << parts;
  EXPECT_EQ(create("10000"), 200);
  for (std::int64_t i = 1; i < track::kOpenUploadsMax; ++i)
    uploads().begin({{"acme"}, {"flights"}}, "x", 1, api.random, {"user/ada", "test", "/", ""});
  EXPECT_EQ(create("1"), 429);
}

TEST_F(Upload, AFileIsReadInRangesFromASignedAddress) {
  const auto begun = begin(1, "r%41nge.bin");
  ASSERT_EQ(complete(begun.id, {tag(put(begun.targets[0], "0123456789"))}, "r%41nge.bin").status, 200);
  const auto asked = api.call(Question{
      Method::get,
      fmt::format("/mlflow/acme/flights/api/2.0/mlflow-artifacts/presigned/0/{}/artifacts/data/r%2541nge.bin", run)}
                                  .by(api.ada));
  ASSERT_EQ(asked.status, 200) << asked.body;
  EXPECT_EQ(asked.json().at("file_size").as_int64(), 10);
  const auto target = std::string(asked.json().at("url").as_string()).substr(std::string("http://localhost").size());
  const auto range = [&](const std::string& wanted) {
    return api.call(Question{Method::get, target}.with("Range", "bytes=" + wanted));
  };
  EXPECT_EQ(range("2-4").status, 206);
  EXPECT_EQ(range("2-4").body, "234");
  EXPECT_EQ(range("2-4").headers.find("Content-Range"), "bytes 2-4/10");
  EXPECT_EQ(range("7-").body, "789");
  EXPECT_EQ(range("-3").body, "789");
  EXPECT_EQ(range("5-500").body, "56789");
  EXPECT_EQ(range("10-12").status, 416);
  EXPECT_EQ(range("10-12").headers.find("Content-Range"), "bytes */10");
  EXPECT_EQ(api.call(Question{Method::get, target}).body, "0123456789");
  EXPECT_EQ(put(target, "x").status, 405) << "to read, not to write";
  auto another = target;
  another.replace(another.find("r%2541nge"), 9, "other");
  EXPECT_EQ(api.call(Question{Method::get, another}).status, 401);
  api.clock.advance(std::chrono::minutes(15));
  EXPECT_EQ(api.call(Question{Method::get, target}).status, 401);
  EXPECT_EQ(read("data/r%2541nge.bin", "bytes=0-0").body, "0") << "plain reading knows ranges as well";
}

}  // namespace
}  // namespace falaj::api
