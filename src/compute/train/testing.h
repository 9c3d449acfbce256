// SPDX-License-Identifier: Apache-2.0
// For tests in this directory: several processes that train one model, as tasks of a job do.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compute/recipe/recipe.h"
#include "compute/train/checkpoint.h"
#include "foundation/base/json.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/files.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "storage/table/workspace.h"

namespace falaj::train {

constexpr int kStoppedExit = 75;

inline int port_for_gang() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  return ntohs(at.sin_port);
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

  void write_rows(std::size_t rows, const std::string& counts = "1 + i % 3") {
    const auto scratch = sys::open_files(directory_ / "making");
    table::Workspace room({}, *scratch);
    const auto made = sys::open_files(directory_ / "rows");
    const auto file = made->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    room.run("SELECT setseed(0.5)");
    room.run(
        fmt::format("COPY (SELECT x, category, counts, random() < 1 / (1 + exp(-2 * x)) AS late FROM (SELECT "
                    "random() * 4 - 2 AS x, chr(97 + CAST(floor(random() * 4) AS INTEGER)) AS category, {1} "
                    "AS counts FROM range({0}) t(i))) TO 'out' (FORMAT parquet)",
                    rows, counts));
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
  // That a gang learned what one process did: each loss on the way, each score, and the weights at the end.
  struct Tolerance {
    double loss = 1e-4, score = 1e-3, weights = 1e-4;
  };
  void expect_alike(const std::string& alone, const std::string& where, Tolerance tolerance) {
    const auto loss = told(alone, "train_loss"), its_loss = told(where, "train_loss");
    const auto valid = told(alone, "valid_auc"), its_valid = told(where, "valid_auc");
    ASSERT_GE(loss.size(), 2U);
    ASSERT_EQ(its_loss.size(), loss.size()) << where;
    for (std::size_t i = 0; i < loss.size(); ++i) EXPECT_NEAR(its_loss[i], loss[i], tolerance.loss) << where;
    ASSERT_EQ(its_valid.size(), valid.size()) << where;
    for (std::size_t i = 0; i < valid.size(); ++i) EXPECT_NEAR(its_valid[i], valid[i], tolerance.score) << where;
    const auto one = weights(alone), its = weights(where);
    ASSERT_EQ(one.size(), its.size()) << where;
    double largest = 0;
    for (std::size_t i = 0; i < one.size(); ++i) largest = std::max<double>(largest, std::abs(one[i] - its[i]));
    EXPECT_LT(largest, tolerance.weights) << where;
    fmt::print("{}: loss {:.4f} against {:.4f}, score {:.4f} against {:.4f}, weights at most {:.2g} apart\n", where,
               its_loss.back(), loss.back(), its_valid.back(), valid.back(), largest);
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

}  // namespace falaj::train
