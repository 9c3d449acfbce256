// SPDX-License-Identifier: Apache-2.0
// Reads offered at a rate while rows are pushed, become versions and are materialised, to the real program over HTTP:
//
//   feature_load_bench [--seconds 10] [--rate 10000] [--features fifty|all] [--calls 1,10] [--writes 1|0]
//
// Rate counts entities, each with 50 features of its newest row (all: also two windows); --calls says how many entities
// one call asks for, one run after the other. A request that is late because the server is behind counts from when it
// was due. Every answer is looked at: the features of a row belong together, and none is older than what was
// acknowledged before the read was sent. Client, pushers and server share the machine.
#include <atomic>
#include <cstdio>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/random.h"
#include "tests/load/feature_world.h"
#include "tests/load/open_load.h"

namespace falaj::tests {
namespace {

constexpr std::size_t kEntities = 20'000, kPushed = 2'000, kRowsPerPush = 20;
constexpr std::uint64_t kPushEveryUs = 100'000, kVersionEveryUs = 2'000'000;
constexpr int kVersionsPerFullPass = 5;

// Writes for as long as it lives. Entities 0 to kPushed - 1 get new rows in turn; each has the next n.
class Writing {
 public:
  explicit Writing(const FeatureWorld& world) : world_(world), acknowledged_(world.entities()) {}
  ~Writing() { stop(); }

  void start() {
    threads_.emplace_back([this] { push(); });
    threads_.emplace_back([this] { keep_versions(); });
  }
  void stop() {
    stop_ = true;
    threads_.clear();
  }
  std::int64_t acknowledged(std::size_t entity) const { return acknowledged_[entity].load(); }
  std::string totals() const {
    return fmt::format("{} rows pushed, {} versions, {} passes ({} of them full){}", rows_.load(), versions_.load(),
                       passes_.load(), full_.load(),
                       failed_.load() ? fmt::format(", {} CALLS FAILED", failed_.load()) : "");
  }
  std::int64_t failed() const { return failed_.load(); }

 private:
  void push() {
    auto api = world_.api();
    for (std::size_t next = 0; !stop_; next = (next + kRowsPerPush) % kPushed) {
      ++n_;
      json::array rows;
      for (std::size_t e = next; e < next + kRowsPerPush; ++e)
        rows.push_back(FeatureWorld::row(e, n_, clock_.wall().count()));
      call([&] {
        api.post("/v1/features/push", json::object{{"dataset", "rows"}, {"rows", rows}}, world_.project());
        for (std::size_t e = next; e < next + kRowsPerPush; ++e) acknowledged_[e] = n_;
        rows_ += static_cast<std::int64_t>(kRowsPerPush);
      });
      pause(kPushEveryUs);
    }
  }
  void keep_versions() {
    auto api = world_.api();
    for (int round = 1; !stop_; ++round) {
      call([&] {
        api.post("/v1/features/flush", json::object{{"dataset", "rows"}}, world_.project());
        ++versions_;
        const bool full = round % kVersionsPerFullPass == 0;
        for (const char* view : {"row", "sums"}) {
          api.post("/v1/features/materialize", json::object{{"view", view}, {"full", full}}, world_.project());
          ++passes_;
          full_ += full;
        }
      });
      for (std::uint64_t waited = 0; !stop_ && waited < kVersionEveryUs; waited += kPushEveryUs) pause(kPushEveryUs);
    }
  }
  template <class F>
  void call(F work) {
    try {
      work();
    } catch (const Error& e) {
      ++failed_;
      std::fprintf(stderr, "feature_load_bench: a write failed: %s\n", e.what());
    }
  }

  const FeatureWorld& world_;
  const sys::RealClock clock_;
  std::atomic<bool> stop_{false};
  std::int64_t n_ = 0;
  std::vector<std::atomic<std::int64_t>> acknowledged_;
  std::atomic<std::int64_t> rows_{0}, versions_{0}, passes_{0}, full_{0}, failed_{0};
  std::vector<std::jthread> threads_;
};

struct Options {
  double seconds = 10, rate = 10'000;
  std::string features = "fifty";
  std::vector<std::size_t> calls{1, 10};
  bool writes = true;
};

// One in flight on each connection: what was asked, and what had been acknowledged before.
struct Asked {
  std::vector<std::size_t> entities;
  std::vector<std::int64_t> least;
};

bool run(const Options& options, std::size_t per_call) {
  FeatureWorld world(falaj_beside_this(), kEntities);
  Writing writing(world);
  const sys::RealClock clock;
  sys::SimRandom random(1);
  std::vector<Asked> asked(1 << 16);  // by number: far fewer are under way
  const Conversation conversation{[&](std::uint64_t number, std::string& request) {
                                    auto& a = asked[number % asked.size()];
                                    a.entities.clear();
                                    a.least.clear();
                                    for (std::size_t i = 0; i < per_call; ++i) {
                                      // Every second read is of an entity that is being written.
                                      a.entities.push_back(random.below(random.below(2) ? kPushed : kEntities));
                                      a.least.push_back(writing.acknowledged(a.entities.back()));
                                    }
                                    request = world.read_request(options.features, a.entities);
                                  },
                                  [&](std::uint64_t number, std::string_view body) {
                                    return check_answer(body, per_call, options.features == "all",
                                                        asked[number % asked.size()].least);
                                  }};
  const auto entities_per_call = static_cast<double>(per_call);
  const Load load{options.rate / entities_per_call, options.seconds, 64};
  offer(world.port(), {load.per_second, 1, load.connections}, conversation, clock);  // everything is warm
  if (options.writes) writing.start();
  const auto cpu_before = world.cpu_seconds();
  const auto got = offer(world.port(), load, conversation, clock);
  const auto cpu = world.cpu_seconds() - cpu_before;
  writing.stop();
  fmt::print(
      "{} entities a call: {:.0f} calls/s, {:.0f} entities/s of {:.0f} offered for {:.0f} s; from due to answered p50 "
      "{:.2f} ms, p99 {:.2f} ms, p99.9 {:.2f} ms, longest {:.1f} ms; server {:.2f} processors, peak {:.0f} MB; {}; "
      "{} answers checked, {} wrong, {} refused{}{}\n",
      per_call, got.rate(), got.rate() * entities_per_call, options.rate, got.seconds, got.percentile_us(0.5) / 1e3,
      got.percentile_us(0.99) / 1e3, got.percentile_us(0.999) / 1e3, got.percentile_us(1) / 1e3, cpu / got.seconds,
      world.peak_mb(), writing.totals(), got.answers, got.wrong, got.refused, got.first_trouble.empty() ? "" : ": ",
      got.first_trouble);
  const bool right = got.wrong == 0 && got.refused == 0 && writing.failed() == 0;
  const auto rate = right ? got.rate() * entities_per_call : 0;
  const auto name = fmt::format("entities read over HTTP while writing, {} a call", per_call);
  claim(name, rate, "entities/s", "offered", options.rate, rate / options.rate, 0.99);
  claim(name + ", p99 from when it was due", got.percentile_us(0.99) / 1e3, "ms", "the allowance", 10,
        got.percentile_us(0.99) / 1e4, 1, "lower");
  return right;
}

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  using namespace falaj;
  using namespace falaj::tests;
  Options options;
  try {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string word = argv[i], value = argv[i + 1];
      if (word == "--seconds")
        options.seconds = static_cast<double>(parse_int(value).value_or(10));
      else if (word == "--rate")
        options.rate = static_cast<double>(parse_int(value).value_or(10'000));
      else if (word == "--features")
        options.features = value;
      else if (word == "--writes")
        options.writes = value != "0";
      else if (word == "--calls") {
        options.calls.clear();
        for (const auto part : split(value, ','))
          options.calls.push_back(static_cast<std::size_t>(parse_int(part).value_or(1)));
      } else {
        throw Error(Code::invalid, "unknown option " + word);
      }
    }
    bool right = true;
    for (const auto per_call : options.calls) right = run(options, per_call) && right;
    return right ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feature_load_bench: %s\n", error.what());
    return 2;
  }
}
