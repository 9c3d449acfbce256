// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/server.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>

#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/net/testing.h"

namespace falaj::net {
namespace {

constexpr std::uint64_t kBodyMax = 1 << 20;

Admission echo(const Head& head) {
  return run(head.path.starts_with("/here") ? Place::here : Place::worker, kBodyMax, [](Request& request) {
    return text_response(
        200, std::string(name(request.head.method)) + " " + request.head.path + " " + request.body.read_all());
  });
}

std::string get(const std::string& path, const std::string& fields = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
}
std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
std::string error_code_of(const RawConnection::Answer& answer) {
  return std::string(parse_json(answer.body).at("error").at("code").as_string());
}

struct Echo : TestServer {
  explicit Echo(ServerLimits limits = {}) : TestServer(limits) { service.on_admit = echo; }
};

// A gate that a handler waits at, so that a test knows a request is in flight without sleeping.
class Latch {
 public:
  void open() {
    Lock lock(mu_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    Lock lock(mu_);
    ++waiting_;
    changed_.notify_all();
    while (!open_) lock.wait(changed_);
  }
  void wait_for(int waiting) {
    Lock lock(mu_);
    while (waiting_ < waiting) lock.wait(changed_);
  }

 private:
  Mutex mu_;
  std::condition_variable changed_;
  bool open_ GUARDED_BY(mu_) = false;
  int waiting_ GUARDED_BY(mu_) = 0;
};

TEST(Server, AHandlerLearnsThatItsClientHasGone) {
  Latch begun, seen;
  TestServer test;
  std::atomic<bool> gone_at_first = true;
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, kBodyMax, [&](Request& request) {
      gone_at_first = request.is_abandoned();
      begun.pass();
      while (!request.is_abandoned()) std::this_thread::yield();
      seen.pass();
      return text_response(200, "");
    });
  };
  {
    auto c = test.connect();
    c.send(get("/long") + get("/unread"));  // what it had still to say does not hide that it left
    begun.wait_for(1);
    EXPECT_FALSE(gone_at_first);
    begun.open();
  }
  seen.wait_for(1);
  seen.open();
}

TEST(Server, AnswersOnBothPlacesAndKeepsTheConnection) {
  Echo test;
  auto c = test.connect();
  for (const std::string place : {"here", "there"}) {
    const auto answer = c.ask(get("/" + place));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "GET /" + place + " ");
    EXPECT_EQ(answer.headers.at("x-request-id").size(), 26U);
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(c.ask(post("/" + place, "hello")).body, "POST /" + place + " hello");
  }
}

TEST(Server, BeginsAgainWhereItMayWait) {
  TestServer test;
  Mutex mu;
  std::vector<std::thread::id> began;
  test.service.on_admit = [&](const Head&) {
    return run(Place::here_first, kBodyMax, [&](Request& request) {
      const auto body = request.body.read_all();
      {
        Lock lock(mu);
        began.push_back(std::this_thread::get_id());
      }
      if (request.must_not_wait && body == "slow") throw MustWait();
      return text_response(200, request.head.path + " " + body);
    });
  };
  auto c = test.connect();
  EXPECT_EQ(c.ask(post("/quick", "quick")).body, "/quick quick");
  EXPECT_EQ(began.size(), 1U);
  EXPECT_EQ(c.ask(post("/first", "slow")).body, "/first slow") << "with the whole body and the same head";
  ASSERT_EQ(began.size(), 3U);
  EXPECT_EQ(began[0], began[1]) << "tried where it was read";
  EXPECT_NE(began[1], began[2]);
  EXPECT_EQ(c.ask(post("/again", "quick")).body, "/again quick");
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  Echo test;
  auto c = test.connect();
  std::string all;
  for (int i = 0; i < 100; ++i)
    all += i % 2 ? get("/here/" + std::to_string(i)) : post("/w/" + std::to_string(i), std::to_string(i));
  c.send(all);
  for (int i = 0; i < 100; ++i) {
    const auto n = std::to_string(i);
    EXPECT_EQ(c.read_answer().body, i % 2 ? "GET /here/" + n + " " : "POST /w/" + n + " " + n);
  }
}

TEST(Server, ReadsChunkedBodiesHoweverTheyAreCut) {
  Echo test;
  auto c = test.connect();
  const std::string request =
      "POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n "
      "world\r\n0\r\n\r\n";
  for (const char byte : request) c.send(std::string(1, byte));
  EXPECT_EQ(c.read_answer().body, "POST /x hello world");
  EXPECT_EQ(c.ask(request + get("/next")).body, "POST /x hello world");
  EXPECT_EQ(c.read_answer().body, "GET /next ") << "the next request begins where the last chunk ended";
}

TEST(Server, AnswersHeadWithoutABody) {
  Echo test;
  auto c = test.connect();
  c.send("HEAD /here HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/here"));
  const auto answer = c.read_answer(true);
  EXPECT_EQ(answer.headers.at("content-length"), "11");
  EXPECT_EQ(c.read_answer().body, "GET /here ");
}

TEST(Server, SendsContinueOnlyToThoseAdmitted) {
  TestServer test;
  test.service.on_admit = [](const Head& head) {
    auto admission = echo(head);
    if (head.path == "/no") admission.refusal = text_response(403, "no");
    return admission;
  };
  auto c = test.connect();
  const auto ask = [&](const std::string& path, std::size_t length) {
    return c.ask("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
                 std::to_string(length) + "\r\n\r\n");
  };
  EXPECT_EQ(ask("/yes", 3).status, 100);
  EXPECT_EQ(c.ask("abc").body, "POST /yes abc");
  const auto refused = ask("/no", 3);
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.headers.at("connection"), "close") << "whether the body follows is not known";
  EXPECT_EQ(c.read_until_closed(), "");
  auto d = test.connect();
  d.send("POST /yes HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
         std::to_string(kBodyMax + 1) + "\r\n\r\n");
  EXPECT_EQ(d.read_answer().status, 413);
}

TEST(Server, CompressesLongJsonForThoseWhoTakeIt) {
  const std::string body = "[" + std::string(5000, '1') + "]";
  TestServer test;
  test.service.on_admit = [&](const Head& head) {
    return run(Place::worker, 0, [&, small = head.path == "/small"](Request&) {
      return text_response(200, small ? "{}" : body, "application/json");
    });
  };
  auto c = test.connect();
  const auto packed = c.ask(get("/", "Accept-Encoding: gzip\r\n"));
  EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(packed.headers.at("vary"), "Accept-Encoding");
  EXPECT_EQ(packed.headers.at("cache-control"), "no-store");
  ASSERT_LT(packed.body.size(), 200U);
  z_stream z{};
  ASSERT_EQ(inflateInit2(&z, 15 + 16), Z_OK);
  std::string out(10'000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.body.data()));
  z.avail_in = static_cast<uInt>(packed.body.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  inflateEnd(&z);
  EXPECT_EQ(out, body);
  EXPECT_EQ(c.ask(get("/")).body, body);
  EXPECT_EQ(c.ask(get("/", "Accept-Encoding: gzip;q=0\r\n")).body, body);
  EXPECT_EQ(c.ask(get("/small", "Accept-Encoding: gzip\r\n")).body, "{}");
}

struct Shape {
  int status;
  std::string bytes;
};
TEST(Server, RefusesBadRequestsAndCloses) {
  Echo test;
  const std::string host = "Host: localhost\r\n", line = "POST / HTTP/1.1\r\n",
                    chunked = line + host + "Transfer-Encoding: chunked\r\n\r\n";
  std::string many;
  for (int i = 0; i < 101; ++i) many += "A: b\r\n";
  const Shape shapes[] = {
      {400, "nonsense\r\n\r\n"},
      {400, "GET / HTTP/1.1\nHost: localhost\n\n"},
      {400, "GET / HTTP/1.1\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n" + host + host + "\r\n"},
      {400, "GET /../etc/passwd HTTP/1.1\r\n" + host + "\r\n"},
      {400, "GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n"},
      {400, line + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, line + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"},
      {400, "GET * HTTP/1.1\r\n" + host + "\r\n"},
      {400, "GET http://evil/ HTTP/1.1\r\n" + host + "\r\n"},
      {400, chunked + "x\r\n"},
      {400, chunked + "1\r\nab\r\n"},
      {400, chunked + "1;" + std::string(5000, 'e') + "\r\na\r\n0\r\n\r\n"},
      {413, line + host + "Content-Length: " + std::to_string(kBodyMax + 1) + "\r\n\r\n"},
      {414, "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n" + host + "\r\n"},
      {417, line + host + "Expect: magic\r\nContent-Length: 1\r\n\r\na"},
      {431, "GET / HTTP/1.1\r\n" + host + "A: " + std::string(17'000, 'a') + "\r\n\r\n"},
      {431, "GET / HTTP/1.1\r\n" + host + many + "\r\n"},
      {501, line + host + "Transfer-Encoding: gzip\r\n\r\n"},
      {501, "BREW / HTTP/1.1\r\n" + host + "\r\n"},
      {505, "GET / HTTP/3.0\r\n" + host + "\r\n"},
  };
  for (const auto& shape : shapes) {
    auto c = test.connect();
    c.ask(get("/here"));
    const auto answer = c.ask(shape.bytes + get("/smuggled"));
    EXPECT_EQ(answer.status, shape.status) << shape.bytes.substr(0, 200);
    EXPECT_EQ(error_code_of(answer), "invalid");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    c.finish_sending();
    EXPECT_EQ(c.read_until_closed(), "") << "nothing after it is answered: " << shape.bytes.substr(0, 200);
  }
}

TEST(Server, CountsChunkedBytesAsTheyCome) {
  Echo test;
  for (const std::uint64_t size : {kBodyMax, kBodyMax + 1}) {
    auto c = test.connect();
    c.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk(1 << 16, 'x');
    for (std::uint64_t sent = 0; sent < size; sent += chunk.size()) {
      const auto n = std::min<std::uint64_t>(chunk.size(), size - sent);
      std::string text = "000000";
      std::snprintf(text.data(), text.size(), "%05x", static_cast<unsigned>(n));
      if (!c.send(text.substr(0, 5) + "\r\n" + chunk.substr(0, n) + "\r\n")) break;
    }
    c.send("0\r\n\r\n");
    EXPECT_EQ(c.read_answer().status, size == kBodyMax ? 200 : 413);
  }
}

TEST(Server, RefusesOtherHostsAndOrigins) {
  Echo test;
  auto c = test.connect();
  EXPECT_EQ(c.ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 421);
  EXPECT_EQ(c.ask(get("/", "Origin: http://evil.example\r\n")).status, 403);
  EXPECT_EQ(c.ask(get("/", "Origin: null\r\n")).status, 403);
  EXPECT_EQ(c.ask(get("/", "Origin: http://localhost:3000\r\n")).status, 403);
  EXPECT_EQ(c.ask(get("/", "Origin: http://localhost\r\n")).status, 200);
  EXPECT_NE(test.metrics.render().find("falaj_net_refused_total{reason=\"host\"} 4"), std::string::npos);
}

TEST(Server, KeepsTheConnectionAfterARefusalWithAShortBody) {
  TestServer test;
  test.service.on_admit = [](const Head& head) {
    auto admission = echo(head);
    if (head.path == "/no") admission.refusal = text_response(401, "who");
    return admission;
  };
  auto c = test.connect();
  EXPECT_EQ(c.ask(post("/no", "abc")).status, 401);
  EXPECT_EQ(c.ask(get("/yes")).status, 200);
  c.send("POST /no HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n");
  c.send(std::string(100'000, 'x'));
  const auto answer = c.read_answer();
  EXPECT_EQ(answer.status, 401) << "seen although the body was not read";
  EXPECT_EQ(answer.headers.at("connection"), "close");
}

TEST(Server, AnswersAFailedHandlerOrAdmission) {
  TestServer test;
  test.service.on_admit = [](const Head& head) {
    if (head.path == "/admit") throw Error(Code::internal, "secret");
    return run(Place::worker, 0, [](Request&) -> Response { throw Error(Code::internal, "secret"); });
  };
  auto c = test.connect();
  for (const auto* path : {"/", "/admit"}) {
    const auto answer = c.ask(get(path));
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.body.find("secret"), std::string::npos);
  }
}

TEST(Server, SpeaksToOldClients) {
  Echo test;
  auto c = test.connect();
  const auto answer = c.ask("GET /old HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.body, "GET /old ");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(c.read_until_closed(), "");
}

TEST(Server, Serves64ClientsAtOnce) {
  Echo test;
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 64; ++i)
    clients.emplace_back([&, i] {
      auto c = test.connect();
      for (int k = 0; k < 50; ++k) {
        const auto body = std::to_string(i) + "." + std::to_string(k);
        right += c.ask(post(k % 2 ? "/here" : "/there", body)).body == (k % 2 ? "POST /here " : "POST /there ") + body;
      }
    });
  for (auto& client : clients) client.join();
  EXPECT_EQ(right, 64 * 50);
}

TEST(Server, CutsOffSlowHeads) {
  ServerLimits limits;
  limits.head_wait_us = 100'000;
  Echo test(limits);
  auto c = test.connect();
  c.send("GET / HTTP/1.1\r\nHo");
  EXPECT_EQ(c.read_answer().status, 408);
  EXPECT_EQ(c.read_until_closed(), "");
}

TEST(Server, ClosesIdleConnectionsQuietly) {
  ServerLimits limits;
  limits.idle_wait_us = 100'000;
  Echo test(limits);
  auto c = test.connect();
  EXPECT_EQ(c.ask(get("/")).status, 200);
  EXPECT_EQ(c.read_until_closed(), "");
}

TEST(Server, CutsOffSlowBodies) {
  ServerLimits limits;
  limits.body_wait_us = 100'000;
  Echo test(limits);
  auto c = test.connect();
  c.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_EQ(c.read_answer().status, 408);
  auto d = test.connect();  // a handler is already reading this one
  d.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabc");
  EXPECT_EQ(d.read_answer().status, 408);
}

TEST(Server, CutsOffSlowReaders) {
  ServerLimits limits;
  limits.body_wait_us = 100'000;
  std::atomic<int> status{0};
  Latch finished;
  finished.open();
  TestServer test(limits);
  test.service.on_finished = [&](const Head&, int s) { status = s, finished.pass(); };
  test.service.on_admit = [](const Head&) {
    return run(Place::worker, 0, [](Request&) {
      Response response;
      response.body = StreamBody{[] { return Bytes(kPieceBytes); }, std::nullopt};
      return response;
    });
  };
  auto c = test.connect();
  c.receive_buffer(4096);
  c.send(get("/endless"));
  finished.wait_for(1);  // the server gave up, though the client never closed
  EXPECT_EQ(status, 200);
}

TEST(Server, RefusesConnectionsPastItsLimit) {
  ServerLimits limits;
  limits.connections_max = 2;
  Echo test(limits);
  auto a = test.connect();
  auto b = test.connect();
  EXPECT_EQ(a.ask(get("/")).status, 200);
  EXPECT_EQ(b.ask(get("/")).status, 200);
  auto c = test.connect();
  const auto answer = c.ask(get("/"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(error_code_of(answer), "exhausted");
}

TEST(Server, RefusesRequestsPastItsLimit) {
  ServerLimits limits;
  limits.requests_max = 2;
  Latch latch;
  TestServer test(limits);
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, 0, [&](Request&) { return latch.pass(), text_response(200, "ok"); });
  };
  auto a = test.connect();
  auto b = test.connect();
  auto c = test.connect();
  a.send(get("/"));
  b.send(get("/"));
  latch.wait_for(2);
  const auto answer = c.ask(get("/"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  latch.open();
  EXPECT_EQ(a.read_answer().status, 200);
  EXPECT_EQ(b.read_answer().status, 200);
  EXPECT_EQ(c.ask(get("/")).status, 200) << "the connection was kept";
}

TEST(Server, DrainsWhatWasAccepted) {
  Latch latch;
  TestServer test;
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, 0, [&](Request&) { return latch.pass(), text_response(200, "done"); });
  };
  auto idle = test.connect();
  auto busy = test.connect();
  busy.send(get("/"));
  latch.wait_for(1);
  std::thread stopping([&] { test.server.stop(30'000'000); });
  EXPECT_EQ(idle.read_until_closed(), "") << "idle connections end at once";
  latch.open();
  const auto answer = busy.read_answer();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(busy.read_until_closed(), "");
  busy.finish_sending();
  stopping.join();
}

TEST(Server, StopsThoughAClientNeverFinishes) {
  TestServer test;
  test.service.on_admit = echo;
  auto c = test.connect();
  c.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabc");
  auto d = test.connect();
  d.send("GET / HT");
  test.connect().ask(get("/"));  // both others were accepted before this one
  test.server.stop(50'000);
  EXPECT_EQ(d.read_until_closed(), "");
}

}  // namespace
}  // namespace falaj::net
