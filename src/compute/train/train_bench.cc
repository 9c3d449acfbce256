// SPDX-License-Identifier: Apache-2.0
// What the trainer costs beyond the libraries it trains with: the same model, the same rows, the same steps, in the
// same run, once through the trainer and once in the smallest loop that does it; and how fast rows are brought to it.
#include <torch/torch.h>

#include <unistd.h>
#include <xgboost/c_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compute/loader/batches.h"
#include "compute/loader/prepare.h"
#include "compute/train/model.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"

namespace falaj::train {
namespace {

constexpr std::size_t kRows = 200'000, kColumns = 64, kBatch = 512, kHidden = 512, kRounds = 3;

const sys::RealClock real_clock;

template <class F>
double seconds_of(F work) {
  const auto began = real_clock.now();
  work();
  return std::chrono::duration<double>(real_clock.now() - began).count();
}

void print(const std::string& claim, double ours, const std::string& against, double limit, const char* unit,
           double goal) {
  std::puts(json::serialize(json::object{{"claim", claim},
                                         {"ours", std::int64_t(ours)},
                                         {"unit", unit},
                                         {"against", against},
                                         {"limit", std::int64_t(limit)},
                                         {"ratio", ours / limit},
                                         {"goal", goal}})
                .c_str());
}

// The loop of network_speed() as its own users write it. Prints the seconds of the best round.
constexpr const char* kPython = R"(
import sys, time, torch
width, hidden, batch, steps, rounds = map(int, sys.argv[1:])
torch.set_num_threads(1)
x, y = torch.rand(steps * batch, width), torch.rand(steps * batch).round()
best = 1e9
for _ in range(rounds):
    net = torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden),
                              torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.002)
    began = time.monotonic()
    for step in range(steps):
        at = slice(step * batch, (step + 1) * batch)
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x[at]).squeeze(1), y[at])
        loss.backward()
        optimiser.step()
    best = min(best, time.monotonic() - began)
print(best)
)";

class Bench {
 public:
  Bench() : scratch_(sys::open_files(directory_ / "scratch")), room_({}, *scratch_) {
    const auto files = sys::open_files(directory_ / "rows");
    const auto file = files->create();
    room_.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    std::string columns;
    for (std::size_t i = 0; i < kColumns; ++i) columns += fmt::format("CAST(random() * 2 - 1 AS FLOAT) AS c{}, ", i);
    room_.run(
        fmt::format("COPY (SELECT *, c0 + c1 * c2 + random() * 0.5 > 0 AS late FROM (SELECT {} 1 AS one FROM "
                    "range({}))) TO 'out' (FORMAT parquet)",
                    columns, kRows));
    file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
    loader::open_rows(room_, directory_ / "rows");
    training_.label = "late";
    training_.data.dataset = "rows@1";
    training_.exclude = {"one"};
    training_.split.by = "random";
    training_.split.test = training_.split.valid = 0.02;
    training_.network.hidden = {static_cast<std::int64_t>(kHidden), static_cast<std::int64_t>(kHidden)};
    training_.network.batch = std::to_string(kBatch);
    training_.network.epochs = 1;
    training_.network.dropout = 0;
    training_.network.clip = 0;
    training_.patience = 0;
    training_.trees.rounds = 100;
    training_.trees.subsample = 1;
    training_.checkpoints.every_us = std::int64_t{3600} * 1'000'000;
  }

  // All of it, or one part.
  void run(std::string_view part) {
    if (part.empty() || part == "loader") loader_speed();
    if (part.empty() || part == "network") network_speed();
    if (part.empty() || part == "checkpoint") checkpoint_cost();
    if (part.empty() || part == "trees") trees_speed();
  }

 private:
  std::unique_ptr<Model> train_one(const graph::Transform& transform, const Rows& rows, const Rows::Parts& parts,
                                   bool trees) {
    Checkpoints none(*scratch_, fmt::format("bench {} ", number_++), 1);
    Surroundings around{real_clock, none, [](const Told&) {}, [] { return false; }, 1};
    return trees ? train_trees(training_, rows.problem(), transform, parts, around)
                 : train_network(training_, rows.problem(), transform, parts, around);
  }

  void loader_speed() {
    Rows rows(room_, training_);
    const auto transform = rows.fit(features_of(training_, rows.problem(), graph::For::network), {});
    // Packed once and then seen by every epoch: each side's share of many turns, as one turn is over too soon to judge.
    constexpr std::size_t kTurns = 20;
    double packed = 1e9, engine = 0, dealt = 0;
    Rows::Parts parts;
    for (std::size_t round = 0; round < kRounds; ++round)
      packed = std::min(packed, seconds_of([&] { parts = rows.pack(transform, *scratch_, {}); }));
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      engine += seconds_of([&] {
        std::vector<float> tensor;
        room_.query("SELECT * EXCLUDE (file_row_number) FROM rows", {}, [&](const table::Chunk& chunk) {
          tensor.resize(chunk.rows() * chunk.columns());
          for (std::size_t c = 0; c < kColumns; ++c) {
            const auto values = chunk.as<float>(c);
            for (std::size_t i = 0; i < chunk.rows(); ++i) tensor[i * chunk.columns() + c] = values[i];
          }
          return true;
        });
      });
      dealt += seconds_of([&] {
        loader::Batches batches(*parts.train, {kBatch, 0, 1, 1, true}, turn, 0, real_clock);
        while (batches.next()) {
        }
      });
    }
    engine /= kTurns;
    dealt /= kTurns;
    const auto limit = static_cast<double>(kRows) / engine;
    print("rows read, preprocessed and packed once", static_cast<double>(kRows) / packed,
          "DuckDB's stream into a tensor", limit, "rows/s", 0.3);
    print("rows of an epoch, shuffled into batches", static_cast<double>(parts.train->rows()) / dealt,
          "DuckDB's stream into a tensor", limit, "rows/s", 0.8);
  }

  void network_speed() {
    Rows rows(room_, training_);
    const auto transform = rows.fit(features_of(training_, rows.problem(), graph::For::network), {});
    const auto parts = rows.pack(transform, *scratch_, {});
    const auto width = static_cast<std::int64_t>(transform.float_names().size());
    at::set_num_threads(1);
    const auto steps = loader::steps_of(parts.train->rows(), {kBatch, 0, 1, 1, true});
    // The smallest loop: rows in memory, a module, an optimiser of libtorch's own.
    loader::RowBlock all;
    parts.train->read(0, steps * kBatch, all);
    double ours = 1e9, raw = 1e9;
    for (std::size_t round = 0; round < kRounds; ++round) {
      raw = std::min(raw, seconds_of([&] {
                       torch::nn::Sequential net(torch::nn::Linear(width, kHidden), torch::nn::ReLU(),
                                                 torch::nn::Linear(kHidden, kHidden), torch::nn::ReLU(),
                                                 torch::nn::Linear(kHidden, 1));
                       torch::optim::AdamW optimiser(net->parameters(), torch::optim::AdamWOptions(0.002));
                       for (std::size_t step = 0; step < steps; ++step) {
                         const auto n = static_cast<std::int64_t>(kBatch);
                         const auto x = torch::from_blob(
                             all.numbers.data() + step * kBatch * static_cast<std::size_t>(width), {n, width});
                         const auto y = torch::from_blob(all.labels.data() + step * kBatch, {n});
                         optimiser.zero_grad();
                         auto loss = torch::binary_cross_entropy_with_logits(net->forward(x).squeeze(1), y);
                         loss.backward();
                         optimiser.step();
                       }
                     }));
      ours = std::min(ours, seconds_of([&] { train_one(transform, rows, parts, false); }));
    }
    print("steps of a network, evaluation included", static_cast<double>(steps) / ours, "the smallest loop of libtorch",
          static_cast<double>(steps) / raw, "steps/s", 0.95);
    if (const auto python = python_seconds(width, steps))
      print("steps of a network, evaluation included", static_cast<double>(steps) / ours,
            "the same loop in Python's PyTorch", static_cast<double>(steps) / *python, "steps/s", 1);
    else
      std::fprintf(stderr, "SKIPPED steps against Python's PyTorch: Debian's python3-torch is not installed\n");
  }

  // The same in Python; nothing when it has no PyTorch.
  std::optional<double> python_seconds(std::int64_t width, std::size_t steps) {
    sys::RealProcesses processes;
    sys::Command command;
    command.argv = {"/usr/bin/python3", "-c", kPython};
    for (const auto n : {static_cast<std::size_t>(width), kHidden, kBatch, steps, kRounds})
      command.argv.push_back(std::to_string(n));
    const char* core = std::getenv("OPENBLAS_CORETYPE");
    command.environment = {fmt::format("OPENBLAS_CORETYPE={}", core ? core : "")};
    command.stdout_file = directory_ / "python.out";
    command.stderr_file = directory_ / "python.err";
    const auto exit = processes.start(command)->wait(std::chrono::minutes(10));
    if (!exit || exit->status != 0) return std::nullopt;
    return std::stod(std::string(as_text(sys::read_files(directory_.path())->read_all("python.out", 1 << 10))));
  }

  // Far more often than anybody asks for, so that there is something to see.
  void checkpoint_cost() {
    constexpr std::int64_t kEvery = 500'000;
    Rows rows(room_, training_);
    const auto transform = rows.fit(features_of(training_, rows.problem(), graph::For::network), {});
    const auto parts = rows.pack(transform, *scratch_, {});
    const auto steps = static_cast<double>(loader::steps_of(parts.train->rows(), {kBatch, 0, 1, 1, true}));
    const auto never = training_.checkpoints.every_us;
    // The two differ by less than the machine does from one second to the next: the median of pairs.
    constexpr std::size_t kPairs = 9;
    std::vector<std::pair<double, double>> pairs;  // ratio, seconds without
    for (std::size_t i = 0; i < kPairs; ++i) {
      training_.checkpoints.every_us = never;
      const auto without = seconds_of([&] { train_one(transform, rows, parts, false); });
      training_.checkpoints.every_us = kEvery;
      const auto with = seconds_of([&] { train_one(transform, rows, parts, false); });
      pairs.emplace_back(without / with, without);
    }
    std::sort(pairs.begin(), pairs.end());
    const auto [ratio, without] = pairs[kPairs / 2];
    training_.checkpoints.every_us = never;
    print("steps of a network with a checkpoint every half second", ratio * steps / without, "the same without any",
          steps / without, "steps/s", 0.98);
  }

  void trees_speed() {
    Rows rows(room_, training_);
    const auto transform = rows.fit(features_of(training_, rows.problem(), graph::For::trees), {});
    const auto parts = rows.pack(transform, *scratch_, {});
    loader::RowBlock train, valid;
    parts.train->read(0, parts.train->rows(), train);
    parts.valid->read(0, parts.valid->rows(), valid);
    const auto width = transform.float_names().size();
    double ours = 1e9, raw = 1e9;
    for (std::size_t round = 0; round < kRounds; ++round) {
      raw = std::min(raw, seconds_of([&] { bare_boosting(train, valid, width); }));
      ours = std::min(ours, seconds_of([&] { train_one(transform, rows, parts, true); }));
    }
    const auto rounds = static_cast<double>(training_.trees.rounds);
    print("rounds of trees, model checked", rounds / ours, "XGBoost's own interface", rounds / raw, "rounds/s", 0.97);
  }

  void bare_boosting(const loader::RowBlock& train, const loader::RowBlock& valid, std::size_t width) const {
    DMatrixHandle both[2] = {};
    for (const auto* block : {&train, &valid}) {
      auto& matrix = both[block == &valid];
      XGDMatrixCreateFromMat_omp(block->numbers.data(), block->rows, width, std::numeric_limits<float>::quiet_NaN(),
                                 &matrix, 1);
      XGDMatrixSetFloatInfo(matrix, "label", block->labels.data(), block->rows);
    }
    BoosterHandle booster = nullptr;
    XGBoosterCreate(both, 2, &booster);
    const auto& trees = training_.trees;
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"tree_method", "hist"},
                                                          {"objective", "binary:logistic"},
                                                          {"eval_metric", "auc"},
                                                          {"nthread", "1"},
                                                          {"max_depth", std::to_string(trees.depth)},
                                                          {"learning_rate", fmt::format("{}", trees.learning_rate)},
                                                          {"min_child_weight", fmt::format("{}", trees.child_weight)}})
      XGBoosterSetParam(booster, key.c_str(), value.c_str());
    const char* names[] = {"train", "valid"};
    for (int i = 0; i < static_cast<int>(trees.rounds); ++i) {
      const char* line = nullptr;
      XGBoosterUpdateOneIter(booster, i, both[0]);
      XGBoosterEvalOneIter(booster, i, both, names, 2, &line);
    }
    XGBoosterFree(booster);
    for (auto* matrix : both) XGDMatrixFree(matrix);
  }

  sys::TempDir directory_;
  std::unique_ptr<sys::Files> scratch_;
  table::Workspace room_;
  recipe::Training training_;
  int number_ = 0;
};

}  // namespace
}  // namespace falaj::train

int main(int argc, char** argv) {
  // As falaj-train does, and for all sides alike: OpenBLAS mistakes new processors in virtual machines for old ones.
  if (!std::getenv("OPENBLAS_CORETYPE") && __builtin_cpu_supports("avx2")) {
    setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell", 1);
    execv("/proc/self/exe", argv);
  }
  try {
    falaj::train::Bench().run(argc > 1 ? argv[1] : "");
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "train_bench: %s\n", error.what());
    return 2;
  }
}
