// SPDX-License-Identifier: Apache-2.0
// Several processes that train one model, as tasks of a job do.
#include "compute/train/gang.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
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
#include "compute/train/again.h"
#include "compute/train/model.h"
#include "compute/train/testing.h"
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

GangPlace place_of(std::size_t task, std::size_t tasks, int port, const std::string& name) {
  GangPlace place;
  place.task = task;
  place.tasks = tasks;
  place.address = "127.0.0.1";
  place.port = port;
  place.name = name;
  place.lost = [](const Broken& broken) { ADD_FAILURE() << broken.why; };
  return place;
}

// Each to the next; then all to the first, which takes them as they come.
void pass_around(Gang& gang) {
  const auto mine = static_cast<float>(gang.rank());
  float got = -1;
  const auto before = (gang.rank() + gang.ranks() - 1) % gang.ranks();
  gang.begin_send((gang.rank() + 1) % gang.ranks(), 3, {&mine, 1});
  gang.receive(before, 3, {&got, 1});
  gang.finish();
  EXPECT_EQ(got, static_cast<float>(before));
  if (gang.rank() != 0) return gang.send(0, 4, {&mine, 1});
  for (std::size_t i = 1; i < gang.ranks(); ++i) {
    const auto from = gang.receive_any(4, {&got, 1});
    EXPECT_EQ(got, static_cast<float>(from));
  }
}

TEST(Gang, SharesSumsAndMeets) {
  constexpr std::size_t kRanks = 4;
  const sys::RealClock clock;
  const int port = port_for_gang();
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(100'000));
  std::vector<std::vector<float>> united(kRanks);
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
      // Bits, whatever they mean: -0, and one that is no number.
      std::vector<float> parts(kRanks, 0.0F);
      parts[rank] = rank == 1 ? -0.0F : rank == 2 ? std::nanf("7") : 1.5F;
      gang.unite(parts);
      united[rank] = parts;
      Bytes gathered(2 * kRanks);
      const Bytes own{std::byte(rank), std::byte(100 + rank)};
      gang.begin_gather(own, gathered);
      gang.finish();
      for (std::size_t i = 0; i < kRanks; ++i) EXPECT_EQ(gathered[2 * i + 1], std::byte(100 + i));
      pass_around(gang);
      gang.leave();
    });
  for (auto& thread : threads) thread.join();
  const float parts[] = {1.5F, -0.0F, std::nanf("7"), 1.5F};
  for (const auto& one : united) EXPECT_EQ(std::memcmp(one.data(), parts, sizeof parts), 0);
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

// Whoever comes first is in; the other stands by until it is over.
TEST(Gang, ASpareStandsBy) {
  const sys::RealClock clock;
  const int port = port_for_gang();
  std::atomic<int> working = 0, spare = 0;
  std::vector<std::thread> threads;
  for (std::size_t task = 0; task < 3; ++task)
    threads.emplace_back([&, task] {
      auto place = place_of(task, 3, port, "a/1");
      place.spares = 1;
      Gang gang(place, clock);
      if (gang.is_spare()) {
        ++spare;
        return gang.stand_by();
      }
      ++working;
      EXPECT_EQ(gang.ranks(), 2U);
      gang.meet();
      gang.leave();
      gang.rank() == 0 ? gang.over() : gang.stand_by();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(working, 2);
  EXPECT_EQ(spare, 1);
}

TEST(Gang, WhoIsToldToStopDoesNotWaitForTheOthers) {
  const sys::RealClock clock;
  auto place = place_of(0, 2, port_for_gang(), "a/1");
  int looks = 3;
  place.must_stop = [&] { return looks-- == 0; };
  EXPECT_ERROR(Gang(place, clock), Code::cancelled);
}

TEST(Gang, WhoIsToldToStopDoesNotWaitForThePlaceWhereAllMeet) {
  const sys::RealClock clock;
  auto place = place_of(1, 2, port_for_gang(), "a/1");  // task 0 never comes
  place.must_stop = [] { return true; };
  const auto began = clock.now();
  EXPECT_ERROR(Gang(place, clock), Code::cancelled);
  EXPECT_LT(clock.now() - began, place.patience / 2);
}

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
  places.metrics = where + "/metrics.jsonl";
  places.runtime = infer::Runtime::path_beside_program();
  Options options;
  options.memory_bytes = std::int64_t{1} << 30;
  long stop_after = std::stol(of("GANG_STOP_AFTER"));
  options.must_stop = [&] { return stop_after-- == 0; };
  if (of("GANG_RANKS") != "1") {
    options.gang =
        place_of(std::stoul(rank), std::stoul(of("GANG_RANKS")), std::stoi(of("GANG_PORT")), of("GANG_ATTEMPT"));
    options.gang->spares = static_cast<std::size_t>(training.parallel.spares);
    options.gang->before = gang_before();
    options.gang->lost = [spares = options.gang->spares](const Broken& broken) {
      if (spares > 0) start_again(broken);
      fmt::print("lost: {}\n", broken.why);
      std::fflush(nullptr);
      std::_Exit(kStoppedExit);
    };
  }
  const sys::RealClock clock;
  std::filesystem::create_directories(where);
  std::filesystem::remove_all(places.scratch);
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
    for (const std::size_t ranks : {2, 4}) {
      const auto where = fmt::format("{}-{}", optimiser, ranks);
      run(where, ranks);
      expect_alike(alone, where, {});
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
  } cases[] = {{1, SIGKILL}, {0, SIGSTOP}};
  for (const auto& one : cases) {
    const auto where = fmt::format("signal{}-of-rank{}", one.signal, one.rank);
    auto ranks = start(where, 3);
    await_progress(where, ranks);
    const auto began = clock_.now();
    ranks[one.rank]->signal(one.signal);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == one.rank) continue;
      const auto exit = ranks[rank]->wait(std::chrono::seconds(60));
      ASSERT_TRUE(exit) << where << ": rank " << rank << " is still there";
      EXPECT_EQ(exit->status, kStoppedExit) << where << ": " << logged(where, rank);
    }
    const auto took = std::chrono::duration<double>(clock_.now() - began).count();
    fmt::print("{}: the others were gone after {:.1f} s\n", where, took);
    ranks.clear();  // kills who is left
    run(where, 3);
    EXPECT_EQ(onnx(where), onnx("whole")) << where;
  }
}

}  // namespace
}  // namespace falaj::train
