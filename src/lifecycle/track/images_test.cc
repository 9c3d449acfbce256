// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/images.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "governance/vault/testing.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::track {
namespace {

TEST(Column, AnImageGivesEveryValueAgain) {
  Column numbers(Column::Type::number), texts(Column::Type::text);
  for (std::size_t i = 0; i < 5000; i += 3) numbers.set(i, i % 7 == 0 ? std::nan("") : -1.5 * static_cast<double>(i));
  for (std::size_t i = 1; i < 5000; i += 2) texts.set(i, fmt::format("v{}", i % 600));
  texts.set(1030, "");
  Column numbers_again(Column::Type::number), texts_again(Column::Type::text);
  for (std::size_t first = 0; first < 5000; first += Column::kImagePlaces) {
    numbers_again.read_image(first, numbers.image(first));
    texts_again.read_image(first, texts.image(first));
  }
  EXPECT_EQ(numbers_again.count(), numbers.count());
  EXPECT_EQ(texts_again.count(), texts.count());
  for (std::size_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(numbers_again.has(i), numbers.has(i)) << i;
    ASSERT_TRUE(!numbers.has(i) || numbers.compare(i, numbers_again, i, true) == 0) << i;
    ASSERT_EQ(texts_again.has(i), texts.has(i)) << i;
    ASSERT_TRUE(!texts.has(i) || texts_again.text(i) == texts.text(i)) << i;
  }
}

TEST(Column, AnImageHasNothingOfWhatWasTaken) {
  Column column(Column::Type::text);
  column.set(1, "kept");
  column.set(2, "secret");
  column.clear(2);
  EXPECT_EQ(as_text(column.image(0)).find("secret"), std::string_view::npos);
  EXPECT_NE(as_text(column.image(0)).find("kept"), std::string_view::npos);
}

TEST(Column, ADamagedImageIsRefused) {
  for (const auto type : {Column::Type::number, Column::Type::text}) {
    Column column(type);
    for (std::size_t i = 0; i < 20; ++i)
      type == Column::Type::number ? column.set(i, 1.0) : column.set(i, std::string_view("a"));
    const auto good = column.image(0);
    for (std::size_t size = 0; size < good.size(); ++size)
      EXPECT_ERROR(Column(type).read_image(0, BytesView(good).first(size)), Code::corrupt);
    auto longer = good;
    longer.push_back(std::byte{0});
    EXPECT_ERROR(Column(type).read_image(0, longer), Code::corrupt);
    auto other = good;
    other[0] = std::byte{2};
    EXPECT_ERROR(Column(type).read_image(0, other), Code::corrupt);
    const auto wrong = type == Column::Type::number ? Column::Type::text : Column::Type::number;
    EXPECT_ERROR(Column(wrong).read_image(0, good), Code::corrupt);
  }
  Column column(Column::Type::text);
  column.set(0, std::string_view("a"));
  auto beyond = column.image(0);
  beyond[beyond.size() - 2] = std::byte{1};
  EXPECT_ERROR(Column(Column::Type::text).read_image(0, beyond), Code::corrupt);
}

class ImagesOf : public testing::TestWithParam<std::string> {
 protected:
  ImagesOf() : base(GetParam()) {
    for (const auto& module : {Track::migrations(), LoggedModels::migrations()}) base.database->migrate(module);
    track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  }
  std::string make(const std::vector<KeyValue>& params = {}) {
    const auto id = track->create_run(kFlights, {0, "", "ada", 1000, {}}, act).info.run_id;
    if (!params.empty()) track->log(kFlights, id, {{}, params, {}}, act);
    ids.push_back(id);
    return id;
  }
  // Many at once, so that they share commits; the i-th call decides what one of them logs.
  void make_many(int many, const std::function<Batch(int)>& of) {
    std::atomic<int> next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 32; ++t)
      threads.emplace_back([&] {
        for (int i = next++; i < many; i = next++)
          track->log(kFlights, track->create_run(kFlights, {0, "", "ada", 1000, {}}, act).info.run_id, of(i), act);
      });
    for (auto& thread : threads) thread.join();
    ids = base.database->read([](sql::Reader& r) {
      return r.all(
          "SELECT r.run_id FROM track_run r JOIN track_experiment e ON e.id = r.experiment WHERE"
          " e.number = 0 ORDER BY r.place",
          {}, [](const sql::Row& row) { return std::string(row.text(0)); });
    });
  }
  void remove(const std::string& id) {
    track->set_run_stage(kFlights, id, Stage::deleted, act);
    track->remove_run(
        kFlights, id, [](sql::Reader&) {}, act);
    gone.insert(id);
  }
  std::int64_t count(const char* of) {
    return base.database->read([&](sql::Reader& r) {
      const auto value = [](const sql::Row& row) { return row.integer(0); };
      return of == std::string("images") ? *r.first("SELECT COUNT(*) FROM track_image", {}, value)
                                         : *r.first("SELECT COUNT(*) FROM track_unimaged", {}, value);
    });
  }
  // What a search would see is what each run says of itself.
  void expect_columns_true() {
    std::map<ColumnKey, Column> columns;
    base.database->read([&](sql::Reader& r) {
      const auto experiment = need_experiment(r, kFlights, 0).id;
      const auto load = [&](Entity entity, const std::string& key) {
        columns.emplace(ColumnKey{entity, key}, load_column(r, experiment, {entity, key}));
      };
      for (const auto* key : {"run_id", "run_name", "user_id", "status", "stage", "start_time", "end_time"})
        load(Entity::attribute, key);
      for (const auto* key : {"often", "seldom", "late", "none"})
        for (const auto entity : {Entity::param, Entity::tag, Entity::metric}) load(entity, key);
      load(Entity::attribute, "artifact_uri");
    });
    for (std::size_t place = 0; place < ids.size(); ++place) {
      std::map<ColumnKey, std::string> expected;
      if (!gone.contains(ids[place])) {
        const auto run = track->run(kFlights, ids[place]);
        const auto attribute = [&](const char* key, std::string value) {
          expected[{Entity::attribute, key}] = std::move(value);
        };
        attribute("run_id", run.info.run_id);
        attribute("run_name", run.info.name);
        attribute("user_id", run.info.user);
        attribute("status", std::string(name(run.info.status)));
        attribute("stage", run.info.stage == Stage::active ? "active" : "deleted");
        attribute("start_time", fmt::format("{}", static_cast<double>(run.info.start_ms)));
        if (run.info.end_ms) attribute("end_time", fmt::format("{}", static_cast<double>(*run.info.end_ms)));
        attribute("artifact_uri", artifact_uri(run.info));
        for (const auto& param : run.params) expected[{Entity::param, param.key}] = param.value;
        for (const auto& tag : run.tags) expected[{Entity::tag, tag.key}] = tag.value;
        for (const auto& metric : run.metrics)
          expected[{Entity::metric, metric.key}] = fmt::format("{}", metric.point.value);
      }
      for (const auto& [key, column] : columns) {
        const auto wanted = expected.find(key);
        ASSERT_EQ(column.has(place), wanted != expected.end()) << key.key << " at " << place;
        if (!column.has(place)) continue;
        const auto got = column.type() == Column::Type::text ? std::string(column.text(place))
                                                             : fmt::format("{}", column.number(place));
        ASSERT_EQ(got, wanted->second) << key.key << " at " << place;
      }
    }
  }

  static inline const Where kFlights = vault::VaultFixture::kFlights;
  const sql::Act act = vault::VaultFixture::act();
  vault::VaultFixture base;
  std::unique_ptr<Track> track;
  std::vector<std::string> ids;  // by place
  std::set<std::string> gone;
};

TEST_P(ImagesOf, ColumnsAreTrueWhateverHappensToRuns) {
  std::mt19937_64 random(5);
  const auto pick = [&]() -> std::optional<std::string> {
    if (ids.empty()) return std::nullopt;
    const auto& id = ids[random() % ids.size()];
    if (gone.contains(id)) return std::nullopt;
    return id;
  };
  make_many(1100, [](int i) { return Batch{{}, {{"often", fmt::format("{}", i % 30)}}, {}}; });
  EXPECT_GE(count("images"), 8);
  expect_columns_true();
  const int turns = repeats(1500);
  for (int i = 0; i < turns; ++i) {
    const auto id = pick();
    if (!id) continue;
    const auto text = fmt::format("{}", random() % 40);
    const auto what = random() % 100;
    const bool active = track->run_info(kFlights, *id).stage == Stage::active;
    if (what < 10) {
      make({{"often", text}});
    } else if (what < 50 && active) {
      const auto key = random() % 20 == 0 ? "seldom" : i > turns * 2 / 3 ? "late" : "often";
      const auto model = random() % 3 == 0 ? "m-1" : "";
      track->log(kFlights, *id,
                 {{{key, {1000 + i % 7, i, static_cast<double>(random() % 100)}, model, "", ""}}, {}, {{key, text}}},
                 act);
    } else if (what < 70 && active) {
      track->update_run(kFlights, *id, {RunStatus::finished, 5000 + i, std::nullopt}, act);
    } else if (what < 85) {
      track->set_run_stage(kFlights, *id, what < 75 ? Stage::deleted : Stage::active, act);
    } else if (what < 95 && active) {
      const auto tags = track->run(kFlights, *id).tags;
      if (tags.size() > 1) track->delete_tag(kFlights, *id, tags.back().key, act);
    } else if (what == 96) {
      base.database->write(act, [&](sql::Writer& w) { Images::make(w, need_experiment(w, kFlights, 0).id); });
    }
    if (i % 500 == 250) remove(*id);
    if (i % 250 == 249) expect_columns_true();
  }
  EXPECT_GE(count("images"), 8);
  while (track->make_images(act)) {
  }
  expect_columns_true();
}

TEST_P(ImagesOf, NewRunsGetImagesOnTheWay) {
  make_many(255, [](int i) { return Batch{{}, {{"often", "a"}, {i % 20 == 0 ? "seldom" : "often2", "b"}}, {}}; });
  EXPECT_EQ(count("images"), 0);
  EXPECT_EQ(count("unimaged"), 255);
  make();
  EXPECT_GT(count("images"), 8) << "run_id, name, ..., often; not seldom, of which there are too few";
  EXPECT_EQ(count("unimaged"), 0);
  track->log(kFlights, ids[3], {{}, {{"late", "x"}}, {}}, act);
  track->log(kFlights, ids[3], {{}, {{"none", "x"}}, {}}, act);
  EXPECT_EQ(count("unimaged"), 1);
  expect_columns_true();
}

TEST_P(ImagesOf, ChangedRunsGetNewImagesToo) {
  make_many(1100, [](int) { return Batch{{}, {{"often", "a"}}, {}}; });
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t)
    threads.emplace_back([&] {
      for (auto i = next++; i < ids.size(); i = next++) track->log(kFlights, ids[i], {{}, {}, {{"late", "x"}}}, act);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LT(count("unimaged"), 700) << "they became images on the way";
  expect_columns_true();
}

TEST_P(ImagesOf, NothingOfARemovedRunStays) {
  make_many(400, [](int i) { return Batch{{}, {{"often", i == 7 ? "secret" : "a"}}, {}}; });
  const auto holds = [&] {
    bool found = false;
    base.database->read([&](sql::Reader& r) {
      r.query("SELECT data FROM track_image", {},
              [&](const sql::Row& row) { found |= as_text(row.bytes(0)).find("secret") != std::string_view::npos; });
    });
    return found;
  };
  EXPECT_TRUE(holds());
  SearchRuns search;
  search.experiments = {0};
  search.filter = "params.often = 'secret'";
  remove(track->search_runs(kFlights, search).items.at(0).info.run_id);
  EXPECT_FALSE(holds());
  expect_columns_true();
  EXPECT_TRUE(track->make_images(act));
  EXPECT_FALSE(track->make_images(act));
  EXPECT_GE(count("images"), 8);
  EXPECT_FALSE(holds());
  expect_columns_true();
}

TEST_P(ImagesOf, AnExperimentTakesTheStageOfItsRunsAlong) {
  const auto number = track->create_experiment(kFlights, "other", {}, act);
  for (int i = 0; i < 300; ++i) track->create_run(kFlights, {number, "", "", {}, {}}, act);
  track->set_experiment_stage(kFlights, number, Stage::deleted, act);
  base.database->read([&](sql::Reader& r) {
    const auto stages = load_column(r, need_experiment(r, kFlights, number).id, {Entity::attribute, "stage"});
    for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(stages.text(i), "deleted") << i;
  });
  EXPECT_GT(count("images"), 0);
}

TEST_P(ImagesOf, RunsOfBeforeThereWereImagesGetTheirs) {
  make_many(1200, [](int i) { return Batch{{}, {{"often", fmt::format("{}", i)}}, {}}; });
  base.database->write(act, [](sql::Writer& w) {
    w.execute("DELETE FROM track_image", {});
    w.execute("DELETE FROM track_unimaged", {});
  });
  expect_columns_true();
  track->log(kFlights, ids[5], {{}, {}, {{"late", "x"}}}, act);
  expect_columns_true();
  int steps = 0;
  while (track->make_images(act)) ++steps;
  EXPECT_EQ(steps, 2) << "chunks";
  EXPECT_EQ(count("unimaged"), 0);
  expect_columns_true();
}

INSTANTIATE_TEST_SUITE_P(Engines, ImagesOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::track
