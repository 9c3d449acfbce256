// SPDX-License-Identifier: Apache-2.0
// Applying many resources: from YAML to durable rows, again without a change, and the part that is reading YAML.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "governance/resource/testing.h"

namespace {

using namespace falaj;
using namespace falaj::resource;

std::string groups(std::int64_t count, std::int64_t round) {
  std::string yaml;
  for (std::int64_t i = 0; i < count; ++i)
    yaml += fmt::format(
        "---\napiVersion: falaj/v1\nkind: Group\nmetadata:\n  name: g{}\n  labels: {{round: r{}}}\nspec:\n  members: "
        "[]\n",
        i, round);
  return yaml;
}

void read_yaml(benchmark::State& state) {
  const auto yaml = groups(state.range(0), 0);
  for (auto _ : state) benchmark::DoNotOptimize(read_documents("bench.yaml", yaml));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(read_yaml)->Arg(1)->Arg(1000)->Unit(benchmark::kMillisecond);

void apply_changes(benchmark::State& state) {
  ResourcesFixture f;
  std::int64_t round = 0;
  for (auto _ : state) f.apply(groups(state.range(0), ++round));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(apply_changes)->Arg(1)->Arg(1000)->Unit(benchmark::kMillisecond)->UseRealTime();

void apply_what_is_there(benchmark::State& state) {
  ResourcesFixture f;
  const auto yaml = groups(state.range(0), 0);
  f.apply(yaml);
  for (auto _ : state) f.apply(yaml);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(apply_what_is_there)->Arg(1)->Arg(1000)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
