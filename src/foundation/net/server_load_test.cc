// SPDX-License-Identifier: Apache-2.0
// The server under many connections and long bodies: what it holds in memory must not grow with either.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "foundation/base/testing.h"
#include "foundation/net/testing.h"

namespace falaj::net {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // the sanitizers' shadow is in the figure
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif
#else
constexpr bool kMemoryIsOurs = true;
#endif

constexpr std::uint64_t kMany = repeats(256 << 20);

std::string get_request(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }

// The largest resident set seen since it was made, above what there was then.
class Growth {
 public:
  void look() {
    const auto now = resident_bytes();
    auto seen = most_.load();
    while (now > seen && !most_.compare_exchange_weak(seen, now)) {
    }
  }
  void expect_below(std::size_t bytes) const {
    EXPECT_TRUE(!kMemoryIsOurs || most_ - start_ < bytes) << most_ - start_ << " bytes more than at the start";
  }
  std::size_t bytes() const { return most_ - start_; }

 private:
  const std::size_t start_ = resident_bytes();
  std::atomic<std::size_t> most_{start_};
};

TEST(ServerLoad, TakesLongBodiesInConstantMemory) {
  Growth growth;
  TestServer test;
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, kMany, [&](Request& request) {
      std::vector<std::byte> piece(kPieceBytes);
      std::uint64_t total = 0;
      for (std::size_t n = 0; (n = request.body.read(piece)) > 0; total += n) {
        if (piece[0] != std::byte('x') || piece[n - 1] != std::byte('x'))
          return text_response(500, "not what was sent");
        if (total % (16 << 20) < kPieceBytes) growth.look();
      }
      return text_response(200, std::to_string(total));
    });
  };
  const std::string piece(1 << 20, 'x');
  auto sized = test.connect();
  sized.send("PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(kMany) + "\r\n\r\n");
  for (std::uint64_t sent = 0; sent < kMany; sent += piece.size()) ASSERT_TRUE(sized.send(piece));
  EXPECT_EQ(sized.read_answer().body, std::to_string(kMany));
  sized.send("PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (std::uint64_t sent = 0; sent < kMany; sent += piece.size())
    ASSERT_TRUE(sized.send("100000\r\n" + piece + "\r\n"));
  EXPECT_EQ(sized.ask("0\r\n\r\n").body, std::to_string(kMany));
  growth.expect_below(16 << 20);
}

TEST(ServerLoad, GivesLongBodiesInConstantMemory) {
  Growth growth;
  TestServer test;
  test.service.on_admit = [&](const Head& head) {
    return run(Place::here, 0, [&, sized = head.path == "/sized"](Request&) {
      Response response;
      StreamBody body;
      if (sized) body.size = kMany;
      body.next = [&growth, left = kMany]() mutable {
        const auto n = std::min<std::uint64_t>(left, kPieceBytes);
        left -= n;
        growth.look();
        return Bytes(n, std::byte('y'));
      };
      response.body = std::move(body);
      return response;
    });
  };
  for (const std::string path : {"/sized", "/chunked"}) {
    auto c = test.connect();
    c.send(get_request(path));
    std::uint64_t got = 0;
    for (std::string piece = " "; got < kMany && !piece.empty();
         got += static_cast<std::uint64_t>(std::count(piece.begin(), piece.end(), 'y')))
      piece = c.read_some(1 << 20);
    EXPECT_GE(got, kMany);
    EXPECT_LT(got, kMany + 10) << "the head has a few too";
  }
  growth.expect_below(16 << 20);
}

TEST(ServerLoad, ASlowReaderHoldsBackTheSource) {
  std::atomic<std::uint64_t> made{0};
  TestServer test;
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, 0, [&](Request&) {
      Response response;
      response.body = StreamBody{[&] {
                                   made += kPieceBytes;
                                   return Bytes(kPieceBytes);
                                 },
                                 std::nullopt};
      return response;
    });
  };
  auto slow = test.connect();
  slow.send(get_request("/endless"));
  auto other = test.connect();  // served although the first never reads
  other.send(get_request("/endless"));
  std::uint64_t got = 0;
  while (got < kMany) got += other.read_some(1 << 20).size();
  EXPECT_LT(made - got, 32 << 20) << "what the kernel's buffers and two pieces each hold, no more";
}

TEST(ServerLoad, ASourceThatBreaksEndsTheConnectionShort) {
  TestServer test;
  test.service.on_admit = [](const Head& head) {
    return run(Place::worker, 0, [path = head.path](Request&) {
      Response response;
      StreamBody body;
      if (path != "/chunked") body.size = 10;
      body.next = [path, first = true]() mutable {
        if (!std::exchange(first, false)) {
          if (path == "/short") return Bytes();
          throw Error(Code::unavailable, "gone");
        }
        return Bytes(path == "/long" ? 11 : 5, std::byte('z'));
      };
      response.body = std::move(body);
      return response;
    });
  };
  for (const std::string path : {"/chunked", "/throws", "/short", "/long"}) {
    auto c = test.connect();
    EXPECT_EQ(c.ask(get_request(path)).status, 0) << path << ": must not look complete";
  }
}

TEST(ServerLoad, ADribblingClientIsCutOff) {
  ServerLimits limits;
  limits.body_wait_us = 200'000;
  limits.body_bytes_per_second_min = 1'000'000'000;  // nothing a test sends byte by byte is fast enough
  std::atomic<bool> failed{false};
  TestServer test(limits);
  test.service.on_admit = [&](const Head&) {
    return run(Place::worker, kMany, [&](Request& request) {
      std::byte piece[16];
      try {
        while (request.body.read(piece) > 0) {
        }
      } catch (const Error& error) {
        failed = error.code() == Code::deadline;
        throw;
      }
      return text_response(200, "");
    });
  };
  auto c = test.connect();
  c.send("PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(kMany) + "\r\n\r\n");
  while (c.send("x")) {
  }
  EXPECT_TRUE(failed);
}

TEST(ServerLoad, AHandlerMayAnswerBeforeTheBodyEnds) {
  TestServer test;
  test.service.on_admit = [](const Head&) {
    return run(Place::worker, kMany, [](Request& request) {
      std::byte first[1];
      request.body.read(first);
      return text_response(409, "seen enough");
    });
  };
  auto c = test.connect();
  c.send("PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n" + std::string(1000, 'x'));
  const auto answer = c.read_answer();
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(answer.headers.at("connection"), "close");
}

TEST(ServerLoad, ServesBeside5000IdleConnections) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  constexpr std::size_t kIdle = 5000;
  if (files.rlim_max < 2 * kIdle + 500)
    GTEST_SKIP() << "needs " << 2 * kIdle + 500 << " descriptors, has " << files.rlim_max;

  TestServer test;
  test.service.on_admit = [](const Head&) {
    return run(Place::here, 1 << 20, [](Request& request) { return text_response(200, request.body.read_all()); });
  };
  Growth growth;
  std::vector<RawConnection> idle;
  idle.reserve(kIdle);
  const std::string big =
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + std::string(200'000, 'x');
  for (std::size_t i = 0; i < kIdle; ++i) {
    idle.push_back(test.connect());
    if (i % 3 == 0) idle.back().send("GET / HT");       // a head that never ends
    if (i % 3 == 1) idle.back().ask(get_request("/"));  // between requests
    if (i % 15 == 2) idle.back().ask(big);              // after a request that took memory
  }
  std::atomic<int> right{0};
  std::vector<std::thread> honest;
  for (int t = 0; t < 4; ++t)
    honest.emplace_back([&] {
      for (int i = 0; i < 250; ++i) right += test.connect().ask(get_request("/")).status == 200;
    });
  for (auto& thread : honest) thread.join();
  EXPECT_EQ(right, 1000);
  growth.look();
  RecordProperty("bytes_per_idle_connection", std::to_string(growth.bytes() / kIdle));
  growth.expect_below(kIdle * 16 * 1024);  // both ends of each, and the test's own objects
}

}  // namespace
}  // namespace falaj::net
