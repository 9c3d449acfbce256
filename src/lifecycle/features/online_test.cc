// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "lifecycle/data/testing.h"
#include "lifecycle/features/features.h"
#include "lifecycle/lookup/values.h"
#include "storage/online/testing.h"

namespace falaj::features {
namespace {

using data::DataFixture;
using lookup::Aggregate;
using online::Status;
using online::Type;

constexpr std::int64_t kSecond = 1'000'000, kSkew = 300 * kSecond;
const Where& kFlights = DataFixture::kFlights;

std::optional<std::string> anything(std::string_view, const iam::Scope&) { return std::nullopt; }
std::string time_text(std::int64_t us) { return std::string(lookup::to_json(us, Type::timestamp).as_string()); }

struct FeatureColumn {
  std::string name;
  online::Type type = online::Type::float64;
  std::vector<lookup::Value> values;
  std::vector<online::Status> statuses;
  std::vector<std::int64_t> event_us;
};

class Collecting final : public FeatureSink {
 public:
  explicit Collecting(const Selection& selection) : selection_(selection) {}
  std::vector<FeatureColumn> columns;

  void begin() override {
    columns.clear();
    for (const auto& view : selection_)
      for (std::size_t f = 0; f < view.places.size(); ++f)
        columns.push_back({view.features[f], view.places[f].type, {}, {}, {}});
  }
  void add(std::size_t feature, std::size_t entity, const FeatureCell& cell) override {
    auto& column = columns[feature];
    ASSERT_EQ(entity, column.values.size()) << "entities come in their order";
    column.statuses.push_back(cell.status);
    column.event_us.push_back(cell.event_us);
    auto& value = column.values.emplace_back();
    if (cell.status != online::Status::present) return;
    if (column.type == online::Type::boolean)
      value = cell.whole != 0;
    else if (column.type == online::Type::float32 || column.type == online::Type::float64)
      value = cell.real;
    else if (column.type == online::Type::text || column.type == online::Type::bytes)
      value = std::string(cell.text);
    else
      value = cell.whole;
  }

 private:
  const Selection& selection_;
};

class OnlineTest : public ::testing::TestWithParam<std::string> {
 protected:
  OnlineTest() {
    // Redis drops by its own clock what has expired: the time of these tests lies after it.
    pass_time(std::int64_t{40} * 365 * 86'400 * kSecond);
    f_.base.database->migrate(Online::migrations());
    open();
  }
  void open() {
    online_ = std::make_unique<Online>(*f_.base.database, *f_.resources, *f_.datasets, store_->store(), key_,
                                       f_.base.clock, *f_.base.metrics);
    online_->start();
  }
  void restart() {
    online_.reset();
    f_.restart();
    f_.base.database->migrate(Online::migrations());
    open();
  }
  std::int64_t now() const { return f_.base.clock.wall().count(); }
  void pass_time(std::int64_t us) { f_.base.clock.advance(sys::Micros(us)); }
  static sql::Act act() { return DataFixture::act(); }
  OnlineView materialise(const std::string& view = "view", Materialise how = {}) {
    return online_->materialiser().run(kFlights, view, how, act());
  }
  std::vector<FeatureColumn> get(const std::vector<std::string>& features, const std::vector<std::string>& keys,
                                 std::optional<std::int64_t> as_of = std::nullopt) {
    Entities entities;
    auto& column = entities.columns.emplace_back("k", std::vector<lookup::Value>());
    for (const auto& key : keys) column.second.emplace_back(key);
    return get(*online_->definitions().select(kFlights, features), entities, as_of);
  }
  std::vector<FeatureColumn> get(const Selection& selection, const Entities& entities,
                                 std::optional<std::int64_t> as_of = std::nullopt) {
    Collecting collecting(selection);
    online_->views().get(selection, entities, as_of, collecting);
    return collecting.columns;
  }
  // "value status", of one entity.
  std::string one(const std::string& feature, const std::string& key,
                  std::optional<std::int64_t> as_of = std::nullopt) {
    static constexpr const char* kStatus[] = {"present", "null", "missing", "expired"};
    const auto got = get({"view:" + feature}, {key}, as_of);
    return json::serialize(lookup::to_json(got[0].values[0], got[0].type)) + " " +
           kStatus[static_cast<std::size_t>(got[0].statuses[0])];
  }
  Taken push(const std::vector<std::string>& rows, Push how = {}) {
    JsonRows parsed;
    for (const auto& row : rows) parsed.push_back(parse_json(row).as_object());
    return online_->pushes().push(kFlights, "events", parsed, how, act());
  }
  std::string row(std::int64_t at, const std::string& key, double v) {
    return fmt::format(R"({{"t":"{}","k":"{}","v":{},"known":"{}"}})", time_text(at), key, v, time_text(at));
  }
  void declare_events() {
    f_.declare(
        "events",
        "{columns: [{name: t, type: timestamp, nullable: false}, {name: known, type: timestamp}, {name: k, type: "
        "text}, {name: v, type: float64}, {name: w, type: text}], time: t}");
    f_.apply(
        "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: thing}, spec: "
        "{key: [{name: k, type: text}]}}");
  }
  void declare_view(const std::string& spec, const std::string& name = "view") {
    f_.apply(
        fmt::format("apiVersion: falaj/v1\nkind: FeatureView\nmetadata: {{tenant: acme, project: flights, name: "
                    "{}}}\nspec: {}\n",
                    name, spec));
  }

  DataFixture f_{"sqlite", {}, feature_kinds()};
  const crypto::Key key_ = crypto::Key::random();
  std::unique_ptr<online::Scratch> store_ = online::make_scratch(GetParam());
  std::unique_ptr<Online> online_;
};

constexpr auto kView = R"({entity: thing, dataset: events, time: t, available: known, ttl: 1h, tile: 1m,
  features: [{name: v}, {name: word, column: w}],
  aggregates: [{name: n, aggregate: count, window: 10m}, {name: total, aggregate: sum, of: v, window: 10m}]})";

TEST_P(OnlineTest, TellsWhatIsThereMissingAndTooOld) {
  declare_events();
  declare_view(kView);
  EXPECT_ERROR(one("v", "a"), Code::conflict);  // not online yet
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n{0},{0},b,,\n", time_text(now() - kSecond)));
  const auto done = materialise();
  EXPECT_EQ(done.done->version, 1);
  EXPECT_EQ(one("v", "a"), "5E0 present");
  EXPECT_EQ(one("word", "a"), "\"x\" present");
  EXPECT_EQ(one("v", "b"), "null null");
  EXPECT_EQ(one("v", "c"), "null missing");
  EXPECT_EQ(one("n", "a"), "1 present");
  EXPECT_EQ(one("n", "c"), "0 present");
  EXPECT_EQ(one("total", "c"), "null null");
  EXPECT_EQ(get({"view:v"}, {"a"})[0].event_us[0], now() - kSecond);
  pass_time(3600 * kSecond);
  EXPECT_EQ(one("v", "a"), "null expired");
  EXPECT_EQ(one("n", "a"), "0 present");
  EXPECT_ERROR(one("v", "a", now() - 2 * 3600 * kSecond), Code::conflict);  // that is for training sets
}

TEST_P(OnlineTest, APushIsKnownWhenItReturnsAndOnce) {
  declare_events();
  declare_view(kView);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  EXPECT_FALSE(push({row(now(), "a", 7), row(now(), "b", 1)}, {"first", {}}).again);
  EXPECT_EQ(one("v", "a"), "7E0 present");
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  EXPECT_TRUE(push({row(now(), "a", 7), row(now(), "b", 1)}, {"first", {}}).again);
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  restart();  // what is in no version is brought again, and changes nothing
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  const auto version = online_->pushes().flush(kFlights, "events", act());
  ASSERT_TRUE(version);
  EXPECT_EQ(version->rows, 3);
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  push({row(now(), "a", 1)});
  EXPECT_EQ(materialise().done->version, 2);  // the flushed rows are now the base's
  EXPECT_EQ(one("total", "a"), "1.3E1 present");
  materialise("view", {{}, true});
  EXPECT_EQ(one("total", "a"), "1.3E1 present");
  EXPECT_FALSE(online_->pushes().flush(kFlights, "events", act()) == std::nullopt);
  EXPECT_EQ(online_->pushes().flush(kFlights, "events", act()), std::nullopt);
  EXPECT_EQ(one("total", "a"), "1.3E1 present");
}

TEST_P(OnlineTest, AFlushWhileAPassBeginsTakesNothingBack) {
  declare_events();
  declare_view(kView);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  push({row(now(), "a", 7)});
  bool flushed = false;
  Materialiser interrupted(*f_.base.database, online_->views(), *f_.datasets, f_.base.clock, *f_.base.metrics,
                           [&](const Where& where, const std::string& dataset, const std::function<bool()>& begin) {
                             if (!std::exchange(flushed, true)) online_->pushes().flush(where, dataset, act());
                             online_->pushes().pause(where, dataset, begin);
                           });
  EXPECT_EQ(interrupted.run(kFlights, "view", {{}, true}, act()).done->version, 2);
  EXPECT_EQ(one("v", "a"), "7E0 present");
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
}

TEST_P(OnlineTest, RefusesAPushThatIsWrongAsAWhole) {
  declare_events();
  declare_view(kView);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  EXPECT_ERROR(push({row(now(), "a", 7), R"({"t":"yesterday","k":"a"})"}), Code::invalid);
  EXPECT_ERROR(push({row(now(), "a", 7), R"({"k":"a"})"}), Code::invalid);
  EXPECT_ERROR(push({R"({"t":"2001-01-01T00:00:00Z","k":"a","x":1})"}), Code::invalid);
  EXPECT_ERROR(push({row(now() + 2 * kSkew, "a", 7)}), Code::invalid);
  EXPECT_ERROR(push({}), Code::invalid);
  EXPECT_EQ(one("total", "a"), "5E0 present");
  EXPECT_EQ(online_->pushes().waiting(kFlights, "events"), 0);
}

TEST_P(OnlineTest, AnotherMeaningNeverReadsTheRowsOfTheOld) {
  declare_events();
  declare_view(kView);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  declare_view("{entity: thing, dataset: events, time: t, tile: 1m, features: [{name: v, column: w}]}");
  EXPECT_ERROR(one("v", "a"), Code::conflict);  // not online
  EXPECT_EQ(json::serialize(lookup::to_json(get({"view@1:v"}, {"a"})[0].values[0], Type::float64)), "5E0");
  materialise();
  EXPECT_EQ(one("v", "a"), "\"x\" present");
  push({row(now(), "a", 9)});  // goes into both
  EXPECT_EQ(json::serialize(lookup::to_json(get({"view@1:v"}, {"a"})[0].values[0], Type::float64)), "9E0");
  EXPECT_EQ(one("v", "a"), "null null");
  const auto unused = [&](const OnlineView& view) { return online_->is_used(view); };
  f_.apply(
      "{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
      "{features: [\"view@1:v\"]}}");
  EXPECT_EQ(online_->materialiser().remove_unused(kFlights, unused, act()), 0U);
  f_.apply(
      "{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
      "{features: [\"view:v\"]}}");
  EXPECT_EQ(online_->materialiser().remove_unused(kFlights, unused, act()), 1U);
  EXPECT_ERROR(get({"view@1:v"}, {"a"}), Code::conflict);
}

TEST_P(OnlineTest, ExpressionsSayTheSameOnlineAndInTrainingSets) {
  declare_events();
  declare_view(R"yaml({entity: thing, dataset: events, time: t, tile: 1m, features: [{name: newest, column: v}],
    aggregates: [{name: n, aggregate: count, window: 10m}, {name: total, aggregate: sum, of: v, window: 10m}],
    request: [{name: x, type: float64}, {name: word, type: text}],
    expressions: [{name: ratio, is: "x / total"}, {name: big, is: "case when word = 'all' then true else n > 1 end"},
                  {name: hour, is: "if(x > 2, 'late', word)"}]})yaml");
  declare_view("{request: [{name: x, type: float64}], expressions: [{name: twice, is: x * 2}]}", "alone");
  EXPECT_ERROR(materialise("alone"), Code::invalid);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n{0},{0},a,3,x\n{0},{0},b,1,x\n", time_text(now())));
  materialise();
  Entities asked{{{"k", {lookup::Value("a"), lookup::Value("b"), lookup::Value("c")}},
                  {"x", {4.0, lookup::Value(), 3.0}},
                  {"word", {lookup::Value("some"), lookup::Value("all"), lookup::Value()}}}};
  const auto got =
      get(*online_->definitions().select(kFlights, {"view:ratio", "view:big", "view:hour", "alone:twice"}), asked);
  std::vector<std::string> online(3);
  for (const auto& column : got)
    for (std::size_t i = 0; i < 3; ++i)
      online[i] += "|" + json::serialize(lookup::to_json(column.values[i], column.type));
  EXPECT_EQ(online, (std::vector<std::string>{"|5E-1|true|\"late\"|8E0", "|null|true|\"all\"|null",
                                              "|null|false|\"late\"|6E0"}));
  f_.apply(
      "{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
      "{features: [\"view:ratio\", \"view:big\", \"view:hour\", \"alone:twice\"]}}");
  f_.declare("spine",
             "{columns: [{name: at, type: timestamp}, {name: k, type: text}, {name: x, type: float64}, {name: "
             "word, type: text}], time: at}");
  f_.ingest("spine", fmt::format("at,k,x,word\n{0},a,4,some\n{0},b,,all\n{0},c,3,\n", time_text(now())));
  Features features(*f_.base.database, *f_.resources, *f_.datasets, online_->definitions());
  const auto set = features.train_set(kFlights, {"s", {"spine", std::nullopt}, "", "set"}, anything, act());
  EXPECT_EQ(f_.rows(set, "SELECT k, ratio, big, hour, twice FROM v"),
            (std::vector<std::string>{"a|0.5|1|late|8", "b|null|1|all|null", "c|null|0|late|6"}));
  EXPECT_ERROR(declare_view("{request: [{name: x, type: float64}], expressions: [{name: twice, is: y * 2}]}", "alone"),
               Code::invalid);
}

TEST_P(OnlineTest, AStoreThatWasLostIsFilledAgain) {
  declare_events();
  declare_view(kView);
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  push({row(now(), "a", 7)});
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  online_.reset();
  store_ = online::make_scratch(GetParam());
  open();
  EXPECT_ERROR(one("total", "a"), Code::conflict);  // rather than a wrong answer
  online_->upkeep([] { return true; });
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
  restart();
  EXPECT_EQ(one("total", "a"), "1.2E1 present");
}

TEST_P(OnlineTest, FollowsItsDatasetAndStoresWhatWasPushed) {
  declare_events();
  declare_view("{entity: thing, dataset: events, time: t, materialize: 1m, features: [{name: v}]}");
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,6,x\n", time_text(now())));
  const auto always = [] { return true; };
  online_->upkeep(always);
  EXPECT_EQ(one("v", "a"), "5E0 present");  // not a minute yet
  pass_time(61 * kSecond);
  online_->upkeep(always);
  EXPECT_EQ(one("v", "a"), "6E0 present");
  push({row(now(), "a", 7)});
  pass_time(3600 * kSecond);
  online_->upkeep(always);
  EXPECT_EQ(online_->pushes().waiting(kFlights, "events"), 0);
  EXPECT_EQ(f_.datasets->version(kFlights, "events", std::nullopt).rows, 3);
  EXPECT_EQ(one("v", "a"), "7E0 present");
}

TEST_P(OnlineTest, ARevisionThatAServicePinsIsBroughtOnlineAndFollows) {
  declare_events();
  const std::string every = "{entity: thing, dataset: events, time: t, materialize: 1m, ";
  declare_view(every + "features: [{name: v}]}");
  declare_view(every + "features: [{name: v, column: w}]}");
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,5,x\n", time_text(now() - kSecond)));
  materialise();
  const auto serve = [&](const char* feature) {
    f_.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: FeatureService, metadata: {{tenant: acme, project: flights, name: "
                    "s}}, spec: {{features: [\"{}\"]}}}}",
                    feature));
  };
  serve("view@1:v");
  const auto pinned = [&] { return get({"view@1:v"}, {"a"})[0].values[0]; };
  EXPECT_ERROR(pinned(), Code::conflict);
  EXPECT_EQ(materialise("view", {{}, false, 1}).revision, 1);
  EXPECT_EQ(pinned(), lookup::Value(5.0));
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,6,y\n", time_text(now())));
  pass_time(61 * kSecond);
  online_->upkeep([] { return true; });
  EXPECT_EQ(pinned(), lookup::Value(6.0));
  EXPECT_EQ(one("v", "a"), "\"y\" present");
  EXPECT_ERROR(materialise("view", {{}, false, 7}), Code::not_found);
  serve("view:v");  // it stays as it is, until it is removed
  f_.ingest("events", fmt::format("t,known,k,v,w\n{0},{0},a,7,z\n", time_text(now())));
  pass_time(61 * kSecond);
  online_->upkeep([] { return true; });
  EXPECT_EQ(pinned(), lookup::Value(6.0));
}

// Rows of one time, of a query that gives them in any order: the last is the one with the greatest values, everywhere.
TEST_P(OnlineTest, RowsOfAQueryThatTellsApartAreInTheOrderOfTheirValues) {
  declare_events();
  declare_view(
      "{entity: thing, dataset: events, sql: 'SELECT DISTINCT k, t, v FROM events', time: t, tile: 1m, features: "
      "[{name: "
      "v}], aggregates: [{name: newest, aggregate: last, of: v, window: 10m}]}");
  std::string csv = "t,known,k,v,w\n";
  for (int i = 0; i < 50; ++i) csv += fmt::format("{0},,a,{1},\n{0},,a,{1},\n", time_text(now()), i * 37 % 50);
  f_.ingest("events", csv);
  materialise();
  EXPECT_EQ(one("v", "a"), "4.9E1 present");
  EXPECT_EQ(one("newest", "a"), "4.9E1 present");
  f_.apply(
      "{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
      "{features: [\"view:*\"]}}");
  f_.declare("spine", "{columns: [{name: at, type: timestamp}, {name: k, type: text}], time: at}");
  f_.ingest("spine", fmt::format("at,k\n{},a\n", time_text(now())));
  Features features(*f_.base.database, *f_.resources, *f_.datasets, online_->definitions());
  const auto set = features.train_set(kFlights, {"s", {"spine", std::nullopt}, "", "set"}, anything, act());
  EXPECT_EQ(f_.rows(set, "SELECT v, newest FROM v"), (std::vector<std::string>{"49|49"}));
}

// ---- everything at once, compared with the definition
struct Given {
  std::int64_t at = 0;
  std::optional<std::int64_t> known;
  std::string key;
  std::optional<double> value;
  bool pushed = false;
  std::int64_t version = 0;          // that it is a row of; 0 = none yet
  std::int64_t gone_in = INT64_MAX;  // the version that overwrote it
  std::uint64_t order = 0;           // among the rows
};
struct Window {
  Aggregate aggregate = Aggregate::count;
  std::int64_t window = 0;
  bool big = false;  // only values over 3
};

lookup::Cell naive(const Window& w, std::int64_t tile, const std::vector<const Given*>& known, std::int64_t t) {
  std::vector<const Given*> in;
  for (const auto* e : known) {
    const auto begin = (e->at >= 0 ? e->at / tile : -((-e->at + tile - 1) / tile)) * tile;
    if (begin > t - w.window && e->value && (!w.big || *e->value > 3)) in.push_back(e);
  }
  double sum = 0, squares = 0;
  std::set<double> different;
  const Given* last = nullptr;
  for (const auto* e : in) {
    sum += *e->value;
    different.insert(*e->value);
    if (!last || std::tie(e->at, *e->known, e->order) >= std::tie(last->at, *last->known, last->order)) last = e;
  }
  const auto n = static_cast<double>(in.size());
  if (w.aggregate == Aggregate::count) return n;
  if (w.aggregate == Aggregate::distinct_approx) return static_cast<double>(different.size());
  if (in.empty()) return std::nullopt;
  for (const auto* e : in) squares += (*e->value - sum / n) * (*e->value - sum / n);
  switch (w.aggregate) {
    case Aggregate::sum:
      return sum;
    case Aggregate::mean:
      return sum / n;
    case Aggregate::min:
      return *different.begin();
    case Aggregate::max:
      return *different.rbegin();
    case Aggregate::stddev:
      return in.size() < 2 ? lookup::Cell() : std::sqrt(squares / (n - 1));
    default:
      return *last->value;
  }
}

std::uint64_t cases() {
  const auto* text = std::getenv("FALAJ_CASES");
  return text ? std::strtoull(text, nullptr, 10) : repeats(12);
}

class Story : public OnlineTest {
 protected:
  static constexpr const char* kKeys[] = {"a", "b", "c", "d"};

  void begin(std::uint64_t seed) {
    dice_ = std::make_unique<sys::SimRandom>(seed);
    tile_ = kSecond * static_cast<std::int64_t>(1 + dice_->below(90));
    windows_.clear();
    std::string aggregates;
    for (std::size_t i = 0, n = 1 + dice_->below(6); i < n; ++i) {
      Window w{lookup::kAggregates[dice_->below(std::size(lookup::kAggregates))],
               tile_ * static_cast<std::int64_t>(1 + dice_->below(40)), dice_->below(3) == 0};
      aggregates +=
          fmt::format("{}{{name: f{}, aggregate: {}, of: v, window: {}us{}}}", i == 0 ? "" : ", ", i,
                      lookup::name(w.aggregate), w.window, w.big ? ", where: [{column: v, is: '>', value: 3}]" : "");
      windows_.push_back(w);
    }
    ttl_ = dice_->below(2) ? std::optional(kSecond * static_cast<std::int64_t>(1 + dice_->below(2000))) : std::nullopt;
    late_ = dice_->below(2) == 0;
    const auto* sql = dice_->below(3) == 0 ? "sql: 'SELECT * FROM events WHERE v IS NULL OR v < 8', " : "";
    only_small_ = *sql != 0;
    // Another name each time: what earlier cases left is of no concern.
    name_ = fmt::format("view{}", seed);
    events_ = fmt::format("events{}", seed);
    f_.declare(
        events_,
        "{columns: [{name: t, type: timestamp}, {name: known, type: timestamp}, {name: k, type: text}, {name: v, "
        "type: float64}], time: t}");
    auto text = fmt::format(
        "{{entity: thing, dataset: {}, {}time: t, {}tile: {}us, {}features: [{{name: newest, column: v}}], "
        "aggregates: [{}]}}",
        events_, sql, late_ ? "available: known, " : "", tile_, ttl_ ? fmt::format("ttl: {}us, ", *ttl_) : "",
        aggregates);
    if (const auto at = text.find("FROM events"); at != std::string::npos) text.replace(at, 11, "FROM " + events_);
    declare_view(text, name_);
    given_.clear();
    base_.reset();
    versions_ = 0;
  }
  Given random_event(bool pushed) {
    Given e;
    const auto back = static_cast<std::int64_t>(dice_->below(dice_->below(3) == 0 ? 4000 : 60));
    e.at = now() - back * kSecond + static_cast<std::int64_t>(dice_->below(40)) * kSecond;  // some a little ahead
    if (dice_->below(3) == 0) e.at = e.at / tile_ * tile_ + static_cast<std::int64_t>(dice_->below(3)) - 1;
    if (!late_)
      e.known = e.at;
    else if (dice_->below(12) != 0)
      e.known = e.at + (dice_->below(2) ? 0 : static_cast<std::int64_t>(dice_->below(600)) * kSecond);
    e.key = kKeys[dice_->below(std::size(kKeys))];
    if (dice_->below(8) != 0) e.value = static_cast<double>(dice_->below(10));
    e.pushed = pushed;
    return e;
  }
  std::vector<Given> random_events(bool pushed) {
    std::vector<Given> out;
    for (std::size_t i = 0, n = 1 + dice_->below(20); i < n; ++i) {
      out.push_back(random_event(pushed));
      if (dice_->below(8) == 0) out.push_back(out.back());  // twice
      if (dice_->below(8) == 0 && !given_.empty()) {        // or again, much later
        auto again = given_[dice_->below(given_.size())];
        again.pushed = pushed, again.version = 0, again.gone_in = INT64_MAX;
        out.push_back(again);
      }
    }
    return out;
  }
  void ingest() {
    const bool overwrite = versions_ > 0 && dice_->below(8) == 0;
    auto rows = random_events(false);
    std::string csv = "t,known,k,v\n";
    for (const auto& e : rows)
      csv += fmt::format("{},{},{},{}\n", time_text(e.at), e.known ? time_text(*e.known) : "", e.key,
                         e.value ? fmt::format("{}", *e.value) : "");
    const auto version =
        f_.ingest(events_, csv, data::Format::csv, overwrite ? data::Mode::overwrite : data::Mode::append);
    versions_ = version.number;
    if (overwrite)
      for (auto& e : given_)
        if (e.version != 0) e.gone_in = std::min(e.gone_in, version.number);
    // A file lies in the order of its time.
    std::stable_sort(rows.begin(), rows.end(), [](const Given& a, const Given& b) { return a.at < b.at; });
    for (auto& e : rows) {
      e.version = version.number;
      given_.push_back(e);
    }
  }
  void push_some() {
    const auto rows = random_events(true);
    JsonRows json_rows;
    for (const auto& e : rows)
      json_rows.push_back({{"t", time_text(e.at)},
                           {"known", e.known ? json::value(time_text(*e.known)) : json::value(nullptr)},
                           {"k", e.key},
                           {"v", e.value ? json::value(*e.value) : json::value(nullptr)}});
    const auto id = dice_->below(2) ? fmt::format("push {}", dice_->next()) : std::string();
    for (int times = id.empty() ? 1 : 2; times > 0; --times)
      online_->pushes().push(kFlights, events_, json_rows, {id, {}}, act());
    given_.insert(given_.end(), rows.begin(), rows.end());
  }
  void flush() {
    const auto version = online_->pushes().flush(kFlights, events_, act());
    if (!version) return;
    versions_ = version->number;
    for (auto& e : given_)
      if (e.pushed && e.version == 0) e.version = version->number;
  }
  void bring_online() {
    if (versions_ == 0) return;
    const auto row = materialise(name_, {{}, dice_->below(4) == 0});
    base_ = row.done;
  }
  // What a reader can have heard of: the base, and what was pushed beside it.
  std::vector<Given> visible() const {
    std::vector<Given> out;
    for (const auto& e : given_) {
      const bool in_base = base_ && e.version != 0 && e.version <= base_->version && e.gone_in > base_->version &&
                           e.at <= base_->end_us + kSkew;
      const bool beside = e.pushed && (e.version == 0 || e.version > base_->version);
      if (in_base || beside) out.push_back(e);
    }
    // Rows of versions in their order, then what was pushed since.
    std::stable_sort(out.begin(), out.end(), [](const Given& a, const Given& b) {
      return (a.version == 0 ? INT64_MAX : a.version) < (b.version == 0 ? INT64_MAX : b.version);
    });
    for (std::size_t i = 0; i < out.size(); ++i) out[i].order = i;
    return out;
  }
  std::vector<lookup::Cell> expected(const std::vector<Given>& events, const std::string& key, std::int64_t t) const {
    std::vector<const Given*> known;
    for (const auto& e : events)
      if (e.key == key && e.known && std::max(e.at, *e.known) <= t && !(only_small_ && e.value && *e.value >= 8))
        known.push_back(&e);
    const Given* newest = nullptr;
    for (const auto* e : known)
      if (!newest || std::tie(e->at, *e->known, e->order) >= std::tie(newest->at, *newest->known, newest->order))
        newest = e;
    if (newest && ttl_ && newest->at < t - *ttl_) newest = nullptr;
    std::vector<lookup::Cell> out{newest && newest->value ? lookup::Cell(*newest->value) : lookup::Cell()};
    for (const auto& w : windows_) out.push_back(naive(w, tile_, known, t));
    return out;
  }
  static void expect_same(const lookup::Value& got, const lookup::Cell& wanted, const std::string& what) {
    lookup::Cell cell;
    if (const auto* real = std::get_if<double>(&got)) cell = *real;
    if (const auto* whole = std::get_if<std::int64_t>(&got)) cell = static_cast<double>(*whole);
    ASSERT_EQ(cell.has_value(), wanted.has_value()) << what;
    if (cell) {
      ASSERT_NEAR(*cell, *wanted, 1e-9 * std::max(1.0, std::abs(*wanted))) << what;
    }
  }
  void compare_with_naive() {
    if (!base_) return;
    const auto events = visible();
    const std::vector<std::string> keys(std::begin(kKeys), std::end(kKeys));
    const auto got = get({name_ + ":*"}, keys);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const auto wanted = expected(events, keys[k], now());
      for (std::size_t f = 0; f < got.size(); ++f) {
        expect_same(got[f].values[k], wanted[f], fmt::format("{} of {}", got[f].name, keys[k]));
        if (HasFatalFailure()) return;
      }
    }
  }
  // When all is stored and online, a training set as of now says the same.
  void compare_with_offline() {
    flush();
    bring_online();
    if (!base_) return;
    compare_with_naive();
    const auto service = name_ + "-service", spine = name_ + "-spine";
    f_.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: FeatureService, metadata: {{tenant: acme, project: flights, name: "
                    "{}}}, spec: {{features: [\"{}:*\"]}}}}",
                    service, name_));
    f_.declare(spine, "{columns: [{name: at, type: timestamp}, {name: k, type: text}], time: at}");
    std::string csv = "at,k\n";
    for (const auto* key : kKeys) csv += fmt::format("{},{}\n", time_text(now()), key);
    f_.ingest(spine, csv, data::Format::csv, data::Mode::overwrite);
    Features features(*f_.base.database, *f_.resources, *f_.datasets, online_->definitions());
    const auto set =
        features.train_set(kFlights, {service, {spine, std::nullopt}, "", name_ + "-set"}, anything, act());
    std::string columns = "k, newest";
    for (std::size_t i = 0; i < windows_.size(); ++i) columns += fmt::format(", f{}", i);
    const auto offline = f_.rows(set, "SELECT " + columns + " FROM v");
    const auto got = get({name_ + ":*"}, {std::begin(kKeys), std::end(kKeys)});
    const auto room = f_.datasets->room();
    f_.datasets->open(*room, kFlights, set, "v");
    std::size_t row = 0;
    room->query("SELECT " + columns + " FROM v ORDER BY k", {}, [&](const table::Chunk& chunk) {
      for (std::size_t i = 0; i < chunk.rows(); ++i, ++row)
        for (std::size_t f = 0; f < got.size(); ++f) {
          const auto wanted = chunk.is_null(f + 1, i) ? lookup::Cell() : lookup::Cell(chunk.real(f + 1, i));
          expect_same(got[f].values[row], wanted, fmt::format("offline: {} of {}", got[f].name, kKeys[row]));
        }
      return true;
    });
    ASSERT_EQ(row, std::size(kKeys));
  }

  std::unique_ptr<sys::SimRandom> dice_;
  std::int64_t tile_ = 0;
  std::vector<Window> windows_;
  std::optional<std::int64_t> ttl_;
  bool late_ = false, only_small_ = false;
  std::string name_, events_;
  std::vector<Given> given_;
  std::optional<Pass> base_;
  std::int64_t versions_ = 0;
};

TEST_P(Story, OnlineSaysWhatTrainingSetsAndTheDefinitionSay) {
  f_.apply(
      "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: thing}, spec: "
      "{key: [{name: k, type: text}]}}");
  const auto* only = std::getenv("FALAJ_SEED");
  const auto first = only ? std::strtoull(only, nullptr, 10) : 0;
  for (std::uint64_t seed = first; seed < (only ? first + 1 : cases()); ++seed) {
    SCOPED_TRACE(seed);
    begin(seed);
    ingest();
    bring_online();
    for (std::size_t step = 0, n = 4 + dice_->below(12); step < n && !HasFailure(); ++step) {
      switch (dice_->below(8)) {
        case 0:
          ingest();
          break;
        case 1:
        case 2:
        case 3:
          push_some();
          break;
        case 4:
          flush();
          break;
        case 5:
          bring_online();
          break;
        case 6:
          if (dice_->below(4) == 0) restart();
          break;
        default:
          break;
      }
      pass_time(static_cast<std::int64_t>(dice_->below(dice_->below(5) == 0 ? 3000 : 30)) * kSecond);
      compare_with_naive();
    }
    if (HasFailure()) return;
    compare_with_offline();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(, OnlineTest, ::testing::ValuesIn(online::engines()));
INSTANTIATE_TEST_SUITE_P(, Story, ::testing::ValuesIn(online::engines()));

}  // namespace
}  // namespace falaj::features
