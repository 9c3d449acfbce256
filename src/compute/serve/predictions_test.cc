// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/predictions.h"

#include <deque>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "compute/serve/host.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/sys/random.h"

namespace falaj::serve {
namespace {

using testing::HasSubstr;
using testing::Not;

class TurnedLoop final : public net::Loop {
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

// double = 2 age, echo = who, same = where (two numbers).
Bytes people_model(bool with_more = false) {
  const graph::Dimension rows = std::string("rows");
  graph::Graph graph;
  const auto age = graph.add_input("age", graph::Element::float32, {rows, std::int64_t{1}});
  const auto who = graph.add_input("who", graph::Element::text, {rows, std::int64_t{1}});
  const auto where = graph.add_input("where", graph::Element::float32, {rows, std::int64_t{2}});
  const auto two = graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{2}));
  graph.add_output("double", graph.add_node("Mul", {age, two}), graph::Element::float32, {rows, std::int64_t{1}});
  graph.add_output("echo", graph.add_node("Identity", {who}), graph::Element::text, {rows, std::int64_t{1}});
  graph.add_output("same", graph.add_node("Identity", {where}), graph::Element::float32, {rows, std::int64_t{2}});
  if (with_more) {
    const auto more = graph.add_input("more", graph::Element::int64, {rows, std::int64_t{1}});
    graph.add_output("less", graph.add_node("Identity", {more}), graph::Element::int64, {rows, std::int64_t{1}});
  }
  return graph::serialise(graph);
}

class PredictionsTest : public testing::Test {
 protected:
  PredictionsTest() {
    random_.fill(secret_.secret);
    secret_.id.bits = {random_.next(), random_.next()};
    headers_.add("Authorization", "Bearer " + crypto::format_credential(crypto::CredentialKind::token, secret_));
    headers_.add("x-user", "ada");
    source_.bytes = [this](const std::string& digest) { return models_.at(digest); };
  }
  ~PredictionsTest() override {
    host_.close();
    loop_.turn();
  }

  traffic::Variant variant(std::string name, std::int64_t version, const Bytes& model) {
    const auto digest = crypto::sha256(model).hex();
    models_[digest] = model;
    return {std::move(name), "people", version, digest, 1, false, "", ""};
  }
  void serve(const traffic::Logging& log, std::vector<traffic::Variant> variants) {
    traffic::Plan plan;
    auto& endpoint = plan.endpoints.emplace_back();
    endpoint.tenant = "acme", endpoint.project = "flights", endpoint.name = "people";
    endpoint.revision = 7;
    endpoint.variants = std::move(variants);
    endpoint.names = true;
    endpoint.sticky = "header:x-user";
    endpoint.log = log;
    endpoint.salt = "salt";
    plan.callers = {{secret_.id.str(),
                     crypto::sha256(BytesView(secret_.secret)).hex(),
                     clock_.wall().count() + 3'600'000'000,
                     {0}}};
    host_.publish(loader_.make(plan, host_.catalogue().get(), source_));
    loop_.turn();
  }
  // What the answer calls it.
  std::string predict(const std::string& rows) {
    protocol::Predict ask;
    ask.model = "people";
    ask.rows = parse_json(rows).as_array();
    std::string name;
    host_.predict({&headers_, nullptr, "r"}, std::move(ask), loop_, [&](auto outcome) {
      if (auto* error = std::get_if<Error>(&outcome)) FAIL() << error->what();
      const auto* said = std::get<protocol::Predicted>(outcome).served.if_contains("prediction_id");
      if (said) name = std::string(said->as_string());
    });
    loop_.turn();
    return name;
  }
  json::array logged() {
    predictions_.flush();
    json::array out;
    for (const auto& segment : segments_)
      for (const auto line : split(segment.lines, '\n'))
        if (!line.empty()) out.push_back(parse_json(line));
    return out;
  }
  std::string text() {
    predictions_.flush();
    std::string out;
    for (const auto& segment : segments_) out += segment.lines;
    return out;
  }

  sys::SimClock clock_;
  sys::SimRandom random_{11};
  crypto::Credential secret_;
  net::Headers headers_;
  std::map<std::string, Bytes> models_;
  TurnedLoop loop_;
  Loader::Source source_;
  std::vector<LogSegment> segments_;  // written by one thread, read when it has flushed
  Predictions predictions_{clock_, random_, [this](const LogSegment& segment) { segments_.push_back(segment); }};
  Host host_{clock_, nullptr, &predictions_};
  Loader loader_{infer::runtime(), {}, clock_};
};

constexpr const char* kAda = R"([{"age": 36, "who": "ada", "where": [1.5, -2]}])";

TEST_F(PredictionsTest, RowsHaveNamesInputsAndOutputs) {
  serve({}, {variant("a", 3, people_model())});
  const auto name =
      predict(R"([{"age": 36, "who": "ada", "where": [1.5, -2]}, {"who": "b\"c\n", "where": [0, null]}])");
  EXPECT_TRUE(name.ends_with(":a:3:7")) << name;
  EXPECT_EQ(traffic::parse_prediction(name).at_us(), clock_.wall().count() / 1000 * 1000);
  const auto rows = logged();
  ASSERT_EQ(rows.size(), 2u);
  const auto& first = rows[0].as_object();
  EXPECT_EQ(first.at("prediction_id"), json::value(name));
  EXPECT_EQ(rows[1].at("prediction_id"), json::value(name + ":1"));
  EXPECT_EQ(first.at("time"), json::value(format_time(clock_.wall().count())));
  EXPECT_EQ(first.at("variant"), "a");
  EXPECT_EQ(first.at("version"), 3);
  EXPECT_EQ(first.at("revision"), 7);
  EXPECT_EQ(first.at("key"), "ada");
  EXPECT_EQ(first.at("in_age").to_number<double>(), 36);
  EXPECT_EQ(first.at("out_double").to_number<double>(), 72);
  EXPECT_EQ(first.at("in_who"), "ada");
  EXPECT_EQ(first.at("out_echo"), "ada");
  EXPECT_EQ(first.at("in_where"), "[1.5,-2]");
  EXPECT_TRUE(rows[1].at("in_age").is_null()) << "what was left out is not a number";
  EXPECT_EQ(rows[1].at("in_who"), "b\"c\n");
  EXPECT_EQ(rows[1].at("in_where"), "[0,null]");
  ASSERT_EQ(segments_.size(), 1u);
  EXPECT_EQ(segments_[0].rows, 2);
  EXPECT_EQ(segments_[0].columns.size(), first.size());
  for (const auto& column : segments_[0].columns) EXPECT_TRUE(first.contains(column.name)) << column.name;
  EXPECT_EQ(predictions_.tally("acme.flights.people").rows, 2u);
  EXPECT_EQ(predictions_.tally("acme.flights.people").dropped, 0u);
}

TEST_F(PredictionsTest, WhatIsToBeHiddenIsNeverWritten) {
  traffic::Logging log;
  log.columns = {{"who", "mask"},   {"echo", "hash"}, {"age", "drop"},   {"double", "mask"},
                 {"where", "hash"}, {"same", "drop"}, {"x-user", "hash"}};
  serve(log, {variant("a", 3, people_model())});
  predict(kAda);
  const auto once = text();
  EXPECT_THAT(once, Not(HasSubstr("ada")));
  EXPECT_THAT(once, Not(HasSubstr("36")));
  EXPECT_THAT(once, Not(HasSubstr("1.5")));
  predict(kAda);
  predict(R"([{"age": 36, "who": "bob", "where": [1.5, -2.5]}])");
  const auto rows = logged();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].as_object().contains("in_age"));
  EXPECT_FALSE(rows[0].as_object().contains("out_same"));
  EXPECT_EQ(rows[0].at("in_who"), "***");
  EXPECT_TRUE(rows[0].at("out_double").is_null());
  EXPECT_EQ(rows[0].at("out_echo"), rows[1].at("out_echo"));
  EXPECT_NE(rows[0].at("out_echo"), rows[2].at("out_echo"));
  EXPECT_EQ(rows[0].at("in_where"), rows[1].at("in_where"));
  EXPECT_NE(rows[0].at("in_where"), rows[2].at("in_where"));
  EXPECT_EQ(rows[0].at("key"), rows[2].at("key"));
}

TEST_F(PredictionsTest, FeaturesOfPeopleAreLeftOutUnlessTheyAreHiddenAsSaid) {
  traffic::FeatureView view;
  view.personal = true;
  view.features = {"age", "who"};
  ServedEndpoint endpoint;
  serve({}, {variant("a", 3, people_model())});
  endpoint.variants = host_.catalogue()->endpoints[0].variants;
  endpoint.plan.log.emplace();
  endpoint.plan.log->columns = {{"who", "hash"}};
  endpoint.plan.features.emplace();
  endpoint.plan.features->views = {view};
  std::set<std::string> names;
  for (const auto& column : layout_of(endpoint).columns) names.insert(column.name);
  EXPECT_FALSE(names.contains("in_age"));
  EXPECT_TRUE(names.contains("in_who"));
  EXPECT_TRUE(names.contains("in_where"));
}

// A slip of the pen in what is to be hidden must not show it.
TEST_F(PredictionsTest, NothingIsWrittenWhenAHiddenColumnIsNobodys) {
  traffic::Logging log;
  log.columns = {{"whoo", "mask"}};
  serve(log, {variant("a", 3, people_model())});
  EXPECT_FALSE(predict(kAda).empty());
  EXPECT_EQ(text(), "");
  EXPECT_THAT(loader_.states().at(0).reason, HasSubstr("log.columns.whoo"));
  EXPECT_EQ(loader_.states().at(0).state, "ready");
}

TEST_F(PredictionsTest, OnlyTheShareIsKeptAndTheNameTellsWhich) {
  traffic::Logging log;
  log.share = 0.25;
  serve(log, {variant("a", 3, people_model())});
  std::set<std::string> names, expected;
  for (int i = 0; i < 400; ++i) {
    const auto name = predict(kAda);
    EXPECT_TRUE(names.insert(name).second) << "given twice: " << name;
    if (traffic::place_of(traffic::parse_prediction(name).id) < 0.25) expected.insert(name);
  }
  std::set<std::string> kept;
  const auto rows = logged();
  for (const auto& row : rows) kept.insert(std::string(row.at("prediction_id").as_string()));
  EXPECT_EQ(kept, expected);
  EXPECT_NEAR(static_cast<double>(kept.size()), 100, 40);
}

TEST_F(PredictionsTest, EveryLineHasTheColumnsOfAllVariants) {
  auto first = variant("a", 1, people_model()), second = variant("b", 2, people_model(true));
  first.weight = 0;
  serve({}, {first, second});
  predict(R"([{"age": 1, "who": "x", "where": [0, 0], "more": 5}])");
  first.weight = 1, second.weight = 0;
  serve({}, {first, second});
  predict(kAda);
  const auto rows = logged();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("in_more"), 5);
  EXPECT_EQ(rows[0].at("variant"), "b");
  EXPECT_TRUE(rows[1].at("in_more").is_null());
  EXPECT_TRUE(rows[1].at("out_less").is_null());
  EXPECT_EQ(segments_.size(), 1u) << "the same columns, whoever answered";
  serve({}, {variant("a", 1, people_model())});
  predict(kAda);
  EXPECT_FALSE(logged().at(2).as_object().contains("in_more"));
  EXPECT_EQ(segments_.size(), 2u);
}

TEST_F(PredictionsTest, DropsAndCountsWhatIsTooMuch) {
  serve({}, {variant("a", 1, people_model())});
  json::array rows{{{"age", 1}, {"who", std::string(2 << 20, 'x')}, {"where", {0, 0}}}};
  predict(json::serialize(rows));
  predict(kAda);
  EXPECT_EQ(logged().size(), 1u);
  EXPECT_EQ(predictions_.tally("acme.flights.people").rows, 1u);
  EXPECT_EQ(predictions_.tally("acme.flights.people").dropped, 1u);
  predictions_.lost("acme.flights.people", 1);
  EXPECT_EQ(predictions_.tally("acme.flights.people").rows, 0u);
  EXPECT_EQ(predictions_.tally("acme.flights.people").dropped, 2u);
  const auto metrics = host_.metrics({&headers_, nullptr, "r"});
  EXPECT_THAT(metrics, HasSubstr(R"(falaj_serve_log_dropped_total{endpoint="acme.flights.people"} 2)"));
}

TEST_F(PredictionsTest, AskedByTensorsForSomeOutputs) {
  serve({}, {variant("a", 1, people_model())});
  const std::vector<float> age = {4}, where = {1, 2};
  protocol::Ask ask;
  ask.model = "people";
  ask.outputs = {"double"};
  ask.inputs = {{"age", graph::Element::float32, {1, 1}, std::as_bytes(std::span(age)), {}},
                {"where", graph::Element::float32, {1, 2}, std::as_bytes(std::span(where)), {}},
                {"who", graph::Element::text, {1, 1}, {}, {"\xff"}}};
  std::string name;
  host_.infer({&headers_, nullptr, "r"}, std::move(ask), loop_,
              [&](protocol::Outcome outcome) { name = std::get<protocol::Answer>(outcome).prediction_id; });
  loop_.turn();
  const auto rows = logged();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("prediction_id"), json::value(name));
  EXPECT_EQ(rows[0].at("out_double").to_number<double>(), 8);
  EXPECT_TRUE(rows[0].at("out_echo").is_null()) << "nobody asked for it";
  EXPECT_EQ(rows[0].at("in_who"), "base64:/w==");
}

TEST_F(PredictionsTest, NothingIsNamedOrKeptWhenNobodySaidSo) {
  traffic::Plan plan;
  serve({}, {variant("a", 1, people_model())});
  auto without = host_.catalogue()->endpoints[0].plan;
  without.log.reset();
  without.names = false;
  plan.endpoints = {without};
  plan.callers = {
      {secret_.id.str(), crypto::sha256(BytesView(secret_.secret)).hex(), clock_.wall().count() + 3'600'000'000, {0}}};
  host_.publish(loader_.make(plan, host_.catalogue().get(), source_));
  loop_.turn();
  EXPECT_EQ(predict(kAda), "");
  EXPECT_EQ(text(), "");
}

}  // namespace
}  // namespace falaj::serve
