// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/host.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <new>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/sys/random.h"

namespace falaj::serve {
namespace {

// A loop that turns when told.
class TestLoop final : public net::Loop {
 public:
  std::size_t index() const override { return 0; }
  void post(std::function<void()> work) override { ready_.push_back(std::move(work)); }
  void after(std::int64_t micros, std::function<void()> work) override { later_.emplace_back(micros, std::move(work)); }
  void turn() {
    while (!ready_.empty()) {
      auto work = std::move(ready_.front());
      ready_.pop_front();
      work();
    }
  }
  void let_time_pass() {
    auto due = std::move(later_);
    later_.clear();
    for (auto& [micros, work] : due) work();
    turn();
  }
  std::size_t waiting() const { return later_.size(); }

 private:
  std::deque<std::function<void()>> ready_;
  std::vector<std::pair<std::int64_t, std::function<void()>>> later_;
};

// y = x * factor, for rows of two numbers.
Bytes model_of(float factor) {
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string("rows"), std::int64_t{2}});
  const auto by = graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{factor}));
  graph.add_output("y", graph.add_node("Mul", {x, by}), graph::Element::float32,
                   {std::string("rows"), std::int64_t{2}});
  return graph::serialise(graph);
}

class HostTest : public testing::Test {
 protected:
  // How fast this machine is decides nothing here.
  HostTest()
      : host_(clock_, nullptr, nullptr, {.worked = [] { return infer::Micros{0}; }}),
        loader_(infer::runtime(), {}, clock_) {
    random_.fill(secret_.secret);
    secret_.id.bits = {random_.next(), random_.next()};
    token_ = crypto::format_credential(crypto::CredentialKind::token, secret_);
    headers_.add("Authorization", "Bearer " + token_);
    source_.bytes = [this](const std::string& digest) {
      ++loads_;
      if (!models_.contains(digest)) throw Error(Code::not_found, "no such model");
      return models_.at(digest);
    };
  }

  traffic::Variant variant(std::string name, std::int64_t version, float factor, double weight = 1,
                           bool shadow = false) {
    auto bytes = model_of(factor);
    const auto digest = crypto::sha256(bytes).hex();
    models_[digest] = std::move(bytes);
    return {std::move(name), "double", version, digest, weight, shadow, "", ""};
  }
  traffic::Plan plan(std::vector<traffic::Variant> variants) const {
    traffic::Plan out;
    traffic::Endpoint endpoint;
    endpoint.tenant = "acme";
    endpoint.project = "flights";
    endpoint.name = "double";
    endpoint.variants = std::move(variants);
    out.endpoints = {endpoint};
    out.callers = {{secret_.id.str(),
                    crypto::sha256(BytesView(secret_.secret)).hex(),
                    clock_.wall().count() + 3'600'000'000,
                    {0}}};
    return out;
  }
  void serve(const traffic::Plan& plan) {
    host_.publish(loader_.make(plan, host_.catalogue().get(), source_));
    loop_.turn();
  }
  protocol::Caller caller(std::string_view request = "r1") const { return {&headers_, nullptr, request}; }
  protocol::Ask ask(const std::vector<float>& values, std::string model = "double") {
    kept_.push_back(values);
    protocol::Ask out;
    out.model = std::move(model);
    protocol::Input input;
    input.name = "x";
    input.sizes = {static_cast<std::int64_t>(values.size() / 2), 2};
    input.bytes = std::as_bytes(std::span(kept_.back()));
    out.inputs = {input};
    return out;
  }
  // The answer's values and version, or the error.
  struct Got {
    std::vector<float> values;
    std::string version;
    std::optional<Error> error;
  };
  Got infer(protocol::Ask asked, std::string_view request = "r1") {
    Got got;
    bool answered = false;
    host_.infer(caller(request), std::move(asked), loop_, [&](protocol::Outcome outcome) {
      EXPECT_FALSE(answered);
      answered = true;
      if (auto* error = std::get_if<Error>(&outcome)) {
        got.error = *error;
        return;
      }
      const auto& answer = std::get<protocol::Answer>(outcome);
      got.version = answer.version;
      const auto values = answer.outputs.at(0).tensor.values<float>();
      got.values.assign(values.begin(), values.end());
    });
    loop_.turn();
    EXPECT_TRUE(answered);
    return got;
  }

  sys::SimClock clock_;
  sys::SimRandom random_{11};
  crypto::Credential secret_;
  std::string token_;
  net::Headers headers_;
  std::map<std::string, Bytes> models_;
  std::deque<std::vector<float>> kept_;
  int loads_ = 0;
  TestLoop loop_;
  Loader::Source source_;
  Host host_;
  Loader loader_;
};

TEST_F(HostTest, AnswersWhatTheModelSays) {
  serve(plan({variant("a", 3, 2)}));
  const auto got = infer(ask({1, 2, 3, 4}));
  EXPECT_EQ(got.values, (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(got.version, "3");
  for (const auto* name : {"flights.double", "acme.flights.double"}) EXPECT_EQ(infer(ask({1, 1}, name)).version, "3");
}

TEST_F(HostTest, RunsWhatCameInOneTurnTogether) {
  serve(plan({variant("a", 1, 2)}));
  std::vector<float> got;
  for (int i = 0; i < 8; ++i)
    host_.infer(caller(), ask({static_cast<float>(i), 0}), loop_, [&](protocol::Outcome outcome) {
      got.push_back(std::get<protocol::Answer>(outcome).outputs[0].tensor.values<float>()[0]);
    });
  EXPECT_TRUE(got.empty()) << "nothing runs before the turn ends";
  loop_.turn();
  EXPECT_EQ(got, (std::vector<float>{0, 2, 4, 6, 8, 10, 12, 14}));
  const auto statistics = host_.statistics(caller(), "double", "");
  ASSERT_EQ(statistics.size(), 1u);
  EXPECT_EQ(statistics[0].inference_count, 8u);
  EXPECT_LT(statistics[0].execution_count, 8u);
}

TEST_F(HostTest, RefusesWhoHasNoToken) {
  serve(plan({variant("a", 1, 2)}));
  headers_.clear();
  EXPECT_ERROR(infer(ask({1, 2})), Code::unauthenticated);
  headers_.add("Authorization", "Bearer " + token_.substr(0, token_.size() - 1) + "0");
  EXPECT_ERROR(infer(ask({1, 2})), Code::unauthenticated);
  headers_.set("Authorization", "Bearer " + token_);
  EXPECT_EQ(infer(ask({1, 2})).version, "1");
  auto revoked = plan({variant("a", 1, 2)});
  revoked.callers.clear();
  serve(revoked);
  EXPECT_ERROR(infer(ask({1, 2})), Code::unauthenticated);
}

TEST_F(HostTest, TakesTokensBackWithoutAnotherPlan) {
  auto mixed = plan({variant("a", 1, 2)});
  auto other = mixed.endpoints[0];
  other.name = "triple";
  mixed.endpoints.push_back(other);
  mixed.callers[0].endpoints = {0, 1};
  host_.revoke({{secret_.id.str(), ""}});  // before there is a plan: nobody may ask anyhow
  serve(mixed);
  EXPECT_EQ(infer(ask({1, 2})).version, "1");
  host_.revoke({{"somebody else", ""}, {secret_.id.str(), "acme.flights.triple"}});
  EXPECT_EQ(infer(ask({1, 2})).version, "1");
  EXPECT_ERROR(infer(ask({1, 2}, "triple")), Code::not_found);
  host_.revoke({{secret_.id.str(), ""}});
  EXPECT_ERROR(infer(ask({1, 2})), Code::unauthenticated);
  serve(mixed);  // a plan that gives it back
  EXPECT_EQ(infer(ask({1, 2}, "triple")).version, "1");
}

TEST_F(HostTest, RefusesATokenThatHasExpired) {
  serve(plan({variant("a", 1, 2)}));
  clock_.advance(sys::Micros(3'700'000'000));
  EXPECT_ERROR(infer(ask({1, 2})), Code::unauthenticated);
}

TEST_F(HostTest, HidesEndpointsThatATokenMayNotAsk) {
  auto mixed = plan({variant("a", 1, 2)});
  auto other = mixed.endpoints[0];
  other.name = "secret";
  mixed.endpoints.push_back(other);
  serve(mixed);
  EXPECT_ERROR(infer(ask({1, 2}, "secret")), Code::not_found);
  EXPECT_ERROR(infer(ask({1, 2}, "nothing")), Code::not_found);
  EXPECT_EQ(host_.index(caller(), false).size(), 1u);
}

TEST_F(HostTest, ChangesVersionsUnderWaitingRequests) {
  serve(plan({variant("a", 1, 2)}));
  std::string before;
  host_.infer(caller(), ask({1, 1}), loop_,
              [&](protocol::Outcome outcome) { before = std::get<protocol::Answer>(outcome).version; });
  host_.publish(loader_.make(plan({variant("a", 2, 3)}), host_.catalogue().get(), source_));
  loop_.turn();
  EXPECT_EQ(before, "1") << "it was meant for that one";
  EXPECT_EQ(infer(ask({1, 1})).values, (std::vector<float>{3, 3}));
}

TEST_F(HostTest, KeepsTheOldVersionWhenTheNewOneCannotBeLoaded) {
  serve(plan({variant("a", 1, 2)}));
  auto broken = variant("a", 2, 3);
  models_[broken.sha256] = Bytes(10, std::byte{7});
  serve(plan({broken}));
  EXPECT_EQ(infer(ask({1, 1})).version, "1");
  ASSERT_EQ(loader_.states().size(), 1u);
  EXPECT_EQ(loader_.states()[0].state, "failed");
  EXPECT_FALSE(loader_.states()[0].reason.empty());
}

TEST_F(HostTest, DoesNotLoadWhatCrashedItBefore) {
  const auto bad = variant("a", 1, 2);
  source_.quarantined[bad.sha256] = "it crashed";
  serve(plan({bad, variant("b", 2, 5, 0)}));
  EXPECT_EQ(loader_.states()[0].state, "quarantined");
  EXPECT_ERROR(infer(ask({1, 1})), Code::unavailable);
}

TEST_F(HostTest, ChoosesByWeightVersionAndHeader) {
  auto weighted = plan({variant("a", 1, 2, 3), variant("b", 2, 3, 1)});
  weighted.endpoints[0].variants.push_back(variant("c", 3, 4, 0));
  weighted.endpoints[0].variants[2].header = "x-beta";
  weighted.endpoints[0].variants[2].value = "yes";
  serve(weighted);
  std::map<std::string, int> got;
  for (int i = 0; i < 400; ++i) ++got[infer(ask({1, 1}), fmt::format("request-{}", i)).version];
  EXPECT_NEAR(got["1"], 300, 45);
  EXPECT_EQ(got["1"] + got["2"], 400);
  auto exact = ask({1, 1});
  exact.version = "2";
  EXPECT_EQ(infer(exact).version, "2");
  exact.version = "9";
  EXPECT_ERROR(infer(exact), Code::not_found);
  headers_.add("X-Beta", "yes");
  EXPECT_EQ(infer(ask({1, 1})).version, "3");
}

TEST_F(HostTest, KeepsOneUserWithOneVariant) {
  auto sticky = plan({variant("a", 1, 2), variant("b", 2, 3)});
  sticky.endpoints[0].sticky = "header:x-user";
  serve(sticky);
  headers_.add("x-user", "ada");
  const auto first = infer(ask({1, 1}), "r0").version;
  for (int i = 1; i < 30; ++i) EXPECT_EQ(infer(ask({1, 1}), fmt::format("r{}", i)).version, first);
}

TEST_F(HostTest, RefusesTensorsThatDoNotFit) {
  serve(plan({variant("a", 1, 2)}));
  auto other_name = ask({1, 2});
  other_name.inputs[0].name = "z";
  EXPECT_ERROR(infer(other_name), Code::invalid);
  auto none = ask({1, 2});
  none.inputs.clear();
  EXPECT_ERROR(infer(none), Code::invalid);
  auto twice = ask({1, 2});
  twice.inputs.push_back(twice.inputs[0]);
  EXPECT_ERROR(infer(twice), Code::invalid);
  auto lying = ask({1, 2});
  lying.inputs[0].sizes = {1'000'000'000, 2};
  EXPECT_ERROR(infer(lying), Code::invalid);
  auto wide = ask({1, 2, 3, 4});
  wide.inputs[0].sizes = {1, 4};
  EXPECT_ERROR(infer(wide), Code::invalid);
  auto unknown = ask({1, 2});
  unknown.outputs = {"nothing"};
  EXPECT_ERROR(infer(unknown), Code::invalid);
}

TEST_F(HostTest, PredictsFromNamedFields) {
  serve(plan({variant("a", 1, 2)}));
  protocol::Predict rows;
  rows.model = "double";
  rows.rows = parse_json(R"([{"x": [1, 2]}, {"x": [3, 4.5]}])").as_array();
  json::array got;
  host_.predict(caller(), rows, loop_, [&](std::variant<protocol::Predicted, Error> outcome) {
    got = std::get<protocol::Predicted>(outcome).rows;
  });
  loop_.turn();
  EXPECT_EQ(json::serialize(got), R"([{"y":[2E0,4E0]},{"y":[6E0,9E0]}])");
  rows.rows = parse_json(R"([{"x": [1, 2], "z": 1}])").as_array();
  EXPECT_ERROR(host_.predict(caller(), rows, loop_, [](auto) {}), Code::invalid);
}

TEST_F(HostTest, LetsGoOfModelsThatAreNoLongerServed) {
  serve(plan({variant("a", 1, 2)}));
  infer(ask({1, 1}));
  const std::weak_ptr<const Held> old = host_.catalogue()->endpoints[0].variants[0].held;
  serve(plan({variant("a", 2, 3)}));
  infer(ask({1, 1}));
  serve(plan({variant("a", 2, 3)}));
  EXPECT_TRUE(old.expired());
  EXPECT_EQ(loads_, 2) << "the same bytes are not loaded twice";
}

class HostThatSleeps : public HostTest {
 protected:
  HostThatSleeps() {
    host_.wake = [this](const std::string& variant) { wanted_.push_back(variant); };
    plan_ = plan({variant("a", 1, 2)});
    serve(plan_);
    source_.asleep = {"acme.flights.double/a"};
    old_ = host_.catalogue()->endpoints[0].variants[0].held->model;
    serve(plan_);
  }
  void ask_it(std::int64_t timeout_us = 0) {
    auto asked = ask({1, 2});
    asked.timeout_us = timeout_us;
    host_.infer(caller(), std::move(asked), loop_, [this](protocol::Outcome outcome) {
      if (auto* error = std::get_if<Error>(&outcome)) error_ = *error;
      if (auto* answer = std::get_if<protocol::Answer>(&outcome))
        got_.push_back(answer->outputs[0].tensor.values<float>()[1]);
    });
    loop_.turn();
  }
  void wake() {
    source_.asleep.clear();
    serve(plan_);
  }
  traffic::Plan plan_;
  std::weak_ptr<const infer::Model> old_;
  std::vector<std::string> wanted_;
  std::vector<float> got_;
  std::optional<Error> error_;
};

TEST_F(HostThatSleeps, IsOutOfMemoryAndStillKnown) {
  EXPECT_TRUE(old_.expired());
  EXPECT_EQ(loader_.states().at(0).state, "asleep");
  EXPECT_TRUE(host_.ready(caller(), "double", ""));
  EXPECT_EQ(host_.describe(caller(), "double", "").inputs.at(0).name, "x");
  EXPECT_EQ(host_.statistics(caller(), "double", "").at(0).memory_bytes, 0u);
  EXPECT_NE(host_.metrics(caller()).find("variant=\"a\"} 1\n# HELP falaj_serve_woken"), std::string::npos);
}

TEST_F(HostThatSleeps, ARequestWakesItAndIsAnswered) {
  ask_it();
  ask_it();
  EXPECT_TRUE(got_.empty());
  EXPECT_EQ(wanted_.front(), "acme.flights.double/a");
  serve(plan_);  // another plan, before it is awake
  EXPECT_TRUE(got_.empty());
  wake();
  EXPECT_EQ(got_, (std::vector<float>{4, 4}));
  EXPECT_EQ(infer(ask({1, 2})).values, (std::vector<float>{2, 4}));
  EXPECT_GE(host_.catalogue()->endpoints[0].variants[0].counts->woken.count.load(), 2u);
}

TEST_F(HostThatSleeps, ARequestDoesNotWaitBeyondItsTime) {
  ask_it(50'000);
  clock_.advance(sys::Micros(50'000));
  loop_.let_time_pass();
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->code(), Code::deadline);
  wake();
  EXPECT_TRUE(got_.empty()) << "told once";
}

TEST_F(HostThatSleeps, ModelThatCannotBeWokenIsSaidToBeAway) {
  ask_it();
  models_.clear();
  wake();
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->code(), Code::unavailable);
  EXPECT_EQ(loader_.states().at(0).state, "failed");
}

TEST_F(HostThatSleeps, IsToldWhenTheServerStops) {
  ask_it();
  host_.close();
  loop_.turn();
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->code(), Code::unavailable);
}

// A loop that other threads post to.
class SharedLoop final : public net::Loop {
 public:
  std::size_t index() const override { return 0; }
  void post(std::function<void()> work) override {
    Lock lock(mu_);
    ready_.push_back(std::move(work));
    posted_.notify_all();
  }
  void after(std::int64_t, std::function<void()>) override {}
  void run_one() {
    std::function<void()> work;
    {
      Lock lock(mu_);
      while (ready_.empty()) lock.wait(posted_);
      work = std::move(ready_.front());
      ready_.pop_front();
    }
    work();
  }

 private:
  Mutex mu_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> ready_ GUARDED_BY(mu_);
};

TEST_F(HostTest, SlowCallsAreMadeOnThreadsOfTheirOwnAndAnsweredHere) {
  SharedLoop loop;
  Host host(clock_, nullptr, nullptr, {.slow_threads = 2, .slow_from = infer::Micros{0}});
  host.publish(loader_.make(plan({variant("a", 1, 2)}), nullptr, source_));
  const auto here = std::this_thread::get_id();
  std::vector<float> got;
  for (int i = 0; i < 100; ++i)
    host.infer(caller(), ask({static_cast<float>(i), 0}), loop, [&](protocol::Outcome outcome) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      got.push_back(std::get<protocol::Answer>(outcome).outputs[0].tensor.values<float>()[0]);
    });
  while (got.size() < 100) loop.run_one();
  std::sort(got.begin(), got.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i));
  EXPECT_GT(host.catalogue()->endpoints[0].variants[0].counts->slow.load(), 1u) << "rowsMax is 64";

  // A version that goes while a call of it is under way.
  bool answered = false;
  host.infer(caller(), ask({1, 1}), loop, [&](protocol::Outcome outcome) {
    answered = true;
    EXPECT_EQ(std::get<protocol::Answer>(outcome).version, "1");
  });
  const std::weak_ptr<const Held> old = host.catalogue()->endpoints[0].variants[0].held;
  loop.run_one();  // sends it away
  host.publish(loader_.make(plan({variant("a", 2, 3)}), host.catalogue().get(), source_));
  while (!answered || !old.expired()) loop.run_one();
  host.close();
  loop.run_one();
}

TEST_F(HostTest, AnswersEqualRequestsAgainFromItsCache) {
  auto cached = plan({variant("a", 1, 2)});
  cached.endpoints[0].batching.cache_bytes = 1 << 20;
  serve(cached);
  EXPECT_EQ(infer(ask({1, 2})).values, (std::vector<float>{2, 4}));
  EXPECT_EQ(infer(ask({1, 2})).values, (std::vector<float>{2, 4}));
  EXPECT_EQ(infer(ask({2, 1})).values, (std::vector<float>{4, 2}));
  auto told = host_.statistics(caller(), "double", "").at(0);
  EXPECT_EQ(told.execution_count, 2u);
  EXPECT_EQ(told.success.count, 3u);
  EXPECT_EQ(told.cache_hit.count, 1u);
  EXPECT_EQ(told.cache_miss.count, 2u);
  serve(cached);
  infer(ask({2, 1}));
  EXPECT_EQ(host_.statistics(caller(), "double", "").at(0).cache_hit.count, 2u) << "another plan, the same model";
  cached.endpoints[0].variants = {variant("a", 2, 3)};
  serve(cached);
  EXPECT_EQ(infer(ask({1, 2})).values, (std::vector<float>{3, 6})) << "another model says otherwise";
}

TEST_F(HostTest, ShadowsGetACopyOfRowsToo) {
  serve(plan({variant("a", 1, 2), variant("s", 2, 3, 1, true)}));
  protocol::Predict rows;
  rows.model = "double";
  rows.rows = parse_json(R"([{"x": [1, 2]}])").as_array();
  host_.predict(caller(), std::move(rows), loop_, [](auto) {});
  loop_.turn();
  const auto& counts = *host_.catalogue()->endpoints[0].variants[1].counts;
  while (counts.success.count.load() == 0) std::this_thread::yield();
  EXPECT_EQ(counts.rows.load(), 1u);
}

TEST_F(HostTest, RefusesWhatWaitsWhenItStops) {
  auto waiting = plan({variant("a", 1, 2)});
  waiting.endpoints[0].batching.wait_us_max = 100'000;
  waiting.endpoints[0].batching.timeout_us = 60'000'000;
  serve(waiting);
  std::optional<Error> refused;
  host_.infer(caller(), ask({1, 1}), loop_, [&](protocol::Outcome outcome) {
    if (auto* error = std::get_if<Error>(&outcome)) refused = *error;
  });
  host_.close();
  loop_.turn();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), Code::unavailable);
}

TEST_F(HostTest, AnswersOnWhileItFindsTheBatchThatHoldsALatency) {
  auto tuned = plan({variant("a", 1, 2)});
  tuned.endpoints[0].batching.target_p99_us = 5'000;
  serve(tuned);
  for (int i = 0; i < 300; ++i) {
    int answers = 0;
    for (int k = 0; k < 4; ++k)
      host_.infer(caller(), ask({1, 2}), loop_,
                  [&](protocol::Outcome outcome) { answers += std::holds_alternative<protocol::Answer>(outcome); });
    // It may choose to answer them one after the other; together that takes less than makes the last of them too late.
    for (int turns = 0; answers < 4 && turns < 16; ++turns) {
      loop_.turn();
      clock_.advance(sys::Micros(500));
      loop_.let_time_pass();
    }
    clock_.advance(sys::Micros(10'000));
    EXPECT_EQ(answers, 4);
    kept_.clear();
  }
  tuned.endpoints[0].batching.target_p99_us = 0;
  serve(tuned);
  EXPECT_EQ(infer(ask({1, 2})).values, (std::vector<float>{2, 4}));
}

TEST_F(HostTest, KeepsOneUserWithOneVariantHoweverTheyAreNamed) {
  auto sticky = plan({variant("a", 1, 2), variant("b", 2, 3)});
  sticky.endpoints[0].sticky = "input:x";
  serve(sticky);
  std::set<std::string> versions;
  for (int user = 0; user < 20; ++user) {
    const auto first = infer(ask({static_cast<float>(user), 0}), "r0").version;
    versions.insert(first);
    for (int i = 0; i < 5; ++i) {
      protocol::Predict rows;
      rows.model = "double";
      rows.rows = {json::object{{"x", json::array{user, i}}}};
      std::string by_rows;
      host_.predict(caller(fmt::format("p{}", i)), rows, loop_, [&](std::variant<protocol::Predicted, Error> outcome) {
        by_rows = std::get<protocol::Predicted>(outcome).version;
      });
      loop_.turn();
      EXPECT_EQ(by_rows, first) << user;
    }
  }
  EXPECT_EQ(versions.size(), 2u);
}

TEST_F(HostTest, TellsVariantsOfOneVersionApart) {
  serve(plan({variant("s", 1, 9, 5, true), variant("a", 1, 2, 1), variant("b", 1, 3, 4)}));
  const auto of = [&](const char* version) {
    auto asked = ask({1, 1});
    asked.version = version;
    return infer(asked);
  };
  EXPECT_EQ(of("1").values, (std::vector<float>{3, 3})) << "of the greatest share, and no shadow";
  EXPECT_EQ(of("a").values, (std::vector<float>{2, 2}));
  EXPECT_EQ(of("b").values, (std::vector<float>{3, 3}));
  EXPECT_EQ(of("s").values, (std::vector<float>{9, 9}));
  EXPECT_ERROR(of("c"), Code::not_found);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(host_.describe(caller(fmt::format("r{}", i)), "double", "").properties.at("variant"), "b");
  EXPECT_EQ(host_.describe(caller(), "double", "a").properties.at("variant"), "a");
  EXPECT_EQ(host_.statistics(caller(), "double", "a").size(), 1u);
  serve(plan({variant("a", 1, 2), variant("s", 2, 9, 5, true)}));
  EXPECT_ERROR(of("2"), Code::not_found);
  EXPECT_FALSE(host_.ready(caller(), "double", "2"));
}

TEST_F(HostTest, AnswersTheMoreUrgentFirst) {
  auto single = plan({variant("a", 1, 2)});
  single.endpoints[0].batching.rows_max = 1;
  serve(single);
  std::vector<std::uint32_t> order;
  for (const std::uint32_t priority : {5u, 0u, 4u, 1u, 2u, 9u, 3u}) {
    auto asked = ask({1, 1});
    asked.priority = priority;
    host_.infer(caller(), asked, loop_, [&order, priority](auto) { order.push_back(priority); });
  }
  loop_.turn();
  EXPECT_EQ(order, (std::vector<std::uint32_t>{1, 2, 0, 3, 4, 5, 9})) << "0 is in the middle";
}

TEST_F(HostTest, IndexSaysWhatCannotBeAsked) {
  auto broken = variant("broken", 2, 3);
  models_.erase(broken.sha256);
  const auto away = variant("away", 3, 4), bad = variant("bad", 4, 5);
  source_.unfetched[away.sha256] = "not fetched: /var/lib is full";
  source_.quarantined[bad.sha256] = "it crashed";
  serve(plan({variant("a", 1, 2), broken, away, bad}));
  std::map<std::string, std::string> said;
  for (const auto& entry : host_.index(caller(), false)) said[entry.version] = entry.state + " " + entry.reason;
  EXPECT_EQ(said, (std::map<std::string, std::string>{{"1", "READY "},
                                                      {"2", "UNAVAILABLE failed"},
                                                      {"3", "UNAVAILABLE unfetched"},
                                                      {"4", "UNAVAILABLE quarantined"}}));
  EXPECT_EQ(host_.index(caller(), true).size(), 1u);
  EXPECT_EQ(loader_.states().at(2).state, "unfetched");
  EXPECT_ERROR(host_.load(caller(), "double"), Code::denied);
  EXPECT_ERROR(host_.unload(caller(), "double"), Code::denied);
  EXPECT_ERROR(host_.load(caller(), "other"), Code::not_found);
}

TEST_F(HostTest, AModelThatCannotBeReadForWantOfMemoryFailsAlone) {
  const auto huge = variant("huge", 2, 3);
  std::string loaded;
  loader_.around_loading = [&](const std::string& sha256, const std::function<void()>& load) {
    loaded = sha256;
    load();
  };
  source_.bytes = [&](const std::string& digest) {
    if (digest != huge.sha256) return models_.at(digest);
    EXPECT_EQ(loaded, digest) << "whoever watches knows what is read";
    throw std::bad_alloc();
  };
  serve(plan({variant("a", 1, 2), huge}));
  EXPECT_EQ(loader_.states().at(0).state, "ready");
  EXPECT_EQ(loader_.states().at(1).state, "failed");
  EXPECT_NE(loader_.states().at(1).reason.find("memory"), std::string::npos);
  EXPECT_EQ(infer(ask({1, 1})).version, "1");
}

TEST_F(HostTest, ShadowsGetNoCopyThatIsTooLarge) {
  serve(plan({variant("a", 1, 2), variant("s", 2, 3, 1, true)}));
  const auto catalogue = host_.catalogue();
  const auto& shadow = catalogue->endpoints[0].variants[1];
  const std::vector<float> values = {1, 2, 3, 4};
  const auto fits = infer::view_of(values, {2, 2});
  Shadows shadows(clock_, nullptr, fits.bytes.size());
  const std::vector<float> more(6, 1);
  const auto large = infer::view_of(more, {3, 2});
  shadows.offer(catalogue, shadow, *catalogue->endpoints[0].variants[0].held, std::span(&large, 1));
  EXPECT_EQ(shadow.counts->dropped_shadows.load(), 1u);
  // Room for one at a time, that comes free again.
  while (shadow.counts->success.count.load() < 3) {
    shadows.offer(catalogue, shadow, *catalogue->endpoints[0].variants[0].held, std::span(&fits, 1));
    std::this_thread::yield();
  }
  EXPECT_EQ(shadow.counts->fail.count.load(), 0u);
}

TEST_F(HostTest, HearsOfOtherLimitsWhileTheLatencyToHoldStays) {
  auto tuned = plan({variant("a", 1, 2)});
  tuned.endpoints[0].batching.target_p99_us = 5'000;
  tuned.endpoints[0].batching.wait_us_max = 0;
  serve(tuned);
  infer(ask({1, 2}));
  tuned.endpoints[0].batching.queue_rows_max = 2;
  serve(tuned);
  int refused = 0;
  for (int i = 0; i < 4; ++i)
    host_.infer(caller(), ask({1, 2}), loop_, [&](protocol::Outcome outcome) {
      const auto* error = std::get_if<Error>(&outcome);
      refused += error && error->code() == Code::exhausted;
    });
  EXPECT_GE(refused, 2);
  loop_.turn();
}

TEST_F(HostTest, CountsWhatGoesInAndOutAndWhatWaits) {
  serve(plan({variant("a", 1, 2)}));
  int answered = 0;
  for (int i = 0; i < 3; ++i) host_.infer(caller(), ask({1, 2}), loop_, [&](auto) { ++answered; });
  const auto pending = [&] {
    const auto text = host_.metrics(caller());
    const auto at = text.find("nv_inference_pending_request_count{");
    return text.substr(text.find("} ", at) + 2, 2);
  };
  EXPECT_EQ(pending(), "3\n");
  loop_.turn();
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(pending(), "0\n");
  const auto told = host_.statistics(caller(), "double", "").at(0);
  EXPECT_EQ(told.input.count, 3u);
  EXPECT_EQ(told.output.count, 3u);
  for (const auto* name : {"nv_inference_compute_input_duration_us{", "nv_inference_compute_output_duration_us{",
                           "nv_inference_request_success{model=\"double\",version=\"1\","
                           "endpoint=\"acme.flights.double\",variant=\"a\"} 3\n",
                           "falaj_serve_latency_seconds_count"})
    EXPECT_NE(host_.metrics(caller()).find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace falaj::serve
