// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <set>

#include "foundation/base/testing.h"
#include "foundation/net/testing.h"

namespace falaj::net {
namespace {

constexpr std::string_view kPost = "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\nabc";

struct LoadOn : testing::Test {
  TestServer server;
  std::string request{kPost};
  std::map<Heard::What, std::uint64_t> heard;
  std::map<int, std::uint64_t> statuses;
  std::set<std::uint64_t> numbers;
  std::int64_t longest_us = 0;

  LoadTook offer(const Load& load) {
    const Talk talk{[&](std::uint64_t, std::string& out) { out += request; },
                    [&](const Heard& one) {
                      ++heard[one.what];
                      ++statuses[one.status];
                      numbers.insert(one.number);
                      longest_us = std::max(longest_us, one.latency_us);
                    }};
    return offer_load({"127.0.0.1", server.port()}, load, talk, server.clock);
  }
  void answer(std::function<Response(Request&)> handle) {
    server.service.on_admit = [handle](const Head&) { return run(Place::worker, 1 << 20, handle); };
  }
};

TEST(LoadSchedule, IsEvenFromTheFirstOn) {
  EXPECT_EQ(due_us(1000, 0), 0);
  EXPECT_EQ(due_us(1000, 7), 7000);
  EXPECT_EQ(due_us(3, 3'000'000), 1'000'000'000'000);  // does not drift
}

TEST(LoadTargets, AreTheHostOfAUrl) {
  const auto plain = load_target("http://127.0.0.1:8480", "");
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, 8480);
  EXPECT_FALSE(plain.tls);
  const auto secured = load_target("https://[::1]/x", "ca.pem");
  EXPECT_EQ(secured.host, "::1");
  EXPECT_EQ(secured.port, 443);
  EXPECT_TRUE(secured.tls);
  for (const auto* url : {"ftp://x", "http://", "http://h:0", "http://h:x", "h:80"})
    EXPECT_ERROR(load_target(url, ""), Code::invalid);
}

TEST_F(LoadOn, AsksAtTheRateThatIsWanted) {
  answer([](Request& request) { return text_response(200, request.body.read_all() == "abc" ? "ok" : "wrong"); });
  const auto took = offer({2000, 0.2, 4});
  EXPECT_EQ(numbers.size(), 400U);
  EXPECT_EQ(*numbers.rbegin(), 399U);
  EXPECT_EQ(heard[Heard::What::answer] + heard[Heard::What::unsent], 400U);
  EXPECT_GE(took.seconds, 0.2);
}

TEST_F(LoadOn, AsksAgainAsSoonAsItIsAnsweredWithoutARate) {
  answer([](Request& request) {
    request.body.read_all();
    return text_response(429, "busy");
  });
  offer({0, 0.1, 3});
  EXPECT_GT(statuses[429], 10U);
  EXPECT_EQ(statuses.size(), 1U);
}

// A server that stands still is charged for all who were due meanwhile, not only for the one it kept.
TEST_F(LoadOn, CountsTheTimeOfThoseWhoCouldNotAsk) {
  std::atomic<int> answers{0};
  const auto& clock = server.clock;
  answer([&](Request& request) {
    request.body.read_all();
    if (answers++ == 10) std::promise<void>().get_future().wait_for(std::chrono::milliseconds(100));
    return text_response(200, "ok");
  });
  std::uint64_t slow = 0;
  const Talk talk{[](std::uint64_t, std::string& request) { request += kPost; },
                  [&](const Heard& one) { slow += one.latency_us > 20'000 ? 1 : 0; }};
  offer_load({"127.0.0.1", server.port()}, {1000, 0.3, 1}, talk, clock);
  EXPECT_GT(slow, 40U);  // of the hundred that were due in those 100 ms
}

TEST_F(LoadOn, OpensAgainWhatTheServerCloses) {
  answer([](Request& request) {
    request.body.read_all();
    return text_response(200, "ok");
  });
  request = "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
  offer({200, 0.1, 2});
  EXPECT_EQ(statuses[200] + heard[Heard::What::unsent], 20U);
  EXPECT_GT(statuses[200], 2U);
}

TEST_F(LoadOn, GivesUpWaiting) {
  std::promise<void> over;
  auto end = over.get_future().share();
  answer([end](Request& request) {
    request.body.read_all();
    end.wait();
    return text_response(200, "ok");
  });
  Load load{0, 0.05, 1};
  load.answer_wait_us = 50'000;
  offer(load);
  over.set_value();
  EXPECT_EQ(heard[Heard::What::late], 1U);
  EXPECT_GE(longest_us, 50'000);
}

TEST(LoadOnNobody, IsSaid) {
  std::uint16_t port = 0;
  {
    const TestServer gone;
    port = gone.port();
  }
  EXPECT_ERROR(offer_load({"127.0.0.1", port}, {}, {}, sys::RealClock()), Code::unavailable);
}

}  // namespace
}  // namespace falaj::net
