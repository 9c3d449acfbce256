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
  api.watch = std::make_unique<watch::Watch>(
      watch::Watch::Parts{*api.database, *api.resources, *api.models, *api.vault, api.clock, api.watch_key},
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
