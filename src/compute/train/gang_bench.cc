// SPDX-License-Identifier: Apache-2.0
// What two tasks on a processor each gain over one, and over one task with two threads: the same network, the same rows
// a step, the same kernels, in the same run. The limit is what two tasks reach that know nothing of each other:
// processors of one machine share its memory and its power, and may be two threads of one. Also what other ways to
// share the work cost here, where everything is on one machine.
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compute/loader/prepare.h"
#include "compute/train/gang.h"
#include "compute/train/model.h"
#include "compute/train/testing.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"

namespace falaj::train {
namespace {

constexpr std::size_t kRows = 240'000, kColumns = 64;
constexpr std::int64_t kHidden = 1024, kBatch = 4096;

const sys::RealClock bench_clock;

std::string of_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

recipe::Training training_of(const std::string& parallel) {
  recipe::Training training;
  training.label = "late";
  training.data.dataset = "rows@1";
  training.model = "network";
  training.exclude = {"one"};
  training.split.by = "random";
  training.split.test = training.split.valid = 0.02;
  training.network.hidden = {kHidden, kHidden};
  training.network.batch = std::to_string(kBatch);
  training.network.epochs = 1;
  training.network.dropout = 0;
  training.patience = 0;
  training.checkpoints.every_us = std::int64_t{3600} * 1'000'000;
  training.parallel = decode<recipe::Parallel>(json::parse(parallel), "parallel");
  return training;
}

// A task: trains once, and says how long that took, reading of rows and meeting the others left out.
void be_task() {
  const auto directory = of_environment("GANG_DIRECTORY");
  const auto rank = std::stoul(of_environment("GANG_RANK")), ranks = std::stoul(of_environment("GANG_RANKS"));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const auto cpu : split(of_environment("GANG_CPUS"), ','))
    CPU_SET(static_cast<std::size_t>(parse_int(cpu).value()), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  const auto training = training_of(of_environment("GANG_PARALLEL"));
  const auto scratch = sys::open_files(fmt::format("{}/scratch-{}", directory, rank));
  table::Workspace room({}, *scratch);
  loader::open_rows(room, directory + "/rows");
  Rows rows(room, training);
  const auto transform = rows.fit(features_of(training, rows.problem(), graph::For::network), {});
  const auto parts = rows.pack(transform, *scratch, {});
  std::optional<Gang> gang;
  if (ranks > 1) {
    GangPlace place;
    place.task = rank;
    place.tasks = ranks;
    place.address = "127.0.0.1";
    place.port = std::stoi(of_environment("GANG_PORT"));
    place.name = "bench";
    gang.emplace(place, bench_clock);
    gang->meet();
  }
  Checkpoints none(*scratch, "bench ", 1);
  Surroundings around{bench_clock, none, [](const Told&) {}, [] { return false; },
                      std::stoi(of_environment("GANG_THREADS"))};
  around.gang = gang ? &*gang : nullptr;
  const auto began = bench_clock.now();
  const auto used = processor_seconds();
  train_network(training, rows.problem(), transform, parts, around);
  fmt::print("{} {}\n", std::chrono::duration<double>(bench_clock.now() - began).count(), processor_seconds() - used);
}

class GangBench {
 public:
  GangBench() {
    const auto scratch = sys::open_files(directory_ / "making");
    table::Workspace room({}, *scratch);
    const auto files = sys::open_files(directory_ / "rows");
    const auto file = files->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    std::string columns;
    for (std::size_t i = 0; i < kColumns; ++i) columns += fmt::format("CAST(random() * 2 - 1 AS FLOAT) AS c{}, ", i);
    room.run(
        fmt::format("COPY (SELECT *, c0 + c1 * c2 + random() * 0.5 > 0 AS late FROM (SELECT {} 1 AS one FROM "
                    "range({}))) TO 'out' (FORMAT parquet)",
                    columns, kRows));
    file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  }

  void run(std::size_t rounds) {
    const std::vector<std::string> apart{"0", "1"}, both{"0,1", "0,1"};
    std::map<std::string, Took> best;
    // In turns: a machine that is slower for a while is so for all of them.
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto add = [&](const std::string& name, Took took) {
        auto& least = best.try_emplace(name, took).first->second;
        least = {std::min(least.seconds, took.seconds), std::min(least.processor, took.processor)};
      };
      add("one", seconds_of(1, 1, {"0"}, kAlone));
      add("threads", seconds_of(1, 2, both, kAlone));
      add("strangers", seconds_of(2, 1, apart, kAlone));
      for (const auto& way : kWays) add(way.name, seconds_of(way.tasks, 1, apart, way.parallel));
    }
    const auto steps = static_cast<double>(static_cast<std::size_t>(kRows * 0.96) / kBatch);
    for (const auto& way : kWays) {
      print(way.name, best[way.name], "one task with one thread", best["one"], steps, way.goal);
      print(way.name, best[way.name], "one task with two threads", best["threads"], steps, way.goal_threads);
    }
    const auto& strangers = best["strangers"];
    const Took limit{strangers.seconds / 2, strangers.processor / 2};  // two such trainings in that time
    print("two tasks, data", best["two tasks, data"], "two tasks that know nothing of each other", limit, steps, 0.9);
    print("two tasks that know nothing of each other", limit, "one task with one thread", best["one"], steps, 1.8);
  }

 private:
  struct Way {
    const char* name;
    std::size_t tasks;
    const char* parallel;
    double goal, goal_threads;
  };
  static constexpr const char* kAlone = R"({"mode": "none"})";
  static constexpr Way kWays[] = {
      {"two tasks, data", 2, R"({"mode": "data"})", 1.8, 0.9},
      {"two tasks, data, gradients as bf16", 2, R"({"mode": "data", "compress": "bf16"})", 1.8, 0.9},
      {"two tasks, data, the optimiser shared out", 2, R"({"mode": "data", "shardOptimiser": true})", 1.8, 0.9},
      {"two tasks, tensor", 2, R"({"mode": "tensor"})", 1.1, 0.5},
  };

  // `processor`: of the task that had most of it. Where others use the machine it says more than the time does.
  struct Took {
    double seconds = 0, processor = 0;
  };
  static void print(const std::string& claim, Took ours, const std::string& against, Took limit, double steps,
                    double goal) {
    std::puts(json::serialize(json::object{{"claim", "steps of " + claim},
                                           {"ours", steps / ours.seconds},
                                           {"unit", "steps/s"},
                                           {"against", against},
                                           {"limit", steps / limit.seconds},
                                           {"ratio", limit.seconds / ours.seconds},
                                           {"ratio_of_processor_time", limit.processor / ours.processor},
                                           {"goal", goal}})
                  .c_str());
  }

  // OpenBLAS mistakes new processors in virtual machines for old ones: all get the same kernels.
  static std::string kernels() {
    if (const auto said = of_environment("OPENBLAS_CORETYPE"); !said.empty()) return said;
    return __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell";
  }

  Took seconds_of(std::size_t tasks, int threads, const std::vector<std::string>& cpus, const std::string& parallel) {
    const int port = port_for_gang();
    const auto ranks = parallel == kAlone ? 1 : tasks;
    std::vector<std::unique_ptr<sys::Child>> children;
    for (std::size_t rank = 0; rank < tasks; ++rank) {
      sys::Command command;
      command.argv = {"/proc/self/exe"};
      command.environment = {"PATH=/usr/bin:/bin",
                             "OPENBLAS_CORETYPE=" + kernels(),
                             "OMP_WAIT_POLICY=passive",
                             "GANG_DIRECTORY=" + directory_.path(),
                             fmt::format("GANG_RANK={}", rank),
                             fmt::format("GANG_RANKS={}", ranks),
                             fmt::format("GANG_PORT={}", port),
                             fmt::format("GANG_THREADS={}", threads),
                             "GANG_CPUS=" + cpus[rank % cpus.size()],
                             "GANG_PARALLEL=" + parallel};
      command.stdout_file = directory_ / fmt::format("out-{}-{}", run_, rank);
      children.push_back(processes_.start(command));
    }
    for (const auto& child : children) {
      const auto exit = child->wait(std::chrono::minutes(5));
      if (!exit || exit->status != 0) throw Error(Code::internal, "a task of " + parallel + " failed");
    }
    Took most;
    for (std::size_t rank = 0; rank < tasks; ++rank) {
      std::ifstream in(directory_ / fmt::format("out-{}-{}", run_, rank));
      Took took;
      in >> took.seconds >> took.processor;
      most = {std::max(most.seconds, took.seconds), std::max(most.processor, took.processor)};
    }
    ++run_;
    return most;
  }

  sys::TempDir directory_;
  sys::RealProcesses processes_;
  int run_ = 0;
};

}  // namespace
}  // namespace falaj::train

int main(int argc, char** argv) {
  const bool fewer = argc == 3 && std::string_view(argv[1]) == "--rounds";
  try {
    if (!falaj::train::of_environment("GANG_DIRECTORY").empty())
      falaj::train::be_task();
    else
      falaj::train::GangBench().run(fewer ? std::stoul(argv[2]) : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gang_bench: %s\n", error.what());
    return 2;
  }
}
