// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/parse.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace falaj::net {

static std::ostream& operator<<(std::ostream& out, HeadScanner::State state) {
  constexpr std::string_view kNames[] = {"more", "complete", "refused"};
  return out << kNames[static_cast<int>(state)];
}

namespace {

using namespace std::literals;

constexpr std::size_t kBytesMax = 16 * 1024, kFieldsMax = 100;

struct Parsed {
  int refused = 0;
  Head head;
  Message message;
};

// Feeds `bytes` one at a time, as the worst network would.
Parsed parse(std::string_view bytes) {
  Parsed out;
  HeadScanner scanner(kBytesMax);
  auto state = HeadScanner::State::more;
  for (std::size_t n = 1; n <= bytes.size() && state == HeadScanner::State::more; ++n)
    state = scanner.scan(bytes.substr(0, n));
  EXPECT_NE(state, HeadScanner::State::more) << "incomplete: " << bytes;
  auto refused = scanner.refused();
  if (!refused) refused = parse_head(bytes.substr(0, scanner.end()), kFieldsMax, out.head, out.message);
  if (refused) out.refused = refused->status;
  return out;
}

Parsed parse_target(const std::string& target) { return parse("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); }
Parsed parse_fields(const std::string& fields) { return parse("POST / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"); }

TEST(Parse, ReadsAnOrdinaryHead) {
  const auto p = parse(
      "PUT /a/b%20c?x=1&y=%2F+z&x=2 HTTP/1.1\r\nhOST: example.org:80\r\nX-A: \t v 1 \t\r\nContent-Length: 12\r\n\r\n");
  ASSERT_EQ(p.refused, 0);
  EXPECT_EQ(p.head.method, Method::put);
  EXPECT_EQ(p.head.path, "/a/b c");
  using Query = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(p.head.query, (Query{{"x", "1"}, {"y", "/ z"}, {"x", "2"}}));
  EXPECT_EQ(p.head.parameter("x"), "1");
  EXPECT_EQ(p.head.headers.find("x-a"), "v 1");
  EXPECT_EQ(p.message.host, "example.org:80");
  EXPECT_EQ(p.message.body, BodyKind::length);
  EXPECT_EQ(p.message.length, 12U);
  EXPECT_TRUE(p.message.keep_alive);
}

TEST(Parse, KnowsWhenTheConnectionEnds) {
  EXPECT_FALSE(parse_fields("Connection: foo, Close\r\n").message.keep_alive);
  EXPECT_TRUE(parse_fields("Connection: keep-alive\r\n").message.keep_alive);
  EXPECT_EQ(parse_fields("Connection: a b, close\r\n").refused, 400);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\nHost: h\r\n\r\n").message.keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n").message.keep_alive);
}

TEST(Parse, RefusesMalformedRequestLines) {
  for (const std::string line :
       {"GET /", "GET  / HTTP/1.1", "GET /  HTTP/1.1", " GET / HTTP/1.1", "GET\t/ HTTP/1.1", "GET / HTTP/1.1 ",
        "GET / http/1.1", "G@T / HTTP/1.1", "GET /a b HTTP/1.1", "GET / HTTP/11", "GET / HTTP/1.1\rX", "/ HTTP/1.1"})
    EXPECT_EQ(parse(line + "\r\nHost: h\r\n\r\n").refused, 400) << line;
  EXPECT_EQ(parse("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").refused, 400);
  EXPECT_EQ(parse(std::string("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"sv)).refused, 400);
}

TEST(Parse, RefusesOtherVersionsAndMethods) {
  EXPECT_EQ(parse("GET / HTTP/2.0\r\nHost: h\r\n\r\n").refused, 505);
  EXPECT_EQ(parse("GET / HTTP/1.2\r\nHost: h\r\n\r\n").refused, 505);
  EXPECT_EQ(parse("GET / HTTP/0.9\r\nHost: h\r\n\r\n").refused, 505);
  for (const std::string method : {"TRACE", "CONNECT", "OPTIONS", "get", "PROPFIND"})
    EXPECT_EQ(parse(method + " / HTTP/1.1\r\nHost: h\r\n\r\n").refused, 501) << method;
}

TEST(Parse, RefusesPathsThatCouldMeanTwoThings) {
  for (const std::string target :
       {"/a/../b", "/..",          "/.", "/./a", "/a/.", "/a//b",  "//a",   "/%2e%2e/a", "/%2E/a",  "/a%2fb",
        "/a%2Fb",  "/a%00",        "/%", "/%1",  "/%zz", "/a%0ab", "/a%7f", "/%ff",      "/%c0%ae", "/a#b",
        "/a\x7f",  "/caf\xc3\xa9", "*",  "a",    "?x",   "/a\"b",  "/a<b",  "/a\\b",     "/a{b"})
    EXPECT_EQ(parse_target(target).refused, 400) << target;
  for (const std::string target : {"/", "/a/", "/a/b.c", "/...", "/a:b@c", "/caf%C3%A9", "/a%25b", "/~u/(x);v=1,2"})
    EXPECT_EQ(parse_target(target).refused, 0) << target;
  EXPECT_EQ(parse_target("/a%2541").head.path, "/a%41") << "decoded once only";
}

TEST(Parse, RefusesBrokenQueries) {
  for (const std::string target : {"/?a=%", "/?a=%0", "/?%zz", "/?a=%00", "/?a=%ff", "/?a#b"})
    EXPECT_EQ(parse_target(target).refused, 400) << target;
  const auto p = parse_target("/?&a&b=&=c&d==e&");
  using Query = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(p.head.query, (Query{{"a", ""}, {"b", ""}, {"", "c"}, {"d", "=e"}}));
}

TEST(Parse, TakesAbsoluteTargetsOnlyForItsOwnHost) {
  EXPECT_EQ(parse_target("http://h/x?y=1").head.path, "/x");
  EXPECT_EQ(parse_target("HTTPS://H/x").refused, 0);
  for (const std::string target : {"http://other/x", "http://h:80/x", "http://h", "http://h?x", "http:///x",
                                   "ftp://h/x", "http://u@h/x", "http:/h/x"})
    EXPECT_EQ(parse_target(target).refused, 400) << target;
}

TEST(Parse, RefusesMalformedFields) {
  for (const std::string field : {"A : b", " A: b", "\tA: b", "A\t: b", ": b", "A", "A b: c", "A(: c", "X: a\r\n b",
                                  "X: a\r\n\tb", "X: a\rb", "X: \x01", "X: a\x7f", "\xc3\xa9: x"})
    EXPECT_EQ(parse_fields(field + "\r\n").refused, 400) << field;
  EXPECT_EQ(parse_fields(std::string("X: a\0b\r\n"sv)).refused, 400);
  EXPECT_EQ(parse_fields("X: caf\xc3\xa9\r\nY:\r\n").refused, 0);
}

TEST(Parse, RefusesBareLineFeeds) {
  EXPECT_EQ(parse("GET / HTTP/1.1\nHost: h\n\n").refused, 400);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: h\n\r\n").refused, 400);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: h\r\n\n").refused, 400);
}

TEST(Parse, WantsExactlyOneHost) {
  EXPECT_EQ(parse("GET / HTTP/1.1\r\n\r\n").refused, 400);
  EXPECT_EQ(parse("GET / HTTP/1.0\r\n\r\n").refused, 400);
  EXPECT_EQ(parse_fields("Host: h\r\n").refused, 400);
  for (const std::string host : {"", "a b", "a/b", "a@b", "a:b", "a:123456", "[::1", "[x]", "a,b", "::1", "a?", ":80"})
    EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n").refused, 400) << host;
  EXPECT_EQ(host_of("[::1]:80"), "[::1]");
  EXPECT_EQ(host_of("a-b.c_d:1"), "a-b.c_d");
}

TEST(Parse, RefusesFramingThatCouldMeanTwoThings) {
  for (const std::string fields :
       {"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n", "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 1\r\n", "Content-Length: +1\r\n", "Content-Length: -1\r\n", "Content-Length: 0x1\r\n",
        "Content-Length: \r\n", "Content-Length: 1 2\r\n", "Content-Length: 9999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"})
    EXPECT_EQ(parse_fields(fields).refused, 400) << fields;
  for (const std::string coding :
       {"gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;a=b", "\"chunked\"", ""})
    EXPECT_EQ(parse_fields("Transfer-Encoding: " + coding + "\r\n").refused, 501) << coding;
  EXPECT_EQ(parse("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").refused, 400);
  EXPECT_EQ(parse_fields("Transfer-Encoding: Chunked\r\n").message.body, BodyKind::chunked);
  EXPECT_EQ(parse_fields("Expect: 200-ok\r\n").refused, 417);
}

TEST(Parse, KeepsItsLimits) {
  const auto fields = [](std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += "A: b\r\n";
    return out;
  };
  EXPECT_EQ(parse_fields(fields(kFieldsMax - 1)).refused, 0);  // Host is one too
  EXPECT_EQ(parse_fields(fields(kFieldsMax)).refused, 431);
  const std::string start = "GET /";
  const std::string end = " HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::size_t room = kRequestLineBytesMax - start.size() - 10;  // " HTTP/1.1\r" stands on the line too
  EXPECT_EQ(parse(start + std::string(room, 'a') + end).refused, 0);
  EXPECT_EQ(parse(start + std::string(room + 1, 'a') + end).refused, 414);
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
  const std::size_t left = kBytesMax - head.size() - 4;
  EXPECT_EQ(parse(head + std::string(left, 'x') + "\r\n\r\n").refused, 0);
  EXPECT_EQ(parse(head + std::string(left + 1, 'x') + "\r\n\r\n").refused, 431);
}

struct Decoded {
  std::string body;
  bool ended, malformed;
  std::size_t used;
};
Decoded decode(std::string_view in, std::size_t step) {
  ChunkDecoder decoder;
  Decoded out{};
  while (out.used < in.size() && !decoder.ended() && !decoder.malformed()) {
    const auto got = decoder.next(in.substr(out.used, step), step);
    out.body += got.data;
    out.used += got.used;
  }
  out.ended = decoder.ended();
  out.malformed = decoder.malformed();
  return out;
}

TEST(ChunkDecoder, GivesTheSameBodyHoweverItIsCut) {
  const std::string in = "5\r\nhello\r\n1;ext=\"v\"\r\n \r\n00a\r\nworld 1234\r\n0\r\nTrailer: x\r\n\r\nGET";
  for (std::size_t step = 1; step <= in.size(); ++step) {
    const auto out = decode(in, step);
    EXPECT_EQ(out.body, "hello world 1234");
    EXPECT_TRUE(out.ended);
    EXPECT_EQ(in.substr(out.used), "GET") << "what follows belongs to the next request";
  }
}

TEST(ChunkDecoder, RefusesMalformedChunks) {
  for (const std::string in :
       {"\r\n", ";\r\n", "g\r\n", " 1\r\na\r\n", "1 \r\na\r\n", "0x1\r\na\r\n", "-1\r\n", "+1\r\n", "1\na\r\n",
        "1\r\na\n", "1\r\nab\r\n", "1\r\na\r\r\n", "1\r\ra\r\n", "1234567890abcdef\r\n", "0\r\n\n", "0\r\n x\r\n\r\n",
        "0\r\nT: a\n\r\n", "1;a\nb\r\n", "0\r\n: x\r\n\r\n"})
    EXPECT_TRUE(decode(in, 3).malformed) << in;
  EXPECT_TRUE(decode(std::string("1;\0\r\na\r\n"sv), 2).malformed);
}

TEST(ChunkDecoder, BoundsWhatIsNotBody) {
  EXPECT_FALSE(decode("1;" + std::string(4095, 'x') + "\r\na\r\n0\r\n\r\n", 100).malformed);
  EXPECT_TRUE(decode("1;" + std::string(4096, 'x') + "\r\na\r\n0\r\n\r\n", 100).malformed);
  EXPECT_TRUE(decode("0\r\nT:" + std::string(4096, 'x') + "\r\n\r\n", 100).malformed);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "1;ab\r\na\r\n";
  EXPECT_TRUE(decode(many, 100).malformed) << "counted over the whole body";
}

}  // namespace
}  // namespace falaj::net
