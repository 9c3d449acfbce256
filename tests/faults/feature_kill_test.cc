// SPDX-License-Identifier: Apache-2.0
// feature_kill_test --store lmdb|redis --kills N FALAJ_BINARY
//
// Clients push events, and push again what was not acknowledged; others ingest files, make versions of what was pushed
// and materialise, fully and incrementally; the server is killed with -9 at random moments. A reader never sees less
// than was acknowledged nor more than was sent. At the end everything that was sent is there once: online, and as rows.

#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "storage/online/testing.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kPushers = 8, kKeys = 5;
constexpr std::uint64_t kRunMinUs = 20'000, kRunSpreadUs = 400'000;
const client::Query kProject{{"scope", "/t/default/p/default"}};

constexpr auto kDeclared = R"(
apiVersion: falaj/v1
kind: Dataset
metadata: {tenant: default, project: default, name: events}
spec: {columns: [{name: at, type: timestamp}, {name: k, type: text}, {name: v, type: int64}], time: at}
---
{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: default, project: default, name: thing}, spec: {key: [{name: k, type: text}]}}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: default, project: default, name: sums}
spec:
  entity: thing
  dataset: events
  time: at
  tile: 1h
  aggregates: [{name: n, aggregate: count, window: 720h}, {name: total, aggregate: sum, of: v, window: 720h}]
)";

// How many events of a key, and their sum.
struct Count {
  std::int64_t events = 0, total = 0;
};

class Ledger {
 public:
  void sent(int key, std::int64_t value) { add(sent_[key], value); }
  void acknowledged(int key, std::int64_t value) { add(acknowledged_[key], value); }
  Count sent(int key) const { return read(sent_[key]); }
  Count acknowledged(int key) const { return read(acknowledged_[key]); }

 private:
  void add(Count& count, std::int64_t value) {
    Lock lock(mu_);
    ++count.events;
    count.total += value;
  }
  Count read(const Count& count) const {
    Lock lock(mu_);
    return count;
  }
  mutable Mutex mu_;
  Count sent_[kKeys], acknowledged_[kKeys];
};

// A push that is sent until somebody says that it was taken.
struct Batch {
  std::string id;
  json::array rows;
  std::vector<std::pair<int, std::int64_t>> events;
};

std::string key_name(int key) { return fmt::format("key{}", key); }

class Pusher {
 public:
  Pusher(int number, Ledger& ledger) : number_(number), random_(static_cast<std::uint64_t>(number)), ledger_(ledger) {}

  // Until it is stopped, or the server is gone.
  void run(const std::atomic<bool>& stop, const client::Target& target) {
    client::ApiClient api(target, 1);
    while (!stop && send(api)) {
    }
  }
  void finish(client::ApiClient& api) {
    if (open_ && !send(api)) throw Error(Code::unavailable, "the last push was not taken");
  }
  std::int64_t pushes() const { return made_; }

 private:
  bool send(client::ApiClient& api) {
    if (!open_) make();
    try {
      api.post("/v1/features/push", json::object{{"dataset", "events"}, {"id", open_->id}, {"rows", open_->rows}},
               kProject);
    } catch (const Error& e) {
      return e.code() != Code::unavailable && e.code() != Code::cancelled;
    }
    for (const auto& [key, value] : open_->events) ledger_.acknowledged(key, value);
    open_.reset();
    return true;
  }
  void make() {
    Batch batch{fmt::format("{}-{}", number_, made_++), {}, {}};
    const auto now = clock_.wall().count();
    for (std::uint64_t i = 0, n = 1 + random_.below(5); i < n; ++i) {
      const auto key = static_cast<int>(random_.below(kKeys));
      const auto value = static_cast<std::int64_t>(random_.below(1000));
      // Some of them late.
      const auto at = now - static_cast<std::int64_t>(random_.below(4) == 0 ? random_.below(86'400) : 0) * 1'000'000;
      batch.rows.push_back(json::object{{"at", format_time(at)}, {"k", key_name(key)}, {"v", value}});
      batch.events.emplace_back(key, value);
      ledger_.sent(key, value);
    }
    open_ = std::move(batch);
  }

  const int number_;
  sys::RealClock clock_;
  sys::SimRandom random_;
  Ledger& ledger_;
  std::optional<Batch> open_;
  std::int64_t made_ = 0;
};

std::vector<Count> online(client::ApiClient& api) {
  json::array keys;
  for (int k = 0; k < kKeys; ++k) keys.emplace_back(key_name(k));
  const auto answer =
      api.post("/v1/features/get",
               json::object{{"features", {"sums:n", "sums:total"}}, {"entities", json::object{{"k", keys}}}}, kProject);
  std::vector<Count> out(kKeys);
  for (std::size_t k = 0; k < kKeys; ++k) {
    const auto& columns = answer.at("columns").as_array();
    out[k].events = columns[0].at("values").as_array()[k].as_int64();
    const auto& total = columns[1].at("values").as_array()[k];
    out[k].total = total.is_null() ? 0 : static_cast<std::int64_t>(total.to_number<double>());
  }
  return out;
}

// Somebody else's calls; refused ones are of no concern.
void attempt(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
  }
}

class Experiment {
 public:
  Experiment(std::string binary, const std::string& store, std::uint64_t seed)
      : binary_(std::move(binary)), random_(seed) {
    std::string pattern = (fs::temp_directory_path() / "falaj-features-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    if (store == "redis") redis_.emplace(online::RedisServer::Keeps::every_write);
  }
  ~Experiment() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  std::optional<std::string> run(std::int64_t kills, std::string& totals) {
    std::vector<std::string> arguments{"--set", "log_level=error", "--set", "rates.calls_per_second=1000000"};
    if (redis_) arguments.insert(arguments.end(), {"--set", "online.redis_socket=" + redis_->options().unix_socket});
    Program program(binary_, directory_ + "/data", directory_ + "/log", arguments);
    {
      client::ApiClient api(target_of(program));
      api.post("/v1/apply", {{"sources", {{{"file", "w"}, {"text", kDeclared}}}}});
      api.post(
          "/v1/features/push",
          json::object{{"dataset", "events"}, {"rows", {json::object{{"at", "2001-01-01T00:00:00Z"}, {"k", "old"}}}}},
          kProject);
      api.post("/v1/features/flush", json::object{{"dataset", "events"}}, kProject);
      api.post("/v1/features/materialize", json::object{{"view", "sums"}}, kProject);
    }
    std::vector<std::unique_ptr<Pusher>> pushers;
    for (int i = 0; i < kPushers; ++i) pushers.push_back(std::make_unique<Pusher>(i, ledger_));
    for (std::int64_t kill = 0; kill < kills; ++kill)
      if (auto wrong = round(program, pushers)) return fmt::format("after {} kills: {}", kill, *wrong);
    return check_end(program, pushers, totals);
  }

 private:
  static client::Target target_of(const Program& program) {
    client::Target target;
    target.url = program.url();
    target.token = program.token();
    return target;
  }

  std::optional<std::string> round(Program& program, std::vector<std::unique_ptr<Pusher>>& pushers) {
    std::atomic<bool> stop{false};
    const auto target = target_of(program);
    std::optional<std::string> wrong;
    {
      std::vector<std::jthread> working;
      for (auto& pusher : pushers) working.emplace_back([&] { pusher->run(stop, target); });
      working.emplace_back([&] { keep_versions(stop, target); });
      working.emplace_back([&] { wrong = read_on(stop, target); });
      pause(kRunMinUs + random_.below(kRunSpreadUs));
      program.kill();
      stop = true;
    }
    program.start();
    if (!wrong) wrong = check(target_of(program));
    return wrong;
  }

  void keep_versions(const std::atomic<bool>& stop, const client::Target& target) {
    client::ApiClient api(target, 1);
    sys::SimRandom random(versions_++);
    while (!stop) {
      const auto choice = random.below(4);
      attempt([&] {
        if (choice < 2) api.post("/v1/features/flush", json::object{{"dataset", "events"}}, kProject);
        if (choice >= 2)
          api.post("/v1/features/materialize", json::object{{"view", "sums"}, {"full", choice == 3}}, kProject);
      });
    }
  }

  std::optional<std::string> read_on(const std::atomic<bool>& stop, const client::Target& target) {
    std::optional<std::string> wrong;
    while (!stop && !wrong) {
      bool gone = false;
      try {
        wrong = check(target);
      } catch (const Error&) {
        gone = true;
      }
      if (gone) break;
    }
    return wrong;
  }

  // Not less than was acknowledged before, not more than was sent until after.
  std::optional<std::string> check(const client::Target& target) {
    client::ApiClient api(target, 1);
    Count least[kKeys];
    for (int k = 0; k < kKeys; ++k) least[k] = ledger_.acknowledged(k);
    const auto seen = online(api);
    for (int k = 0; k < kKeys; ++k) {
      const auto most = ledger_.sent(k);
      const auto& now = seen[static_cast<std::size_t>(k)];
      if (now.events < least[k].events || now.events > most.events)
        return fmt::format("{} has {} events online, {} were acknowledged and {} sent", key_name(k), now.events,
                           least[k].events, most.events);
    }
    ++checks_;
    return std::nullopt;
  }

  std::optional<std::string> check_end(Program& program, std::vector<std::unique_ptr<Pusher>>& pushers,
                                       std::string& totals) {
    client::ApiClient api(target_of(program));
    std::int64_t pushes = 0, events = 0;
    for (auto& pusher : pushers) {
      pusher->finish(api);
      pushes += pusher->pushes();
    }
    const auto differs = [&](const char* when) -> std::optional<std::string> {
      const auto seen = online(api);
      for (int k = 0; k < kKeys; ++k) {
        const auto sent = ledger_.sent(k);
        const auto& now = seen[static_cast<std::size_t>(k)];
        if (now.events != sent.events || now.total != sent.total)
          return fmt::format("{}: {} has {} events of {} in all, sent were {} of {}", when, key_name(k), now.events,
                             now.total, sent.events, sent.total);
      }
      return std::nullopt;
    };
    if (auto wrong = differs("pushed")) return wrong;
    api.post("/v1/features/flush", json::object{{"dataset", "events"}}, kProject);
    api.post("/v1/features/flush", json::object{{"dataset", "events"}},
             kProject);  // one that a kill left, then the rest
    if (auto wrong = differs("flushed")) return wrong;
    api.post("/v1/features/materialize", json::object{{"view", "sums"}}, kProject);
    if (auto wrong = differs("materialised")) return wrong;
    api.post("/v1/features/materialize", json::object{{"view", "sums"}, {"full", true}}, kProject);
    if (auto wrong = differs("materialised fully")) return wrong;
    for (int k = 0; k < kKeys; ++k) events += ledger_.sent(k).events;
    const auto dataset = api.get("/v1/datasets/events", kProject);
    const auto rows = dataset.at("newest").at("rows").as_int64();
    if (rows != events + 1) return fmt::format("the dataset has {} rows, {} were pushed", rows, events + 1);
    totals = fmt::format("{} pushes of {} events, {} checks while it ran", pushes, events, checks_.load());
    return std::nullopt;
  }

  const std::string binary_;
  sys::SimRandom random_;
  std::string directory_;
  std::optional<online::RedisServer> redis_;
  Ledger ledger_;
  std::uint64_t versions_ = 0;
  std::atomic<std::int64_t> checks_{0};
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  std::string store = "lmdb", binary;
  std::int64_t kills = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--store" && i + 1 < argc)
      store = argv[++i];
    else if (word == "--kills" && i + 1 < argc)
      kills = parse_int(argv[++i]).value_or(kills);
    else
      binary = word;
  }
  sys::RealRandom real;
  const std::uint64_t seed = real.next();
  std::string totals;
  try {
    const auto wrong = Experiment(binary, store, seed).run(kills, totals);
    fmt::print("result {}: seed {}, {} kills; {}\n", store, seed, kills,
               wrong ? *wrong : totals + "; everything there once, online and as rows");
    return wrong ? 1 : 0;
  } catch (const std::exception& e) {
    fmt::print("result {}: seed {}: {}\n", store, seed, e.what());
    return 1;
  }
}
