// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <fmt/format.h>

#include "lifecycle/models/testing.h"

namespace falaj::models {
namespace {

// What one call costs on SQLite, everything durable: the writes wait for the disk, the reads do not.
void make_version(benchmark::State& state) {
  RegistryFixture fixture("sqlite");
  std::map<std::string, std::string> files;
  for (int i = 0; i < state.range(0); ++i) files[fmt::format("model/{}", i)] = fmt::format("content {}", i);
  const auto run_id = fixture.run_with(RegistryFixture::kFlights, files);
  fixture.version_of(RegistryFixture::kFlights, "delay", run_id);
  NewVersion wanted;
  wanted.model = "delay";
  wanted.source = "runs:/" + run_id + "/model";
  for (auto _ : state)
    benchmark::DoNotOptimize(
        fixture.registry->create_version(RegistryFixture::kFlights, wanted, RegistryFixture::act()));
}
BENCHMARK(make_version)->Arg(5)->Arg(100)->Arg(1000)->Unit(benchmark::kMillisecond);

void resolve_alias(benchmark::State& state) {
  RegistryFixture fixture("sqlite");
  fixture.version_of(RegistryFixture::kFlights, "delay", fixture.run_with(RegistryFixture::kFlights, {}));
  fixture.registry->set_alias(RegistryFixture::kFlights, "delay", "champion", 1, RegistryFixture::act());
  for (auto _ : state)
    benchmark::DoNotOptimize(fixture.registry->by_alias(RegistryFixture::kFlights, "delay", "champion"));
}
BENCHMARK(resolve_alias)->Unit(benchmark::kMicrosecond);

void search_versions(benchmark::State& state) {
  RegistryFixture fixture("sqlite");
  const auto run_id = fixture.run_with(RegistryFixture::kFlights, {});
  for (int i = 0; i < 2000; ++i) fixture.version_of(RegistryFixture::kFlights, fmt::format("m{}", i % 20), run_id);
  Search search;
  search.filter = state.range(0) != 0 ? "name = 'm7'" : "";
  search.limit = 10'000;
  for (auto _ : state) benchmark::DoNotOptimize(fixture.registry->search_versions(RegistryFixture::kFlights, search));
}
BENCHMARK(search_versions)->Arg(0)->Arg(1)->ArgName("of one model")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace falaj::models

BENCHMARK_MAIN();
