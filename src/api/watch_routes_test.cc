// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "foundation/base/testing.h"
#include "lifecycle/serving/predictions.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/traffic/prediction.h"
#include "lifecycle/watch/watch.h"

namespace falaj::api {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

struct WatchRoutes : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};
  const std::string scope = "?scope=/t/acme/p/flights";
  std::mt19937_64 random{11};
  int next = 0;

  WatchRoutes() {
    api.models->create_model(where, "delay", {}, "", act);
    version("");
    api.apply(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {name: delay, tenant: acme, project: flights}\nspec: "
        "{variants: [{name: old, model: delay, version: 1}]}\n");
  }
  void version(const std::string& reference) {
    const auto run = api.track->create_run(where, {}, act).info.run_id;
    api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes("x")), act);
    if (!reference.empty())
      api.vault->put(where, {}, track::run_artifact(run, "model/reference.json"), blob::source_of(to_bytes(reference)),
                     act);
    api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
  }
  void monitor(const std::string& more) {
    api.apply(
        fmt::format("apiVersion: falaj/v1\nkind: Monitor\nmetadata: {{name: m, tenant: acme, project: flights}}\nspec: "
                    "{{endpoint: delay, {}{}}}\n",
                    more.find("window:") == std::string::npos ? "window: {rows: 100}, " : "", more));
  }
  double normal() {
    std::normal_distribution<double> one;
    return one(random);
  }
  std::string segment(int rows, double shift, int version = 1) {
    traffic::Sketches sketches;
    for (int i = 0; i < rows; ++i) {
      sketches["x"].add(normal() + shift);
      sketches["city"].add(std::string_view(random() % 3 ? "dxb" : "auh"));
    }
    traffic::WatchedSegment out;
    out.variant = "old";
    out.version = version;
    out.rows = out.looked_at = rows;
    out.from_us = out.until_us = api.clock.wall().count();
    out.sketches = to_base64(traffic::encode_sketches(sketches));
    return json::serialize(encode(out));
  }
  Answer send(const std::string& name, const std::string& watched) {
    return api.post("/v1/serving/watched",
                    fmt::format(R"({{"tenant":"acme","project":"flights","endpoint":"delay","segments":[{{"segment":)"
                                R"("{}","watched":{}}}]}})",
                                name, watched));
  }
  void see(int windows, double shift) {
    for (int i = 0; i < windows; ++i) {
      api.clock.advance(sys::Micros(1'000'000));
      ASSERT_EQ(send(fmt::format("s{}", next++), segment(100, shift)).status, 200);
    }
  }
  json::value get(const std::string& path) {
    const auto answer = api.get(path);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
};

TEST_F(WatchRoutes, ASegmentCountsOnce) {
  monitor("reference: windows");
  const auto watched = segment(30, 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(send("same", watched).status, 200);
  ASSERT_EQ(send("other", segment(30, 0)).status, 200);
  const auto shown = get("/v1/monitors/m" + scope);
  EXPECT_EQ(shown.at("streams").at(0).at("waiting").to_number<int>(), 60);
  EXPECT_EQ(shown.at("streams").at(0).at("windows").to_number<int>(), 0);
  ASSERT_EQ(send("third", segment(50, 0)).status, 200);
  const auto windows = get("/v1/monitors/m/windows" + scope).at("items");
  ASSERT_EQ(windows.as_array().size(), 1u);
  EXPECT_EQ(windows.at(0).at("looked_at").to_number<int>(), 110);
}

TEST_F(WatchRoutes, FindsDriftAgainstItsFirstWindowsAndARestartLosesNothing) {
  monitor("reference: windows, referenceWindows: 20");
  see(20, 0);
  EXPECT_THAT(std::string(get("/v1/monitors/m" + scope).at("streams").at(0).at("reference").as_string()),
              HasSubstr("19 of the 20 windows"));
  see(5, 0);
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty());
  // As after a start of the program.
  api.watch =
      std::make_unique<watch::Watch>(watch::Watch::Parts{*api.database, *api.resources, *api.models, *api.vault,
                                                         *api.datasets, *api.predictions, api.clock, api.watch_key},
                                     api.metrics);
  watch::WatchedBatch batch{"acme", "flights", "delay", {}};
  for (int i = 0; i < 3; ++i) {
    batch.segments.clear();
    batch.segments.push_back(
        {fmt::format("r{}", i), decode<traffic::WatchedSegment>(parse_json(segment(100, 3)), "x")});
    api.watch->accept(batch);
  }
  const auto found = api.watch->findings(where, {});
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.back().finding.column, "x");
  EXPECT_EQ(found.back().finding.kind, "drift");
  EXPECT_EQ(found.back().endpoint, "delay");
  watch::FindingFilter other;
  other.endpoint = "elsewhere";
  EXPECT_TRUE(api.watch->findings(where, other).empty());
  for (int i = 0; i < 12; ++i) {
    batch.segments.clear();
    batch.segments.push_back(
        {fmt::format("q{}", i), decode<traffic::WatchedSegment>(parse_json(segment(100, 0)), "x")});
    api.watch->accept(batch);
  }
  EXPECT_TRUE(api.watch->findings(where, {}).empty()) << "it is over";
  watch::FindingFilter all;
  all.standing = false;
  EXPECT_EQ(api.watch->findings(where, all).size(), found.size());
  const auto pair = api.watch->column(where, "m", "x", "", 0, 27);
  EXPECT_GT(pair.seen.numbers.quantile(0.5), 2);
  EXPECT_EQ(pair.is, "its first 20 windows");
}

TEST_F(WatchRoutes, ComparesWithWhatTheModelWasTestedOn) {
  stats::Quantiles x, answer;
  for (int i = 0; i < 5000; ++i) x.add(normal()), answer.add(i);
  ByteWriter a;
  x.encode(a);
  version(fmt::format(
      R"({{"version":2,"inputs":{{"x":{{"rows":5000,"missing":0,"kind":"float64","quantiles":"{}"}}}},"predictions":[]}})",
      to_base64(a.bytes())));
  monitor("reference: training");
  api.apply(
      "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {name: delay, tenant: acme, project: flights}\nspec: "
      "{variants: [{name: old, model: delay, version: 2}]}\n");
  for (int i = 0; i < 2; ++i) ASSERT_EQ(send(fmt::format("t{}", i), segment(100, 4, 2)).status, 200);
  const auto found = get("/v1/monitors/m/findings" + scope).at("items");
  ASSERT_EQ(found.as_array().size(), 2u) << json::serialize(found);  // drift and range
  EXPECT_EQ(get("/v1/monitors/m" + scope).at("streams").at(0).at("reference").as_string(),
            "what delay/2 was tested on");
  const auto column = get("/v1/monitors/m/columns/x" + scope);
  EXPECT_EQ(column.at("bars").as_array().size(), 24u);
  EXPECT_NEAR(column.at("quantiles").at(5).at("reference").to_number<double>(), 0, 0.2);
  EXPECT_NEAR(column.at("quantiles").at(5).at("window").to_number<double>(), 4, 0.5);
  EXPECT_EQ(api.get("/v1/monitors/m/columns/nothing" + scope).status, 404);
  EXPECT_EQ(get("/v1/monitors" + scope).at("items").as_array().size(), 1u);
  EXPECT_THAT(api.metrics.render(), HasSubstr("falaj_watch_findings{kind=\"skew\"} 1"));
  EXPECT_THAT(api.metrics.render(), ContainsRegex("falaj_watch_psi.*column=.x.*variant=.old.,version=.2."))
      << "each its own";
}

TEST_F(WatchRoutes, WindowsThatStayEmptyCloseAndSilenceIsNoticed) {
  monitor("reference: windows, quality: {silence: 10m}");
  ASSERT_EQ(send("a", segment(10, 0)).status, 200);
  api.watch->upkeep();
  EXPECT_TRUE(api.watch->findings(where, {}).empty());
  api.clock.advance(std::chrono::hours(2));
  api.watch->upkeep();
  EXPECT_EQ(api.watch->windows(where, "m", 10).size(), 1u);
  ASSERT_EQ(api.watch->findings(where, {}).size(), 1u);
  EXPECT_THAT(api.watch->findings(where, {})[0].finding.text, HasSubstr("no request since"));
  EXPECT_GT(api.watch->findings(where, {})[0].finding.score, 1) << "rules with a threshold must see it";
  ASSERT_EQ(send("b", segment(10, 0)).status, 200);
  api.watch->upkeep();
  EXPECT_TRUE(api.watch->findings(where, {}).empty());
  const std::vector<resource::Key> gone = {{"Monitor", "acme", "flights", "m"}};
  api.resources->remove({"user/test", "", "", ""}, gone,
                        [](std::string_view, const iam::Scope&) { return std::nullopt; });
  api.watch->upkeep();
  watch::FindingFilter all;
  all.standing = false;
  EXPECT_TRUE(api.watch->findings(where, all).empty());
  EXPECT_EQ(send("c", segment(10, 0)).status, 200) << "whoever wanted to know is gone";
}

TEST_F(WatchRoutes, WhatBecameOfPredictionsIsWatchedToo) {
  monitor("reference: windows, labels: {rows: 50, windows: 10}");
  std::uint64_t made = 0;
  const auto label = [&](int count, double share) {
    std::vector<serving::Label> labels;
    for (int i = 0; i < count; ++i) {
      const auto ms = static_cast<std::uint64_t>(api.clock.wall().count() / 1000);
      labels.push_back({traffic::format_prediction({{ms << 16, ++made}, "old", 1, 1, 0}),
                        std::generate_canonical<double, 53>(random) < share ? 1.0 : 0.0, 0});
    }
    api.predictions->add_labels(where, "delay", labels, act);
    api.watch->upkeep();
  };
  label(700, 0.9);
  EXPECT_TRUE(api.watch->findings(where, {}).empty());
  EXPECT_EQ(api.watch->windows(where, "m", 100).size(), 14u);
  api.watch->upkeep();
  EXPECT_EQ(api.watch->windows(where, "m", 100).size(), 14u) << "each counts once";
  label(200, 0.4);
  const auto found = api.watch->findings(where, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].finding.kind, "performance");
  EXPECT_EQ(found[0].variant, "old");
  EXPECT_THAT(found[0].finding.text, HasSubstr("in the mean of the newest, 0."));
}

struct PerformanceRoutes : WatchRoutes {
  std::uint64_t made = 0;
  std::uniform_real_distribution<double> unit{};

  PerformanceRoutes() {
    // What a training leaves: a model that is calibrated, on 4,000 rows.
    std::vector<stats::Outcomes> blocks(32);
    for (int i = 0; i < 4000; ++i) {
      const auto [score, label] = predicted(0);
      blocks[static_cast<std::size_t>(i) * 32 / 4000].add({&score, 1}, label);
    }
    stats::Outcomes whole;
    for (const auto& block : blocks) whole.merge(block);
    ByteWriter out;
    whole.encode(out);
    version(fmt::format(
        R"({{"version":2,"inputs":{{}},"predictions":[],"performance":{{"task":"binary","outcomes":"{}"}}}})",
        to_base64(out.bytes())));
    api.apply(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {name: delay, tenant: acme, project: flights}\nspec: "
        "{variants: [{name: old, model: delay, version: 2}], log: {share: 1}}\n");
  }
  std::pair<double, double> predicted(double lie) {
    const double truth = unit(random) * unit(random);
    return {truth, unit(random) < truth * (1 - lie) + lie * 0.5 ? 1 : 0};
  }
  // Answers so many requests, of which the labels are told, too, but for every `unlogged`th; returns the labels.
  std::vector<serving::Label> answer(int count, double lie, int unlogged = 0) {
    std::vector<serving::Label> labels;
    std::string lines;
    std::int64_t rows = 0;
    for (int i = 0; i < count; ++i) {
      const auto ms = static_cast<std::uint64_t>(api.clock.wall().count() / 1000);
      const auto id = traffic::format_prediction({{ms << 16, ++made}, "old", 2, 1, 0});
      const auto [score, label] = predicted(lie);
      labels.push_back({id, label, 0});
      if (unlogged > 0 && i % unlogged == 0) continue;
      lines +=
          fmt::format(R"({{"prediction_id":"{}","time":"{}","variant":"old","in_day":{},"out_prediction":{}}})", id,
                      format_time(api.clock.wall().count()), 1'000'000 + static_cast<std::int64_t>(made), score);
      lines += '\n';
      ++rows;
    }
    serving::LoggedBatch batch{"acme", "flights", "delay", {}, {}};
    batch.columns = {{"prediction_id", "text"},
                     {"time", "timestamp"},
                     {"variant", "text"},
                     {"in_day", "int64"},
                     {"out_prediction", "float64"}};
    batch.segments.push_back({fmt::format("p{}", next++), rows, lines});
    api.predictions->accept(batch);
    return labels;
  }
  void label(const std::vector<serving::Label>& labels) {
    api.predictions->add_labels(where, "delay", labels, act);
    api.clock.advance(std::chrono::seconds(5));
    api.watch->upkeep();
  }
  json::value shown() { return get("/v1/monitors/m" + scope).at("performance").at(0); }
};

TEST_F(PerformanceRoutes, LabelsAreJoinedWithPredictionsAndJudgedByWhatTheTrainingLeft) {
  monitor("performance: {rows: 100}");
  EXPECT_EQ(shown().at("reference").as_string(), "fewer than 100 labels so far");
  for (int i = 0; i < 6; ++i) label(answer(100, 0));
  auto windows = get("/v1/monitors/m/performance" + scope).at("items").as_array();
  ASSERT_EQ(windows.size(), 6u);
  EXPECT_EQ(windows[0].at("labels").to_number<int>(), 100);
  EXPECT_EQ(windows[0].at("metrics").at(0).at("name").as_string(), "accuracy");
  EXPECT_NEAR(windows[0].at("metrics").at(2).at("was").to_number<double>(), 0.13, 0.02);
  EXPECT_EQ(shown().at("reference").as_string(), "how it did when it was tested");
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty());
  for (int i = 0; i < 6; ++i) label(answer(100, 0.7));
  const auto found = get("/v1/findings" + scope + "&kind=performance").at("items").as_array();
  ASSERT_FALSE(found.empty());
  for (const auto& one : found) {
    EXPECT_EQ(one.at("variant").as_string(), "old");
    EXPECT_EQ(one.at("version").to_number<int>(), 2);
  }
  EXPECT_GT(found.back().at("measured").at("labels").to_number<int>(), 0);
  EXPECT_THAT(api.metrics.render(), HasSubstr("falaj_watch_performance{"));
  EXPECT_THAT(api.metrics.render(), HasSubstr("falaj_watch_findings{kind=\"performance\"}"));
  // As after a start of the program: it goes on where it was, and judges nothing twice.
  api.watch =
      std::make_unique<watch::Watch>(watch::Watch::Parts{*api.database, *api.resources, *api.models, *api.vault,
                                                         *api.datasets, *api.predictions, api.clock, api.watch_key},
                                     api.metrics);
  api.watch->upkeep();
  EXPECT_EQ(api.watch->performance(where, "m", 100).size(), 12u);
  EXPECT_EQ(api.watch->findings(where, {}).size(), found.size());
}

TEST_F(PerformanceRoutes, LateUnloggedAndUnknownLabelsAreCounted) {
  monitor("performance: {rows: 100, time: day}");
  const auto early = answer(60, 0), later = answer(160, 0, 4);
  label(later);  // 40 of them were never logged; they are waited for
  EXPECT_EQ(shown().at("windows").to_number<int>(), 1);
  EXPECT_EQ(shown().at("unmatched").to_number<int>(), 0);
  label(early);
  api.clock.advance(std::chrono::hours(2));
  api.watch->upkeep();
  EXPECT_EQ(shown().at("unmatched").to_number<int>(), 40);
  EXPECT_EQ(shown().at("late").to_number<int>(), 60);
  EXPECT_EQ(shown().at("waiting").to_number<int>(), 80);
  EXPECT_EQ(api.watch->performance(where, "m", 1)[0].from_us, 1'000'062) << "by the input that says when";
}

TEST_F(PerformanceRoutes, WhatIsNotThereIsSaid) {
  monitor("performance: {rows: 50, output: probability}");
  label(answer(60, 0));
  api.clock.advance(std::chrono::hours(1));
  api.watch->upkeep();
  EXPECT_THAT(std::string(shown().at("reference").as_string()),
              HasSubstr("predictions-delay has no column out_probability: see performance.output"));
  monitor("reference: windows, performance: {rows: 50}");
  api.clock.advance(std::chrono::hours(1));
  api.watch->upkeep();
  EXPECT_THAT(std::string(shown().at("reference").as_string()), HasSubstr("say performance.task"));
  // All labels are judged anew by another rule, also those that came before it.
  monitor("reference: windows, performance: {rows: 30, windows: 8, task: binary}");
  api.clock.advance(std::chrono::hours(1));
  api.watch->upkeep();
  EXPECT_EQ(api.watch->performance(where, "m", 100).size(), 2u);
  EXPECT_THAT(std::string(shown().at("reference").as_string()), HasSubstr("of the 8 windows that make a reference"));
  for (int i = 0; i < 9; ++i) label(answer(30, 0));
  EXPECT_EQ(shown().at("reference").as_string(), "how it did in its first 8 windows");
  EXPECT_EQ(api.get("/v1/monitors/none/performance" + scope).status, 404);
}

TEST_F(WatchRoutes, OldDistributionsGoAndOldWindowsAfterThem) {
  monitor("reference: windows, referenceWindows: 8, window: {rows: 50}, keep: 1h");
  for (int i = 0; i < 140; ++i) ASSERT_EQ(send(fmt::format("o{}", i), segment(50, 0)).status, 200);
  api.watch->upkeep();
  EXPECT_EQ(api.watch->windows(where, "m", 1000).size(), 140u);
  EXPECT_ERROR(api.watch->column(where, "m", "x", "", 0, 9), Code::not_found);
  EXPECT_EQ(api.watch->column(where, "m", "x", "", 0, 7).seen.rows, 50u) << "part of the reference";
  EXPECT_EQ(api.watch->column(where, "m", "x", "", 0, std::nullopt).window, 139);
  api.clock.advance(std::chrono::hours(2));
  api.watch->upkeep();
  EXPECT_EQ(api.watch->windows(where, "m", 1000).size(), 8u);
  const auto audited = api.audited("monitor.forget");
  api.clock.advance(std::chrono::hours(2));
  api.watch->upkeep();
  EXPECT_EQ(api.audited("monitor.forget"), audited + 0) << "nothing to forget, nothing written";
}

// A time that was good is chosen afterwards; what was seen before that stays.
TEST_F(WatchRoutes, ComparesWithAChosenTimeOfThePast) {
  monitor("reference: windows, referenceWindows: 8, keep: 1h");
  see(10, 3);
  see(9, 0);
  const auto good = api.clock.wall().count();
  see(3, 3);
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().size() > 0) << "of the first windows, which were bad";
  monitor(fmt::format("reference: past, referenceWindows: 8, referencePast: {{windows: 8, before: '{}'}}, keep: 1h",
                      format_time(good + 1)));
  see(1, 0);
  const auto stream = get("/v1/monitors/m" + scope).at("streams").at(0);
  EXPECT_THAT(std::string(stream.at("reference").as_string()), HasSubstr("8 windows, "));
  EXPECT_EQ(stream.at("windows").to_number<int>(), 23) << "none was lost";
  see(8, 0);
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty());
  see(3, 3);
  const auto found = get("/v1/findings" + scope).at("items").as_array();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].at("column").as_string(), "x");
  // What is old goes, but for the windows that it is compared with.
  api.clock.advance(std::chrono::hours(2));
  api.watch->upkeep();
  EXPECT_EQ(api.watch->windows(where, "m", 100).size(), 8 + 8u) << "the first ones may be a reference again";
  EXPECT_EQ(api.watch->column(where, "m", "x", "", 0, 12).reference.sketch.rows, 800u);
}

TEST_F(WatchRoutes, ATimeThatIsNotOverIsWaitedForAndOneWithoutWindowsIsNone) {
  const auto now = api.clock.wall().count();
  const auto between = [&](std::int64_t from, std::int64_t to) {
    monitor(fmt::format("reference: past, referenceWindows: 8, referencePast: {{from: '{}', to: '{}'}}",
                        format_time(now + from * 1'000'000), format_time(now + to * 1'000'000)));
  };
  const auto reference = [&] {
    return std::string(get("/v1/monitors/m" + scope).at("streams").at(0).at("reference").as_string());
  };
  between(0, 10);
  see(5, 0);
  EXPECT_THAT(reference(), HasSubstr("a time that lasts until"));
  see(8, 0);
  EXPECT_THAT(reference(), HasSubstr("10 windows, "));
  between(-1000, -900);
  see(1, 0);
  EXPECT_THAT(reference(), HasSubstr("its first 8 windows")) << "as by training, and there was none";
}

TEST_F(WatchRoutes, ComparesWithAVersionOfADataset) {
  api.apply(
      "{apiVersion: falaj/v1, kind: Dataset, metadata: {tenant: acme, project: flights, name: asked}, spec: {columns: "
      "[{name: x, type: float64}, {name: city, type: text}, {name: at, type: timestamp}], time: at}}");
  const auto room = api.datasets->room();
  api.datasets->store(
      where, "asked", *room,
      "SELECT sqrt(-2 * ln((hash(i) % 1000000 + 0.5) / 1e6)) * cos(2 * pi() * (hash(i + 100000) % 1000000) / 1e6) AS "
      "x, "
      "CASE WHEN hash(i + 200000) % 3 = 0 THEN 'auh' ELSE 'dxb' END AS city, make_timestamp(i * 1000000) AS at FROM "
      "range(4000) t(i)",
      {}, act);
  monitor("reference: dataset, referenceDataset: asked@1");
  see(6, 0);
  EXPECT_EQ(get("/v1/monitors/m" + scope).at("streams").at(0).at("reference").as_string(), "asked@1");
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty());
  EXPECT_EQ(api.watch->column(where, "m", "city", "", 0, std::nullopt).reference.sketch.rows, 4000u);
  see(4, 2);
  const auto found = get("/v1/findings" + scope).at("items").as_array();
  EXPECT_FALSE(found.empty());
  for (const auto& one : found) EXPECT_EQ(one.at("column").as_string(), "x");
  monitor("reference: dataset, referenceDataset: asked@7");
  see(1, 0);
  EXPECT_THAT(std::string(get("/v1/monitors/m" + scope).at("streams").at(0).at("reference").as_string()),
              HasSubstr("asked"));
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty()) << "nothing stands in for it";
}

// Whole rows are asked for, kept sealed beside the sketches, and compared.
TEST_F(WatchRoutes, LooksAtColumnsTogetherWhereAskedTo) {
  monitor(
      "reference: windows, referenceWindows: 8, window: {rows: 200}, together: {rows: 200}, columns: {exclude: [z]}");
  api.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(api.endpoints->current().plan->endpoints.at(0).watch->whole_rows, 200);
  std::uint64_t number = 0;
  const auto see_pairs = [&](int windows, double together) {
    for (int w = 0; w < windows; ++w) {
      traffic::Sketches sketches;
      stats::RowSample rows({{"x", false}, {"y", false}}, 200);
      for (int i = 0; i < 200; ++i) {
        const double x = normal(), y = together * x + std::sqrt(1 - together * together) * normal();
        sketches["x"].add(x), sketches["y"].add(y);
        rows.add(stats::RowSample::key(5, number++), std::vector{x, y});
      }
      traffic::WatchedSegment out;
      out.variant = "old", out.version = 1, out.rows = out.looked_at = 200;
      out.from_us = out.until_us = api.clock.wall().count();
      out.sketches = to_base64(traffic::encode_sketches(sketches));
      out.rows_whole = to_base64(traffic::encode_rows(rows));
      ASSERT_EQ(send(fmt::format("t{}", next++), json::serialize(encode(out))).status, 200);
    }
  };
  see_pairs(14, 0.8);
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty());
  see_pairs(1, 0.8);
  see_pairs(4, -0.8);
  const auto found = get("/v1/findings" + scope + "&kind=drift").at("items").as_array();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("column").as_string(), "*");
  EXPECT_THAT(std::string(found[0].at("text").as_string()), HasSubstr("how x and y go together"));
  auto broken = decode<traffic::WatchedSegment>(parse_json(segment(10, 0)), "x");
  broken.rows_whole = "AAAA";
  EXPECT_EQ(send("bad", json::serialize(encode(broken))).status, 400);
}

TEST_F(PerformanceRoutes, AChosenTimeIsWhatItDidThen) {
  monitor(
      "reference: past, referencePast: {from: '1970-01-01T00:00:00Z', to: '1970-01-01T00:00:01.001000Z'}, "
      "performance: {rows: 100, time: day}");
  for (int i = 0; i < 10; ++i) label(answer(100, 0.3));  // 1,000 of them, by the input that says when
  EXPECT_THAT(std::string(shown().at("reference").as_string()), HasSubstr("a time that lasts until 1970-01-01"));
  for (int i = 0; i < 4; ++i) label(answer(100, 0.3));
  EXPECT_THAT(std::string(shown().at("reference").as_string()), HasSubstr("how it did in 10 windows, 1970-01-01"));
  EXPECT_TRUE(get("/v1/findings" + scope).at("items").as_array().empty())
      << "worse than when it was tested, not than then";
  for (int i = 0; i < 6; ++i) label(answer(100, 1));
  EXPECT_FALSE(get("/v1/findings" + scope + "&kind=performance").at("items").as_array().empty());
}

TEST_F(WatchRoutes, PlansSayWhoIsWatched) {
  EXPECT_FALSE(api.endpoints->current().plan->endpoints.at(0).watch);
  monitor("rowsPerSecond: 77");
  api.clock.advance(std::chrono::seconds(1));
  const auto current = api.endpoints->current();
  ASSERT_TRUE(current.plan->endpoints.at(0).watch);
  EXPECT_EQ(current.plan->endpoints.at(0).watch->rows_per_second, 77);
}

TEST_F(WatchRoutes, RefusesWhatIsNoSketch) {
  monitor("reference: windows");
  auto broken = segment(10, 0);
  const auto at = broken.find("\"sketches\":\"") + 12;
  broken.replace(at, 4, "////");
  EXPECT_EQ(send("bad", broken).status, 400);
  EXPECT_EQ(api.get("/v1/monitors/none" + scope).status, 404);
}

}  // namespace
}  // namespace falaj::api
