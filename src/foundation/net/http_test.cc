// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/http.h"

#include <gtest/gtest.h>

#include "foundation/base/json.h"
#include "foundation/base/testing.h"
#include "foundation/net/body_pipe.h"
#include "foundation/net/host_rule.h"
#include "foundation/net/render.h"

namespace falaj::net {
namespace {

using namespace std::literals;

TEST(Headers, FindWithoutCaseAndSetInPlaceOfAll) {
  Headers h;
  h.add("A", "1");
  h.add("B", "2");
  h.add("a", "3");
  EXPECT_EQ(h.find("a"), "1");
  h.set("A", "4");
  EXPECT_EQ(h.size(), 2U);
  EXPECT_EQ(h.find("A"), "4");
  EXPECT_FALSE(h.find("C"));
}

TEST(Headers, RefuseWhatWouldEndTheirLine) {
  Headers h;
  for (const std::string_view value : {"a\r\nSet-Cookie: x"sv, "a\nb"sv, "a\rb"sv, "a\0b"sv})
    EXPECT_ERROR(h.add("X", value), Code::invalid);
  for (const std::string name : {"", "a b", "a:", "a\r\n"}) EXPECT_ERROR(h.add(name, "x"), Code::invalid);
}

struct Wanted {
  const char* range;
  int status;
  std::uint64_t offset, length;
};
TEST(Range, GivesOnePartOrAll) {
  for (const auto& w :
       {Wanted{"bytes=0-0", 206, 0, 1}, Wanted{"bytes=2-5", 206, 2, 4}, Wanted{"bytes=2-", 206, 2, 8},
        Wanted{"bytes=-3", 206, 7, 3}, Wanted{"bytes=-99", 206, 0, 10}, Wanted{"bytes=5-99", 206, 5, 5},
        Wanted{"BYTES=9-9", 206, 9, 1}, Wanted{"bytes=10-", 416, 0, 0}, Wanted{"bytes=-0", 416, 0, 0},
        Wanted{"bytes=5-2", 200, 0, 10}, Wanted{"bytes=0-1,3-4", 200, 0, 10}, Wanted{"items=0-1", 200, 0, 10},
        Wanted{"bytes=", 200, 0, 10}, Wanted{"bytes=-", 200, 0, 10}, Wanted{"bytes=a-b", 200, 0, 10},
        Wanted{"bytes=0-x", 200, 0, 10}, Wanted{"bytes=99999999999999999999-", 200, 0, 10}}) {
    Head head;
    head.headers.add("Range", w.range);
    const auto reply = apply_range(head, 10);
    EXPECT_EQ(reply.status, w.status) << w.range;
    EXPECT_EQ(reply.offset, w.offset) << w.range;
    EXPECT_EQ(reply.length, w.length) << w.range;
  }
  Head head;
  head.headers.add("Range", "bytes=2-5");
  EXPECT_EQ(apply_range(head, 10).headers.find("Content-Range"), "bytes 2-5/10");
  EXPECT_EQ(apply_range(head, 2).headers.find("Content-Range"), "bytes */2");
  EXPECT_EQ(apply_range(head, 0).status, 416);
  head.headers.add("If-Range", "\"x\"");
  EXPECT_EQ(apply_range(head, 10).status, 200);
}

TEST(Render, SaysTheWholeErrorAsJson) {
  const auto r = error_response(400, Error(Code::invalid, "bad", {{"a.b", "required"}}), "id1");
  EXPECT_EQ(
      canonical(parse_json(std::get<std::string>(r.body))),
      R"({"error":{"code":"invalid","details":[{"field":"a.b","problem":"required"}],"message":"bad","request_id":"id1"}})");
}

TEST(Render, DecidesFramingItself) {
  Response r;
  r.headers.add("Content-Length", "99");
  r.headers.add("transfer-encoding", "chunked");
  r.headers.add("Connection", "keep-alive");
  r.body = "abc";
  std::string out;
  render_head(r, {"id", "now", false, true}, out);
  EXPECT_EQ(out,
            "HTTP/1.1 200 OK\r\nDate: now\r\nX-Request-Id: id\r\nX-Content-Type-Options: nosniff\r\nContent-Length: "
            "3\r\n\r\n");
}

TEST(Render, KnowsWhoTakesGzip) {
  for (const auto* yes : {"gzip", "deflate, gzip;q=0.5", "*", "GZIP ; q=1", "gzip;q=0.001"})
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  for (const auto* no : {"", "br", "gzip;q=0", "gzip; q=0.000", "identity"}) EXPECT_FALSE(accepts_gzip(no)) << no;
}

TEST(Render, WritesDates) { EXPECT_EQ(http_date(784'111'777), "Sun, 06 Nov 1994 08:49:37 GMT"); }

TEST(HostRule, KnowsOnlyItsNames) {
  const HostRule loopback("127.0.0.1", {"Falaj.example"});
  for (const auto* known : {"localhost", "LOCALHOST", "127.0.0.1", "[::1]", "falaj.example"})
    EXPECT_TRUE(loopback.knows(known)) << known;
  for (const auto* other : {"evil.example", "127.0.0.2", "10.0.0.1", "localhost.evil.example", ""})
    EXPECT_FALSE(loopback.knows(other)) << other;
  const HostRule any("0.0.0.0", {});
  for (const auto* known : {"localhost", "10.1.2.3", "[2001:db8::1]"}) EXPECT_TRUE(any.knows(known)) << known;
  for (const auto* other : {"evil.example", "10.1.2", "[::1", "1.2.3.4.evil.example"})
    EXPECT_FALSE(any.knows(other)) << other;
  const HostRule one("10.0.0.5", {});
  EXPECT_TRUE(one.knows("10.0.0.5"));
  EXPECT_FALSE(one.knows("localhost"));
}

TEST(HostRule, TakesPagesOfItsOwnOriginOnly) {
  EXPECT_TRUE(HostRule::same_origin("http://localhost:8080", "localhost:8080"));
  EXPECT_TRUE(HostRule::same_origin("https://a", "A"));
  for (const auto* origin : {"http://localhost:3000", "null", "http://localhost:80801", "http://evil", "localhost:8080",
                             "ftp://localhost:8080"})
    EXPECT_FALSE(HostRule::same_origin(origin, "localhost:8080")) << origin;
}

TEST(BodyReader, ReadsAllWhateverTheSizeHint) {
  const std::string text(100'000, 'x');
  MemoryBody body(text);
  EXPECT_EQ(body.read_all(), text);
  MemoryBody empty("");
  EXPECT_EQ(empty.read_all(), "");
}

TEST(BodyPipe, StopsTheFillingWhenTheReaderIsBehind) {
  int woken = 0;
  BodyPipe pipe(std::nullopt, [&] { ++woken; });
  for (const char c : {'a', 'b'}) {
    const auto space = pipe.space();
    ASSERT_EQ(space.size(), kPieceBytes);
    space[0] = std::byte(c);
    pipe.push(1);
  }
  EXPECT_TRUE(pipe.space().empty()) << "a reader that is behind stops the filling";
  std::byte out[8];
  EXPECT_EQ(pipe.read(out), 1U);
  EXPECT_EQ(out[0], std::byte('a'));
  EXPECT_EQ(woken, 1);
  EXPECT_FALSE(pipe.space().empty());
  pipe.fail(Code::cancelled, "gone");
  EXPECT_ERROR(pipe.read(out), Code::cancelled);
}

}  // namespace
}  // namespace falaj::net
