// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include "foundation/sys/files.h"
#include "foundation/sys/process.h"
#include "foundation/sys/random.h"
#include "foundation/sys/testing.h"

namespace falaj::sys {
namespace {

void next_id(benchmark::State& state) {
  const RealClock clock;
  RealRandom random;
  Ids ids(clock, random);
  for (auto _ : state) benchmark::DoNotOptimize(ids.next());
}
BENCHMARK(next_id);

void commit_4_kib(benchmark::State& state, NewFile::Durable durable) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  const Bytes bytes(4096);
  std::uint64_t n = 0;
  for (auto _ : state) {
    const auto file = files->create();
    file->write(bytes);
    file->commit("d/" + std::to_string(n++), durable, NewFile::Existing::keep);
  }
  files->sync();
  state.SetItemsProcessed(static_cast<std::int64_t>(n));
}
BENCHMARK_CAPTURE(commit_4_kib, durable_now, NewFile::Durable::now)->UseRealTime();
BENCHMARK_CAPTURE(commit_4_kib, at_sync, NewFile::Durable::at_sync)->UseRealTime();

void open_and_read_4_kib(benchmark::State& state) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  files->write_all("a/b/c", Bytes(4096));
  for (auto _ : state) benchmark::DoNotOptimize(files->read_all("a/b/c", 4096));
}
BENCHMARK(open_and_read_4_kib);

// The argument is how many MiB this process holds: starting a child must not depend on it.
void start_and_wait(benchmark::State& state) {
  const Bytes held(static_cast<std::size_t>(state.range(0)) << 20, std::byte{1});
  RealProcesses processes;
  const Command command{
      .argv = {"/bin/true"}, .environment = {}, .directory = {}, .stdout_file = {}, .stderr_file = {}};
  for (auto _ : state) processes.start(command)->wait(std::chrono::seconds(10));
}
BENCHMARK(start_and_wait)->Arg(1)->Arg(512)->UseRealTime();

}  // namespace
}  // namespace falaj::sys

BENCHMARK_MAIN();
