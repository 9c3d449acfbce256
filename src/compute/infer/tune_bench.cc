// SPDX-License-Identifier: Apache-2.0
// target_p99 with real calls of a real model in real time: a bursty open-loop trace, whose requests are due whether or
// not those before are answered, at a queue that sets itself, and at every static setting of a grid. A request's time
// runs from when it was due. One thread, as a lane has.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compute/infer/testing.h"
#include "compute/infer/tune.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"

namespace falaj::infer {
namespace {

constexpr std::size_t kWidth = 64, kRows = 1024;
constexpr double kLearningSeconds = 2;

struct Told {
  std::vector<Micros> times;  // of those that were answered and count
  std::uint64_t refused = 0;
};

class TracedRequest final : public Request {
 public:
  TracedRequest(const std::vector<float>& values, std::size_t row, Micros due, const sys::Clock& clock, Told* told)
      : due_(due), clock_(clock), told_(told) {
    inputs = {{graph::Element::float32,
               Shape({1, static_cast<std::int64_t>(kWidth)}),
               std::as_bytes(std::span(values).subspan(row * kWidth, kWidth)),
               {}}};
  }
  void answer(const Ran&) noexcept override {
    if (told_) told_->times.push_back(clock_.now() - due_);
  }
  void refuse(const Error&) noexcept override {
    if (told_) ++told_->refused;
  }

 private:
  const Micros due_;
  const sys::Clock& clock_;
  Told* const told_;
};

// Calm and bursts in turn, of random lengths; seconds.
std::vector<double> trace_of(double seconds, double calm_per_second, double burst_per_second) {
  std::mt19937_64 random(11);
  std::vector<double> out;
  double now = 0;
  for (bool burst = false; now < seconds; burst = !burst) {
    std::exponential_distribution<double> length(1 / (burst ? 0.1 : 0.2)),
        gap(burst ? burst_per_second : calm_per_second);
    const double end = now + length(random);
    for (now += gap(random); now < end; now += gap(random)) out.push_back(now);
    now = end;
  }
  return out;
}

struct Outcome {
  double per_second = 0, p99_us = 0;
  Setting setting;
};

Outcome play(const Model& model, const std::vector<double>& trace, const std::vector<float>& values,
             const Setting& setting, std::optional<Micros> target) {
  const sys::RealClock clock;
  BatchQueue queue(
      {.rows_max = setting.rows_max, .wait_max = setting.wait_max, .queue_rows_max = setting.queue_rows_max}, true);
  std::optional<QueueTuner> tuner;
  if (target) tuner.emplace(LatencyTarget{.p99 = *target}, queue, clock.now());
  Told told;
  Batch batch;
  const auto began = clock.now();
  std::size_t at = 0;
  while (at < trace.size() || !queue.empty()) {
    for (; at < trace.size(); ++at) {
      const auto due = began + Micros(static_cast<std::int64_t>(trace[at] * 1e6));
      if (due > clock.now()) break;
      std::unique_ptr<Request> request = std::make_unique<TracedRequest>(
          values, at % kRows, due, clock, trace[at] >= kLearningSeconds ? &told : nullptr);
      if (!queue.push(request, clock.now())) continue;
      if (tuner) tuner->refused();
      request->refuse(Error(Code::exhausted, "full"));
    }
    queue.next(clock.now(), batch);
    if (batch.empty()) continue;
    const auto done = run_batch(model, batch, clock);
    queue.learn(done);
    if (tuner) tuner->ran(done, batch, queue, clock.now());
  }
  Outcome out;
  out.setting = tuner ? tuner->setting() : setting;
  const auto middle = told.times.begin() + static_cast<std::ptrdiff_t>(told.times.size() * 99 / 100);
  std::nth_element(told.times.begin(), middle, told.times.end());
  out.p99_us = static_cast<double>(middle->count());
  out.per_second = static_cast<double>(told.times.size()) / (trace.back() - kLearningSeconds);
  return out;
}

void compare(const std::string& name, const Bytes& bytes, Micros target, double seconds) {
  const auto model = Model::load(runtime(), bytes);
  const auto values = random_numbers(kWidth * kRows, 3);
  // What it can do at best, to be asked for more than that in bursts.
  const sys::RealClock clock;
  const TensorView many = view_of(values, {64, static_cast<std::int64_t>(kWidth)});
  const TensorView part{many.element, many.shape, many.bytes.first(64 * kWidth * sizeof(float)), {}};
  auto fastest = Micros::max();
  for (int i = 0; i < 50; ++i) {
    const auto begin = clock.now();
    (void)model->run(std::span(&part, 1));
    fastest = std::min(fastest, clock.now() - begin);
  }
  const double most = 64e6 / static_cast<double>(std::max<std::int64_t>(1, fastest.count()));
  const auto trace = trace_of(kLearningSeconds + seconds, 0.4 * most, 1.6 * most);
  const auto tuned = play(*model, trace, values, {}, target);
  Outcome best;
  for (const std::uint32_t rows : {1u, 4u, 16u, 32u, 64u, 128u, 256u})
    for (const double calls : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0}) {
      const Setting setting{rows, Micros(0), static_cast<std::uint32_t>(calls * rows), 1};
      const auto expected = most * static_cast<double>(target.count()) / 1e6;  // rows that can be done in time
      if (setting.queue_rows_max > 4 * expected || setting.queue_rows_max * 8 < expected) continue;
      const auto outcome = play(*model, trace, values, setting, std::nullopt);
      if (outcome.p99_us <= 1.1 * static_cast<double>(target.count()) && outcome.per_second > best.per_second)
        best = outcome;
    }
  std::printf("%s: tuned %.0f/s p99 %.2f ms (rows %u queue %u); best static %.0f/s p99 %.2f ms (rows %u queue %u)\n",
              name.c_str(), tuned.per_second, tuned.p99_us / 1e3, tuned.setting.rows_max, tuned.setting.queue_rows_max,
              best.per_second, best.p99_us / 1e3, best.setting.rows_max, best.setting.queue_rows_max);
  const auto told = [&](const std::string& what, double ours, const char* unit, const char* against, double limit,
                        double goal, bool lower) {
    json::object claim{{"claim", name + what}, {"ours", ours},          {"unit", unit}, {"against", against},
                       {"limit", limit},       {"ratio", ours / limit}, {"goal", goal}};
    if (lower) claim["better"] = "lower";
    std::puts(json::serialize(claim).c_str());
  };
  told(", target_p99 under bursts: p99", tuned.p99_us / 1e3, "ms", "the target",
       static_cast<double>(target.count()) / 1e3, 1.1, true);
  told(", target_p99 under bursts", tuned.per_second, "requests/s", "the best static setting that holds it",
       best.per_second, 0.9, false);
}

}  // namespace
}  // namespace falaj::infer

int main(int argc, char** argv) {
  using namespace falaj::infer;
  const double seconds = argc > 1 ? std::stod(argv[1]) : 5;
  compare("network 64-256-256-10", network_model(), Micros(5'000), seconds);
  compare("network 64-1024-1024-10", network_model(1024), Micros(10'000), seconds);
}
