// SPDX-License-Identifier: Apache-2.0
// What a look at many rules costs when nothing changes, which is what it does nearly always.
#include <benchmark/benchmark.h>

#include <fmt/format.h>

#include "lifecycle/alerts/step.h"

namespace falaj::alerts {
namespace {

constexpr std::int64_t kNow = 1'000'000'000;

std::vector<Look> looks_of(std::int64_t rules, std::int64_t signals) {
  std::vector<Look> out;
  for (std::int64_t r = 0; r < rules; ++r) {
    Look look{fmt::format("rule-{:05}", r), {}};
    look.spec.on = "drift";
    look.spec.threshold = 0.5;
    for (std::int64_t s = 0; s < signals; ++s)
      look.signals.push_back({fmt::format("monitor/m{}", s),
                              {{"monitor", fmt::format("m{}", s)}, {"column", fmt::format("c{}", s)}},
                              s % 10 == 0 ? 1.0 : 0.0,  // every tenth fires
                              "it drifts",
                              0});
    out.push_back(std::move(look));
  }
  return out;
}

void BM_QuietLook(benchmark::State& state) {
  const auto looks = looks_of(state.range(0), state.range(1));
  auto before = step(looks, {}, {}, kNow).state;
  std::int64_t now = kNow;
  for (auto _ : state) {
    auto out = step(looks, std::move(before), {}, ++now);
    if (!out.same()) state.SkipWithError("something changed");
    before = std::move(out.state);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}
BENCHMARK(BM_QuietLook)->Args({10, 100})->Args({1000, 100})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace falaj::alerts

BENCHMARK_MAIN();
