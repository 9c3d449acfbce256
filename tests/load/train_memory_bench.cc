// SPDX-License-Identifier: Apache-2.0
// train_memory_bench [--mib N]
//
// Data eight times as large as the memory of the job that learns from it: a network is trained in a group of
// processes that the kernel bounds to N MiB (default 512), page cache included, on a Parquet file of 8 N MiB.

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "foundation/sys/clock.h"
#include "lifecycle/execute/local/cgroups.h"
#include "tests/program.h"
#include "tests/train_task.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kColumns = 256, kTimes = 8;
constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kRowBytes = kColumns * 4;  // random floats do not become smaller
constexpr sys::Micros kMost = std::chrono::minutes(20);

struct Learner {
  const char* name;
  const char* recipe;
};
constexpr Learner kLearners[] = {
    {"a network", R"("model": "network", "network": {"hidden": [32], "epochs": 1, "batch": "4096"})"},
};

class MemoryBench {
 public:
  explicit MemoryBench(std::int64_t mib) : limit_(mib * kMiB) {
    std::string pattern = (fs::temp_directory_path() / "falaj-memory-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    tasks_ = std::make_unique<TrainTasks>(environment("FALAJ_TRAIN", "build/release/bin/falaj-train"), directory_);
    rows_ = kTimes * limit_ / kRowBytes + kTimes * limit_ / kRowBytes / 50;  // the file is never smaller
    std::string columns;
    for (int i = 0; i < kColumns; ++i) columns += fmt::format("CAST(random() * 2 - 1 AS FLOAT) AS c{}, ", i);
    tasks_->write_rows(fmt::format("SELECT *, c0 + c1 * c2 > 0 AS late FROM (SELECT {} FROM range({}))",
                                   columns.substr(0, columns.size() - 2), rows_));
  }
  ~MemoryBench() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  bool run() {
    execute::local::Cgroups groups("falaj-bench");
    bool met = true;
    for (const auto& learner : kLearners) {
      tasks_->write_recipe(fmt::format(
          R"({{"data": {{"dataset": "rows@1"}}, "label": "late", "split": {{"by": "random", "test": 0.01, "valid": 0.01}}, {}}})",
          learner.recipe));
      execute::Limits limits;
      limits.memory_bytes = limit_;
      const auto group = groups.make(limits, {});
      const auto took = train(limit_, group->doors());
      const auto ratio = static_cast<double>(tasks_->row_bytes()) / static_cast<double>(limit_);
      std::puts(json::serialize(json::object{{"claim", fmt::format("rows that {} learns from", learner.name)},
                                             {"ours", static_cast<double>(tasks_->row_bytes()) / kMiB},
                                             {"unit", "MiB"},
                                             {"against", "the memory of its job"},
                                             {"limit", static_cast<double>(limit_) / kMiB},
                                             {"ratio", ratio},
                                             {"goal", kTimes}})
                    .c_str());
      fmt::print(stderr, "{}: {:.0f} s, {:.0f} rows/s, at most {} MiB at once, page cache included\n", learner.name,
                 took, static_cast<double>(rows_) / took, group->use().memory_peak_bytes / kMiB);
      met = met && ratio >= kTimes;
    }
    return met;
  }

 private:
  double train(std::int64_t memory_bytes, const std::vector<int>& doors) {
    tasks_->forget("run");
    TrainTasks::How how;
    how.memory_bytes = memory_bytes;
    how.cpus = 2;
    if (!doors.empty()) {
      how.before = {"sh", "-c", "while [ $# -gt 1 ]; do echo 0 >\"$1\"; shift; done; exec \"$1\""};
      how.before.push_back("sh");
      for (const int door : doors) how.before.push_back(fmt::format("/proc/{}/fd/{}", getpid(), door));
    }
    const auto began = clock_.now();
    const auto exit = tasks_->start("run", how)->wait(kMost);
    if (!exit || exit->status != 0 || exit->signal != 0 || tasks_->model("run").empty())
      throw Error(Code::internal,
                  fmt::format("it did not train (signal {}): {}", exit ? exit->signal : 0, tasks_->log("run")));
    return std::chrono::duration<double>(clock_.now() - began).count();
  }

  const std::int64_t limit_;
  std::int64_t rows_ = 0;
  std::string directory_;
  std::unique_ptr<TrainTasks> tasks_;
  sys::RealClock clock_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  std::int64_t mib = 512;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--mib") mib = falaj::parse_int(argv[i + 1]).value_or(mib);
  try {
    return falaj::tests::MemoryBench(mib).run() ? 0 : 1;
  } catch (const falaj::Error& e) {
    if (e.code() == falaj::Code::unavailable) {
      std::fprintf(stderr, "SKIPPED train_memory: %s\n", e.what());
      return 0;
    }
    std::fprintf(stderr, "train_memory_bench: %s\n", e.what());
    return 2;
  }
}
