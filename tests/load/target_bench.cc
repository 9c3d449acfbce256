// SPDX-License-Identifier: Apache-2.0
// target_bench [SECONDS]
//
// target_p99 over the network: a bursty trace of requests, due whether or not those before are answered, to a running
// falaj-serve whose endpoint names a latency, and to the same endpoint with every static setting of a grid. A request's
// time runs from when it was due until its answer is here. Bursts ask for more than the server can do, so some of it is
// refused: what counts is how many are answered in time. The server has one processor and the client another, so that
// neither is late because of the other. The setting of the grid that answers the most while its p99
// holds is then played again in turns with the server's own, and the medians are compared.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compute/infer/testing.h"
#include "foundation/base/error.h"
#include "foundation/net/load.h"
#include "tests/load/feature_world.h"
#include "tests/load/serving_world.h"

namespace falaj::tests {
namespace {

constexpr std::size_t kWidth = 64, kRequests = 256, kConnections = 2048;
constexpr double kLearningSeconds = 3;
constexpr int kRounds = 5;

// This process, and those that it starts from now on.
void stay_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) throw Error(Code::unavailable, "two processors are needed");
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Calm and bursts in turn, of random lengths; microseconds.
std::vector<std::int64_t> trace_of(double seconds, double calm_per_second, double burst_per_second) {
  std::mt19937_64 random(11);
  std::vector<std::int64_t> out;
  double now = 0;
  for (bool burst = false; now < seconds; burst = !burst) {
    std::exponential_distribution<double> length(1 / (burst ? 0.1 : 0.2)),
        gap(burst ? burst_per_second : calm_per_second);
    const double end = std::min(seconds, now + length(random));
    for (now += gap(random); now < end; now += gap(random)) out.push_back(static_cast<std::int64_t>(now * 1e6));
    now = end;
  }
  return out;
}

struct Outcome {
  double per_second = 0, p99_ms = 0;
  std::uint64_t refused = 0, other = 0;
};

class Subject {
 public:
  Subject(ServingWorld& world, std::string name, const Bytes& model) : world_(world), name_(std::move(name)) {
    world_.register_version(name_, model);
    set("rowsMax: 64");
    const auto values = infer::random_numbers(kWidth * kRequests, 3);
    for (std::size_t i = 0; i < kRequests; ++i) {
      const auto bytes = std::as_bytes(std::span(values).subspan(i * kWidth, kWidth));
      const auto head = fmt::format(
          R"({{"inputs":[{{"name":"x","shape":[1,{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}})",
          kWidth, bytes.size());
      requests_.push_back(world_.request(fmt::format("/v2/models/{}/infer", name_), head + std::string(as_text(bytes)),
                                         fmt::format("Inference-Header-Content-Length: {}\r\n", head.size())));
    }
    port_ = world_.port_of(name_);
  }

  void set(const std::string& batching) {
    world_.apply({{name_, fmt::format("variants: [{{name: a, model: {}, version: 1}}], batching: {{{}, timeout: 10s}}",
                                      name_, batching)}});
    world_.wait_ready(name_);
  }

  // Answers a second that 64 clients get who wait for theirs.
  double most() {
    std::uint64_t answers = 0;
    net::Talk talk{ask(), [&](const net::Heard& heard) { answers += heard.status == 200; }};
    const auto took = net::offer_load({"127.0.0.1", port_}, {0, 2, 64}, talk, clock_);
    return static_cast<double>(answers) / took.seconds;
  }

  Outcome play(const std::vector<std::int64_t>& trace, double seconds) {
    const double learning = kLearningSeconds * 1e6;
    std::vector<std::int64_t> times;
    Outcome out;
    net::Talk talk{ask(), [&](const net::Heard& heard) {
                     if (static_cast<double>(trace[heard.number]) < learning) return;
                     if (heard.what == net::Heard::What::answer && heard.status == 200)
                       times.push_back(heard.latency_us);
                     else
                       ++(heard.status == 429 ? out.refused : out.other);
                   }};
    net::Load load{0, kLearningSeconds + seconds, kConnections};
    load.due_us = trace;
    const auto took = net::offer_load({"127.0.0.1", port_}, load, talk, clock_);
    client_busy_ = std::max(client_busy_, took.cpu_seconds / took.seconds);
    if (times.empty()) throw Error(Code::unavailable, "nothing was answered");
    const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
    std::nth_element(times.begin(), at, times.end());
    out.p99_ms = static_cast<double>(*at) / 1e3;
    out.per_second = static_cast<double>(times.size()) / seconds;
    return out;
  }
  double client_busy() const { return client_busy_; }

 private:
  std::function<void(std::uint64_t, std::string&)> ask() const {
    return [this](std::uint64_t number, std::string& request) { request += requests_[number % kRequests]; };
  }

  ServingWorld& world_;
  const std::string name_;
  std::vector<std::string> requests_;
  std::uint16_t port_ = 0;
  double client_busy_ = 0;
  sys::RealClock clock_;
};

// `calm`, `burst`: how much is asked for, as a share of what it can do. More than that is too much for any setting
// where reading requests is most of the work.
void compare(ServingWorld& world, const std::string& what, const std::string& name, const Bytes& model,
             double target_ms, double calm, double burst, double seconds) {
  Subject subject(world, name, model);
  const double most = subject.most();
  const auto trace = trace_of(kLearningSeconds + seconds, calm * most, burst * most);
  const auto tell = [&](const std::string& setting, const Outcome& outcome) {
    fmt::print("{}: {}: {:.0f}/s, p99 {:.2f} ms, {} refused, {} otherwise lost\n", what, setting, outcome.per_second,
               outcome.p99_ms, outcome.refused, outcome.other);
    std::fflush(stdout);
  };
  const auto own = fmt::format("targetP99: {}us", static_cast<std::int64_t>(1e3 * target_ms));
  fmt::print("{}: full at {:.0f}/s; the trace has {} requests in {:.0f} s\n", what, most, trace.size(),
             kLearningSeconds + seconds);
  std::string best;
  double best_rate = 0;
  const double in_time = most * target_ms / 1e3;  // rows that can be done in time
  for (const std::uint32_t rows : {8u, 32u, 128u})
    for (const double share : {0.25, 0.5, 0.75, 1.0}) {
      const auto queue = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(share * in_time));
      const auto setting = fmt::format("rowsMax: {}, queueRows: {}", rows, queue);
      subject.set(setting);
      const auto outcome = subject.play(trace, seconds);
      tell(setting, outcome);
      if (outcome.p99_ms > 1.1 * target_ms || outcome.per_second <= best_rate) continue;
      best = setting;
      best_rate = outcome.per_second;
    }
  std::vector<double> tails, rates, best_tails, best_rates, ratios;
  for (int round = 0; round < kRounds; ++round) {
    subject.set(own);
    const auto tuned = subject.play(trace, seconds);
    tell("by itself", tuned);
    tails.push_back(tuned.p99_ms);
    rates.push_back(tuned.per_second);
    if (best.empty()) continue;
    subject.set(best);
    const auto fixed = subject.play(trace, seconds);
    tell(best, fixed);
    best_tails.push_back(fixed.p99_ms);
    best_rates.push_back(fixed.per_second);
    ratios.push_back(tuned.per_second / fixed.per_second);
  }
  claim(what + ", target_p99 over HTTP under bursts: p99", median(tails), "ms", "the target", target_ms,
        median(tails) / target_ms, 1.1, "lower");
  if (best.empty())
    fmt::print("{}: no static setting holds {} ms\n", what, target_ms);
  else
    claim(fmt::format("{}, target_p99 over HTTP under bursts", what), median(rates), "requests/s",
          fmt::format("the best static setting ({}, p99 {:.2f} ms)", best, median(best_tails)), median(best_rates),
          median(ratios), 0.9);
  fmt::print("{}: the client was busy {:.0f} % of the time at most\n", what, 100 * subject.client_busy());
}

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  const double seconds = argc > 1 ? std::stod(argv[1]) : 5;
  const std::string only = argc > 2 ? argv[2] : "";
  try {
    stay_on(0);
    ServingWorld world(falaj_beside_this());
    stay_on(1);
    if (only.empty() || only == "small")
      compare(world, "network 64-256-256-10", "small", infer::network_model(), 10, 0.2, 0.5, seconds);
    if (only.empty() || only == "large")
      compare(world, "network 64-2048-2048-10", "large", infer::network_model(2048), 50, 0.4, 1.6, seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "target_bench: %s\n", error.what());
    return 2;
  }
}
