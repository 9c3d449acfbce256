// SPDX-License-Identifier: Apache-2.0
// How fast Slurm is on this machine, by itself and through our executor; for comparison, so no claim is made.
#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/sys/clock.h"
#include "lifecycle/execute/slurm/slurm_executor.h"
#include "lifecycle/execute/slurm/testing.h"

namespace falaj::execute::slurm {
namespace {

constexpr int kAttempts = 100;

double seconds_of(sys::Micros time) { return std::chrono::duration<double>(time).count(); }

// All handed over at once, and followed to their ends.
void measure_executor(TestCluster& cluster, const std::string& submit, const sys::Clock& clock) {
  sys::RealProcesses processes;
  const auto settings = cluster.settings(submit);
  SlurmExecutor executor(settings, make_gateway(settings, processes), clock);
  std::map<std::string, sys::Micros> asked;
  const auto began = clock.now();
  for (int i = 0; i < kAttempts; ++i) {
    Launch launch;
    launch.attempt = fmt::format("bench.{}", i);
    launch.command = {"true"};
    launch.work_directory = settings.directory + "-work";
    launch.tasks = {Task{}};
    asked[launch.attempt] = clock.wall();
    executor.start(launch);
  }
  const double handed_over = seconds_of(clock.now() - began);
  std::vector<double> waits;
  for (std::uint64_t seen = 0; waits.size() < kAttempts;) {
    for (const auto& report : executor.poll(seen, std::chrono::seconds(60))) {
      if (report.phase != Phase::ended) continue;
      CHECK(report.ending->exit_code == 0, "true succeeds");
      waits.push_back(seconds_of(report.started - asked.at(report.attempt)) * 1000);
      executor.forget(report.attempt);
    }
  }
  const double whole = seconds_of(clock.now() - began);
  std::ranges::sort(waits);
  fmt::print(
      "slurm by {}: {:.0f} starts/s, {:.1f} attempts/s to their ends, start to running {:.0f} ms p50, {:.0f} ms p90\n",
      submit, kAttempts / handed_over, kAttempts / whole, waits[waits.size() / 2], waits[waits.size() * 9 / 10]);
}

int run() {
  if (!TestCluster::is_installed()) return 0;
  const sys::RealClock clock;
  TestCluster cluster;
  const auto rates = measure_slurm(cluster, clock);
  fmt::print("slurm itself: {:.0f} submits/s by sbatch, {:.0f} by slurmrestd, {:.1f} trivial jobs/s\n",
             rates.sbatch_submits, rates.rest_submits, rates.jobs);
  measure_executor(cluster, "rest", clock);
  measure_executor(cluster, "sbatch", clock);
  return 0;
}

}  // namespace
}  // namespace falaj::execute::slurm

int main() { return falaj::execute::slurm::run(); }
