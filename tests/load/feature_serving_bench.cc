// SPDX-License-Identifier: Apache-2.0
// The real program beside what it stands on, in turn, on one machine:
//  - reads of 50 features over HTTP (authenticated, authorised, opened, JSON) against Redis over loopback TCP by hand:
//    HMGET of 50 fields an entity, as stores on Redis keep them, and GET of one value with as many bytes, pipelined
//    where a call asks for many. 32 connections each, one client thread, every value looked at;
//  - pushes, durable when they are acknowledged, against plain appends with fdatasync on the same disk.
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/process.h"
#include "foundation/sys/random.h"
#include "tests/load/feature_world.h"
#include "tests/load/open_load.h"

namespace falaj::tests {
namespace {

constexpr std::size_t kEntities = 50'000, kConnections = 32;
constexpr int kRounds = 3;
constexpr double kRoundSeconds = 2;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  CHECK(bound, "no port");
  ::close(socket);
  return ntohs(address.sin_port);
}

using Context = std::unique_ptr<redisContext, decltype(&redisFree)>;
using Reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

// Redis with the same entities, used by hand.
class Redis {
 public:
  Redis() : port_(free_port()) {
    sys::Command command;
    command.argv = {"/usr/bin/redis-server",
                    "--port",
                    std::to_string(port_),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--dir",
                    directory_.path()};
    command.environment = {"PATH=/usr/bin:/bin"};
    command.stdout_file = command.stderr_file = directory_ / "log";
    server_ = processes_.start(command);
    for (int tries = 0; tries < 1000 && connections_.empty(); ++tries) {
      Context context(redisConnect("127.0.0.1", port_), &redisFree);
      if (context && !context->err) connections_.push_back(std::move(context));
      if (connections_.empty()) pause(10'000);
    }
    if (connections_.empty())
      throw Error(Code::unavailable, "redis-server did not come up: " + read_text(directory_ / "log"));
    while (connections_.size() < kConnections) connections_.emplace_back(redisConnect("127.0.0.1", port_), &redisFree);
  }
  ~Redis() {
    server_->signal(SIGKILL);
    server_->wait(std::chrono::seconds(10));
  }

  void fill(std::size_t row_bytes) {
    const std::string row(row_bytes, 'x');
    auto* context = connections_[0].get();
    for (std::size_t e = 0; e < kEntities; ++e) {
      std::vector<std::string> words{"HSET", "h" + FeatureWorld::entity(e)};
      for (std::size_t i = 0; i < kFeatures; ++i) {
        const auto value = static_cast<double>(i);
        words.push_back("f" + std::to_string(i));
        words.emplace_back(reinterpret_cast<const char*>(&value), sizeof value);
      }
      append(context, words);
      append(context, {"SET", "r" + FeatureWorld::entity(e), row});
      if (e % 1000 == 999 || e + 1 == kEntities)
        for (std::size_t left = 2 * (e % 1000 + 1); left > 0; --left) take(context);
    }
    fields_ = {"HMGET", ""};
    for (std::size_t i = 0; i < kFeatures; ++i) fields_.push_back("f" + std::to_string(i));
  }

  // Entities a second. Each connection has one call of `per_call` entities under way.
  double read(bool whole_rows, std::size_t per_call, const sys::Clock& clock) {
    sys::SimRandom random(1);
    const auto send = [&](redisContext* context) {
      for (std::size_t i = 0; i < per_call; ++i) {
        const auto name = FeatureWorld::entity(random.below(kEntities));
        if (whole_rows) {
          append(context, {"GET", "r" + name});
        } else {
          fields_[1] = "h" + name;
          append(context, fields_);
        }
      }
      int done = 0;
      while (!done) CHECK(redisBufferWrite(context, &done) == REDIS_OK, "Redis takes a request");
    };
    double sum = 0;
    const auto receive = [&](redisContext* context) {
      for (std::size_t i = 0; i < per_call; ++i) {
        const auto reply = take(context);
        if (whole_rows)
          for (std::size_t at = 0; at + 8 <= reply->len; at += 8) sum += static_cast<double>(reply->str[at]);
        for (std::size_t f = 0; f < reply->elements; ++f) {
          double value = 0;
          std::memcpy(&value, reply->element[f]->str, sizeof value);
          sum += value;
        }
      }
    };
    for (auto& connection : connections_) send(connection.get());
    const auto begin_us = clock.now().count();
    const auto cpu = cpu_seconds_of(pid());
    std::uint64_t calls = 0;
    while (static_cast<double>(clock.now().count() - begin_us) < kRoundSeconds * 1e6)
      for (auto& connection : connections_) {
        receive(connection.get());
        send(connection.get());
        ++calls;
      }
    const auto seconds = static_cast<double>(clock.now().count() - begin_us) / 1e6;
    busy_ = (cpu_seconds_of(pid()) - cpu) / seconds;
    for (auto& connection : connections_) receive(connection.get());
    CHECK(sum > 0, "features were read");
    return static_cast<double>(calls * per_call) / seconds;
  }

  int pid() const { return server_->pid(); }
  double busy() const { return busy_; }  // processors that the server took in the last round

 private:
  static void append(redisContext* context, const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const auto& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    CHECK(redisAppendCommandArgv(context, static_cast<int>(words.size()), texts.data(), sizes.data()) == REDIS_OK,
          "Redis takes a request");
  }
  static Reply take(redisContext* context) {
    void* reply = nullptr;
    CHECK(redisGetReply(context, &reply) == REDIS_OK && reply, "Redis answers");
    return Reply(static_cast<redisReply*>(reply), &freeReplyObject);
  }

  const std::uint16_t port_;
  sys::TempDir directory_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> server_;
  std::vector<Context> connections_;
  std::vector<std::string> fields_;
  double busy_ = 0;
};

double read_ours(const FeatureWorld& world, std::size_t per_call, const sys::Clock& clock) {
  sys::SimRandom random(1);
  std::vector<std::size_t> entities(per_call);
  const std::vector<std::int64_t> least(per_call, 0);
  const Conversation conversation{
      [&](std::uint64_t, std::string& request) {
        for (auto& entity : entities) entity = random.below(kEntities);
        request = world.read_request("fifty", entities);
      },
      [&](std::uint64_t, std::string_view body) { return check_answer(body, per_call, false, least); }};
  const auto got = offer(world.port(), {0, kRoundSeconds, kConnections}, conversation, clock);
  if (got.wrong || got.refused) throw Error(Code::internal, got.first_trouble);
  return got.rate() * static_cast<double>(per_call);
}

void compare_reads(const FeatureWorld& world, const sys::Clock& clock) {
  constexpr std::size_t kRowBytes = 520;  // of a stored record with 50 doubles, sealed
  Redis redis;
  redis.fill(kRowBytes);
  for (const std::size_t per_call : {std::size_t{1}, std::size_t{100}}) {
    std::vector<double> ours, fields, rows, to_fields, to_rows;
    for (int round = 0; round < kRounds; ++round) {
      ours.push_back(read_ours(world, per_call, clock));
      fields.push_back(redis.read(false, per_call, clock));
      fmt::print("HMGET, {} a call: {:.0f} entities/s, redis-server takes {:.2f} processors\n", per_call, fields.back(),
                 redis.busy());
      rows.push_back(redis.read(true, per_call, clock));
      to_fields.push_back(ours.back() / fields.back());
      to_rows.push_back(ours.back() / rows.back());
    }
    const auto what = fmt::format("50 features over HTTP, {} a call", per_call);
    // Shown, not claimed: hiredis takes longer for fifty small values than the server does, so this is its limit.
    fmt::print("{}: {:.2f} of HMGET through hiredis, whose client is the slower side\n", what, median(to_fields));
    claim(what, median(ours), "entities/s", "GET of a value of as many bytes, loopback TCP, pipelined", median(rows),
          median(to_rows), per_call == 1 ? 0.1 : 0.1);
  }
  fmt::print("peak memory after reads: falaj {:.0f} MB, Redis {:.0f} MB, {} entities each\n", world.peak_mb(),
             peak_mb_of(redis.pid()), kEntities);
}

// Appends of a page, each durable, a second.
double syncs(const sys::Clock& clock) {
  const sys::TempDir directory;
  const int file = ::open((directory / "log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  CHECK(file >= 0, "a file opens");
  const std::string page(4096, 'x');
  const auto begin_us = clock.now().count();
  std::uint64_t done = 0;
  for (; static_cast<double>(clock.now().count() - begin_us) < kRoundSeconds * 1e6 / 2; ++done)
    CHECK(::write(file, page.data(), page.size()) == 4096 && ::fdatasync(file) == 0, "a page is written");
  const auto seconds = static_cast<double>(clock.now().count() - begin_us) / 1e6;
  ::close(file);
  return static_cast<double>(done) / seconds;
}

// Pushes a second, each of `rows` rows.
double push(const FeatureWorld& world, std::size_t clients, std::size_t rows, const sys::Clock& clock) {
  std::atomic<std::int64_t> done{0};
  static std::atomic<std::int64_t> n{0};
  const auto begin_us = clock.now().count();
  {
    std::vector<std::jthread> threads;
    for (std::size_t c = 0; c < clients; ++c)
      threads.emplace_back([&, c] {
        auto api = world.api();
        sys::SimRandom random(c);
        while (static_cast<double>(clock.now().count() - begin_us) < kRoundSeconds * 1e6) {
          json::array batch;
          for (std::size_t i = 0; i < rows; ++i)
            batch.push_back(FeatureWorld::row(random.below(kEntities), ++n, clock.wall().count()));
          api.post("/v1/features/push", json::object{{"dataset", "rows"}, {"rows", std::move(batch)}}, world.project());
          ++done;
        }
      });
  }
  return static_cast<double>(done) / (static_cast<double>(clock.now().count() - begin_us) / 1e6);
}

void compare_pushes(const FeatureWorld& world, const sys::Clock& clock) {
  for (const std::size_t rows : {std::size_t{1}, std::size_t{100}})
    for (const std::size_t clients : {std::size_t{1}, std::size_t{8}, std::size_t{32}}) {
      const auto limit = syncs(clock);
      const auto ours = push(world, clients, rows, clock);
      fmt::print("{} clients, {} rows a push: {:.0f} pushes/s, {:.0f} rows/s\n", clients, rows, ours,
                 ours * static_cast<double>(rows));
      claim(fmt::format("rows pushed durably, {} a push, {} clients", rows, clients), ours * static_cast<double>(rows),
            "rows/s", "page + fdatasync, one at a time", limit, ours * static_cast<double>(rows) / limit,
            rows == 1 ? (clients == 1 ? 0.1 : 0.3) : 3);
    }
  fmt::print("peak memory after pushes: falaj {:.0f} MB\n", world.peak_mb());
}

}  // namespace
}  // namespace falaj::tests

// feature_serving_bench [reads|pushes]
int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  const std::string only = argc > 1 ? argv[1] : "";
  try {
    const sys::RealClock clock;
    const FeatureWorld world(falaj_beside_this(), kEntities);
    if (only != "pushes") compare_reads(world, clock);
    if (only != "reads") compare_pushes(world, clock);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feature_serving_bench: %s\n", error.what());
    return 2;
  }
}
