// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/vault.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "governance/vault/testing.h"

namespace falaj::vault {
namespace {

using F = VaultFixture;

// What a put or get pays for its tenant's keys: unwrapped anew from the ring, and as a blob store asks for them.
void keys_from_ring(benchmark::State& state) {
  F f("sqlite");
  f.keys->ensure(F::kUae, {"acme"}, F::act());
  for (auto _ : state) {
    benchmark::DoNotOptimize(f.keys->ring()->newest(F::kUae, {"acme"}));
    benchmark::DoNotOptimize(f.keys->ring()->address_key(F::kUae, {"acme"}));
  }
}
BENCHMARK(keys_from_ring);

void keys_of_zone(benchmark::State& state) {
  F f("sqlite");
  f.keys->ensure(F::kUae, {"acme"}, F::act());
  const auto keys = f.keys->of_zone(F::kUae);
  for (auto _ : state) {
    benchmark::DoNotOptimize(keys->newest({"acme"}));
    benchmark::DoNotOptimize(keys->address_key({"acme"}));
  }
}
BENCHMARK(keys_of_zone);

// The first put of one more tenant, when there are `range` of them.
void ensure_one_more(benchmark::State& state) {
  F f("sqlite");
  for (int i = 0; i < state.range(0); ++i) f.keys->ensure(F::kUae, {fmt::format("t{}", i)}, F::act());
  int next = 0;
  for (auto _ : state) f.keys->ensure(F::kUae, {fmt::format("more{}", next++)}, F::act());
}
BENCHMARK(ensure_one_more)->Arg(10)->Arg(1000)->Unit(benchmark::kMicrosecond);

void put_small(benchmark::State& state) {
  F f("sqlite");
  int next = 0;
  for (auto _ : state) f.put(F::kFlights, fmt::format("n{}", next++), "a kilobyte or less");
}
BENCHMARK(put_small)->Unit(benchmark::kMicrosecond);

// The last page of a hundred, of a project with `range` names.
void list_last_page(benchmark::State& state) {
  F f("sqlite");
  int left = static_cast<int>(state.range(0));
  const std::string text = "x";
  f.vault->put_many(
      F::kFlights, std::nullopt,
      [&]() -> std::optional<NewFile> {
        if (left-- == 0) return std::nullopt;
        return NewFile{fmt::format("{:08}", left), 1, blob::source_of(as_bytes(text))};
      },
      F::act());
  const std::string after = fmt::format("{:08}", state.range(0) - 101);
  for (auto _ : state)
    if (f.vault->list(F::kFlights, "", after, 100).size() != 100) state.SkipWithError("not a page");
}
BENCHMARK(list_last_page)->Arg(1000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace falaj::vault

BENCHMARK_MAIN();
