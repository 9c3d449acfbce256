// SPDX-License-Identifier: Apache-2.0
// train_drill [--kills N] [--seed S] [--only pipeline] FALAJ_TRAIN
//
// Trainings are killed with -9 at random moments, from the first instruction to the last, and started again as a job
// would be, until they end: as trees, as a network, and as a network by two tasks, which share rows or layers and of
// which a random one is killed. Every third time all are told to stop by SIGTERM instead: whatever they are at, each
// must have ended with 75 within the grace of a job. What comes out must be what an uninterrupted training gives, byte
// by byte, and no checkpoint may ever be found damaged. Then the disk for checkpoints is full: that must be said, and
// no model may be left.

#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "tests/program.h"
#include "tests/train_task.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr sys::Micros kTrainingMax = std::chrono::minutes(5);
constexpr sys::Micros kNoticed = std::chrono::seconds(8);
constexpr sys::Micros kGrace = std::chrono::seconds(30);
constexpr int kCheckpointed = 75;

constexpr std::string_view kRows =
    "SELECT x, category, taken, random() < 1 / (1 + exp(-2 * x)) AS late FROM (SELECT random() * 4 - 2 AS x, chr(97 + "
    "CAST(floor(random() * 4) AS INTEGER)) AS category, TIMESTAMP '2026-01-01' + to_minutes(i * 3) AS taken FROM "
    "range(8000) t(i))";

struct Mode {
  const char* name;
  std::size_t ranks;
  const char* recipe;  // of the model
};
constexpr Mode kModes[] = {
    {"trees", 1, R"("model": "xgboost", "trees": {"rounds": 60, "depth": 5})"},
    {"network", 1, R"("model": "network", "network": {"hidden": [64, 32], "epochs": 5, "batch": "64"})"},
    {"network of two tasks", 2,
     R"("model": "network", "network": {"hidden": [64, 32], "epochs": 4, "batch": "64"}, "parallel": {"mode": "data"},
        "resources": {"tasks": 2})"},
    {"pipeline of two tasks", 2,
     R"("model": "network", "network": {"hidden": [64, 32], "epochs": 4, "batch": "64"}, "parallel": {"mode": "pipeline"},
        "resources": {"tasks": 2})"},
};

std::string recipe(std::string_view model) {
  return fmt::format(R"({{"data": {{"dataset": "rows@1"}}, "label": "late", "patience": 0,
                         "checkpoints": {{"every": "0s", "keep": 2}}, {}}})",
                     model);
}

class TrainDrill {
 public:
  TrainDrill(const std::string& binary, std::uint64_t seed) : random_(seed) {
    std::string pattern = (fs::temp_directory_path() / "falaj-train-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    tasks_ = std::make_unique<TrainTasks>(binary, directory_);
    tasks_->write_rows(std::string(kRows));
  }
  ~TrainDrill() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void kill_in(const Mode& mode, std::int64_t kills) {
    tasks_->write_recipe(recipe(mode.recipe));
    tasks_->forget("whole");
    const auto began = clock_.now();
    attempt("whole", mode.ranks, kTrainingMax);
    const auto took = clock_.now() - began;
    const auto whole = tasks_->model("whole");
    std::int64_t killed = 0, ended = 0, resumed = 0;
    stopped_ = 0;
    slowest_ = sys::Micros(0);
    while (killed < kills || ended == 0) {
      tasks_->forget("killed");
      for (;;) {  // one training, however often it is killed
        const auto patience = killed < kills
                                  ? sys::Micros(random_.below(static_cast<std::uint64_t>(took.count() * 11 / 10)))
                                  : kTrainingMax;
        // Every second one only once there is something to go on from.
        const bool later = killed < kills && killed % 2 == 1;
        const int signal = killed % 3 == 2 ? SIGTERM : SIGKILL;
        const auto end = attempt("killed", mode.ranks, later ? patience / 3 : patience, later, signal);
        const auto log = tasks_->log("killed");
        if (log.find("passed over") != std::string::npos)
          throw Error(Code::corrupt, fmt::format("{}: a checkpoint was damaged: {}", mode.name, log));
        if (end == Ended::well) break;
        if (patience == kTrainingMax) throw Error(Code::deadline, fmt::format("{}: it hangs: {}", mode.name, log));
        ++killed;
      }
      ++ended;
      for (const auto line : split(tasks_->log("killed"), '\n'))
        if (line.find("going on from checkpoint") != std::string_view::npos) ++resumed;
      if (tasks_->model("killed") != whole)
        throw Error(Code::corrupt, fmt::format("{}: after {} kills another model came out", mode.name, killed));
    }
    fmt::print(
        "result {}: {} kills at random moments of {:.1f} s, {} of them by SIGTERM, after which all had ended within "
        "{:.1f} s, {} times gone on from a checkpoint; {} models equal to the uninterrupted one, {} bytes\n",
        mode.name, killed, std::chrono::duration<double>(took).count(), stopped_,
        std::chrono::duration<double>(slowest_).count(), resumed, ended, whole.size());
    std::fflush(stdout);
  }

  // The checkpoint directory is a file system of a few pages, which goes with the process.
  void fill_disk() {
    for (const auto& mode : {kModes[0], kModes[1]}) {
      tasks_->forget("full");
      tasks_->write_recipe(recipe(mode.recipe));
      fs::create_directories(tasks_->at("full", "checkpoints"));
      TrainTasks::How how;
      how.before = {"unshare", "-rm", "sh", "-c",
                    "mount -t tmpfs -o size=8k none \"$FALAJ_CHECKPOINT_DIR\" || exit 99; exec \"$0\""};
      const auto exit = tasks_->start("full", how)->wait(kTrainingMax);
      const auto log = tasks_->log("full");
      if (exit && exit->status == 99) {
        fmt::print("result full disk: SKIPPED: no file system of our own may be mounted here\n");
        return;
      }
      if (!exit || exit->status != 1 || exit->signal != 0 || log.find("because the disk is full") == std::string::npos)
        throw Error(Code::internal, fmt::format("{} with a full disk: {}", mode.name, log));
      if (!tasks_->model("full").empty() || fs::exists(tasks_->at("full", "outputs/model")))
        throw Error(Code::corrupt, fmt::format("{} with a full disk left a model", mode.name));
      const auto said = log.find("falaj-train: ");
      fmt::print("result full disk, {}: {}\n", mode.name, trim(log.substr(std::min(said, log.size()))));
    }
  }

 private:
  enum class Ended { well, killed };

  // All ranks, until they end; a random one is killed when that takes longer than `patience`, which with `saved` begins
  // when this attempt has saved something.
  Ended attempt(const std::string& where, std::size_t ranks, sys::Micros patience, bool saved = false,
                int signal = SIGKILL) {
    auto until = clock_.now() + patience;
    const auto before = newest_checkpoint(where);
    const int port = ranks > 1 ? free_port() : 0;
    ++attempts_;
    std::vector<std::unique_ptr<sys::Child>> children;
    std::vector<std::size_t> said;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      said.push_back(tasks_->log(where, rank).size());
      TrainTasks::How how;
      how.rank = rank;
      how.ranks = ranks;
      how.port = port;
      how.attempt = attempts_;
      children.push_back(tasks_->start(where, how));
    }
    std::optional<sys::Exit> first;
    while (saved && !first && newest_checkpoint(where) == before) {
      first = children[0]->wait(std::chrono::milliseconds(2));
      until = clock_.now() + patience;
    }
    if (!first) first = children[0]->wait(std::max(sys::Micros(0), until - clock_.now()));
    if (!first && signal == SIGTERM) return stop(where, children, said);
    if (!first) {
      const auto victim = random_.below(ranks);
      children[victim]->signal(SIGKILL);
      // The others notice. Who has said nothing yet may wait long to meet it: killed, as the job's executor does.
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (tasks_->log(where, rank).size() == said[rank] || !children[rank]->wait(kNoticed))
          children[rank]->signal(SIGKILL);
    }
    bool well = true, killed = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto exit = children[rank]->wait(kTrainingMax);
      if (!exit) throw Error(Code::deadline, "a task is left: " + tasks_->log(where, rank));
      well = well && exit->status == 0 && exit->signal == 0;
      killed = killed || exit->signal == SIGKILL;
    }
    if (!first && killed) return Ended::killed;  // not one that had ended by itself
    if (!well) throw Error(Code::internal, tasks_->log(where) + (ranks > 1 ? tasks_->log(where, 1) : ""));
    return Ended::well;
  }

  // As a job is stopped: all are told, and each saves what it can and goes.
  Ended stop(const std::string& where, const std::vector<std::unique_ptr<sys::Child>>& children,
             const std::vector<std::size_t>& said) {
    const auto began = clock_.now();
    for (const auto& child : children) child->signal(SIGTERM);
    bool well = true;
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      const auto exit = children[rank]->wait(std::max(sys::Micros(0), began + kGrace - clock_.now()));
      const auto log = tasks_->log(where, rank);
      if (!exit) {
        for (const auto& child : children) child->signal(SIGKILL);
        throw Error(Code::deadline, fmt::format("task {} did not stop within the grace: {}", rank, log));
      }
      // One that had not yet begun to listen dies of it.
      const bool unheard = exit->signal == SIGTERM && log.size() == said[rank];
      if (!unheard && (exit->signal != 0 || (exit->status != 0 && exit->status != kCheckpointed)))
        throw Error(Code::internal, fmt::format("task {} that was told to stop ended with {}, signal {}: {}", rank,
                                                exit->status, exit->signal, log));
      well = well && exit->status == 0 && exit->signal == 0;
    }
    ++stopped_;
    slowest_ = std::max(slowest_, clock_.now() - began);
    return well ? Ended::well : Ended::killed;
  }

  std::string newest_checkpoint(const std::string& where) const {
    std::string newest;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(tasks_->at(where, "checkpoints"), none_yet))
      newest = std::max(newest, entry.path().filename().string());
    return newest;
  }

  sys::RealClock clock_;
  sys::SimRandom random_;
  std::string directory_;
  std::unique_ptr<TrainTasks> tasks_;
  std::uint64_t attempts_ = 0;
  std::int64_t stopped_ = 0;  // by SIGTERM
  sys::Micros slowest_{0};    // until all had ended after it
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  std::string binary, only;
  std::int64_t kills = 3;
  std::uint64_t seed = sys::RealRandom().next();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--kills" && i + 1 < argc)
      kills = parse_int(argv[++i]).value_or(kills);
    else if (word == "--seed" && i + 1 < argc)
      seed = std::stoull(argv[++i]);
    else if (word == "--only" && i + 1 < argc)
      only = argv[++i];  // those whose names begin so
    else
      binary = word;
  }
  try {
    fmt::print("seed {}\n", seed);
    TrainDrill drill(binary, seed);
    for (const auto& mode : kModes)
      if (std::string_view(mode.name).starts_with(only)) drill.kill_in(mode, kills);
    if (only.empty()) drill.fill_disk();
    return 0;
  } catch (const std::exception& e) {
    fmt::print("result seed {}: {}\n", seed, e.what());
    return 1;
  }
}
