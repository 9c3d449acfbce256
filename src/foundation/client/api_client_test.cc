// SPDX-License-Identifier: Apache-2.0
#include "foundation/client/api_client.h"

#include <atomic>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/testing.h"
#include "foundation/net/testing.h"

namespace falaj::client {
namespace {

// A real server whose answers the test writes; it remembers what it was asked.
struct ApiClientTest : testing::Test {
  struct Asked {
    std::string method, target, key, authorization, type, body;
    Query query;
  };
  using Answer = std::function<net::Response(const Asked&, int nth)>;

  ApiClientTest() {
    server.service.on_admit = [this](const net::Head&) {
      return net::run(net::Place::worker, 1 << 30, [this](net::Request& request) {
        const auto& headers = request.head.headers;
        Asked now{std::string(name(request.head.method)),
                  request.head.path,
                  std::string(headers.find("Idempotency-Key").value_or("")),
                  std::string(headers.find("Authorization").value_or("")),
                  std::string(headers.find("Content-Type").value_or("")),
                  request.body.read_all(),
                  request.head.query};
        int nth = 0;
        {
          Lock lock(mu);
          asked.push_back(now);
          nth = static_cast<int>(asked.size());
        }
        return answer(now, nth);
      });
    };
  }
  ApiClient client(int tries = 2) {
    Target target;
    target.url = url();
    target.token = "secret";
    return ApiClient(target, tries);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server.port()); }
  static net::Response json_answer(int status, std::string body) {
    return net::text_response(status, std::move(body), "application/json");
  }
  static net::Response fails(int status, Code code, std::vector<Fault> faults = {}) {
    return net::error_response(status, Error(code, "the reason", std::move(faults)), "r1");
  }
  std::size_t count() {
    Lock lock(mu);
    return asked.size();
  }

  Mutex mu;
  std::vector<Asked> asked;  // read when nothing is under way
  Answer answer = [](const Asked&, int) { return json_answer(200, R"({"ok":true})"); };
  net::TestServer server;  // last: it ends before what its handlers use
};

TEST_F(ApiClientTest, AsksAsItself) {
  auto api = client();
  EXPECT_TRUE(api.get("/v1/x", {{"a b", "c&d=\u00e9/"}}).at("ok").as_bool());
  api.post("/v1/y", {{"n", 1}}, {}, "my-key");
  api.del("/v1/z");
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].method, "GET");
  EXPECT_EQ(asked[0].authorization, "Bearer secret");
  EXPECT_EQ(asked[0].query, (Query{{"a b", "c&d=\u00e9/"}}));
  EXPECT_EQ(asked[1].body, R"({"n":1})");
  EXPECT_EQ(asked[1].type, "application/json");
  EXPECT_EQ(asked[1].key, "my-key");
  EXPECT_EQ(asked[2].method, "DELETE");
}

TEST_F(ApiClientTest, TakesAnAddressWithASlashAtItsEnd) {
  Target target;
  target.url = url() + "//";
  ApiClient(target).get("/v1/x");
  EXPECT_EQ(asked.at(0).target, "/v1/x");
  EXPECT_EQ(asked.at(0).authorization, "");
}

TEST_F(ApiClientTest, ThrowsWhatTheServerMeant) {
  auto api = client(1);
  int status = 400;
  for (const Code code :
       {Code::invalid, Code::not_found, Code::exists, Code::conflict, Code::denied, Code::unauthenticated,
        Code::exhausted, Code::unavailable, Code::deadline, Code::cancelled, Code::corrupt, Code::internal}) {
    answer = [&](const Asked&, int) {
      return fails(status++, code, {{"spec.zone", "no such zone"}, {"spec.name", "too long"}});
    };
    try {
      api.get("/v1/x");
      ADD_FAILURE() << name(code);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_STREQ(error.what(), "the reason");
      ASSERT_EQ(error.faults().size(), 2U);
      EXPECT_EQ(error.faults()[0].where, "spec.zone");
      EXPECT_EQ(error.faults()[1].what, "too long");
    }
  }
}

TEST_F(ApiClientTest, TriesAgainWhatMayBeAndNotForEver) {
  for (const Code code : {Code::unavailable, Code::exhausted}) {
    asked.clear();
    answer = [&](const Asked&, int nth) { return nth < 3 ? fails(503, code) : json_answer(200, "{}"); };
    client(3).get("/v1/x");
    EXPECT_EQ(asked.size(), 3U);
    asked.clear();
    answer = [&](const Asked&, int) { return fails(503, code); };
    EXPECT_ERROR(client(2).get("/v1/x"), code);
    EXPECT_EQ(asked.size(), 2U);
  }
}

TEST_F(ApiClientTest, DoesNotTryAgainWhatWouldFailAgain) {
  for (const Code code : {Code::invalid, Code::not_found, Code::conflict, Code::denied, Code::unauthenticated,
                          Code::deadline, Code::corrupt, Code::internal}) {
    asked.clear();
    answer = [&](const Asked&, int) { return fails(400, code); };
    EXPECT_ERROR(client(3).get("/v1/x"), code);
    EXPECT_EQ(asked.size(), 1U) << name(code);
  }
}

TEST_F(ApiClientTest, RepeatsAPostUnderOneKey) {
  answer = [](const Asked&, int nth) { return nth < 3 ? fails(503, Code::unavailable) : json_answer(200, "{}"); };
  auto api = client(3);
  api.post("/v1/apply", json::object{});
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_GE(asked[0].key.size(), 16U);
  EXPECT_EQ(asked[1].key, asked[0].key);
  EXPECT_EQ(asked[2].key, asked[0].key);
  api.post("/v1/apply", json::object{});
  EXPECT_NE(asked.at(3).key, asked[0].key) << "another call is another effect";
}

TEST_F(ApiClientTest, RepeatsAPostWhoseAnswerWasLost) {
  answer = [](const Asked&, int nth) {
    if (nth > 1) return json_answer(200, "{}");
    auto cut = json_answer(200, "");
    cut.body = net::StreamBody{[]() -> Bytes { throw Error(Code::internal, "cut"); }, 10};
    return cut;
  };
  client(2).post("/v1/apply", json::object{});
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].key, asked[1].key);
}

TEST_F(ApiClientTest, NeverRepeatsADeletionOrAStream) {
  answer = [](const Asked&, int) { return fails(503, Code::unavailable); };
  auto api = client(4);
  EXPECT_ERROR(api.del("/v1/x"), Code::unavailable);
  EXPECT_EQ(asked.size(), 1U);
  bool given = false;
  EXPECT_ERROR(api.upload(
                   "/v1/blobs", {}, [&] { return std::exchange(given, true) ? Bytes() : to_bytes("x"); }, 1),
               Code::unavailable);
  EXPECT_EQ(asked.size(), 2U);
  EXPECT_ERROR(api.download(
                   net::Method::get, "/v1/x", {}, nullptr, [](auto) { FAIL(); }, [](BytesView) { FAIL(); }),
               Code::unavailable);
  EXPECT_EQ(asked.size(), 3U);
}

TEST_F(ApiClientTest, SaysThatNobodyIsThere) {
  Target target;
  {
    const net::TestServer gone;
    target.url = "http://127.0.0.1:" + std::to_string(gone.port());
  }
  EXPECT_ERROR(ApiClient(target, 2).get("/v1/x"), Code::unavailable);
  target.url = "not an address";
  EXPECT_ERROR(ApiClient(target, 2).get("/v1/x"), Code::invalid);
}

TEST_F(ApiClientTest, ThrowsWhatAnInferenceServerSays) {
  answer = [&](const Asked&, int) { return net::text_response(404, R"({"error":"no endpoint 'x'"})"); };
  try {
    client(1).get("/v2/models/x");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_STREQ(error.what(), "no endpoint 'x'");
  }
}

TEST_F(ApiClientTest, SaysThatAServerIsNoFalaj) {
  struct Case {
    int status;
    const char* body;
    Code code;
  };
  for (const auto& c :
       std::initializer_list<Case>{{200, "<html>Welcome</html>", Code::invalid},
                                   {200, "{\"cut\":", Code::invalid},
                                   {301, "moved", Code::invalid},
                                   {404, "<html>", Code::invalid},
                                   {404, "{}", Code::invalid},
                                   {404, "[]", Code::invalid},
                                   {404, R"({"error":7})", Code::invalid},
                                   {404, R"({"error":{"code":7,"message":"m","details":[]}})", Code::invalid},
                                   {429, "slow down", Code::exhausted},
                                   {502, "bad gateway", Code::unavailable}}) {
    answer = [&](const Asked&, int) { return net::text_response(c.status, c.body, "text/html"); };
    try {
      client(1).get("/v1/x");
      ADD_FAILURE() << c.body;
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(c.code)) << c.body;
      EXPECT_NE(std::string_view(error.what()).find("not as Falaj does"), std::string_view::npos) << error.what();
    }
  }
}

TEST_F(ApiClientTest, TakesACodeOfALaterVersionForInternal) {
  answer = [](const Asked&, int) {
    return json_answer(418, R"({"error":{"code":"teapot","message":"short and stout","details":[]}})");
  };
  EXPECT_ERROR(client(1).get("/v1/x"), Code::internal);
}

TEST_F(ApiClientTest, TakesAnEmptyAnswer) {
  answer = [](const Asked&, int) { return json_answer(200, ""); };
  EXPECT_TRUE(client(1).get("/v1/x").is_null());
}

// A whole answer is held in memory, so it has a limit; one that is too long is asked for once.
TEST_F(ApiClientTest, StopsAtAHugeAnswerOnce) {
  answer = [](const Asked&, int) {
    auto response = json_answer(200, "");
    response.body = net::StreamBody{[] { return Bytes(1 << 20, std::byte{' '}); }, std::nullopt};
    return response;
  };
  EXPECT_ERROR(client(3).get("/v1/x"), Code::exhausted);
  EXPECT_EQ(count(), 1U);
}

TEST_F(ApiClientTest, StreamsUp) {
  constexpr std::size_t kPieces = 300, kPiece = 100'000;
  for (const bool sized : {true, false}) {
    std::size_t made = 0;
    const auto next = [&] { return made++ < kPieces ? Bytes(kPiece, std::byte{'x'}) : Bytes(); };
    client().upload("/v1/blobs", {{"name", "x"}}, next,
                    sized ? std::optional<std::uint64_t>(kPieces * kPiece) : std::nullopt);
    EXPECT_EQ(asked.back().body.size(), kPieces * kPiece);
    EXPECT_EQ(asked.back().type, "application/octet-stream");
  }
}

TEST_F(ApiClientTest, StreamsDownAndSaysHowMuchWillCome) {
  constexpr std::size_t kPieces = 300, kPiece = 100'000;
  for (const bool sized : {true, false}) {
    answer = [sized](const Asked&, int) {
      auto response = json_answer(200, "");
      response.body = net::StreamBody{
          [made = std::size_t{0}]() mutable { return made++ < kPieces ? Bytes(kPiece, std::byte{'x'}) : Bytes(); },
          sized ? std::optional<std::uint64_t>(kPieces * kPiece) : std::nullopt};
      return response;
    };
    int begun = 0;
    std::size_t got = 0;
    client().download(
        net::Method::get, "/v1/x", {}, nullptr,
        [&](std::optional<std::uint64_t> size) {
          ++begun;
          EXPECT_EQ(got, 0U);
          EXPECT_EQ(size.has_value(), sized);
          EXPECT_EQ(size.value_or(kPieces * kPiece), kPieces * kPiece);
        },
        [&](BytesView piece) { got += piece.size(); });
    EXPECT_EQ(begun, 1);
    EXPECT_EQ(got, kPieces * kPiece);
  }
}

TEST_F(ApiClientTest, BeginsAnEmptyDownloadToo) {
  answer = [](const Asked&, int) { return json_answer(200, ""); };
  std::optional<std::uint64_t> size;
  const json::value body = json::object{{"why", "backup"}};
  client().download(
      net::Method::post, "/v1/backup", {}, &body, [&](auto s) { size = s; }, [](BytesView) { FAIL(); });
  EXPECT_EQ(size, 0U);
  EXPECT_EQ(asked.at(0).body, R"({"why":"backup"})");
}

TEST_F(ApiClientTest, NoticesADownloadThatIsCut) {
  for (const bool sized : {true, false}) {
    answer = [sized](const Asked&, int) {
      auto response = json_answer(200, "");
      response.body = net::StreamBody{[made = 0]() mutable -> Bytes {
                                        if (made++ == 3) throw Error(Code::internal, "cut");
                                        return Bytes(1000);
                                      },
                                      sized ? std::optional<std::uint64_t>(10'000) : std::nullopt};
      return response;
    };
    EXPECT_ERROR(client().download(
                     net::Method::get, "/v1/x", {}, nullptr, [](auto) {}, [](BytesView) {}),
                 Code::unavailable);
  }
}

TEST_F(ApiClientTest, PassesOnWhatTheReceiverThrows) {
  answer = [](const Asked&, int) { return json_answer(200, "some bytes"); };
  EXPECT_ERROR(client().download(
                   net::Method::get, "/v1/x", {}, nullptr, [](auto) {},
                   [](BytesView) { throw Error(Code::exhausted, "disk full"); }),
               Code::exhausted);
}

TEST_F(ApiClientTest, ServesManyThreads) {
  auto api = client();
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) right += api.post("/v1/x", json::object{}).at("ok").as_bool() ? 1 : 0;
      });
  }
  EXPECT_EQ(right, 400);
  std::set<std::string> keys;
  for (const auto& one : asked) keys.insert(one.key);
  EXPECT_EQ(keys.size(), 400U);
}

TEST(PathElement, SurvivesWhateverItHolds) {
  EXPECT_EQ(path_element("a-b._~9"), "a-b._~9");
  EXPECT_EQ(path_element("a/b?c#d%e f"), "a%2Fb%3Fc%23d%25e%20f");
  EXPECT_EQ(path_element("\u00e9"), "%C3%A9");
  EXPECT_EQ(path_element(""), "");
}

}  // namespace
}  // namespace falaj::client
