// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/features.h"

#include <unistd.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "compute/protocol/describe.h"
#include "compute/serve/host.h"
#include "compute/serve/online_store.h"
#include "foundation/base/metrics.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/sys/random.h"
#include "foundation/sys/testing.h"
#include "lifecycle/lookup/record.h"
#include "lifecycle/lookup/values.h"
#include "storage/online/testing.h"

namespace falaj::serve {
namespace {

using graph::Element;
using testing::HasSubstr;

constexpr std::int64_t kHourUs = 3'600'000'000, kTileUs = kHourUs / 2;
const std::vector<graph::Dimension> kOneColumn = {std::string("rows")};

// Why something is refused, which it must be with that code.
std::string refused(Code code, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(name(e.code()), name(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

// A loop that turns when told.
class HandLoop final : public net::Loop {
 public:
  std::size_t index() const override { return 0; }
  void post(std::function<void()> work) override { ready_.push_back(std::move(work)); }
  void after(std::int64_t, std::function<void()>) override {}
  void turn() {
    while (!ready_.empty()) {
      auto work = std::move(ready_.front());
      ready_.pop_front();
      work();
    }
  }

 private:
  std::deque<std::function<void()>> ready_;
};

traffic::FeatureView airport() {
  traffic::FeatureView view;
  view.name = "airport";
  view.revision = 3;
  view.layout = 7;
  view.key = {{"origin", "text"}};
  view.rows = {{"last_delay", "int64"}, {"carrier", "text"}, {"opened", "date"}};
  view.request = {{"distance", "float64"}};
  view.tile_us = kTileUs;
  view.windows = {{"flights_3h", "count", 0, 3 * kHourUs}, {"mean_3h", "mean", 1, 3 * kHourUs}};
  view.ttl_us = 24 * kHourUs;
  view.expressions = {{"far", "distance > 1000 and mean_3h > 15"}};
  view.features = {"last_delay", "carrier", "opened", "mean_3h", "flights_3h", "far"};
  return view;
}

const std::vector<graph::Port> kInputs = {
    {"last_delay", Element::float32, kOneColumn}, {"carrier", Element::text, kOneColumn},
    {"opened", Element::float64, kOneColumn},     {"mean_3h", Element::float64, kOneColumn},
    {"flights_3h", Element::int64, kOneColumn},   {"far", Element::float32, kOneColumn},
    {"origin", Element::text, kOneColumn},        {"hour", Element::float32, kOneColumn}};

class FeaturesTest : public testing::Test {
 protected:
  FeaturesTest() {
    plan_.service = "late";
    plan_.revision = 2;
    plan_.views = {airport()};
    store_ = online::open_lmdb(directory_ / "online", metrics_);
    std::vector<online::NumberedKey> seal;
    seal.push_back({1, crypto::Key::random()});
    space_ = std::make_shared<const online::Space>(
        online::Space(as_bytes("airport"), crypto::Key::random(), std::move(seal)));
    plan_.views[0].space = to_hex(space_->prefix());
    told_.reader = store_;
    told_.spaces = {{plan_.views[0].space, space_of(keys())}};
    mark();
    flight("SEA", now() - 2 * kHourUs, 10);
    flight("SEA", now() - kHourUs, 30);
  }

  std::int64_t now() const { return clock_.wall().count(); }
  // As the control plane tells them.
  traffic::SpaceKeys keys() const {
    const auto secret = space_->secret();
    traffic::SpaceKeys out{to_hex(secret.prefix), to_hex(secret.address_key.view()), {}};
    for (const auto& numbered : secret.keys) out.keys.push_back({numbered.number, to_hex(numbered.key.view())});
    return out;
  }
  void mark() {
    const online::Write write{lookup::kWholeMark, {now(), now(), as_bytes("whole")}, 0};
    store_->put(*space_, std::span(&write, 1));
  }
  void flight(const std::string& origin, std::int64_t at_us, std::int64_t delay) {
    online::RowWriter row(view_.layout);
    row.set_int(0, delay);
    row.set_text(1, "AS");
    row.set_int(2, 365);
    const lookup::Value name = origin;
    const auto key = lookup::entity_key(view_.key, std::span(&name, 1));
    const BytesView all[] = {key};
    const auto sequence = ++flights_;
    store_->update(*space_, all, [&](std::size_t, const std::optional<online::Row>& old) {
      auto record = old ? lookup::Record::decode(view_, old->payload) : lookup::Record(view_);
      record.push(1, sequence, {{{at_us, at_us, sequence, {1.0, static_cast<double>(delay)}}, row.finish()}}, now());
      return std::optional(online::Changed{at_us, now(), record.encode(), 0});
    });
  }
  EndpointFeatures features() const { return EndpointFeatures(plan_, told_, counts_); }
  std::string fill(const std::string& rows, json::object* explained = nullptr,
                   std::optional<std::int64_t> as_of_us = std::nullopt,
                   const std::vector<graph::Port>& inputs = kInputs) const {
    protocol::Predict ask;
    ask.rows = parse_json(rows).as_array();
    ask.as_of_us = as_of_us;
    features().fill(ask, inputs, clock_, explained);
    // What the model gets, written as a row again.
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t row = 0; row < ask.rows.size() && !ask.columns[i].sizes.empty(); ++row) {
        const auto& column = ask.columns[i];
        const double value = column.element == Element::float32 ? static_cast<double>(column.values<float>()[row])
                                                                : column.values<double>()[row];
        if (!std::isnan(value)) ask.rows[row].get_object()[inputs[i].name] = value;
      }
    return canonical(ask.rows);
  }

  sys::TempDir directory_;
  Metrics metrics_;
  sys::SimClock clock_;
  const lookup::View view_{
      7,
      {online::Type::text},
      {{"last_delay", online::Type::int64}, {"carrier", online::Type::text}, {"opened", online::Type::date}},
      lookup::Windows(kTileUs, {{lookup::Aggregate::count, 0, 3 * kHourUs}, {lookup::Aggregate::mean, 1, 3 * kHourUs}}),
      {"flights_3h", "mean_3h"},
      24 * kHourUs};
  std::uint64_t flights_ = 0;
  std::shared_ptr<online::Store> store_;
  std::shared_ptr<const online::Space> space_;
  traffic::Features plan_;
  FeatureStore told_;
  std::shared_ptr<FeatureCounts> counts_ = std::make_shared<FeatureCounts>();
};

TEST_F(FeaturesTest, FillsWhatTheModelTakesByTheKeysOfARow) {
  EXPECT_EQ(
      fill(R"([{"origin":"SEA","distance":2000,"hour":8}])"),
      canonical(parse_json(fmt::format(
          R"([{{"origin":"SEA","hour":8,"last_delay":30.0,"carrier":"AS","opened":{}.0,"mean_3h":20.0,"flights_3h":2,"far":1.0}}])",
          365 * lookup::kDayUs))))
      << "a date is the microseconds that models of the trainer take; distance is no input, so it stays out";
  EXPECT_EQ(counts_->by_status[0], 6u);
  EXPECT_EQ(counts_->reads.count, 1u);
}

TEST_F(FeaturesTest, WhatIsNotKnownIsLeftOutAndCounted) {
  EXPECT_EQ(fill(R"([{"origin":"JFK","distance":2000}])"), R"([{"flights_3h":0,"origin":"JFK"}])")
      << "of an unknown entity: a count is 0, everything else null";
  EXPECT_EQ(counts_->by_status[static_cast<std::size_t>(online::Status::missing)], 3u);
  EXPECT_EQ(counts_->by_status[static_cast<std::size_t>(online::Status::null)], 2u);
  clock_.advance(sys::Micros(25 * kHourUs));
  EXPECT_EQ(fill(R"([{"origin":"SEA","distance":2000}])"), R"([{"flights_3h":0,"origin":"SEA"}])");
  EXPECT_EQ(counts_->by_status[static_cast<std::size_t>(online::Status::expired)], 3u);
}

TEST_F(FeaturesTest, AModelThatTakesNoNullsSaysWhichFeatureIsMissing) {
  const std::vector<graph::Port> whole = {{"last_delay", Element::int64, kOneColumn}};
  EXPECT_EQ(fill(R"([{"origin":"SEA","distance":1}])", nullptr, std::nullopt, whole), R"([{"last_delay":30}])");
  EXPECT_THAT(refused(Code::invalid,
                      [&] {
                        fill(R"([{"origin":"SEA","distance":1},{"origin":"JFK","distance":1}])", nullptr, std::nullopt,
                             whole);
                      }),
              HasSubstr("rows[1]: feature 'last_delay' of view 'airport' is missing"));
}

TEST_F(FeaturesTest, RowsNameKeysAndFieldsAndNothingThatIsLookedUp) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"([{"origin":"SEA","distance":1,"mean_3h":3}])", "rows[0].mean_3h: is looked up, by feature service 'late'"},
      {R"([{"origin":"SEA","distance":1,"gate":3}])", "rows[0].gate: is neither an input of the model nor a key"},
      {R"([{"distance":1}])", "rows[0].origin: is missing, by which feature view 'airport' finds its rows"},
      {R"([{"origin":"SEA"}])", "rows[0].distance: is missing, which expressions of feature view 'airport' need"},
      {R"([{"origin":null,"distance":1}])", "rows[0].origin: must be text"},
      {R"([{"origin":"SEA","distance":1},{"origin":7,"distance":1}])", "rows[1].origin: must be text"},
      {R"([{"origin":"SEA","distance":"far"}])", "rows[0].distance: must be a number"},
      {R"(["SEA"])", "rows[0]: must be an object"},
      {R"([])", "rows: at least one is needed"}};
  for (const auto& one : wrong) EXPECT_THAT(refused(Code::invalid, [&] { fill(one.first); }), HasSubstr(one.second));
  EXPECT_EQ(counts_->failures, 0u) << "what a caller does wrong is no failure of ours";
  EXPECT_NO_THROW(fill(R"([{"origin":"SEA","distance":null}])")) << "a field may be null, as anywhere";
}

TEST_F(FeaturesTest, ExplainsWhatWasLookedUp) {
  json::object explained;
  fill(R"([{"origin":"SEA","distance":2000},{"origin":"JFK","distance":2000}])", &explained);
  EXPECT_EQ(explained.at("service").as_string(), "late");
  EXPECT_EQ(explained.at("revision").as_int64(), 2);
  EXPECT_EQ(explained.at("as_of"), lookup::to_json(now(), online::Type::timestamp));
  const auto& columns = explained.at("columns").as_array();
  ASSERT_EQ(columns.size(), 6u);
  std::string landed;
  lookup::append_time(landed, now() - kHourUs);
  EXPECT_EQ(canonical(columns[0]), canonical(json::object{{"view", "airport"},
                                                          {"revision", 3},
                                                          {"feature", "last_delay"},
                                                          {"type", "int64"},
                                                          {"values", json::array{30, nullptr}},
                                                          {"statuses", json::array{"present", "missing"}},
                                                          {"times", json::array{landed, ""}}}));
  EXPECT_EQ(columns[2].at("values").at(0).as_string(), "1971-01-01");
}

TEST_F(FeaturesTest, AsOfIsNotBeforeTheLastWrite) {
  EXPECT_THAT(fill(R"([{"origin":"SEA","distance":1}])", nullptr, now() + 90 * kHourUs / 60),
              HasSubstr(R"("flights_3h":1)"));
  EXPECT_THAT(refused(Code::conflict, [&] { fill(R"([{"origin":"SEA","distance":1}])", nullptr, now() - 1); }),
              HasSubstr("as_of"));
}

TEST_F(FeaturesTest, WhatIsBeingErasedIsNotRead) {
  const BytesView gone[] = {lookup::kWholeMark};
  store_->erase(*space_, gone);
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(R"([{"origin":"SEA","distance":1}])"); }),
              HasSubstr("was brought online anew"));
  EXPECT_EQ(counts_->failures, 1u);
  EXPECT_EQ(counts_->by_status[0], 0u);
  mark();
  EXPECT_NO_THROW(fill(R"([{"origin":"SEA","distance":1}])"));
}

TEST_F(FeaturesTest, SaysWhyNothingCanBeLookedUp) {
  const auto row = R"([{"origin":"SEA","distance":1}])";
  const auto told = told_;
  told_.spaces.clear();
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(row); }), HasSubstr("has not told this server the keys"));
  told_ = told;
  told_.reader = nullptr;
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(row); }), HasSubstr("reaches no online store"));
  told_ = told;
  plan_.problem = "feature view 'airport' is not online: 'falaj features materialize airport' brings it there";
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(row); }),
              HasSubstr("features of service 'late': feature view 'airport' is not online"));
  plan_.problem.clear();
  plan_.views[0].windows[0].aggregate = "mode";
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(row); }),
              HasSubstr("'flights_3h' is a mode that is not known here"));
}

TEST_F(FeaturesTest, AnotherKeyOpensNothing) {
  auto other = keys();
  other.keys[0].key = std::string(64, '7');
  told_.spaces.at(other.space) = space_of(other);
  EXPECT_THAT(refused(Code::corrupt, [&] { fill(R"([{"origin":"SEA","distance":1}])"); }), HasSubstr(""));
  other = keys();
  other.address = std::string(64, '7');
  told_.spaces.at(other.space) = space_of(other);
  EXPECT_THAT(refused(Code::unavailable, [&] { fill(R"([{"origin":"SEA","distance":1}])"); }),
              HasSubstr("not in the online store"));
}

TEST_F(FeaturesTest, AViewWithoutAnEntityNeedsNoStore) {
  traffic::FeatureView view;
  view.name = "clock";
  view.request = {{"distance", "float64"}};
  view.expressions = {{"hundreds", "distance / 100"}};
  view.features = {"hundreds"};
  plan_.views = {view};
  told_ = {};
  EXPECT_EQ(fill(R"([{"distance":250},{"distance":50}])", nullptr, std::nullopt,
                 {{"hundreds", Element::float32, kOneColumn}}),
            R"([{"hundreds":2.5E0},{"hundreds":5E-1}])");
}

// y = mean_3h * 2, and what the entity is does not matter to it.
class HostWithFeatures : public FeaturesTest {
 protected:
  HostWithFeatures() : host_(clock_, nullptr, &predictions_), loader_(infer::runtime(), {}, clock_) {
    graph::Graph graph;
    const std::vector<graph::Dimension> one = {std::string("rows"), std::int64_t{1}};
    const auto x = graph.add_input("mean_3h", Element::float32, one);
    const auto by = graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{2}));
    graph.add_output("y", graph.add_node("Mul", {x, by}), Element::float32, one);
    model_ = graph::serialise(graph);
    source_.bytes = [this](const std::string&) { return model_; };
    source_.features = told_;
    sys::SimRandom random(5);
    random.fill(token_.secret);
    token_.id.bits = {random.next(), random.next()};
    headers_.add("Authorization", "Bearer " + crypto::format_credential(crypto::CredentialKind::token, token_));
  }
  void serve(std::vector<std::int64_t> explains, bool log = false) {
    traffic::Plan plan;
    for (const auto* name : {"by-key", "by-value"}) {
      traffic::Endpoint endpoint;
      endpoint.tenant = "acme";
      endpoint.project = "flights";
      endpoint.name = name;
      endpoint.variants = {{"a", "m", 1, crypto::sha256(model_).hex(), 1, false, "", ""}};
      if (endpoint.name == "by-key") endpoint.features = plan_;
      if (log) endpoint.names = true, endpoint.log.emplace();
      plan.endpoints.push_back(endpoint);
    }
    plan.callers = {{token_.id.str(),
                     crypto::sha256(BytesView(token_.secret)).hex(),
                     now() + kHourUs,
                     {0, 1},
                     std::move(explains)}};
    host_.publish(loader_.make(plan, host_.catalogue().get(), source_));
    loop_.turn();
  }
  protocol::Caller caller() const { return {&headers_, nullptr, "r1"}; }
  json::value predict(const std::string& endpoint, const std::string& rows, bool explain = false) {
    protocol::Predict ask;
    ask.model = endpoint;
    ask.rows = parse_json(rows).as_array();
    ask.explain = explain;
    std::optional<protocol::Predicted> got;
    host_.predict(caller(), std::move(ask), loop_, [&](std::variant<protocol::Predicted, Error> outcome) {
      if (auto* error = std::get_if<Error>(&outcome)) throw *error;
      got = std::get<protocol::Predicted>(std::move(outcome));
    });
    loop_.turn();
    if (!got) throw Error(Code::internal, "no answer");
    return json::object{{"rows", got->rows}, {"served", got->served}};
  }

  Bytes model_;
  crypto::Credential token_;
  net::Headers headers_;
  HandLoop loop_;
  Loader::Source source_;
  std::string logged_;  // written by one thread, read when it has flushed
  sys::SimRandom random_{3};
  Predictions predictions_{clock_, random_, [this](const LogSegment& segment) { logged_ += segment.lines; }};
  Host host_;
  Loader loader_;
};

TEST_F(HostWithFeatures, ByEntityIsTheSameAsByValue) {
  serve({0});
  const auto by_key = predict("by-key", R"([{"origin":"SEA","distance":1},{"origin":"JFK","distance":1}])");
  EXPECT_EQ(canonical(by_key.at("rows")), canonical(predict("by-value", R"([{"mean_3h":20},{}])").at("rows")));
  EXPECT_EQ(canonical(by_key.at("rows")), R"([{"y":4E1},{"y":null}])");
  EXPECT_FALSE(by_key.at("served").as_object().contains("features")) << "nobody asked";
  EXPECT_THAT(host_.metrics(caller()),
              HasSubstr(R"(falaj_serve_features_total{endpoint="acme.flights.by-key",status="missing"} 3)"));
}

TEST_F(HostWithFeatures, WhatWasLookedUpIsShownToThoseWhoMayReadIt) {
  serve({0});
  const auto shown = predict("by-key", R"([{"origin":"SEA","distance":1}])", true).at("served").at("features");
  EXPECT_EQ(shown.at("columns").at(3).at("values").at(0).as_double(), 20);
  EXPECT_THAT(refused(Code::invalid, [&] { predict("by-value", R"([{"mean_3h":20}])", true); }),
              HasSubstr("looks up no features"));
  serve({});
  EXPECT_THAT(refused(Code::denied, [&] { predict("by-key", R"([{"origin":"SEA","distance":1}])", true); }),
              HasSubstr("feature.read"));
  EXPECT_NO_THROW(predict("by-key", R"([{"origin":"SEA","distance":1}])"));
}

TEST_F(HostWithFeatures, TheLogSaysWhichFeaturesWereLookedUpAndHowNewTheyWere) {
  serve({}, true);
  predict("by-key", R"([{"origin":"SEA","distance":1},{"origin":"JFK","distance":1}])");
  predictions_.flush();
  const auto lines = split(logged_, '\n');
  ASSERT_EQ(lines.size(), 3u) << logged_;
  const auto features = [&](std::size_t row) { return std::string(parse_json(lines[row]).at("features").as_string()); };
  const auto service = fmt::format(R"({{"service":"{}@{}")", plan_.service, plan_.revision);
  EXPECT_THAT(features(0), testing::StartsWith(service));
  EXPECT_THAT(features(0), HasSubstr(fmt::format(R"("{}@{}":"20)", plan_.views[0].name, plan_.views[0].revision)));
  EXPECT_THAT(features(1), HasSubstr(fmt::format(R"("{}@{}":null)", plan_.views[0].name, plan_.views[0].revision)));
}

TEST_F(HostWithFeatures, OpenApiNamesWhatRowsMayName) {
  serve({0});
  const auto schema_of = [&](const char* endpoint) {
    const auto document = protocol::openapi(host_.describe(caller(), endpoint, ""));
    return document.at("paths")
        .at(fmt::format("/v2/models/{}/predict", endpoint))
        .at_pointer("/post/requestBody/content/application~1json/schema/properties");
  };
  const auto by_key = schema_of("by-key");
  const auto& row = by_key.at("rows").at("items");
  EXPECT_EQ(canonical(row.at("required")), R"(["origin"])");
  EXPECT_EQ(canonical(row.at("properties")), R"({"distance":{"type":"number"},"origin":{"type":"string"}})");
  EXPECT_TRUE(by_key.as_object().contains("explain"));
  EXPECT_TRUE(by_key.as_object().contains("as_of"));
  const auto by_value = schema_of("by-value");
  EXPECT_TRUE(by_value.at("rows").at("items").at("properties").as_object().contains("mean_3h"));
  EXPECT_FALSE(by_value.as_object().contains("explain"));
}

TEST_F(HostWithFeatures, CountsGoOnAndProblemsAreReported) {
  serve({});
  predict("by-key", R"([{"origin":"SEA","distance":1}])");
  source_.features.spaces.clear();
  serve({});
  EXPECT_THAT(loader_.states().at(0).reason, HasSubstr("has not told this server the keys"));
  EXPECT_EQ(loader_.states().at(0).state, "ready") << "tensors are answered all the same";
  EXPECT_THAT(host_.metrics(caller()),
              HasSubstr(R"(falaj_serve_features_total{endpoint="acme.flights.by-key",status="present"} 6)"));
}

TEST(OnlineStoreTest, KnowsWhenOtherFilesAreAtItsPlace) {
  const sys::TempDir directory;
  EXPECT_EQ(OnlineStore("", nullptr).reader(""), nullptr);
  OnlineStore none(directory / "online", nullptr);
  EXPECT_EQ(none.reader(""), nullptr);
  EXPECT_EQ(none.reader("falaj:1:"), nullptr) << "there is no Redis either";
  EXPECT_FALSE(none.was_replaced());
  Metrics metrics;
  online::open_lmdb(directory / "online", metrics);
  EXPECT_TRUE(none.was_replaced()) << "now there is one";
  OnlineStore store(directory / "online", nullptr);
  EXPECT_NE(store.reader(""), nullptr);
  EXPECT_FALSE(store.was_replaced());
  std::filesystem::remove(directory / "online/data.mdb");
  EXPECT_FALSE(store.was_replaced()) << "nothing is there that could be opened";
  std::ofstream(directory / "online/data.mdb") << "x";
  EXPECT_TRUE(store.was_replaced());
}

TEST(OnlineStoreTest, ReadsRedisOverConnectionsThatOthersMake) {
  if (!online::has_redis()) GTEST_SKIP();
  online::RedisServer server(online::RedisServer::Keeps::every_write);
  Metrics metrics;
  auto options = server.options();
  options.key_prefix = "falaj:7:";
  const auto store = online::open_redis(options, metrics);
  EXPECT_EQ(store->key_prefix(), "falaj:7:");
  const auto space = online::Space::in_the_clear(as_bytes("space"));
  const online::Write write{lookup::kWholeMark, {1, 1, as_bytes("whole")}, 0};
  store->put(space, std::span(&write, 1));

  Dialler dialler(options);
  Dialled dialled{sys::Descriptor(::dup(dialler.workers_end()))};
  dialler.given();
  OnlineStore here("", &dialled);
  const auto reader = here.reader("falaj:7:");
  EXPECT_TRUE(lookup::has_mark(*reader->snapshot(), space));
  EXPECT_FALSE(lookup::has_mark(*here.reader("falaj:8:")->snapshot(), space)) << "of another platform";
  server.kill();
  EXPECT_THAT(refused(Code::unavailable, [&] { lookup::has_mark(*reader->snapshot(), space); }), HasSubstr("redis"));
  server.start();
  EXPECT_TRUE(lookup::has_mark(*reader->snapshot(), space)) << "over a new connection";
}

TEST(OnlineStoreTest, AConnectionThatCannotBeMadeIsSaidWhy) {
  Dialler dialler(std::nullopt);
  Dialled dialled{sys::Descriptor(::dup(dialler.workers_end()))};
  dialler.given();
  EXPECT_THAT(refused(Code::unavailable, [&] { dialled.dial(); }), HasSubstr("no settings of Redis"));
}

}  // namespace
}  // namespace falaj::serve
