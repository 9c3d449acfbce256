// SPDX-License-Identifier: Apache-2.0
#include "api/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "api/errors.h"
#include "api/testing.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::api {
namespace {

// A declaration that leaves out who may call, how much may be sent or what is recorded does not compile.
template <class... Parts>
concept Declares = requires {
  Declaration{std::declval<Parts>()...};
};
static_assert(!std::is_default_constructible_v<Permission>);
static_assert(!std::is_default_constructible_v<BodyLimit>);
static_assert(!std::is_default_constructible_v<Audit>);
static_assert(!std::is_convertible_v<int, BodyLimit>);
static_assert(!std::is_constructible_v<Audit, std::string_view>);
using Path = std::string_view;
static_assert(!Declares<Method, Path>);
static_assert(!Declares<Method, Path, Permission>);
static_assert(!Declares<Method, Path, Permission, BodyLimit>);
static_assert(!Declares<Method, Path, BodyLimit, Audit, Place, Path>);
static_assert(!Declares<Method, Path, Permission, Audit, Place, Path>);
static_assert(Declares<Method, Path, Permission, BodyLimit, Audit, Place, Path>);

TEST(Errors, EveryCodeHasOneRow) {
  std::set<int> grpc;
  for (const auto code : kCodes) {
    const auto& row = row_of(code);
    EXPECT_EQ(row.code, code);
    EXPECT_GE(row.http, 400) << name(code);
    EXPECT_LT(row.http, 600) << name(code);
    EXPECT_TRUE(grpc.insert(row.grpc).second) << name(code) << " shares its gRPC status";
  }
}

TEST(Errors, AreAnsweredWithCodeMessageAndRequestId) {
  net::Head head;
  head.path = "/v1/things";
  head.request_id = "r-7";
  for (const auto code : kCodes) {
    const auto response = error_response(Error(code, "why", {{"spec.a", "is wrong"}}), head);
    EXPECT_EQ(response.status, row_of(code).http);
    const auto error = parse_json(std::get<std::string>(response.body)).at("error");
    EXPECT_EQ(error.at("code").as_string(), name(code));
    EXPECT_EQ(error.at("message").as_string(), "why");
    EXPECT_EQ(error.at("request_id").as_string(), "r-7");
    EXPECT_EQ(error.at("details").at(0).at("field").as_string(), "spec.a");
    EXPECT_EQ(response.headers.find("WWW-Authenticate").has_value(), code == Code::unauthenticated);
    EXPECT_EQ(response.headers.find("Retry-After").has_value(), code == Code::exhausted || code == Code::unavailable);
  }
}

struct Matching : testing::Test {
  Routes routes;
  Matching() {
    for (const auto& [method, path] :
         std::vector<std::pair<Method, std::string_view>>{{Method::get, "/things"},
                                                          {Method::post, "/things"},
                                                          {Method::get, "/things/{id}"},
                                                          {Method::get, "/things/special"},
                                                          {Method::del, "/things/{id}"},
                                                          {Method::get, "/things/{id}/parts/{part}"}})
      routes.add<Nothing, Nothing>(
          {method, path, Permission::anyone(), BodyLimit::none(), Audit::read(), Place::here, ""},
          [](Call&, const Nothing&) {});
  }
  std::string path_of(Method method, std::string_view path) const {
    const auto match = routes.match(method, path);
    return match.route ? std::string(match.route->path) : match.allowed.empty() ? "404" : "405";
  }
};

TEST_F(Matching, TakesTheFixedElementBeforeTheParameter) {
  EXPECT_EQ(path_of(Method::get, "/things"), "/things");
  EXPECT_EQ(path_of(Method::get, "/things/7"), "/things/{id}");
  EXPECT_EQ(path_of(Method::get, "/things/special"), "/things/special");
  const auto match = routes.match(Method::get, "/things/7/parts/left arm");
  ASSERT_TRUE(match.route);
  EXPECT_EQ(match.parameters.at("id"), "7");
  EXPECT_EQ(match.parameters.at("part"), "left arm");
}

TEST_F(Matching, HeadIsGet) {
  EXPECT_EQ(path_of(Method::head, "/things/7"), "/things/{id}");
  EXPECT_THAT(routes.match(Method::put, "/things").allowed,
              testing::UnorderedElementsAre(Method::get, Method::head, Method::post));
}

TEST_F(Matching, KnowsNothingElse) {
  for (const auto* path : {"", "/", "//", "things", "/thing", "/things/", "/things/7/", "/things/7/parts",
                           "/things/7/parts/", "/things//parts/x", "/things/7/parts/x/y"})
    EXPECT_EQ(path_of(Method::get, path), "404") << path;
  EXPECT_EQ(path_of(Method::put, "/things"), "405");
  EXPECT_EQ(path_of(Method::head, "/nothing"), "404");
}

TEST(Fill, PutsParametersIn) {
  EXPECT_EQ(fill("/t/{tenant}/p/{project}", {{"tenant", "a"}, {"project", "b"}}), "/t/a/p/b");
  EXPECT_EQ(fill("{scope}", {{"scope", "/t/{scope}"}}), "/t/{scope}");  // what was put in is not looked at again
  EXPECT_EQ(fill("plain", {}), "plain");
}

struct Openapi : testing::Test {
  TestApi api;
  json::value document = parse_json(api.routes.openapi("1.2.3"));

  void each_ref(const json::value& value, const std::function<void(std::string_view)>& each) {
    if (const auto* object = value.if_object()) {
      for (const auto& [key, inner] : *object) {
        if (key == "$ref") each(inner.as_string());
        each_ref(inner, each);
      }
    } else if (const auto* array = value.if_array()) {
      for (const auto& inner : *array) each_ref(inner, each);
    }
  }
};

TEST_F(Openapi, DescribesEveryRoute) {
  EXPECT_EQ(document.at("openapi").as_string(), "3.1.0");
  EXPECT_EQ(document.at("info").at("version").as_string(), "1.2.3");
  std::set<std::string> ids;
  std::size_t operations = 0;
  for (const auto& route : api.routes.all()) {
    const auto& operation = document.at("paths").at(route->path).at(lower(net::name(route->method)));
    EXPECT_TRUE(ids.insert(std::string(operation.at("operationId").as_string())).second) << route->path;
    EXPECT_EQ(operation.at("summary").as_string(), route->summary);
    EXPECT_FALSE(route->summary.empty());
    for (const auto element : split(route->path.substr(1), '/')) {
      if (!element.starts_with('{')) continue;
      const auto& parameters = operation.at("parameters").as_array();
      EXPECT_TRUE(std::any_of(parameters.begin(), parameters.end(), [&](const json::value& p) {
        return p.at("in").as_string() == "path" && p.at("required").as_bool() &&
               p.at("name").as_string() == element.substr(1, element.size() - 2);
      })) << route->path;
    }
    EXPECT_TRUE(operation.at("responses").as_object().contains("200"));
    const auto kind = route->permission.kind();
    EXPECT_EQ(operation.as_object().contains("security"),
              kind == Permission::Kind::anyone || kind == Permission::Kind::link);
  }
  for (const auto& [path, methods] : document.at("paths").as_object()) operations += methods.as_object().size();
  EXPECT_EQ(operations, api.routes.all().size());
}

TEST_F(Openapi, EveryReferenceResolves) {
  std::size_t refs = 0;
  each_ref(document, [&](std::string_view ref) {
    ++refs;
    constexpr std::string_view kPlace = "#/components/schemas/";
    ASSERT_TRUE(ref.starts_with(kPlace)) << ref;
    EXPECT_TRUE(document.at("components").at("schemas").as_object().contains(ref.substr(kPlace.size()))) << ref;
  });
  EXPECT_GT(refs, api.routes.all().size());
}

TEST_F(Openapi, SaysWhichRoutesTakeAScope) {
  const auto takes_scope = [&](const char* path) {
    for (const auto& p : document.at("paths").at(path).at("get").at("parameters").as_array())
      if (p.at("name").as_string() == "scope") return true;
    return false;
  };
  for (const auto* path : {"/v1/blobs", "/v1/resources/{kind}", "/v1/resources/{kind}/{name}", "/v1/export"})
    EXPECT_TRUE(takes_scope(path)) << path;
  EXPECT_FALSE(takes_scope("/v1/whoami"));
}

TEST_F(Openapi, IsServedToAnyone) {
  const auto answer = api.call({Method::get, "/v1/openapi.json"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json().at("openapi").as_string(), "3.1.0");
}

}  // namespace
}  // namespace falaj::api
