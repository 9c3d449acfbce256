// SPDX-License-Identifier: Apache-2.0
// Lists: walking the pages shows everything once, filters show what they say, limits hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "api/testing.h"

namespace falaj::api {
namespace {

struct Pages : testing::Test {
  TestApi api;

  // Every item of a list, in pages of `limit`; fails when a page is longer, or empty without being the last.
  std::vector<json::value> walk(const std::string& target, std::size_t limit, const std::string& token = "") {
    std::vector<json::value> out;
    std::string cursor;
    for (int pages = 0; pages < 1000; ++pages) {
      const auto separator = target.find('?') == std::string::npos ? '?' : '&';
      auto url = fmt::format("{}{}limit={}", target, separator, limit);
      if (!cursor.empty()) url += "&cursor=" + cursor;
      const auto answer = api.call(Question{Method::get, url}.by(token.empty() ? api.admin : token));
      EXPECT_EQ(answer.status, 200) << url << ": " << answer.body;
      if (answer.status != 200) return out;
      const auto page = answer.json();
      const auto& items = page.at("items").as_array();
      EXPECT_LE(items.size(), limit);
      out.insert(out.end(), items.begin(), items.end());
      const auto* next = page.as_object().if_contains("next");
      if (!next) return out;
      EXPECT_FALSE(items.empty());
      cursor = next->as_string();
    }
    ADD_FAILURE() << "the pages of " << target << " do not end";
    return out;
  }
  static std::vector<std::string> names_of(const std::vector<json::value>& resources) {
    std::vector<std::string> out;
    for (const auto& r : resources) out.emplace_back(r.at("metadata").at("name").as_string());
    return out;
  }
  void put_blobs(int count) {
    ByteWriter batch;
    for (int i = 0; i < count; ++i) {
      batch.text(fmt::format("{}/{:03}", i % 2 ? "odd" : "even", i));
      batch.u64(1);
      batch.u8(static_cast<std::uint8_t>(i));
    }
    const auto stored = api.call(
        Question{Method::post, "/v1/blobs/batch?" + kProject, std::string(as_text(batch.bytes()))}.by(api.admin).with(
            "Content-Type", "application/octet-stream"));
    ASSERT_EQ(stored.status, 200) << stored.body;
    EXPECT_EQ(stored.json().at("files").as_int64(), count);
  }
};

TEST_F(Pages, OfResourcesShowEachOnce) {
  std::vector<std::string> expected = {"ada"};
  for (int i = 0; i < 20; ++i) {
    expected.push_back(fmt::format("user-{:02}", i));
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: User, metadata: {{name: {}, labels: {{team: {}}}}}, spec: {{}}}}",
                    expected.back(), i % 3 ? "search" : "ads"));
  }
  for (const std::size_t limit : {1U, 4U, 7U, 20U, 21U, 22U, 1000U})
    EXPECT_EQ(names_of(walk("/v1/resources/user", limit)), expected) << limit;
  EXPECT_EQ(walk("/v1/resources/user?selector=team=ads", 3).size(), 7U);
  EXPECT_EQ(walk("/v1/resources/user?selector=team!=ads", 3).size(), 14U);
  EXPECT_EQ(walk("/v1/resources/user?selector=team=none", 3).size(), 0U);
}

TEST_F(Pages, OfResourcesShowOnlyWhatTheCallerMayRead) {
  for (const auto* project : {"maps", "crew", "fuel"})
    api.apply(fmt::format(
        "{{apiVersion: falaj/v1, kind: Project, metadata: {{tenant: acme, name: {}}}, spec: {{zone: uae}}}}", project));
  EXPECT_TRUE(walk("/v1/resources/project", 1, api.ada).empty());
  for (const auto* project : {"maps", "fuel"})
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: RoleBinding, metadata: {{tenant: acme, project: {}, name: ada}}, "
                    "spec: {{role: viewer, subjects: [user/ada]}}}}",
                    project));
  EXPECT_EQ(names_of(walk("/v1/resources/project", 1, api.ada)), (std::vector<std::string>{"fuel", "maps"}));
  EXPECT_EQ(names_of(walk("/v1/resources/project?scope=/t/acme", 1, api.ada)),
            (std::vector<std::string>{"fuel", "maps"}));
  EXPECT_TRUE(walk("/v1/resources/project?scope=/t/other", 1, api.ada).empty());
}

TEST_F(Pages, OfBlobsShowEachOnce) {
  put_blobs(23);
  std::vector<std::string> all;
  for (const std::size_t limit : {1U, 5U, 22U, 23U, 24U}) {
    all.clear();
    for (const auto& blob : walk("/v1/blobs?" + kProject, limit)) all.emplace_back(blob.at("name").as_string());
    EXPECT_EQ(all.size(), 23U) << limit;
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  }
  EXPECT_EQ(walk("/v1/blobs?" + kProject + "&prefix=odd/", 4).size(), 11U);
  EXPECT_EQ(walk("/v1/blobs?" + kProject + "&prefix=none", 4).size(), 0U);
}

TEST_F(Pages, OfTheAuditLogShowEachOnce) {
  put_blobs(3);
  for (int i = 0; i < 5; ++i) api.call(Question{Method::get, "/v1/status"}.by(api.ada));  // denied
  const auto size = api.get("/v1/audit/head").json().at("size").as_int64();
  for (const std::size_t limit : {1U, 3U, 1000U}) {
    auto expected = size;
    for (const auto& record : walk("/v1/audit", limit)) EXPECT_EQ(record.at("sequence").as_int64(), --expected);
    EXPECT_EQ(expected, 0) << limit;
  }
  EXPECT_EQ(walk("/v1/audit?outcome=denied", 2).size(), 5U);
  EXPECT_EQ(walk("/v1/audit?outcome=denied&actor=user/ada&verb=status.*", 2).size(), 5U);
  EXPECT_EQ(walk("/v1/audit?verb=blob.create", 1).size(), 1U);
  EXPECT_EQ(walk("/v1/audit?actor=user/nobody", 1).size(), 0U);
  for (const auto& record : walk("/v1/audit?resource=/t/acme", 1))
    EXPECT_TRUE(record.at("resource").as_string().starts_with("/t/acme"));
}

TEST_F(Pages, TheExportOfTheAuditLogIsTheSameAsItsPages) {
  put_blobs(1);
  const auto exported = api.get("/v1/audit/export?verb=*.create");
  EXPECT_EQ(exported.status, 200);
  EXPECT_EQ(static_cast<std::size_t>(std::count(exported.body.begin(), exported.body.end(), '\n')),
            walk("/v1/audit?verb=*.create", 10).size());
}

TEST_F(Pages, HaveALengthWithinBounds) {
  for (const auto* list : {"/v1/resources/user?", "/v1/audit?", "/v1/blobs?scope=/t/acme/p/flights&"}) {
    EXPECT_EQ(api.get(list + std::string("limit=1")).status, 200);
    EXPECT_EQ(api.get(list + std::string("limit=1000")).status, 200);
    for (const auto* wrong : {"0", "1001", "-1", "x", "", "9223372036854775808", "1.5"})
      EXPECT_EQ(api.get(fmt::format("{}limit={}", list, wrong)).status, 400) << list << wrong;
  }
}

TEST_F(Pages, CursorsThatNoPageGaveAreRefusedOrEmpty) {
  for (const auto* cursor : {"x", "!!!", "AAAA", "99999999999999999999", "-1"}) {
    EXPECT_EQ(api.get(fmt::format("/v1/resources/user?cursor={}", cursor)).status, 400) << cursor;
    EXPECT_LT(api.get(fmt::format("/v1/audit?cursor={}", cursor)).status, 500) << cursor;
    EXPECT_EQ(api.get(fmt::format("/v1/blobs?{}&cursor={}", kProject, cursor)).status, 200) << cursor;
  }
  EXPECT_EQ(api.get("/v1/audit?cursor=x").status, 400);
}

}  // namespace
}  // namespace falaj::api
