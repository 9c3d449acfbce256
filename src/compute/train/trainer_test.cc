// SPDX-License-Identifier: Apache-2.0
#include "compute/train/trainer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/session.h"
#include "compute/train/model.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/testing.h"
#include "foundation/stats/outcomes.h"
#include "foundation/stats/quantiles.h"
#include "foundation/stats/row_sample.h"
#include "foundation/sys/files.h"
#include "foundation/sys/testing.h"
#include "storage/table/workspace.h"

namespace falaj::train {
namespace {

using ::testing::HasSubstr;

// As falaj-train does, before oneDNN looks: it believes processors that say they have tiles.
[[maybe_unused]] const int kNoTiles = setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0);

// Rows whose label follows from a number, a category and an hour, with noise; some values are missing.
constexpr char kRows[] =
    "SELECT CASE WHEN random() < 0.05 THEN NULL ELSE x END AS x, category, taken, junk,"
    " 1 / (1 + exp(-(2 * x + CASE category WHEN 'a' THEN 1.5 WHEN 'b' THEN -1.5 ELSE 0 END + sin(hour(taken) / 3.8)))) "
    "AS "
    "p"
    " FROM (SELECT random() * 4 - 2 AS x, chr(97 + CAST(floor(random() * 4) AS INTEGER)) AS category,"
    " TIMESTAMP '2026-01-01' + to_minutes(i * 3) AS taken, CAST(random() * 1000 AS BIGINT) AS junk FROM range({}) "
    "t(i))";

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : files_(sys::open_files(directory_.path())) {
    places_.rows = directory_ / "rows";
    places_.outputs = directory_ / "outputs";
    places_.checkpoints = directory_ / "checkpoints";
    places_.scratch = directory_ / "scratch";
    places_.metrics = directory_ / "metrics.jsonl";
    places_.runtime = infer::Runtime::path_beside_program();
    places_.run_id = "r1";
    options_.memory_bytes = std::int64_t{1} << 30;
    options_.must_stop = [this] { return stop_after_-- == 0; };
    training_.label = "late";
    training_.data.dataset = "rows@1";
    training_.trees.rounds = 30;
    training_.trees.depth = 4;
    training_.network.epochs = 4;
    training_.network.batch = "256";
    training_.network.hidden = {32, 16};
    training_.checkpoints.every_us = 0;  // after every round and step
    training_.slices = {"category"};
  }

  void write_rows(const std::string& sql) {
    const auto scratch = sys::open_files(directory_ / "making");
    table::Workspace room({}, *scratch);
    const auto rows = sys::open_files(places_.rows);
    const auto file = rows->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    room.run("SELECT setseed(0.5)");
    room.run(fmt::format("COPY ({}) TO 'out' (FORMAT parquet)", sql));
    file->commit("rows.parquet", sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  }
  void write_late(std::size_t rows) {
    write_rows(fmt::format("SELECT * EXCLUDE (p), random() < p AS late FROM ({})", fmt::format(kRows, rows)));
  }

  void run() { train(training_, places_, options_, clock_); }
  Bytes onnx() { return files_->read_all("outputs/model/model.onnx", 1 << 28); }
  double metric(const std::string& name) {
    std::ifstream in(places_.metrics);
    double out = -1;
    for (std::string line; std::getline(in, line);) {
      const auto told = json::parse(line);
      if (const auto* metrics = told.as_object().if_contains("metrics"))
        if (const auto* value = metrics->as_object().if_contains(name)) out = value->to_number<double>();
    }
    return out;
  }
  std::string parameter(const std::string& name) {
    std::ifstream in(places_.metrics);
    std::string out;
    for (std::string line; std::getline(in, line);) {
      const auto told = json::parse(line);
      if (const auto* params = told.as_object().if_contains("params"))
        if (const auto* value = params->as_object().if_contains(name))
          out = value->is_string() ? std::string(value->get_string()) : json::serialize(*value);
    }
    return out;
  }
  std::vector<std::size_t> steps_of(const std::string& name) {
    std::ifstream in(places_.metrics);
    std::vector<std::size_t> out;
    for (std::string line; std::getline(in, line);) {
      const auto told = json::parse(line);
      if (const auto* metrics = told.as_object().if_contains("metrics"))
        if (metrics->as_object().contains(name)) out.push_back(told.at("step").to_number<std::size_t>());
    }
    return out;
  }
  std::string refused() {
    try {
      run();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid);
      return e.what();
    }
    return "nothing was refused";
  }
  // Starts anew: nothing learned, nothing left.
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

TEST_F(TrainerTest, BothModelsLearnAndAreExported) {
  write_late(6000);
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    EXPECT_GT(metric("test_auc"), 0.85) << model;
    EXPECT_LT(metric("parity_largest"), 1e-4) << model;
    const auto session = infer::Session::open(infer::Runtime::load(places_.runtime), onnx());
    EXPECT_EQ(session.outputs().size(), 2U);
    for (const auto* file : {"model/MLmodel", "model/reference.json", "report.html"})
      EXPECT_TRUE(files_->stat(fmt::format("outputs/{}", file))) << file;
    const auto told = json::parse(as_text(files_->read_all("outputs/model/reference.json", 1 << 24))).at("performance");
    const auto bytes = from_base64(std::string_view(told.at("outcomes").as_string()));
    ByteReader in(bytes);
    const auto outcomes = stats::Outcomes::decode(in);
    EXPECT_EQ(told.at("task"), "binary");
    EXPECT_NEAR(1 - outcomes.wrong().mean(), metric("test_accuracy"), 1e-9) << model;
    EXPECT_NEAR(outcomes.auc()->value, metric("test_auc"), 2e-3) << model;
    const auto reference = json::parse(as_text(files_->read_all("outputs/model/reference.json", 1 << 24)));
    EXPECT_EQ(reference.as_object().contains("rows"), training_.reference_rows > 0) << "only where it is asked for";
    if (training_.reference_rows > 0) {
      const auto whole = from_base64(std::string_view(reference.at("rows").as_string()));
      ByteReader rows(whole);
      EXPECT_EQ(stats::RowSample::decode(rows).count(), 100u);
    }
    training_.reference_rows = 100;
  }
}

TEST_F(TrainerTest, RareClassesCountMoreWhenAsked) {
  write_rows(fmt::format("SELECT * EXCLUDE (p), random() < p * p * p AND random() < 0.3 AS late FROM ({})",
                         fmt::format(kRows, 6000)));
  training_.model = "xgboost";
  const auto said_yes = [&] {  // what a model that was balanced says more often
    forget();
    run();
    const auto told = json::parse(as_text(files_->read_all("outputs/model/reference.json", 1 << 24)));
    return from_base64(told.at("predictions").at(0).at("quantiles").as_string());
  };
  const auto median = [](const Bytes& encoded) {
    ByteReader in(encoded);
    return stats::Quantiles::decode(in).quantile(0.5);
  };
  const double plain = median(said_yes());
  training_.balance = true;
  EXPECT_GT(median(said_yes()), 2 * plain);
}

// They are sketched some at a time.
TEST_F(TrainerTest, AReferenceKnowsEveryOfManyColumns) {
  std::string columns;
  for (int i = 0; i < 150; ++i) columns += fmt::format("CAST({} + random() AS FLOAT) AS c{}, ", i, i);
  write_rows(fmt::format("SELECT {} random() < 0.5 AS late FROM range(600)", columns));
  training_.model = "xgboost";
  training_.trees.rounds = 2;
  training_.slices.clear();
  run();
  const auto told = json::parse(as_text(files_->read_all("outputs/model/reference.json", 1 << 26)));
  const auto& inputs = told.at("inputs").as_object();
  ASSERT_EQ(inputs.size(), 150U);
  const auto test_rows = told.at("predictions").at(0).at("rows").to_number<std::int64_t>();
  for (int i = 0; i < 150; ++i) {
    const auto& column = inputs.at(fmt::format("c{}", i));
    EXPECT_EQ(column.at("rows").to_number<std::int64_t>(), test_rows) << i;
    const auto bytes = from_base64(column.at("quantiles").as_string());
    ByteReader in(bytes);
    EXPECT_NEAR(stats::Quantiles::decode(in).quantile(0.5), i + 0.5, 0.3);
  }
}

TEST_F(TrainerTest, AutoChoosesTheBetterOne) {
  write_late(3000);
  training_.model = "auto";
  run();
  const auto report = files_->read_all("outputs/report.html", 1 << 24);
  EXPECT_THAT(std::string(as_text(report)), HasSubstr("was chosen"));
}

TEST_F(TrainerTest, NumbersAndManyClasses) {
  write_rows(fmt::format("SELECT * EXCLUDE (p), p * 100 + random() AS late FROM ({})", fmt::format(kRows, 4000)));
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    training_.network.epochs = 12;
    run();
    EXPECT_LT(metric("test_rmse"), 16) << model;  // the deviation of the label is about 35
  }
  write_rows(fmt::format(
      "SELECT * EXCLUDE (p), CASE WHEN p < 0.3 THEN 'low' WHEN p < 0.7 THEN 'middle' ELSE 'high' END AS late FROM ({})",
      fmt::format(kRows, 4000)));
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    EXPECT_GT(metric("test_accuracy"), 0.75) << model;
  }
}

// However often and wherever it is stopped: what comes out in the end is the same, byte by byte.
TEST_F(TrainerTest, StoppedAndGoneOnIsAsIfNeverStopped) {
  write_late(2000);
  training_.trees.rounds = 12;
  training_.network.epochs = 2;
  training_.slices.clear();
  const std::pair<const char*, const char*> models[] = {{"xgboost", ""}, {"network", "256"}, {"network", "auto"}};
  for (const auto& [model, batch] : models) {
    training_.model = model;
    training_.network.batch = batch;
    forget();
    run();
    const auto whole = onnx();
    for (const long every : {0L, 1L, 4L}) {
      forget();
      int stops = 0;
      for (;;) {
        stop_after_ = every;
        try {
          run();
          break;
        } catch (const Stopped&) {
          ++stops;
        }
      }
      stop_after_ = -1;
      EXPECT_GT(stops, 1) << model;
      EXPECT_EQ(onnx(), whole) << model << " stopped after every " << every + 1 << " steps, " << stops << " times";
    }
  }
}

// Not only between steps: while columns are fitted, rows packed, a model scored, compared and exported.
TEST_F(TrainerTest, StopsWhereverItIs) {
  write_late(3000);
  training_.trees.rounds = 8;
  training_.network.epochs = 2;
  for (const auto* model : {"xgboost", "network"}) {
    training_.model = model;
    forget();
    long looks = 0;
    options_.look = [&] { ++looks; };
    run();
    const auto whole = onnx();
    EXPECT_GT(looks, 10) << model;
    for (const long stride : {3L, 7L}) {
      forget();
      for (long stop = stride;; stop += stride) {
        long left = stop;
        options_.look = [&left] {
          if (left-- == 0) throw Stopped{};
        };
        try {
          run();
          break;
        } catch (const Stopped&) {
          EXPECT_FALSE(files_->stat("outputs/model/model.onnx"));
        }
        ASSERT_LT(stop, 10 * looks + 100);
      }
      EXPECT_EQ(onnx(), whole) << model << " stopped at every " << stride << "th look";
    }
    options_.look = {};
  }
}

TEST_F(TrainerTest, RanksRowsOfAGroup) {
  write_rows(
      "SELECT i // 12 AS query, CASE WHEN i // 12 % 2 = 0 THEN 'even' ELSE 'odd' END AS kind, x, y, CAST(floor(2 * x + "
      "y + random()) AS INTEGER) AS late FROM (SELECT i, random() AS "
      "x, random() AS y FROM range(12000) t(i))");
  training_.objective = "ranking";
  training_.group = "query";
  training_.exclude = training_.slices = {"kind"};
  training_.split = {"group", "query", "", 0.2, 0.1};
  training_.network.epochs = 8;
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    EXPECT_GT(metric("test_ndcg"), 0.9) << model;
    EXPECT_LT(metric("parity_largest"), 1e-4) << model;
    // Each group is in one slice, and counts in it as in the whole.
    EXPECT_NEAR((metric("test_ndcg/kind/even") + metric("test_ndcg/kind/odd")) / 2, metric("test_ndcg"), 0.005);
    if (places_.against.empty()) {
      files_->write_all("against/model.onnx", onnx());
      places_.against = directory_ / "against";
    } else {
      EXPECT_GT(metric("test_against_ndcg"), 0.9);
      EXPECT_NEAR(metric("test_gain_ndcg"), metric("test_ndcg") - metric("test_against_ndcg"), 1e-6);
    }
  }
}

// A batch in which no row weighs anything teaches nothing, and harms nothing.
TEST_F(TrainerTest, RowsThatWeighNothingDoNoHarm) {
  write_rows(
      fmt::format("SELECT * EXCLUDE (p), random() < p AS late, CAST(random() < 0.03 AS INTEGER) AS counts FROM ({})",
                  fmt::format(kRows, 20000)));
  training_.weight = "counts";
  training_.model = "network";
  training_.slices.clear();
  training_.checkpoints.every_us = 60'000'000;
  for (const auto* batch : {"16", "auto"}) {
    forget();
    training_.network.batch = batch;
    run();
    EXPECT_GT(metric("test_auc"), 0.8) << batch;
  }
}

TEST_F(TrainerTest, WhatCannotBeHeededIsRefused) {
  write_late(2000);
  training_.slices.clear();
  training_.metric = "rmse";
  EXPECT_THAT(refused(), HasSubstr("metric: rmse says nothing of binary; there are auc, logloss, accuracy"));
  training_.metric = "";
  training_.model = "xgboost";
  training_.trees.monotone = {{"xx", 1}};
  EXPECT_THAT(refused(), HasSubstr("trees.monotone: there is no feature 'xx'; there are x, "));
  training_.trees.monotone = {{"category", 1}};
  EXPECT_THAT(refused(), HasSubstr("trees.monotone: 'category' is a category"));
  forget();
  training_.model = "auto";
  training_.trees.monotone = {{"x", 1}};
  run();
  EXPECT_EQ(parameter("chosen"), "xgboost") << "a network would not keep it";
}

TEST(Trees, WhatTheyKeepInMemoryGrowsWithColumns) {
  Problem problem;
  problem.rows[0] = 1'000'000;
  EXPECT_TRUE(trees_fit(problem, 20, std::int64_t{1} << 30));
  EXPECT_FALSE(trees_fit(problem, 500, std::int64_t{1} << 30));
  EXPECT_TRUE(trees_fit(problem, 500, std::int64_t{4} << 30));
}

TEST_F(TrainerTest, FewHeldOutRowsAreJoinedByMadeOnes) {
  write_late(2000);
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    // 400 of the test and 160 to stop by; of each of four columns a value taken away, or another text.
    EXPECT_GT(metric("parity_rows"), 3500) << model;
    EXPECT_THAT(std::string(as_text(files_->read_all("outputs/report.html", 1 << 24))),
                HasSubstr("of which a value was taken away or made up"));
  }
}

TEST_F(TrainerTest, ARunKnowsItsRecipe) {
  write_late(2000);
  training_.model = "auto";
  training_.patience = 7;
  run();
  EXPECT_EQ(parameter("patience"), "7");
  const bool trees = parameter("chosen") == "xgboost";
  EXPECT_EQ(parameter("trees.depth"), trees ? "4" : "");
  EXPECT_EQ(parameter("trees.learningRate"), trees ? "0.1" : "");
  EXPECT_EQ(parameter("network.hidden"), trees ? "" : "[32,16]");
  forget();
  training_.model = "network";
  run();
  EXPECT_EQ(parameter("network.batch"), "256");
  EXPECT_EQ(parameter("network.dropout"), "0.1");
}

// Learned again since nothing was saved, as after kill -9, but not told again.
TEST_F(TrainerTest, WhatWasToldIsNotToldAgain) {
  constexpr std::string_view kHalf = "{\"step\": 3, \"met\n";
  write_late(2000);
  training_.slices.clear();
  for (const auto& [model, name] : {std::pair("xgboost", "valid_auc"), {"network", "train_loss"}}) {
    forget();
    training_.model = model;
    run();
    const auto once = steps_of(name);
    ASSERT_GT(once.size(), 2U);
    std::filesystem::remove_all(directory_ / "checkpoints");
    std::ofstream(places_.metrics, std::ios::app) << kHalf.substr(0, kHalf.size() - 1);  // killed while it wrote
    run();
    const auto lines = files_->read_all("metrics.jsonl", 1 << 24);
    std::string whole(as_text(lines));
    const auto half = whole.find(kHalf);
    ASSERT_NE(half, whole.npos) << "what comes next begins a line";
    whole.erase(half, kHalf.size());
    files_->write_all("metrics.jsonl", as_bytes(whole));
    EXPECT_EQ(steps_of(name), once) << model;
  }
}

TEST_F(TrainerTest, ABudgetEndsWhatIsStillLearning) {
  write_late(2000);
  training_.model = "auto";
  training_.trees.rounds = 100'000;
  training_.patience = 0;
  training_.budget_us = 1;
  run();
  EXPECT_EQ(parameter("chosen"), "xgboost");
  EXPECT_EQ(metric("train_auc") > 0, true);
  EXPECT_EQ(steps_of("valid_auc").size(), 1U);
  EXPECT_THAT(std::string(as_text(files_->read_all("outputs/report.html", 1 << 24))),
              HasSubstr("network was not tried: the budget was used up"));
  // What earlier attempts took of it is gone.
  forget();
  training_.trees.rounds = 5;
  training_.budget_us = 600'000'000;
  files_->write_all("checkpoints/budget-spent", as_bytes("700000000"));
  run();
  EXPECT_EQ(steps_of("valid_auc").size(), 1U);
}

TEST_F(TrainerTest, LessPreciseSmallerAndClippedStepsLearn) {
  write_late(6000);
  training_.model = "network";
  training_.slices.clear();
  const struct {
    const char* precision;
    std::int64_t accumulate;
    double clip;
  } cases[] = {{"bf16", 1, 1}, {"fp32", 3, 1}, {"bf16", 2, 0.05}, {"fp32", 1, 0}};
  for (const auto& one : cases) {
    forget();
    training_.network.precision = one.precision;
    training_.network.accumulate = one.accumulate;
    training_.network.clip = one.clip;
    run();
    EXPECT_GT(metric("test_auc"), 0.83) << one.precision << " " << one.accumulate << " " << one.clip;
    EXPECT_LT(metric("parity_largest"), 1e-4);
  }
}

TEST_F(TrainerTest, OnesOwnLayersLearnAndAreExported) {
  write_late(4000);
  training_.model = "network";
  const recipe::Layer linear{"linear", 24}, relu{"relu"}, norm{"norm"}, keep{"keep"}, add{"add"}, silu{"silu"};
  training_.network.layers = {linear, relu, keep, norm, linear, silu, {"dropout", 0, 3, 1, 1, 0.2}, linear, add};
  run();
  EXPECT_GT(metric("test_auc"), 0.85);
  EXPECT_LT(metric("parity_largest"), 1e-4);
  const struct {
    std::vector<recipe::Layer> layers;
    const char* says;
  } cases[] = {
      {{linear, keep, {"linear", 5}, add}, "network.layers[3]: 5 numbers come in, and 24 were put aside"},
      {{{"conv", 8}}, "network.layers[0]: conv is for images"},
      {{relu, {"average"}}, "network.layers[1]: average is for images"},
  };
  for (const auto& one : cases) {
    forget();
    training_.network.layers = one.layers;
    try {
      run();
      FAIL() << one.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid);
      EXPECT_THAT(e.what(), HasSubstr(one.says));
    }
  }
}

// Where labels are mostly chance, more rows a step tell more; as many as an epoch still has steps for.
TEST_F(TrainerTest, AnAutomaticBatchGrowsWithTheNoise) {
  write_rows("SELECT x, random() < 0.5 + 0.01 * x AS late FROM (SELECT random() AS x FROM range(60000))");
  training_.model = "network";
  training_.network.batch = "auto";
  training_.network.hidden = {8};
  training_.network.epochs = 6;
  training_.slices.clear();
  training_.checkpoints.every_us = 60'000'000;
  run();
  EXPECT_EQ(metric("batch"), 2048);
  EXPECT_GT(metric("gradient_noise_scale"), 2048);
}

TEST_F(TrainerTest, AProfileSaysWhereTheTimeWent) {
  write_late(2000);
  training_.profile = true;
  training_.slices.clear();
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    EXPECT_GT(metric("step_ms"), 0);
    EXPECT_GE(metric(std::string_view(model) == "network" ? "backward_ms" : "grow_ms"), 0);
    const auto trace = json::parse(as_text(files_->read_all("outputs/profile.json", 1 << 26)));
    EXPECT_GT(trace.at("traceEvents").as_array().size(), 10U);
    const auto report = files_->read_all("outputs/report.html", 1 << 24);
    EXPECT_THAT(std::string(as_text(report)), HasSubstr("A step took"));
  }
}

TEST_F(TrainerTest, WhatIsWrongIsSaidAndNothingIsLeft) {
  const struct {
    const char* rows;
    const char* label;
    const char* says;
  } cases[] = {
      {"SELECT 1.0 AS x, TRUE AS late FROM range(0)", "late", "has no rows"},
      {"SELECT i AS x, TRUE AS late FROM range(100) t(i)", "late", "nothing to learn"},
      {"SELECT i AS x, i % 2 = 0 AS late FROM range(100) t(i)", "delay",
       "there is no column 'delay'; there are x, late"},
      {"SELECT i AS x, CASE WHEN i < 3 THEN NULL ELSE i % 2 END AS late FROM range(100) t(i)", "late", "3 of 100 rows"},
      {"SELECT i AS x, CASE WHEN i < 4 THEN 'nan'::DOUBLE ELSE i / 7.0 END AS late FROM range(100) t(i)", "late",
       "4 of 100 rows"},
      {"SELECT i % 2 = 0 AS late FROM range(100) t(i)", "late", "no column is left"},
      {"SELECT i AS x, TIMESTAMP '2026-01-01' + to_days(CAST(i AS INTEGER)) AS at, i > 95 AS late FROM range(100) t(i)",
       "late", "only 1 are among the rows to learn from"},
  };
  for (const auto& one : cases) {
    forget();
    write_rows(one.rows);
    training_.label = one.label;
    training_.slices.clear();
    try {
      run();
      FAIL() << one.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid) << one.says;
      EXPECT_THAT(e.what(), HasSubstr(one.says));
    }
    EXPECT_FALSE(files_->stat("outputs/model")) << one.says;
  }
}

// What was given a GPU does not run slowly without one.
TEST_F(TrainerTest, ADeviceThatIsMissingIsSaid) {
  write_late(500);
  training_.model = "network";
  training_.resources.gpus = 1;
  try {
    run();
    GTEST_SKIP() << "there is a GPU here";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::invalid);
    EXPECT_THAT(e.what(), HasSubstr("resources.gpus: a GPU was asked for, and libtorch finds none here"));
  }
  EXPECT_FALSE(files_->stat("outputs/model"));
}

// One of the three parts would be empty.
TEST_F(TrainerTest, ASplitThatLeavesNothingIsRefused) {
  write_rows(
      "SELECT i AS x, 'one' AS crowd, 'train' AS part, DATE '2026-01-01' AS day, TIMESTAMP '2026-01-01' + "
      "to_hours(CAST(i AS INTEGER)) AS at, i % 2 = 0 AS late FROM range(100) t(i)");
  training_.slices.clear();
  const struct {
    recipe::Split split;
    const char* says;
  } cases[] = {
      {{"time", "at", "2027-01-01T00:00:00Z"}, "split: leaves no rows to test on"},
      {{"time", "at", "2025-01-01T00:00:00Z"}, "split: leaves no rows to learn from"},
      {{"time", "day", ""}, "split: leaves no rows to learn from"},
      {{"part", "part", ""}, "split: leaves no rows to test on"},
      {{"group", "crowd", ""}, "split: leaves no rows to"},
      {{"random", "", "", 0.2, 0}, "split: leaves no rows to decide when to stop"},
  };
  for (const auto& one : cases) {
    training_.split = one.split;
    try {
      run();
      FAIL() << one.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid) << one.says;
      EXPECT_THAT(e.what(), HasSubstr(one.says));
    }
    EXPECT_FALSE(files_->stat("outputs/model")) << one.says;
  }
}

TEST_F(TrainerTest, BrokenParquetIsRefused) {
  write_late(500);
  training_.model = "xgboost";
  const auto whole = files_->read_all("rows/rows.parquet", 1 << 28);
  auto overwritten = whole;  // its end says that all is well
  std::fill(overwritten.begin() + 4, overwritten.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2),
            std::byte{0xA5});
  auto end_overwritten = whole;
  std::fill(end_overwritten.end() - 200, end_overwritten.end() - 8, std::byte{0xA5});
  const Bytes no_parquet = to_bytes("x,late\n1,true\n");
  const auto cut = [&](std::size_t at) {
    return Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const auto& bytes : {cut(whole.size() / 2), cut(10), cut(0), overwritten, end_overwritten, no_parquet}) {
    files_->write_all("rows/rows.parquet", bytes);
    try {
      run();
      FAIL() << bytes.size() << " of " << whole.size() << " bytes were enough";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("data: the rows cannot be read")) << bytes.size();
    }
    EXPECT_FALSE(files_->stat("outputs/model")) << bytes.size();
  }
}

TEST_F(TrainerTest, ConstantColumnsAndUnseenCategoriesAreFine) {
  write_rows(
      "SELECT i AS x, 7 AS constant, NULL::DOUBLE AS nothing, CASE WHEN i > 900 THEN 'late ' || i ELSE 'a' END AS "
      "category,"
      " TIMESTAMP '2026-01-01' + to_hours(CAST(i AS INTEGER)) AS at, (i * 7919) % 10 < 5 AS late FROM range(1000) "
      "t(i)");
  training_.slices.clear();
  for (const auto* model : {"xgboost", "network"}) {
    forget();
    training_.model = model;
    run();
    EXPECT_TRUE(files_->stat("outputs/model/model.onnx"));
  }
}

}  // namespace
}  // namespace falaj::train
