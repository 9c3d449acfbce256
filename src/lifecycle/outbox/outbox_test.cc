// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "foundation/base/metrics.h"
#include "lifecycle/outbox/courier.h"
#include "lifecycle/outbox/post.h"

namespace falaj::outbox {
namespace {

TEST(Verdicts, RetryWithGrowingWaitsUntilTheLast) {
  Options options;
  options.tries_max = 4;
  options.first_wait_us = 100;
  options.wait_max_us = 250;
  const Attempt failed{500};
  EXPECT_EQ(judge({204}, 1, options, 0).state, State::done);
  EXPECT_EQ(judge(failed, 1, options, 0).wait_us, 100);
  EXPECT_EQ(judge(failed, 2, options, 0).wait_us, 200);
  EXPECT_EQ(judge(failed, 3, options, 0).wait_us, 250);
  EXPECT_EQ(judge(failed, 3, options, 1).wait_us, 375);
  EXPECT_EQ(judge(failed, 4, options, 0).state, State::dead);
  EXPECT_EQ(judge({302}, 1, options, 0).state, State::waiting) << "redirects are not followed";
  EXPECT_EQ(judge({0, Code::unavailable}, 1, options, 0).state, State::waiting);
  EXPECT_EQ(judge({0, Code::denied}, 1, options, 0).state, State::dead);
  EXPECT_EQ(judge({0, Code::invalid}, 1, options, 0).state, State::dead);
}

TEST(ReceiverUrls, AreAddressesAndNothingElse) {
  for (const auto* good : {"https://h/", "http://h:80/a?b=c", "https://h", "https://[::1]/x"})
    EXPECT_TRUE(is_receiver_url(good)) << good;
  for (const auto* bad : {"", "ftp://x/", "https://", "https://user:pw@host/", "https://h/a b", "https://h/#f", "h/x"})
    EXPECT_FALSE(is_receiver_url(bad)) << bad;
  const std::string start = "https://h/";
  EXPECT_TRUE(is_receiver_url(start + std::string(kReceiverUrlMax - start.size(), 'a')));
  EXPECT_FALSE(is_receiver_url(start + std::string(kReceiverUrlMax - start.size() + 1, 'a')));
}

// Computed with another program: printf '%s' 'd1.1700000000.{"a":1}' | openssl dgst -sha256 -hmac s3cret -binary |
// base64
TEST(SignedHeaders, SignIdTimeAndBody) {
  const auto headers = signed_headers("X-Falaj", "d1", 1'700'000'000, R"({"a":1})", "s3cret");
  EXPECT_EQ(headers.find("X-Falaj-Delivery-Id"), "d1");
  EXPECT_EQ(headers.find("X-Falaj-Timestamp"), "1700000000");
  EXPECT_EQ(headers.find("X-Falaj-Signature"), "v1,SLFgqHolX/RQ2jyq8jc9+JiWZJ/fRjgKCNB3zikCneY=");
  EXPECT_FALSE(signed_headers("X-Falaj", "d1", 1, "", "").find("X-Falaj-Signature"));
}

// In memory; the receiver "bad" takes nothing.
class ShortBook final : public Book {
 public:
  std::vector<std::string> receivers_due(std::int64_t now_us) override {
    std::vector<std::string> out;
    for (const auto& [receiver, due_us] : waiting)
      if (due_us <= now_us) out.push_back(receiver);
    return out;
  }
  std::vector<Due> due(const std::string& receiver, std::int64_t, std::size_t) override {
    return {{1, tries[receiver], receiver + "-1", "{}"}};
  }
  std::optional<std::int64_t> next_due_us() override { return std::nullopt; }
  Attempt send(const std::string& receiver, const Due&) override {
    return receiver == "bad" ? Attempt{500, {}, "answered 500"} : Attempt{200};
  }
  void settle(const std::string& receiver, const Due&, const Settled& how) override {
    tries[receiver] = how.tries;
    if (how.state == State::waiting)
      waiting[receiver] = how.due_us;
    else
      waiting.erase(receiver), ended[receiver] = how.state;
  }
  void forget(std::int64_t) override {}

  std::map<std::string, std::int64_t> waiting{{"bad", 0}, {"good", 0}}, tries;
  std::map<std::string, State> ended;
};

TEST(Couriers, TryEachReceiverUntilItTakesOrIsGivenUp) {
  ShortBook book;
  sys::SimClock clock;
  sys::SimRandom random(1);
  Metrics metrics;
  auto &done = metrics.counter("done", ""), &failed = metrics.counter("failed", ""),
       &dead = metrics.counter("dead", "");
  Options options;
  options.tries_max = 2;
  Courier courier(book, clock, random, {done, failed, dead}, options);
  EXPECT_EQ(courier.deliver_due(), 2U);
  EXPECT_EQ(book.ended.at("good"), State::done);
  EXPECT_EQ(courier.deliver_due(), 0U) << "not before its time";
  clock.advance(std::chrono::seconds(15));
  EXPECT_EQ(courier.deliver_due(), 1U);
  EXPECT_EQ(book.ended.at("bad"), State::dead);
  EXPECT_EQ(done.Value(), 1);
  EXPECT_EQ(failed.Value(), 1);
  EXPECT_EQ(dead.Value(), 1);
}

}  // namespace
}  // namespace falaj::outbox
