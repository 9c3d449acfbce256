// SPDX-License-Identifier: Apache-2.0
// Every way in which several processes share a training, against one process that does all of it: the same rows a step,
// the same curve.
#include <csignal>
#include <functional>

#include "compute/train/testing.h"

namespace falaj::train {
namespace {

class Parallel : public GangTraining {
 protected:
  Parallel() {
    training_.network.hidden = {64, 48, 32};
    training_.network.learning_rate = 0.005;
  }

  struct Way {
    std::string name;
    std::vector<std::size_t> tasks;
    std::function<void(recipe::Parallel&)> set;
  };
  void expect_all_alike(const std::vector<Way>& ways) {
    for (const auto& way : ways)
      for (const auto tasks : way.tasks) {
        training_.parallel = {};
        way.set(training_.parallel);
        const auto where = fmt::format("{}-{}", way.name, tasks);
        run(where, tasks);
        // Adam makes as long a step of a gradient that is almost nothing, whose sign is that of a rounding.
        expect_alike("alone", where, {.loss = 1e-4, .score = 1e-3, .weights = 1e-3});
      }
  }
};

TEST_F(Parallel, EachWayLearnsWhatOneAloneLearns) {
  write_rows(3000);
  training_.network.kind = "resnet";
  run("alone", 1);
  expect_all_alike({
      {"sharded", {2, 4}, [](auto& p) { p.mode = "data", p.shard_optimiser = true; }},
      {"pipeline", {2, 4}, [](auto& p) { p.mode = "pipeline"; }},
      {"tensor", {2, 4}, [](auto& p) { p.mode = "tensor"; }},
      {"one-server", {2, 4}, [](auto& p) { p.mode = "server"; }},
      {"two-servers", {3, 4}, [](auto& p) { p.mode = "server", p.servers = 2; }},
  });
}

// What is sent is less than what was learned, or is older than what the others have by now: not the same model, but as
// good a one.
TEST_F(Parallel, LooserWaysLearnAsWell) {
  write_rows(3000);
  training_.network.epochs = 4;
  training_.metric = "logloss";
  const auto score = [&](const std::string& where, std::size_t tasks,
                         const std::function<void(recipe::Parallel&)>& set) {
    training_.parallel = {};
    set(training_.parallel);
    run(where, tasks);
    const auto all = told(where, "valid_logloss");
    EXPECT_GE(all.size(), 1U);
    const auto best = all.empty() ? 1e9 : *std::min_element(all.begin(), all.end());
    fmt::print("{}: log loss {:.4f}\n", where, best);
    return best;
  };
  const auto synchronous = score("alone", 1, [](auto&) {});  // which synchronous servers equal, as was seen above
  EXPECT_LT(synchronous, 0.45);
  const auto as_good = 1.01 * synchronous;
  const auto expect_good = [&](const std::string& name, const std::vector<std::size_t>& numbers, double at_most,
                               const std::function<void(recipe::Parallel&)>& set) {
    for (const auto tasks : numbers) EXPECT_LT(score(fmt::format("{}-{}", name, tasks), tasks, set), at_most) << name;
  };
  // One of them is the server: of two, one learns.
  expect_good("asynchronous", {2, 3, 4}, as_good, [](auto& p) { p.mode = "server", p.update = "asynchronous"; });
  expect_good("bounded", {2, 4}, as_good, [](auto& p) { p.mode = "server", p.update = "bounded", p.staleness = 1; });
  expect_good("bounded, two servers", {4}, as_good,
              [](auto& p) { p.mode = "server", p.servers = 2, p.update = "bounded", p.staleness = 1; });
  expect_good("fp16", {2, 4}, as_good, [](auto& p) { p.mode = "data", p.compress = "fp16"; });
  expect_good("bf16", {2, 4}, as_good, [](auto& p) { p.mode = "data", p.compress = "bf16"; });
  expect_good("powersgd", {2, 4}, as_good, [](auto& p) { p.mode = "data", p.compress = "powersgd", p.rank = 2; });
  // Most of it comes a few steps later, of which there are few here.
  expect_good("topk", {2, 4}, 1.05 * synchronous, [](auto& p) { p.mode = "data", p.compress = "topk", p.keep = 0.2; });
}

// Steps, and some tasks' parts of others, of which no row weighs anything.
TEST_F(Parallel, RowsThatWeighNothingDoNoHarm) {
  write_rows(1500, "CAST(i % 97 = 0 AS INTEGER)");
  training_.network.batch = "16";
  const std::pair<const char*, const char*> ways[] = {
      {"data", "synchronous"}, {"server", "synchronous"}, {"server", "asynchronous"}, {"pipeline", "synchronous"}};
  for (const auto& [mode, update] : ways) {
    training_.parallel = {};
    training_.parallel.mode = mode;
    training_.parallel.update = update;
    run(fmt::format("{}-{}", mode, update), 3);
    for (const float weight : weights(fmt::format("{}-{}", mode, update))) ASSERT_TRUE(std::isfinite(weight)) << mode;
  }
}

// With chance in it: what is left out depends on the step and the layer, not on where stages were cut this time.
TEST_F(Parallel, APipelineStoppedAndGoneOnIsAsIfNeverStopped) {
  write_rows(2500);
  training_.network.dropout = 0.2;
  training_.parallel.mode = "pipeline";
  run("whole", 2);
  int stops = 0;
  for (;; ++stops) {
    const int status = end_of(start("stopped", 2, 8), "stopped");
    if (status == 0) break;
    ASSERT_EQ(status, kStoppedExit);
    ASSERT_LT(stops, 20);
  }
  EXPECT_GE(stops, 1);
  EXPECT_EQ(onnx("stopped"), onnx("whole"));
}

// A checkpoint is of the whole network, whoever made it: any number goes on from it, in any way.
TEST_F(Parallel, GoesOnWithAnotherNumberInAnotherWay) {
  write_rows(3000);
  run("alone", 1);
  const struct {
    const char* mode;
    std::size_t tasks;
  } turns[] = {{"data", 3}, {"pipeline", 2}, {"server", 3}};
  for (const auto& turn : turns) {
    training_.parallel = {};
    training_.parallel.mode = turn.mode;
    training_.parallel.shard_optimiser = std::string_view(turn.mode) == "data";
    ASSERT_EQ(end_of(start("moved", turn.tasks, 2), "moved"), kStoppedExit) << turn.mode;
  }
  training_.parallel = {};
  training_.parallel.mode = "data";
  run("moved", 2);
  expect_alike("alone", "moved", {});
}

// One dies or hangs: the spare takes its place, in the same attempt, and the model is the same.
TEST_F(Parallel, ASpareTakesTheLostOnesPlace) {
  write_rows(2000);
  training_.network.epochs = 10;
  training_.network.batch = "32";
  training_.patience = 0;
  training_.checkpoints.every_us = 20'000;
  run("whole", 2);
  training_.parallel.spares = 1;
  const struct {
    int signal;
    const char* role;
  } cases[] = {{SIGKILL, "is rank 1"}, {SIGSTOP, "is rank 0"}};
  for (const auto& one : cases) {
    const auto where = fmt::format("signal{}", one.signal);
    auto tasks = start(where, 3);
    await_progress(where, tasks);
    std::size_t victim = 0;
    while (victim < 3 && logged(where, victim).find(one.role) == std::string::npos) ++victim;
    ASSERT_LT(victim, 3U);
    const auto began = clock_.now();
    tasks[victim]->signal(one.signal);
    // Those that are left go on when one of them says from where.
    const auto gone_on = [&] {
      for (std::size_t task = 0; task < 3; ++task) {
        const auto log = logged(where, task);
        const auto met = log.rfind("meet again");
        if (task != victim && met != log.npos && log.find("going on from", met) != log.npos) return true;
      }
      return false;
    };
    while (!gone_on()) {
      ASSERT_LT(clock_.now() - began, std::chrono::minutes(1)) << logged(where, 0);
      ASSERT_FALSE(tasks[(victim + 1) % 3]->wait(std::chrono::milliseconds(10))) << logged(where, (victim + 1) % 3);
    }
    fmt::print("{}: going on after {:.1f} s\n", where, std::chrono::duration<double>(clock_.now() - began).count());
    for (std::size_t task = 0; task < 3; ++task) {
      const auto exit = tasks[task]->wait(std::chrono::minutes(2));
      ASSERT_TRUE(exit) << where << " task " << task;
      if (task == victim)
        EXPECT_EQ(exit->signal, SIGKILL) << where;
      else
        EXPECT_EQ(exit->status, 0) << where << " task " << task << ": " << logged(where, task);
    }
    EXPECT_EQ(onnx(where), onnx("whole")) << where;
  }
}

}  // namespace
}  // namespace falaj::train
