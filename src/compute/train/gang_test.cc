// SPDX-License-Identifier: Apache-2.0
// Several processes that train one model, as tasks of a job do.
#include "compute/train/gang.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/session.h"
#include "compute/train/checkpoint.h"
#include "compute/train/model.h"
#include "compute/train/trainer.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/testing.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/files.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "storage/table/workspace.h"

namespace falaj::train {
namespace {

using ::testing::HasSubstr;

constexpr int kStoppedExit = 75;

int port_for_gang() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  return ntohs(at.sin_port);
}

void await_listening(int port) {
  const sys::RealClock clock;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  for (const auto until = clock.now() + std::chrono::seconds(60);;) {
    const sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) return;
    ASSERT_LT(clock.now(), until);
    std::this_thread::yield();
  }
}

GangPlace place_of(std::size_t rank, std::size_t ranks, int port, const std::string& name) {
  GangPlace place;
  place.rank = rank;
  place.ranks = ranks;
  place.address = "127.0.0.1";
  place.port = port;
  place.name = name;
  place.lost = [](const std::string& why) { ADD_FAILURE() << why; };
  return place;
}

TEST(Gang, SharesSumsAndMeets) {
  constexpr std::size_t kRanks = 4;
  const sys::RealClock clock;
  const int port = port_for_gang();
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(100'000));
  std::vector<Bytes> shared(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Gang gang(place_of(rank, kRanks, port, "a/1"), clock);
      shared[rank] = gang.share(rank == 0 ? to_bytes("what rank 0 knows") : Bytes{});
      EXPECT_TRUE(gang.share({}).empty());
      auto& mine = sums[rank];
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = 1.0F / static_cast<float>(i * kRanks + rank + 1);
      gang.meet();
      for (std::size_t first = 0; first < mine.size(); first += 30'000)
        gang.begin_sum(std::span(mine).subspan(first, std::min<std::size_t>(30'000, mine.size() - first)));
      gang.finish();
      gang.leave();
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(as_text(shared[rank]), "what rank 0 knows");
    EXPECT_EQ(std::memcmp(sums[rank].data(), sums[0].data(), sums[0].size() * sizeof(float)), 0) << rank;
  }
  EXPECT_FLOAT_EQ(sums[0][0], 1 + 1 / 2.0F + 1 / 3.0F + 1 / 4.0F);
}

// One of an attempt that should be dead, at the same port as those of the next.
TEST(Gang, AnOldAttemptMeetsNobody) {
  const sys::RealClock clock;
  const int port = port_for_gang();
  std::thread first([&] {
    Gang gang(place_of(0, 2, port, "a/2"), clock);
    gang.leave();
  });
  await_listening(port);
  auto old = place_of(1, 2, port, "a/1");
  old.patience = std::chrono::seconds(2);
  EXPECT_ERROR(Gang(old, clock), Code::unavailable);
  Gang gang(place_of(1, 2, port, "a/2"), clock);
  gang.leave();
  first.join();
}

class GangTraining : public ::testing::Test {
 protected:
  GangTraining() : files_(sys::open_files(directory_.path())) {
    training_.label = "late";
    training_.data.dataset = "rows@1";
    training_.model = "network";
    training_.parallel.mode = "data";
    training_.weight = "counts";
    training_.network.epochs = 2;
    training_.network.batch = "256";
    training_.network.hidden = {64, 32};
    training_.network.dropout = 0;
    training_.checkpoints.every_us = 0;  // after every step
  }

  void write_rows(std::size_t rows) {
    const auto scratch = sys::open_files(directory_ / "making");
    table::Workspace room({}, *scratch);
    const auto made = sys::open_files(directory_ / "rows");
    const auto file = made->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    room.run("SELECT setseed(0.5)");
    room.run(
        fmt::format("COPY (SELECT x, category, counts, random() < 1 / (1 + exp(-2 * x)) AS late FROM (SELECT "
                    "random() * 4 - 2 AS x, chr(97 + CAST(floor(random() * 4) AS INTEGER)) AS category, 1 + i % 3 "
                    "AS counts FROM range({}) t(i))) TO 'out' (FORMAT parquet)",
                    rows));
    file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  }

  using Ranks = std::vector<std::unique_ptr<sys::Child>>;
  // `stop_after`: steps after which the last rank, and nobody else, is told to stop.
  Ranks start(const std::string& where, std::size_t ranks, long stop_after = -1) {
    files_->write_all("training.json", as_bytes(json::serialize(encode(training_))));
    const int port = port_for_gang();
    ++attempts_;
    Ranks out;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sys::Command command;
      command.argv = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=GangRank.*"};
      command.environment = {fmt::format("GANG_DIRECTORY={}", directory_.path()),
                             fmt::format("GANG_WHERE={}", where),
                             fmt::format("GANG_RANK={}", rank),
                             fmt::format("GANG_RANKS={}", ranks),
                             fmt::format("GANG_PORT={}", port),
                             fmt::format("GANG_ATTEMPT={}", attempts_),
                             fmt::format("GANG_STOP_AFTER={}", rank + 1 == ranks ? stop_after : -1)};
      command.stdout_file = command.stderr_file = log_of(where, rank);
      out.push_back(processes_.start(command));
    }
    return out;
  }
  std::string log_of(const std::string& where, std::size_t rank) {
    return directory_ / fmt::format("{}-{}.log", where, rank);
  }
  std::string logged(const std::string& where, std::size_t rank) {
    std::ifstream in(log_of(where, rank));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // What all of them ended with.
  int end_of(const Ranks& ranks, const std::string& where) {
    int status = -1;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto exit = ranks[rank]->wait(std::chrono::minutes(3));
      EXPECT_TRUE(exit) << where << " rank " << rank << " is still there: " << logged(where, rank);
      if (!exit) return -1;
      EXPECT_EQ(exit->signal, 0);
      EXPECT_TRUE(rank == 0 || exit->status == status) << where << " rank " << rank << ": " << logged(where, rank);
      status = exit->status;
    }
    if (status != 0 && status != kStoppedExit) ADD_FAILURE() << logged(where, 0);
    return status;
  }
  void run(const std::string& where, std::size_t ranks) { ASSERT_EQ(end_of(start(where, ranks), where), 0); }

  Bytes onnx(const std::string& where) { return files_->read_all(where + "/outputs/model/model.onnx", 1 << 28); }
  std::vector<float> weights(const std::string& where) {
    const auto saved = sys::open_files(directory_ / (where + "/checkpoints"));
    const auto newest = Checkpoints(*saved, "network-", 2).newest();
    const auto& bytes = newest.value().parts.at("weights");
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  std::vector<double> told(const std::string& where, const std::string& metric) {
    std::ifstream in(directory_ / (where + "/metrics.jsonl"));
    std::vector<double> out;
    for (std::string line; std::getline(in, line) && !in.eof();) {
      const auto one = json::parse(line);
      if (const auto* metrics = one.as_object().if_contains("metrics"))
        if (const auto* value = metrics->as_object().if_contains(metric)) out.push_back(value->to_number<double>());
    }
    return out;
  }
  void await_progress(const std::string& where, const Ranks& ranks) {
    for (const auto until = clock_.now() + std::chrono::minutes(2); told(where, "train_loss").size() < 3;) {
      ASSERT_LT(clock_.now(), until);
      ASSERT_FALSE(ranks[0]->wait(std::chrono::milliseconds(20))) << logged(where, 0);
    }
  }

  sys::TempDir directory_;
  std::unique_ptr<sys::Files> files_;
  sys::RealClock clock_;
  sys::RealProcesses processes_;
  recipe::Training training_;
  std::size_t attempts_ = 0;
};

// Run by the tests below, as a process of its own.
TEST(GangRank, DISABLED_Trains) {
  const auto of = [](const char* name) { return std::string(std::getenv(name)); };
  const std::string directory = of("GANG_DIRECTORY"), where = directory + "/" + of("GANG_WHERE");
  const auto rank = of("GANG_RANK");
  const auto text = sys::read_files(directory)->read_all("training.json", 1 << 20);
  const auto training = decode<recipe::Training>(json::parse(as_text(text)), "training");
  Places places;
  places.rows = directory + "/rows";
  places.outputs = where + "/outputs";
  places.checkpoints = where + "/checkpoints";
  places.scratch = where + "/scratch-" + rank;
  places.metrics = rank == "0" ? where + "/metrics.jsonl" : "";
  places.runtime = infer::Runtime::path_beside_program();
  Options options;
  options.memory_bytes = std::int64_t{1} << 30;
  long stop_after = std::stol(of("GANG_STOP_AFTER"));
  options.must_stop = [&] { return stop_after-- == 0; };
  if (of("GANG_RANKS") != "1") {
    options.gang =
        place_of(std::stoul(rank), std::stoul(of("GANG_RANKS")), std::stoi(of("GANG_PORT")), of("GANG_ATTEMPT"));
    options.gang->lost = [](const std::string& why) {
      fmt::print("lost: {}\n", why);
      std::fflush(nullptr);
      std::_Exit(kStoppedExit);
    };
  }
  const sys::RealClock clock;
  std::filesystem::create_directories(where);
  int status = 1;
  try {
    train(training, places, options, clock);
    status = 0;
  } catch (const Stopped&) {
    status = kStoppedExit;
  } catch (const std::exception& e) {
    fmt::print("failed: {}\n", e.what());
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

// The same rows a step, whoever works on them: the same model.
TEST_F(GangTraining, LearnsWhatOneAloneLearns) {
  write_rows(4000);
  for (const auto* optimiser : {"sgd", "adamw"}) {
    training_.network.optimiser = optimiser;
    training_.network.learning_rate = std::string_view(optimiser) == "sgd" ? 0.2 : 2e-3;  // so that weights move far
    const auto alone = fmt::format("{}-1", optimiser);
    run(alone, 1);
    const auto loss = told(alone, "train_loss"), valid = told(alone, "valid_auc");
    ASSERT_GE(loss.size(), 2U);
    for (const std::size_t ranks : {2, 4}) {
      const auto where = fmt::format("{}-{}", optimiser, ranks);
      run(where, ranks);
      const auto its_loss = told(where, "train_loss"), its_valid = told(where, "valid_auc");
      ASSERT_EQ(its_loss.size(), loss.size()) << where;
      for (std::size_t i = 0; i < loss.size(); ++i) EXPECT_NEAR(its_loss[i], loss[i], 1e-4) << where << " " << i;
      ASSERT_EQ(its_valid.size(), valid.size());
      for (std::size_t i = 0; i < valid.size(); ++i) EXPECT_NEAR(its_valid[i], valid[i], 1e-3) << where << " " << i;
      const auto one = weights(alone), its = weights(where);
      ASSERT_EQ(one.size(), its.size());
      double largest = 0;
      for (std::size_t i = 0; i < one.size(); ++i) largest = std::max<double>(largest, std::abs(one[i] - its[i]));
      EXPECT_LT(largest, 1e-4) << where;
      fmt::print("{}: weights at most {:.2g} from those of one process\n", where, largest);
    }
  }
}

TEST_F(GangTraining, StoppedAndGoneOnIsAsIfNeverStopped) {
  write_rows(2500);
  training_.network.dropout = 0.2;
  run("whole", 2);
  int stops = 0;
  for (;; ++stops) {
    const int status = end_of(start("stopped", 2, 4), "stopped");
    if (status == 0) break;
    ASSERT_EQ(status, kStoppedExit);
    ASSERT_LT(stops, 20);
  }
  EXPECT_GE(stops, 2);
  EXPECT_EQ(onnx("stopped"), onnx("whole"));
}

// One that dies, and one that only stops, be it the first or another: the rest is gone soon, and all go on later.
TEST_F(GangTraining, ALostRankEndsTheOthersAndNothingIsLost) {
  write_rows(2000);
  training_.network.epochs = 15;
  training_.network.batch = "32";
  training_.patience = 0;
  training_.checkpoints.every_us = 20'000;
  run("whole", 3);
  const struct {
    std::size_t rank;
    int signal;
  } cases[] = {{1, SIGKILL}, {0, SIGKILL}, {2, SIGSTOP}, {0, SIGSTOP}};
  for (const auto& one : cases) {
    const auto where = fmt::format("signal{}-of-rank{}", one.signal, one.rank);
    auto ranks = start(where, 3);
    await_progress(where, ranks);
    const auto began = clock_.now();
    ranks[one.rank]->signal(one.signal);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == one.rank) continue;
      const auto exit = ranks[rank]->wait(std::chrono::seconds(30));
      ASSERT_TRUE(exit) << where << ": rank " << rank << " is still there";
      EXPECT_EQ(exit->status, kStoppedExit) << where << ": " << logged(where, rank);
    }
    const auto took = std::chrono::duration<double>(clock_.now() - began).count();
    EXPECT_LT(took, 10) << where;
    fmt::print("{}: the others were gone after {:.1f} s\n", where, took);
    ranks.clear();  // kills who is left
    run(where, 3);
    EXPECT_EQ(onnx(where), onnx("whole")) << where;
  }
}

}  // namespace
}  // namespace falaj::train
