// SPDX-License-Identifier: Apache-2.0
#include "storage/online/testing.h"

#include <hiredis/hiredis.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "foundation/base/error.h"

namespace falaj::online {

namespace {

constexpr const char* kProgram = "/usr/bin/redis-server";

bool answers(const std::string& socket) {
  const std::unique_ptr<redisContext, decltype(&redisFree)> context(redisConnectUnix(socket.c_str()), &redisFree);
  if (!context || context->err) return false;
  auto* reply = static_cast<redisReply*>(redisCommand(context.get(), "PING"));
  const bool yes = reply && reply->type == REDIS_REPLY_STATUS;
  if (reply) freeReplyObject(reply);
  return yes;
}

class LmdbScratch final : public Scratch {
 public:
  Store& store() override { return *store_; }

 private:
  const sys::TempDir directory_;
  Metrics metrics_;
  const std::unique_ptr<Store> store_ = open_lmdb(directory_ / "online", metrics_);
};

// A prefix of its own keeps the tests that share a server apart.
class RedisScratch final : public Scratch {
 public:
  Store& store() override { return *store_; }

 private:
  static RedisOptions options() {
    static std::atomic<int> scratches{0};
    auto options = RedisServer::shared().options();
    options.key_prefix = "test" + std::to_string(++scratches) + "*:";  // with a character that SCAN must not interpret
    return options;
  }
  Metrics metrics_;
  const std::unique_ptr<Store> store_ = open_redis(options(), metrics_);
};

}  // namespace

RedisServer::RedisServer(Keeps keeps) : keeps_(keeps) { start(); }

RedisServer& RedisServer::shared() {
  static RedisServer server;
  return server;
}

RedisOptions RedisServer::options() const {
  RedisOptions options;
  options.unix_socket = directory_ / "redis.sock";
  return options;
}

void RedisServer::start() {
  sys::Command command;
  const bool keeps = keeps_ == Keeps::every_write;
  command.argv = {kProgram,
                  "--port",
                  "0",
                  "--unixsocket",
                  directory_ / "redis.sock",
                  "--save",
                  "",
                  "--dir",
                  directory_.path(),
                  "--appendonly",
                  keeps ? "yes" : "no",
                  "--appendfsync",
                  "always"};
  command.environment = {"LC_ALL=C"};
  command.stdout_file = command.stderr_file = directory_ / "log";
  server_ = processes_.start(command);
  while (!answers(directory_ / "redis.sock"))
    CHECK(!server_->wait(std::chrono::milliseconds(5)), "the Redis server stays up");
}

void RedisServer::kill() {
  server_->signal(SIGKILL);
  server_->wait(std::chrono::seconds(10));
}

bool has_redis() {
  if (std::filesystem::exists(kProgram)) return true;
  std::fprintf(stderr, "SKIPPED: every test on Redis, because there is no %s\n", kProgram);
  return false;
}

std::unique_ptr<Scratch> make_scratch(const std::string& engine) {
  if (engine == "redis") return std::make_unique<RedisScratch>();
  return std::make_unique<LmdbScratch>();
}

std::vector<std::string> engines() {
  if (has_redis()) return {"lmdb", "redis"};
  return {"lmdb"};
}

}  // namespace falaj::online
