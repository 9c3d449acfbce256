// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/net/outgoing.h"
#include "foundation/net/testing.h"
#include "foundation/sys/sim_net.h"
#include "foundation/sys/testing.h"

namespace falaj::net {
namespace {

Admission echo_body(const Head& head) {
  if (head.path == "/redirect") {
    Admission admission;
    admission.refusal = text_response(302, "");
    admission.refusal->headers.add("Location", "/here");
    return admission;
  }
  return run(Place::worker, 100 << 20, [](Request& request) {
    auto response = text_response(request.head.path == "/missing" ? 404 : 200,
                                  std::string(name(request.head.method)) + " " + request.body.read_all());
    response.headers.add("X-Saw", request.head.headers.find("X-Sent").value_or("none"));
    response.headers.add("X-Type", request.head.headers.find("Content-Type").value_or("none"));
    return response;
  });
}

struct ClientTest : testing::Test {
  ClientTest() { test.service.on_admit = echo_body; }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(test.port()) + path; }
  ClientRequest ask(Method method, const std::string& path, std::string body = "") const {
    ClientRequest request;
    request.method = method;
    request.url = url(path);
    request.body = std::move(body);
    return request;
  }
  int accepted() { return count("falaj_net_accepted_total "); }
  int count(const std::string& metric) {
    const auto text = test.metrics.render();
    const auto at = text.find("\n" + metric);
    return at == text.npos ? -1 : std::atoi(text.c_str() + at + 1 + metric.size());
  }
  TestServer test;
  Client client{ClientOptions{}};
};

TEST_F(ClientTest, SendsEveryMethod) {
  for (const auto method : {Method::get, Method::post, Method::put, Method::patch, Method::del}) {
    EXPECT_EQ(client.send(ask(method, "/")).body, std::string(name(method)) + " ");
    if (method == Method::get) continue;
    EXPECT_EQ(client.send(ask(method, "/", "text")).body, std::string(name(method)) + " text");
  }
  const auto head = client.send(ask(Method::head, "/"));
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.headers.find("content-length"), "5");
}

TEST_F(ClientTest, CarriesHeadersBothWays) {
  auto request = ask(Method::post, "/", "x");
  request.headers.add("X-Sent", "yes");
  const auto response = client.send(request);
  EXPECT_EQ(response.headers.find("x-saw"), "yes");
  EXPECT_EQ(response.headers.find("x-type"), "none") << "no content type of libcurl's own";
}

TEST_F(ClientTest, UsesConnectionsAgain) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.send(ask(Method::get, "/")).status, 200);
  EXPECT_EQ(accepted(), 1);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        right += client.send(ask(Method::put, "/", std::to_string(t))).body == "PUT " + std::to_string(t);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
  EXPECT_LE(accepted(), 9);
}

TEST_F(ClientTest, ConnectsToASocketInTheFileSystem) {
  const sys::TempDir directory;
  const auto path = directory / "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  std::string asked(4096, '\0');
  std::thread server([&] {
    const int connection = ::accept(listener, nullptr, nullptr);
    asked.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(connection, asked.data(), asked.size(), 0))));
    const std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    EXPECT_EQ(::send(connection, answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
    ::close(connection);
  });
  ClientOptions options;
  options.unix_socket = path;
  Client local(options);
  ClientRequest request;
  request.url = "http://name.invalid/where";
  EXPECT_EQ(local.send(request).body, "hello");
  server.join();
  ::close(listener);
  EXPECT_TRUE(asked.starts_with("GET /where HTTP/1.1\r\n")) << asked;
  EXPECT_ERROR(local.send(request), Code::unavailable);
}

TEST_F(ClientTest, DoesNotFollowRedirects) {
  const auto response = client.send(ask(Method::get, "/redirect"));
  EXPECT_EQ(response.status, 302);
  EXPECT_EQ(response.headers.find("Location"), "/here");
}

TEST_F(ClientTest, StreamsBothWays) {
  for (const bool sized : {true, false}) {
    constexpr std::size_t kPieces = 40, kPiece = 100'000;
    std::size_t made = 0, got = 0;
    auto request = ask(Method::put, "/");
    std::optional<std::uint64_t> size;
    if (sized) size = kPieces * kPiece;
    request.body = StreamBody{[&] { return made++ < kPieces ? Bytes(kPiece, std::byte('x')) : Bytes(); }, size};
    request.sink = [&](BytesView piece) { got += piece.size(); };
    EXPECT_EQ(client.send(request).status, 200);
    EXPECT_EQ(got, kPieces * kPiece + 4);
  }
  auto missing = ask(Method::get, "/missing");
  missing.sink = [](BytesView) { FAIL() << "an error's text is not the body asked for"; };
  EXPECT_EQ(client.send(missing).body, "GET ");
}

TEST_F(ClientTest, StopsAtTheLimitOfTheAnswer) {
  auto request = ask(Method::post, "/", std::string(95, 'x'));
  request.response_bytes_max = 100;
  EXPECT_EQ(client.send(request).body.size(), 100U);
  request.response_bytes_max = 99;
  EXPECT_ERROR(client.send(request), Code::exhausted);
}

TEST_F(ClientTest, PassesOnWhatSourceAndSinkThrow) {
  auto request = ask(Method::get, "/");
  request.sink = [](BytesView) { throw Error(Code::corrupt, "mine"); };
  EXPECT_ERROR(client.send(request), Code::corrupt);
  auto upload = ask(Method::put, "/");
  upload.body = StreamBody{[]() -> Bytes { throw Error(Code::corrupt, "mine"); }, std::nullopt};
  EXPECT_ERROR(client.send(upload), Code::corrupt);
  EXPECT_EQ(client.send(ask(Method::get, "/")).status, 200);
}

TEST_F(ClientTest, TakesNoProxyFromTheEnvironment) {
  ASSERT_EQ(::setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  EXPECT_EQ(Client(ClientOptions{}).send(ask(Method::get, "/")).status, 200);
  ::unsetenv("http_proxy");
}

TEST_F(ClientTest, SaysWhatIsWrong) {
  ClientRequest request;
  for (const std::string bad :
       {"", "nonsense:", "ftp://127.0.0.1/", "file:///etc/passwd", "http://user:word@127.0.0.1/"}) {
    request.url = bad;
    EXPECT_ERROR(client.send(request), Code::invalid);
  }
}

// Listens and never answers.
class Silence {
 public:
  Silence() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && ::listen(listener_, 1) == 0 &&
              ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0,
          "cannot listen");
    port_ = ntohs(at.sin_port);
  }
  ~Silence() { ::close(listener_); }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }
  void close() { ::shutdown(listener_, SHUT_RDWR); }

 private:
  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::uint16_t port_ = 0;
};

TEST(Client, GivesUpOnSilence) {
  const Silence silence;
  ClientOptions options;
  options.total_wait_us = 100'000;
  Client client(options);
  ClientRequest request;
  request.url = silence.url();
  EXPECT_ERROR(client.send(request), Code::deadline);
  options.total_wait_us = 0;
  options.slow_wait_us = 1'000'000;
  EXPECT_ERROR(Client(options).send(request), Code::deadline);
}

TEST(Client, SaysWhenNobodyListens) {
  Silence silence;
  silence.close();
  ClientRequest request;
  request.url = silence.url();
  EXPECT_ERROR(Client(ClientOptions{}).send(request), Code::unavailable);
}

struct OutgoingTest : ClientTest {
  OutgoingTest() {
    resolver.set("public.example", {sys::Address::parse("93.184.216.34")});
    resolver.set("rebound.example", {sys::Address::parse("127.0.0.1")});
    resolver.set("mixed.example", {sys::Address::parse("93.184.216.34"), sys::Address::parse("10.0.0.1")});
    rules.hosts = {"*.example", "127.*", "[*", "10.*", "169.254.*"};
  }
  sys::SimResolver resolver;
  OutgoingRules rules;
};

TEST_F(OutgoingTest, ChecksNameSchemeAndAddress) {
  EXPECT_EQ(check_outgoing(rules, resolver, true, "Public.example").str(), "93.184.216.34");
  for (const auto* host : {"rebound.example", "mixed.example", "127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]",
                           "[fe80::1]", "[::ffff:10.0.0.1]"})
    EXPECT_ERROR(check_outgoing(rules, resolver, true, host), Code::denied);
  EXPECT_ERROR(check_outgoing(rules, resolver, true, "public.example.evil"), Code::denied);
  EXPECT_ERROR(check_outgoing(rules, resolver, false, "public.example"), Code::denied);
  EXPECT_ERROR(check_outgoing(rules, resolver, true, "unknown.example"), Code::not_found);
  EXPECT_ERROR(check_outgoing(OutgoingRules{}, resolver, true, "public.example"), Code::denied);
}

TEST_F(OutgoingTest, ConnectsToTheCheckedAddressOnly) {
  test.server.stop(0);
  ServerLimits limits;
  limits.host_names = {"rebound.example"};
  TestServer named(limits);
  named.service.on_admit = echo_body;
  rules.plain_http = rules.local_addresses = true;
  Client allowed(ClientOptions{}, rules, resolver);
  ClientRequest request;
  request.url = "http://rebound.example:" + std::to_string(named.port()) + "/";
  EXPECT_EQ(allowed.send(request).body, "GET ") << "the name exists nowhere but in our resolver";
  rules.local_addresses = false;
  Client denied(ClientOptions{}, rules, resolver);
  EXPECT_ERROR(denied.send(request), Code::denied);
  // The name moves after a connection was made: the old one is not used for it.
  resolver.set("rebound.example", {sys::Address::parse("127.0.0.2")});
  EXPECT_ERROR(allowed.send(request), Code::unavailable);
}

TEST_F(OutgoingTest, ReadsOddSpellingsOfAddressesAsAddresses) {
  rules.plain_http = true;
  rules.hosts = {"*"};
  Client client(ClientOptions{}, rules, resolver);
  for (const std::string host :
       {"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]", "[::]", "0"}) {
    ClientRequest request;
    request.url = "http://" + host + ":" + std::to_string(test.port()) + "/";
    EXPECT_ERROR(client.send(request), Code::denied);
  }
}

}  // namespace
}  // namespace falaj::net
