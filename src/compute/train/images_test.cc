// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/session.h"
#include "compute/train/model.h"
#include "compute/train/trainer.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/files.h"
#include "foundation/sys/testing.h"
#include "storage/table/workspace.h"

namespace falaj::train {
namespace {

using ::testing::HasSubstr;

// Stripes of 8 by 6 pixels with 2 channels, upright, level or slanting, and noise over them.
constexpr char kStripes[] =
    "SELECT CAST(string_agg(printf('\\x%02X', CAST(floor(random() * 100 + 150 * ((CASE c WHEN 0 THEN x WHEN 1 THEN y "
    "ELSE x + y END) % 4 // 2)) AS INTEGER)), '' ORDER BY j) AS BLOB) AS image,"
    " ['upright', 'level', 'slanting'][c + 1] AS label, CASE WHEN i % 4 = 0 THEN 'test' ELSE 'train' END AS part"
    " FROM (SELECT i, (i * 7919) % 3 AS c, j, j // 2 % 6 AS x, j // 12 AS y FROM range({}) a(i), range(96) b(j))"
    " GROUP BY i, c ORDER BY i";

class ImagesTest : public ::testing::Test {
 protected:
  ImagesTest() : files_(sys::open_files(directory_.path())) {
    places_.rows = directory_ / "rows";
    places_.outputs = directory_ / "outputs";
    places_.checkpoints = directory_ / "checkpoints";
    places_.scratch = directory_ / "scratch";
    places_.metrics = directory_ / "metrics.jsonl";
    places_.runtime = infer::Runtime::path_beside_program();
    options_.memory_bytes = std::int64_t{1} << 30;
    options_.must_stop = [this] { return stop_after_-- == 0; };
    training_.label = "label";
    training_.data.dataset = "stripes@1";
    training_.split = {"part", "part", "", 0.2, 0.1};
    training_.columns["image"].as = "image";
    training_.columns["image"].height = 8;
    training_.columns["image"].width = 6;
    training_.columns["image"].channels = 2;
    training_.network.batch = "32";
    training_.network.learning_rate = 0.01;
    training_.network.width = 0.1;
    training_.checkpoints.every_us = 3'600'000'000;
  }
  void write_images(const std::string& sql) {
    const auto scratch = sys::open_files(directory_ / "making");
    table::Workspace room({}, *scratch);
    const auto rows = sys::open_files(places_.rows);
    const auto file = rows->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    room.run("SELECT setseed(0.5)");
    room.run(fmt::format("COPY ({}) TO 'out' (FORMAT parquet)", sql));
    file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  }
  void run() { train(training_, places_, options_, clock_); }
  Bytes onnx() { return files_->read_all("outputs/model/model.onnx", 1 << 28); }
  double metric(const std::string& name) {
    std::ifstream in(places_.metrics);
    double out = -1;
    for (std::string line; std::getline(in, line);)
      if (const auto told = json::parse(line); told.as_object().contains("metrics"))
        if (const auto* value = told.at("metrics").as_object().if_contains(name)) out = value->to_number<double>();
    return out;
  }
  void forget() {
    for (const auto* path : {"outputs", "checkpoints", "scratch", "metrics.jsonl"})
      std::filesystem::remove_all(directory_ / path);
  }

  sys::TempDir directory_;
  std::unique_ptr<sys::Files> files_;
  sys::RealClock clock_;
  Places places_;
  Options options_;
  recipe::Training training_;
  long stop_after_ = -1;
};

// Each kind has layers that others do not; each exported model is compared with the trained one by the trainer.
TEST_F(ImagesTest, EveryKindLearnsAndIsExported) {
  write_images(fmt::format(kStripes, 360));
  const struct {
    const char* kind;
    int epochs;
    double accuracy;
  } kinds[] = {{"auto", 6, 0.95}, {"mlp", 6, 0.9}, {"mobilenet", 1, 0.4}, {"efficientnet", 1, 0.4}};
  for (const auto& one : kinds) {
    forget();
    training_.network.kind = one.kind;
    training_.network.epochs = one.epochs;
    run();
    EXPECT_GE(metric("test_accuracy"), one.accuracy) << one.kind;
    EXPECT_LT(metric("parity_largest"), 1e-4) << one.kind;
    const auto session = infer::Session::open(infer::Runtime::load(places_.runtime), onnx());
    ASSERT_EQ(session.inputs().size(), 1U);
    EXPECT_EQ(session.inputs()[0].name, "image");
    EXPECT_EQ(session.inputs()[0].element, graph::Element::uint8);
  }
  forget();
  training_.network.kind = "auto";
  training_.network.epochs = 6;
  training_.network.layers = {{"conv", 8},  {"relu"},        {"keep"}, {"conv", 8, 3, 1, 8}, {"relu6"},      {"add"},
                              {"max_pool"}, {"conv", 16, 1}, {"silu"}, {"flatten"},          {"linear", 16}, {"relu"}};
  run();
  EXPECT_GE(metric("test_accuracy"), 0.9);
  EXPECT_LT(metric("parity_largest"), 1e-4);
  const auto described = files_->read_all("outputs/model/MLmodel", 1 << 20);
  EXPECT_THAT(std::string(as_text(described)), HasSubstr(R"("dtype":"uint8","shape":[-1,8,6,2])"));
}

// What stands for a batch's own mean and variance, and how images were changed, go on where they were.
TEST_F(ImagesTest, StoppedAndGoneOnIsAsIfNeverStopped) {
  write_images(fmt::format(kStripes, 200));
  training_.network.kind = "cnn";
  training_.network.epochs = 2;
  training_.network.augment = true;
  run();
  const auto whole = onnx();
  forget();
  int stops = 0;
  for (;;) {
    stop_after_ = 1;
    try {
      run();
      break;
    } catch (const Stopped&) {
      ++stops;
    }
  }
  EXPECT_GT(stops, 2);
  EXPECT_EQ(onnx(), whole);
}

TEST_F(ImagesTest, WhatIsWrongIsSaid) {
  const auto says = [&](const char* what) {
    forget();
    try {
      run();
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid) << what;
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
    EXPECT_FALSE(files_->stat("outputs/model")) << what;
  };
  write_images(fmt::format("SELECT *, 7 AS weight FROM ({})", fmt::format(kStripes, 40)));
  says("exclude 'weight'");
  training_.exclude = {"weight"};
  training_.columns["image"].height = 9;
  says("40 rows have no image of 108 bytes, 9 by 6 pixels with 2 channels");
  training_.columns["image"].height = 8;
  training_.split.column = "label";
  training_.exclude.push_back("part");
  says("none of train, valid and test");
  write_images(fmt::format("SELECT * REPLACE (hex(image) AS image) FROM ({})", fmt::format(kStripes, 40)));
  training_.exclude.clear();
  says("is text; an image is bytes");
  training_.columns.clear();
  training_.split.column = "part";
  training_.network.kind = "cnn";
  training_.model = "network";
  says("cnn takes images");
}

}  // namespace
}  // namespace falaj::train
