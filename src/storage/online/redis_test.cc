// SPDX-License-Identifier: Apache-2.0
// What only the store on Redis does.
#include <gtest/gtest.h>

#include <hiredis/hiredis.h>

#include "foundation/base/testing.h"
#include "foundation/sys/clock.h"
#include "storage/online/testing.h"

namespace falaj::online {
namespace {

class Redis : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_redis()) GTEST_SKIP();
    server_ = std::make_unique<RedisServer>(RedisServer::Keeps::every_write);
    store_ = open_redis(server_->options(), metrics_);
  }
  std::size_t put(const std::string& entity, std::int64_t event, std::int64_t expires_us = 0) {
    const Write write{as_bytes(entity), {event, 0, as_bytes("value")}, expires_us};
    return store_->put(space_, {&write, 1});
  }
  std::string get(const std::string& entity) {
    const BytesView name = as_bytes(entity);
    std::optional<Row> row;
    const auto snapshot = store_->snapshot();
    snapshot->get(space_, {&name, 1}, {&row, 1});
    return row ? std::string(as_text(row->payload)) + "@" + std::to_string(row->event_us) : "-";
  }
  // Runs a command beside the store.
  long long ask(const char* command) {
    const std::unique_ptr<redisContext, decltype(&redisFree)> context(
        redisConnectUnix(server_->options().unix_socket.c_str()), &redisFree);
    auto* reply = static_cast<redisReply*>(redisCommand(context.get(), command));
    const long long answer = reply->integer;
    freeReplyObject(reply);
    return answer;
  }

  Metrics metrics_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<Store> store_;
  const Space space_ = Space::in_the_clear(as_bytes("acme/view"));
};

TEST_F(Redis, SaysUnavailableWhileTheServerIsDownThenWorksAgain) {
  put("a", 1);
  server_->kill();
  const BytesView a = as_bytes("a");
  const auto keep = [](std::size_t, const std::optional<Row>&) { return std::nullopt; };
  EXPECT_ERROR(get("a"), Code::unavailable);
  EXPECT_ERROR(put("a", 2), Code::unavailable);
  EXPECT_ERROR(store_->update(space_, {&a, 1}, keep), Code::unavailable);
  EXPECT_ERROR(store_->erase(space_, {&a, 1}), Code::unavailable);
  server_->start();
  EXPECT_EQ(get("a"), "value@1");  // kept by its log of every write
  EXPECT_EQ(put("a", 2), 1U);
}

TEST_F(Redis, ARestartBetweenTwoCallsIsNotSeen) {
  put("a", 1);
  EXPECT_EQ(get("a"), "value@1");
  server_->kill();
  server_->start();
  EXPECT_EQ(put("a", 2), 1U);  // its scripts are gone too
  server_->kill();
  server_->start();
  EXPECT_EQ(get("a"), "value@2");
}

TEST_F(Redis, AForgottenScriptIsGivenAgain) {
  put("a", 1);
  ask("SCRIPT FLUSH");
  EXPECT_EQ(put("a", 2), 1U);
}

TEST_F(Redis, SaysExhaustedWhenTheServerHasNoMemory) {
  put("a", 1);
  ask("CONFIG SET maxmemory 1");
  EXPECT_ERROR(put("b", 1), Code::exhausted);
  EXPECT_EQ(get("a"), "value@1");
  ask("CONFIG SET maxmemory 0");
  EXPECT_EQ(put("b", 1), 1U);
}

TEST_F(Redis, SaysDeniedWithoutThePassword) {
  ask("CONFIG SET requirepass open-sesame");
  EXPECT_ERROR(get("a"), Code::denied);
  auto options = server_->options();
  options.password = "open-sesame";
  store_ = open_redis(options, metrics_);
  EXPECT_EQ(put("a", 1), 1U);
}

TEST_F(Redis, ExpiryIsLeftToTheServerAsGarbageCollection) {
  const auto now = sys::RealClock().wall().count();
  put("gone", 1, now - 1'000'000);
  put("stays", 1, now + 3'600'000'000);
  put("for ever", 1);
  EXPECT_EQ(get("gone"), "-");
  EXPECT_EQ(get("stays"), "value@1");
  EXPECT_EQ(ask("DBSIZE"), 2);
  put("stays", 2);  // a later row without an end has none
  EXPECT_EQ(get("stays"), "value@2");
}

TEST(RedisAddress, AWrongOneIsUnavailable) {
  Metrics metrics;
  RedisOptions options;
  options.unix_socket = "/nonexistent/redis.sock";
  const auto store = open_redis(options, metrics);
  const Space space = Space::in_the_clear(as_bytes("x"));
  const BytesView a = as_bytes("a");
  std::optional<Row> row;
  EXPECT_ERROR(store->snapshot()->get(space, {&a, 1}, {&row, 1}), Code::unavailable);
}

}  // namespace
}  // namespace falaj::online
