// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/track.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "governance/vault/testing.h"

namespace falaj::track {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class TrackOf : public testing::TestWithParam<std::string> {
 protected:
  TrackOf() : base(GetParam()) {
    base.database->migrate(Track::migrations());
    start();
  }
  void start(TrackOptions options = {}) {
    track.reset();
    track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics, options);
  }
  track::Run make(std::int64_t experiment = kDefaultExperiment, std::string name = "",
                  std::vector<KeyValue> tags = {}) {
    base.clock.advance(std::chrono::seconds(1));
    return track->create_run(kFlights, {experiment, std::move(name), "ada", {}, std::move(tags)}, act);
  }
  void log(const std::string& run_id, const std::string& key, std::vector<Point> points) {
    Batch batch;
    for (const auto& point : points) batch.metrics.push_back({key, point, "", "", ""});
    track->log(kFlights, run_id, batch, act);
  }
  std::vector<std::string> find(SearchRuns search) {
    if (search.experiments.empty()) search.experiments = {0};
    std::vector<std::string> out;
    for (const auto& run : track->search_runs(kFlights, search).items) out.push_back(run.info.name);
    return out;
  }
  std::vector<std::string> find(const std::string& filter, std::vector<std::string> order_by = {}) {
    SearchRuns search;
    search.filter = filter;
    search.order_by = std::move(order_by);
    return find(search);
  }

  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo;
  const sql::Act act = vault::VaultFixture::act();
  vault::VaultFixture base;
  std::unique_ptr<Track> track;
};

TEST_P(TrackOf, EveryProjectHasItsDefaultExperiment) {
  EXPECT_EQ(track->experiment(kFlights, 0).name, "Default");
  EXPECT_EQ(track->experiment_by_name(kCargo, "Default").number, 0);
  EXPECT_ERROR(track->experiment({TenantName{"nobody"}, ProjectName{"none"}}, 0), Code::not_found);
}

TEST_P(TrackOf, ExperimentsAreNumberedNamedDeletedAndRestored) {
  const auto number = track->create_experiment(kFlights, "delays", {{"team", "ops"}}, act);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(track->create_experiment(kCargo, "delays", {}, act), 1) << "another project counts for itself";
  EXPECT_THAT(track->experiment(kFlights, number).tags, ElementsAre(KeyValue{"team", "ops"}));
  EXPECT_ERROR(track->create_experiment(kFlights, "delays", {}, act), Code::exists);
  EXPECT_ERROR(track->create_experiment(kFlights, "", {}, act), Code::invalid);
  EXPECT_ERROR(track->create_experiment(kFlights, std::string(501, 'x'), {}, act), Code::invalid);
  const auto run = make(number, "r");
  track->set_experiment_stage(kFlights, number, Stage::deleted, act);
  EXPECT_ERROR(track->set_experiment_stage(kFlights, number, Stage::deleted, act), Code::not_found);
  EXPECT_EQ(track->run_info(kFlights, run.info.run_id).stage, Stage::deleted);
  EXPECT_ERROR(track->create_experiment(kFlights, "delays", {}, act), Code::exists);  // also while it is deleted
  EXPECT_ERROR(make(number), Code::invalid);
  track->set_experiment_stage(kFlights, number, Stage::active, act);
  EXPECT_EQ(track->run_info(kFlights, run.info.run_id).stage, Stage::active);
  track->rename_experiment(kFlights, number, "late", act);
  EXPECT_EQ(track->experiment_by_name(kFlights, "late").number, number);
  EXPECT_ERROR(track->experiment_by_name(kFlights, "delays"), Code::not_found);
}

TEST_P(TrackOf, ARunLogsAndShowsItsLatest) {
  const auto run = make(0, "first", {{"k", "v"}});
  EXPECT_EQ(run.info.status, RunStatus::running);
  EXPECT_EQ(run.info.run_id.size(), 32U);
  log(run.info.run_id, "loss", {{1, 0, 0.5}, {2, 1, 0.25}});
  log(run.info.run_id, "loss", {{3, 0, 0.75}});  // later, but of an earlier step
  track->log(kFlights, run.info.run_id, {{}, {{"lr", "0.1"}}, {{"k", "w"}}}, act);
  const auto shown = track->run(kFlights, run.info.run_id);
  ASSERT_EQ(shown.metrics.size(), 1U);
  EXPECT_EQ(shown.metrics[0].point.value, 0.25);
  EXPECT_THAT(shown.params, ElementsAre(KeyValue{"lr", "0.1"}));
  EXPECT_THAT(shown.tags, ElementsAre(KeyValue{"k", "w"}, KeyValue{"mlflow.runName", "first"}));
  const auto info = track->update_run(kFlights, run.info.run_id, {RunStatus::finished, 99, std::string("second")}, act);
  EXPECT_EQ(info.status, RunStatus::finished);
  EXPECT_EQ(track->run(kFlights, run.info.run_id).info.name, "second");
}

TEST_P(TrackOf, ABatchIsAllOrNothing) {
  const auto run = make();
  track->log(kFlights, run.info.run_id, {{}, {{"lr", "0.1"}}, {}}, act);
  track->log(kFlights, run.info.run_id, {{}, {{"lr", "0.1"}}, {}}, act);  // the same again is fine
  EXPECT_ERROR(track->log(kFlights, run.info.run_id,
                          {{{"m", {1, 1, 1}, "", "", ""}}, {{"new", "1"}, {"lr", "0.2"}}, {{"t", "1"}}}, act),
               Code::invalid);
  const auto shown = track->run(kFlights, run.info.run_id);
  EXPECT_THAT(shown.metrics, IsEmpty());
  EXPECT_THAT(shown.params, ElementsAre(KeyValue{"lr", "0.1"}));
  EXPECT_EQ(shown.tags.size(), 1U);
}

TEST_P(TrackOf, RefusesWhatIsTooLongTooManyOrBadlyNamed) {
  const auto id = make().info.run_id;
  const auto param = [&](const std::string& key, const std::string& value) {
    track->log(kFlights, id, {{}, {{key, value}}, {}}, act);
  };
  for (const auto* key : {"", "../x", "a//b", "/a", "a/./b", "a\nb", "a'b", "a;b"})
    EXPECT_ERROR(param(key, "1"), Code::invalid);
  EXPECT_NO_THROW(param("a b/c.d:e_f-g", "1"));
  EXPECT_NO_THROW(param("größe", std::string(6000, 'x')));
  EXPECT_ERROR(param("p", std::string(6001, 'x')), Code::invalid);
  EXPECT_ERROR(param(std::string(251, 'k'), "1"), Code::invalid);
  Batch batch;
  batch.params.resize(101, {"p", "1"});
  EXPECT_ERROR(track->log(kFlights, id, batch, act), Code::invalid);
  batch.params = {{"q", "1"}, {"q", "1"}};
  EXPECT_ERROR(track->log(kFlights, id, batch, act), Code::invalid);
  batch = {};
  batch.metrics.resize(1001, {"m", {1, 1, 1}, "", "", ""});
  EXPECT_ERROR(track->log(kFlights, id, batch, act), Code::invalid);
  EXPECT_ERROR(log(id, "m", {{-1, 0, 0}}), Code::invalid);
}

TEST_P(TrackOf, AnotherProjectFindsNothing) {
  const auto id = make().info.run_id;
  EXPECT_ERROR(track->run(kCargo, id), Code::not_found);
  EXPECT_ERROR(track->log(kCargo, id, {{}, {{"a", "b"}}, {}}, act), Code::not_found);
  EXPECT_ERROR(track->set_run_stage(kCargo, id, Stage::deleted, act), Code::not_found);
  EXPECT_ERROR(track->history(kCargo, id, "m", std::nullopt, 10), Code::not_found);
  SearchRuns search;
  search.experiments = {0};
  EXPECT_THAT(track->search_runs(kCargo, search).items, IsEmpty());
}

TEST_P(TrackOf, ADeletedRunTakesNothingUntilItIsRestored) {
  const auto id = make(0, "r").info.run_id;
  track->set_run_stage(kFlights, id, Stage::deleted, act);
  EXPECT_ERROR(log(id, "m", {{1, 1, 1}}), Code::invalid);
  EXPECT_THAT(find(""), IsEmpty());
  SearchRuns search;
  search.view = View::deleted;
  EXPECT_THAT(find(search), ElementsAre("r"));
  track->set_run_stage(kFlights, id, Stage::active, act);
  EXPECT_THAT(find(""), ElementsAre("r"));
}

// Points in random batches, some logged twice, in pages of a random size: what comes back is what was logged, once each
// and in order.
TEST_P(TrackOf, HistoryIsWhatWasLogged) {
  std::mt19937_64 random(20261116);
  RecordProperty("seed", "20261116");
  const auto id = make().info.run_id;
  std::vector<Point> logged;
  for (int call = 0; call < 150; ++call) {
    std::vector<Point> points;
    for (std::size_t n = 1 + random() % 40; n > 0; --n)
      points.push_back({static_cast<std::int64_t>(call * 10 + static_cast<int>(random() % 30)),
                        static_cast<std::int64_t>(random() % 50),
                        random() % 20 == 0 ? std::nan("") : static_cast<double>(random() % 8)});
    log(id, "m", points);
    logged.insert(logged.end(), points.begin(), points.end());
    if (random() % 4 == 0) log(id, "m", points);  // a client that got no answer
  }
  tidy(logged);
  const auto equal = [](const Point& a, const Point& b) { return same(a, b); };
  const auto all = track->history(kFlights, id, "m", std::nullopt, kAll);
  EXPECT_TRUE(std::equal(all.points.begin(), all.points.end(), logged.begin(), logged.end(), equal));
  EXPECT_FALSE(all.after);
  for (const std::size_t limit : {1UL, 7UL, 100UL, 999UL}) {
    std::vector<Point> paged;
    std::optional<Point> after;
    do {
      const auto page = track->history(kFlights, id, "m", after, limit);
      EXPECT_LE(page.points.size(), limit);
      paged.insert(paged.end(), page.points.begin(), page.points.end());
      after = page.after;
    } while (after && paged.size() < (limit == 1 ? 200 : logged.size() + 1));
    const auto wanted = limit == 1 ? std::min<std::size_t>(200, logged.size()) : logged.size();
    EXPECT_TRUE(std::equal(paged.begin(), paged.end(), logged.begin(),
                           logged.begin() + static_cast<std::ptrdiff_t>(wanted), equal))
        << "pages of " << limit;
  }
}

TEST_P(TrackOf, AModelsMetricIsASeriesOfItsOwn) {
  const auto id = make(0, "r").info.run_id;
  track->log(kFlights, id, {{{"auc", {1, 5, 0.5}, "m-1", "", ""}, {"auc", {2, 3, 0.9}, "m-2", "", ""}}, {}, {}}, act);
  EXPECT_EQ(track->run(kFlights, id).metrics.at(0).point.value, 0.5) << "the newest step of all series";
  EXPECT_THAT(find("metrics.auc = 0.5"), ElementsAre("r"));
  track->log(kFlights, id, {{{"auc", {3, 9, 0.7}, "m-2", "", ""}}, {}, {}}, act);
  EXPECT_THAT(find("metrics.auc = 0.7"), ElementsAre("r"));
  start();  // loaded anew
  EXPECT_THAT(find("metrics.auc = 0.7"), ElementsAre("r"));
  EXPECT_EQ(track->history(kFlights, id, "auc", std::nullopt, kAll).points.size(), 3U);
}

TEST_P(TrackOf, SearchSeesEachWriteWhenItReturns) {
  const auto a = make(0, "a").info.run_id, b = make(0, "b").info.run_id;
  EXPECT_THAT(find(""), ElementsAre("b", "a"));  // newest first
  log(a, "m", {{1, 1, 3}});
  log(b, "m", {{1, 1, 5}});
  EXPECT_THAT(find("metrics.m > 4"), ElementsAre("b"));
  log(a, "m", {{1, 2, 7}});
  EXPECT_THAT(find("metrics.m > 4", {"metrics.m DESC"}), ElementsAre("a", "b"));
  track->log(kFlights, a, {{}, {{"p", "x"}}, {{"t", "1"}}}, act);
  EXPECT_THAT(find("params.p = 'x' AND tags.t = '1'"), ElementsAre("a"));
  EXPECT_THAT(find("params.p IS NULL"), ElementsAre("b"));
  track->delete_tag(kFlights, a, "t", act);
  EXPECT_THAT(find("tags.t = '1'"), IsEmpty());
  track->update_run(kFlights, b, {RunStatus::failed, {}, std::string("c")}, act);
  EXPECT_THAT(find("status = 'FAILED'"), ElementsAre("c"));
  EXPECT_THAT(find("run_name LIKE 'c%'"), ElementsAre("c"));
  track->log_inputs(kFlights, a, {{{"train", "d1", "local", "x", "", ""}, {{"mlflow.data.context", "training"}}}}, {},
                    act);
  EXPECT_THAT(find("datasets.name = 'train'"), ElementsAre("a"));
  EXPECT_THAT(find("dataset.context = 'testing'"), IsEmpty());
  EXPECT_ERROR(find("metrics.m > 1 OR metrics.m < 0"), Code::invalid);
}

// Random runs, filters and orders, with writes in between and an experiment dropped from memory now and then: what is
// found is what looking at every run finds.
TEST_P(TrackOf, SearchFindsWhatLookingAtEveryRunFinds) {
  std::mt19937_64 random(4711);
  RecordProperty("seed", "4711");
  start({.search_memory_bytes = 2000});
  track->create_experiment(kFlights, "other", {}, act);
  std::vector<std::string> ids;
  const auto pick = [&](std::initializer_list<const char*> of) { return *(of.begin() + random() % of.size()); };
  const auto filter_text = [&] {
    std::string text;
    for (auto n = random() % 3; n > 0; --n) {
      if (!text.empty()) text += " AND ";
      const auto key = pick({"a", "b"});
      switch (random() % 4) {
        case 0:
          text += fmt::format("metrics.{} {} {}", key, pick({"<", ">", "=", "!=", "<=", ">="}), random() % 5);
          break;
        case 1:
          text +=
              fmt::format("params.{} {} '{}'", key, pick({"=", "!=", "LIKE", "ILIKE"}), pick({"x", "X", "%", "y%"}));
          break;
        case 2:
          text += fmt::format("tags.{} {}", key, pick({"IS NULL", "IS NOT NULL", "= 'x'"}));
          break;
        default:
          text += fmt::format("attributes.status {} 'FINISHED'", pick({"=", "!="}));
      }
    }
    return text;
  };
  const auto value_of = [](const track::Run& run, Entity entity, const std::string& key, std::string& text,
                           double& number) -> int {  // 0 missing, 1 text, 2 number
    if (entity == Entity::metric) {
      for (const auto& m : run.metrics)
        if (m.key == key) return number = m.point.value, 2;
      return 0;
    }
    if (entity == Entity::attribute) return text = name(run.info.status), 1;
    for (const auto& pair : entity == Entity::param ? run.params : run.tags)
      if (pair.key == key) return text = pair.value, 1;
    return 0;
  };
  for (int round = 0; round < 120; ++round) {
    for (auto n = random() % 4; n > 0; --n) {
      const auto choice = random() % 6;
      if (choice == 0 || ids.empty()) {
        ids.push_back(make(static_cast<std::int64_t>(random() % 2), fmt::format("r{}", ids.size())).info.run_id);
        continue;
      }
      const auto& id = ids[random() % ids.size()];
      const std::string key = pick({"a", "b"});
      try {
        if (choice == 1)
          log(id, key,
              {{static_cast<std::int64_t>(random() % 9), static_cast<std::int64_t>(random() % 9),
                random() % 8 == 0 ? std::nan("") : static_cast<double>(random() % 5)}});
        if (choice == 2) track->log(kFlights, id, {{}, {{key, pick({"x", "X", "yes"})}}, {}}, act);
        if (choice == 3) track->log(kFlights, id, {{}, {}, {{key, pick({"x", "z"})}}}, act);
        if (choice == 4) track->update_run(kFlights, id, {RunStatus::finished, {}, {}}, act);
        if (choice == 5) track->set_run_stage(kFlights, id, random() % 2 ? Stage::active : Stage::deleted, act);
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), Code::invalid) << e.what();  // a param written again, a deleted run
      }
    }
    SearchRuns search;
    search.experiments = random() % 2 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{1};
    search.filter = filter_text();
    search.view = static_cast<View>(random() % 3);
    if (random() % 2) search.order_by.push_back(fmt::format("metrics.a {}", pick({"ASC", "DESC"})));
    if (random() % 3 == 0) search.order_by.push_back(fmt::format("params.b {}", pick({"ASC", "DESC"})));
    search.offset = random() % 4;
    search.limit = 1 + random() % 12;

    const auto filter = parse_filter(search.filter, kRunGrammar);
    const auto order = parse_order_by(search.order_by, kRunGrammar);
    std::vector<track::Run> wanted;
    for (const auto& id : ids) {
      auto run = track->run(kFlights, id);
      if (std::find(search.experiments.begin(), search.experiments.end(), run.info.experiment) ==
          search.experiments.end())
        continue;
      if (search.view != View::all && (run.info.stage == Stage::active) != (search.view == View::active)) continue;
      if (std::all_of(filter.begin(), filter.end(), [&](const Comparison& c) {
            std::string text;
            double number = 0;
            const int has = value_of(run, c.entity, c.key, text, number);
            if (c.op == Op::is_null || c.op == Op::is_not_null) return (has == 0) == (c.op == Op::is_null);
            return has == 1 ? matches(c, text) : has == 2 && matches(c, number);
          }))
        wanted.push_back(std::move(run));
    }
    std::sort(wanted.begin(), wanted.end(), [&](const track::Run& a, const track::Run& b) {
      for (const auto& item : order) {
        std::string ta, tb;
        double na = 0, nb = 0;
        const int ha = value_of(a, item.entity, item.key, ta, na), hb = value_of(b, item.entity, item.key, tb, nb);
        if (!ha || !hb) {
          if (ha == hb) continue;
          return ha != 0;
        }
        if (std::isnan(na) || std::isnan(nb)) {
          if (std::isnan(na) == std::isnan(nb)) continue;
          return std::isnan(nb);
        }
        if (ta != tb) return item.ascending ? ta < tb : tb < ta;
        if (na != nb) return item.ascending ? na < nb : nb < na;
      }
      if (a.info.start_ms != b.info.start_ms) return a.info.start_ms > b.info.start_ms;
      return a.info.run_id < b.info.run_id;
    });
    std::vector<std::string> names;
    for (auto i = search.offset; i < wanted.size() && names.size() < search.limit; ++i)
      names.push_back(wanted[i].info.name);
    EXPECT_EQ(find(search), names) << "round " << round << ": " << search.filter;
    EXPECT_EQ(track->search_runs(kFlights, search).more, search.offset + names.size() < wanted.size());
  }
}

TEST_P(TrackOf, SearchesWhileOthersWrite) {
  constexpr int kWriters = 4, kRuns = 12;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < kWriters; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        const auto id = track->create_run(kFlights, {0, fmt::format("w{}-{}", t, i), "", {}, {}}, act).info.run_id;
        log(id, "m", {{i, i, static_cast<double>(i)}});
        // Whoever was answered sees it.
        EXPECT_EQ(find(fmt::format("run_id = '{}' AND metrics.m = {}", id, i)).size(), 1U);
      }
    });
  std::thread reader([&] {
    while (!done) {
      const auto found = find("metrics.m >= 0", {"metrics.m ASC"});
      EXPECT_LE(found.size(), static_cast<std::size_t>(kWriters * kRuns));
    }
  });
  for (auto& thread : threads) thread.join();
  done = true;
  reader.join();
  EXPECT_EQ(find("metrics.m >= 0").size(), static_cast<std::size_t>(kWriters * kRuns));
}

// A client whose call was cut off by the server's death asks again, and gets the run it already has.
TEST_P(TrackOf, ARunAskedForAgainAfterARestartIsTheSame) {
  base.clock.advance(std::chrono::seconds(100));
  const auto now = base.clock.wall().count() / 1000;
  const NewRun wanted{0, "", "ada", now, {{"a", "b"}}};
  const auto first = track->create_run(kFlights, wanted, act).info.run_id;
  EXPECT_NE(track->create_run(kFlights, wanted, act).info.run_id, first) << "two at once are two";
  const auto lone = track->create_run(kFlights, {0, "x", "eve", now, {}}, act).info.run_id;
  base.clock.advance(std::chrono::seconds(5));
  start();
  EXPECT_EQ(track->create_run(kFlights, {0, "x", "eve", now, {}}, act).info.run_id, lone);
  EXPECT_NE(track->create_run(kFlights, {0, "y", "eve", now, {}}, act).info.run_id, lone);
  log(lone, "m", {{1, 1, 1}});
  EXPECT_NE(track->create_run(kFlights, {0, "x", "eve", now, {}}, act).info.run_id, lone) << "it has been used since";
}

INSTANTIATE_TEST_SUITE_P(Engines, TrackOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::track
