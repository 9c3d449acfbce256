// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/batch.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using testing::ElementsAre;

constexpr Micros us(std::int64_t n) { return Micros(n); }

Costs linear_costs(double fixed, double each, std::uint32_t rows_max = 1024) {
  Costs out;
  for (std::uint32_t rows = 1; rows <= rows_max; rows *= 2) out.learn(rows, fixed + each * rows);
  return out;
}

// ---- The decision.
TEST(Decide, NothingWaitsForNothing) {
  const auto nothing = decide({}, us(5), {}, {}, 0);
  EXPECT_EQ(nothing.rows, 0u);
  EXPECT_EQ(nothing.look_again, kNever);
}

TEST(Decide, TakesAllAtOnceWithoutAWait) {
  const Line lines[] = {{0, 0, us(0), kNever, 5}};
  EXPECT_EQ(decide(lines, us(0), {.rows_max = 32}, {}, 0).rows, 5u);
  EXPECT_EQ(decide(lines, us(0), {.rows_max = 4}, {}, 0).rows, 4u);
}

TEST(Decide, WaitsForCompanyAsLongAsItMay) {
  const Line lines[] = {{0, 0, us(100), kNever, 5}};
  const BatchRule rule = {.rows_max = 32, .wait_max = us(50)};
  const auto early = decide(lines, us(120), rule, {}, 0);
  EXPECT_EQ(early.rows, 0u);
  EXPECT_EQ(early.look_again, us(150));
  EXPECT_EQ(decide(lines, us(150), rule, {}, 0).rows, 5u);
  const Line full[] = {{0, 0, us(100), kNever, 32}};
  EXPECT_EQ(decide(full, us(100), rule, {}, 0).rows, 32u) << "a full batch does not wait";
}

TEST(Decide, DoesNotWaitWhenCompanyGainsNothing) {
  const Line lines[] = {{0, 0, us(100), kNever, 2}};
  const BatchRule rule = {.rows_max = 32, .wait_max = us(50)};
  EXPECT_EQ(decide(lines, us(100), rule, linear_costs(0, 10), 0).rows, 2u) << "rows cost the same in any number";
  EXPECT_EQ(decide(lines, us(100), rule, linear_costs(100, 1), 0).rows, 0u);
}

TEST(Decide, StartsInTimeForADeadline) {
  const Line lines[] = {{0, 0, us(1000), us(1200), 1}};
  const BatchRule rule = {.rows_max = 32, .wait_max = us(10'000)};
  const auto costs = linear_costs(100, 1);
  const auto early = decide(lines, us(1000), rule, costs, 0);
  EXPECT_EQ(early.rows, 0u);
  EXPECT_EQ(early.look_again, us(1200 - 101));
  EXPECT_EQ(decide(lines, us(1099), rule, costs, 0).rows, 1u);
}

TEST(Decide, TakesTheMostUrgentAndOfThoseTheOldest) {
  const Line lines[] = {
      {1, 0, us(1), kNever, 4}, {0, 1, us(9), kNever, 1}, {0, 2, us(8), kNever, 1}, {0, 3, us(7), kNever, 0}};
  const BatchRule rule = {.priorities = 2};
  EXPECT_EQ(decide(lines, us(10), rule, {}, 0).line, 2u);
}

TEST(Decide, LessUrgentRunsWhileTheUrgentWaitsForCompany) {
  const Line lines[] = {{0, 0, us(100), kNever, 1}, {1, 1, us(0), kNever, 1}};
  const BatchRule rule = {.wait_max = us(50), .priorities = 2};
  const auto decision = decide(lines, us(110), rule, {}, 0);
  EXPECT_EQ(decision.rows, 1u);
  EXPECT_EQ(decision.line, 1u);
}

TEST(Decide, CountsLessUrgentOfTheSameKindAsCompany) {
  const Line lines[] = {{0, 7, us(100), kNever, 1}, {1, 7, us(100), kNever, 3}};
  const BatchRule rule = {.rows_max = 4, .wait_max = us(50), .priorities = 2};
  EXPECT_EQ(decide(lines, us(100), rule, {}, 0).rows, 4u);
}

// ---- What calls cost.
TEST(Costs, LearnWhenBatchesLose) {
  Costs costs;
  EXPECT_FALSE(costs.us_of(1));
  EXPECT_EQ(costs.best_rows(8, 32, 0), 8u) << "not known: tried";
  costs.learn(8, 1000);
  EXPECT_EQ(costs.best_rows(8, 32, 1), 8u);
  EXPECT_EQ(costs.best_rows(8, 32, 63), 1u) << "one call in many looks around";
  costs.learn(1, 20);
  EXPECT_EQ(costs.best_rows(8, 32, 0), 1u) << "one by one they take 160";
  EXPECT_FALSE(costs.gains_from_more(1, 8) && costs.us_of(2) < costs.us_of(1));
  for (int call = 0; call < 200; ++call) costs.learn(8, 40);
  EXPECT_EQ(costs.best_rows(8, 32, 0), 8u) << "and it may change";
}

TEST(Costs, ForgiveOneSlowCall) {
  Costs costs;
  for (int call = 0; call < 50; ++call) costs.learn(4, 10);
  costs.learn(4, 100'000);
  EXPECT_LT(*costs.us_of(4), 20);
  for (int call = 0; call < 50; ++call) costs.learn(4, 1'000);
  EXPECT_GT(*costs.us_of(4), 800);
}

TEST(Costs, AreReadBetweenWhatIsKnown) {
  const auto costs = linear_costs(100, 2, 64);
  EXPECT_NEAR(*costs.us_of(24), 148, 1);
  EXPECT_NEAR(*costs.us_of(128), 2 * 228, 1) << "beyond: as many calls";
}

// ---- The queue.
struct Answered {
  std::vector<float> values;
  std::uint32_t rows = 0;
  Micros waited{0};
  std::optional<Code> refused;
};

class TestRequest : public Request {
 public:
  TestRequest(std::vector<float> values, std::int64_t width, Answered& to) : values_(std::move(values)), to_(to) {
    rows = static_cast<std::uint32_t>(static_cast<std::int64_t>(values_.size()) / width);
    inputs = {view_of(values_, {std::int64_t{rows}, width})};
  }
  ~TestRequest() override { EXPECT_TRUE(done_ || !expect_done); }
  void answer(const Ran& ran) noexcept override {
    EXPECT_FALSE(std::exchange(done_, true));
    const auto made = ran.outputs[0].values<float>();
    to_.values.assign(made.begin(), made.end());
    to_.rows = ran.rows;
    to_.waited = ran.waited;
  }
  void refuse(const Error& why) noexcept override {
    EXPECT_FALSE(std::exchange(done_, true));
    to_.refused = why.code();
  }
  bool expect_done = true;

 private:
  std::vector<float> values_;
  Answered& to_;
  bool done_ = false;
};

class Queue : public testing::Test {
 protected:
  std::unique_ptr<Request> request(std::vector<float> values, std::int64_t width = 2) {
    return std::make_unique<TestRequest>(std::move(values), width, answers_.emplace_back());
  }
  void push(std::vector<float> values, std::uint8_t priority = 0, Micros deadline = us(0)) {
    auto made = request(std::move(values));
    made->priority = priority, made->deadline = deadline;
    EXPECT_FALSE(queue_.push(made, clock_.now()));
  }
  Micros next() { return queue_.next(clock_.now(), batch_); }
  BatchDone run() { return run_batch(*model_, batch_, clock_); }

  std::shared_ptr<const Model> model_ = Model::load(runtime(), affine_model());
  sys::SimClock clock_;
  std::deque<Answered> answers_;
  BatchQueue queue_{{.rows_max = 4, .queue_rows_max = 10, .priorities = 3}, true};
  Batch batch_;
};

TEST_F(Queue, PutsRequestsTogetherAndTakesTheAnswersApart) {
  push({1, 2});
  push({3, 4, 5, 6});
  clock_.advance(us(7));
  push({7, 8});
  next();
  ASSERT_EQ(batch_.requests.size(), 3u);
  const auto done = run();
  EXPECT_EQ(done.calls, 1u);
  EXPECT_EQ(done.rows, 4u);
  EXPECT_THAT(answers_[0].values, ElementsAre(3, 5));
  EXPECT_THAT(answers_[1].values, ElementsAre(7, 9, 11, 13));
  EXPECT_THAT(answers_[2].values, ElementsAre(15, 17));
  EXPECT_EQ(answers_[0].waited, us(7));
  EXPECT_EQ(answers_[2].waited, us(0));
  EXPECT_EQ(answers_[2].rows, 4u);
  EXPECT_THAT(batch_.latencies, ElementsAre(us(7), us(7), us(0)));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.rows(), 0u);
  EXPECT_EQ(next(), kNever);
}

TEST_F(Queue, TakesAnOversizedHeadAlone) {
  push({1, 1, 2, 2, 3, 3, 4, 4, 5, 5});
  push({6, 6});
  next();
  EXPECT_EQ(batch_.requests.size(), 1u);
  run();
  EXPECT_EQ(answers_[0].values.size(), 10u);
  next();
  run();
  EXPECT_THAT(answers_[1].values, ElementsAre(13, 13));
}

TEST_F(Queue, RefusesAtOnceWhenFull) {
  for (int k = 0; k < 5; ++k) push({1, 1, 2, 2});
  auto more = request({1, 1});
  const auto again = queue_.push(more, clock_.now());
  ASSERT_TRUE(again);
  EXPECT_GE(*again, us(1'000));
  ASSERT_TRUE(more) << "it stays with the caller";
  more->refuse(Error(Code::exhausted, "full"));
  next();
  run();
  more = request({1, 1});
  EXPECT_FALSE(queue_.push(more, clock_.now()));
  for (auto& left : queue_.drain()) left->refuse(Error(Code::cancelled, "the end"));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(answers_.back().refused, Code::cancelled);
}

TEST_F(Queue, OneLargerThanTheQueueIsTakenWhenNobodyWaits) {
  push(std::vector<float>(30));
  next();
  run();
  EXPECT_EQ(answers_[0].values.size(), 30u);
}

TEST_F(Queue, AnswersTheLateWithoutRunningThem) {
  push({1, 1}, 0, us(10));
  push({2, 2});
  push({3, 3}, 0, us(50));
  clock_.advance(us(10));
  next();
  EXPECT_EQ(batch_.late.size(), 1u);
  EXPECT_EQ(batch_.requests.size(), 2u);
  EXPECT_EQ(run().late, 1u);
  EXPECT_EQ(answers_[0].refused, Code::deadline);
  EXPECT_THAT(answers_[2].values, ElementsAre(7, 7));
  push({1, 1}, 0, us(11));
  clock_.advance(us(5));
  next();
  EXPECT_TRUE(batch_.requests.empty());
  const auto done = run();
  EXPECT_EQ(done.calls, 0u);
  EXPECT_EQ(done.late, 1u);
}

TEST_F(Queue, RefusesWhoWaitedSoLongThatTheAnswerWouldBeLate) {
  queue_.set_rule({.stale_after = us(20)});
  push({1, 1});
  push({2, 2}, 0, us(15));
  clock_.advance(us(20));
  push({3, 3});
  clock_.advance(us(1));
  next();
  EXPECT_EQ(run().late, 2u);
  EXPECT_EQ(answers_[0].refused, Code::exhausted);
  EXPECT_EQ(answers_[1].refused, Code::deadline) << "what it asked for itself is what it is told";
  EXPECT_THAT(answers_[2].values, ElementsAre(7, 7));
}

TEST_F(Queue, GivesADeadlineToThoseWithout) {
  queue_.set_rule({.deadline_default = us(20)});
  push({1, 1});
  clock_.advance(us(20));
  next();
  run();
  EXPECT_EQ(answers_[0].refused, Code::deadline);
}

TEST_F(Queue, TheUrgentGoFirstAndTheOthersFillUp) {
  push({1, 1, 1, 1}, 2);
  push({2, 2}, 1);
  push({3, 3, 3, 3}, 0);
  push({4, 4}, 9);  // beyond the last level: the last
  next();
  ASSERT_EQ(batch_.requests.size(), 2u);
  EXPECT_EQ(batch_.rows, 3u) << "the two rows of the first do not fit any more";
  run();
  EXPECT_THAT(answers_[2].values, ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(answers_[1].values, ElementsAre(5, 5));
  next();
  EXPECT_EQ(batch_.requests.size(), 2u);
  run();
  EXPECT_THAT(answers_[3].values, ElementsAre(9, 9));
}

TEST_F(Queue, OnlyEqualShapesAndOutputsGoTogether) {
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string(graph::kRows), std::string()});
  graph.add_output("y", graph.add_node("Neg", {x}), graph::Element::float32,
                   {std::string(graph::kRows), std::string()});
  graph.add_output("z", graph.add_node("Abs", {x}), graph::Element::float32,
                   {std::string(graph::kRows), std::string()});
  model_ = Model::load(runtime(), graph::serialise(graph));
  ASSERT_TRUE(model_->rows_first());
  auto add = [&](std::vector<float> values, std::int64_t width, std::vector<std::uint16_t> wanted) {
    auto made = request(std::move(values), width);
    made->wanted = std::move(wanted);
    EXPECT_FALSE(queue_.push(made, clock_.now()));
    clock_.advance(us(1));
  };
  add({1, 2}, 2, {});
  add({3, 4, 5}, 3, {});
  add({6, 7}, 2, {});
  add({-8, -9}, 2, {1});
  std::vector<std::size_t> sizes;
  while (!queue_.empty()) {
    next();
    sizes.push_back(batch_.requests.size());
    run();
  }
  EXPECT_THAT(sizes, ElementsAre(2, 1, 1));
  EXPECT_THAT(answers_[1].values, ElementsAre(-3, -4, -5));
  EXPECT_THAT(answers_[2].values, ElementsAre(-6, -7));
  EXPECT_THAT(answers_[3].values, ElementsAre(8, 9));
}

TEST_F(Queue, ManyShapesAreBounded) {
  queue_.set_rule({.rows_max = 4, .queue_rows_max = 10'000});
  std::size_t taken = 0;
  for (std::int64_t width = 1; width <= 300; ++width) {
    auto made = request(std::vector<float>(static_cast<std::size_t>(width)), width);
    static_cast<TestRequest&>(*made).expect_done = false;
    if (!queue_.push(made, clock_.now())) ++taken;
  }
  EXPECT_EQ(taken, 256u);
  EXPECT_EQ(queue_.drain().size(), 256u);
  push({1, 1});
  next();
  run();
  EXPECT_THAT(answers_.back().values, ElementsAre(3, 3)) << "and forgotten";
}

// A table of two rows: whoever asks for a third fails, and nobody else.
TEST_F(Queue, OnlyWhoMakesTheCallFailIsRefused) {
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string(graph::kRows), std::int64_t{2}});
  const auto whole = graph.add_node("Cast", {x}, {{"to", std::int64_t{7}}});
  const auto table = graph.add_constant(graph::Tensor::of<float>({2}, std::vector<float>{5, 6}));
  graph.add_output("y", graph.add_node("Gather", {table, whole}), graph::Element::float32,
                   {std::string(graph::kRows), std::int64_t{2}});
  model_ = Model::load(runtime(), graph::serialise(graph));
  push({0, 1});
  push({1, 7});
  push({1, 0});
  next();
  const auto done = run();
  EXPECT_EQ(done.failed, 1u);
  EXPECT_THAT(answers_[0].values, ElementsAre(5, 6));
  EXPECT_EQ(answers_[1].refused, Code::invalid);
  EXPECT_THAT(answers_[2].values, ElementsAre(6, 5));
}

TEST_F(Queue, WithoutRowsEachRunsAlone) {
  BatchQueue apart({.rows_max = 8}, false);
  for (int k = 0; k < 3; ++k) {
    auto made = request({1, 2});
    EXPECT_FALSE(apart.push(made, clock_.now()));
  }
  for (int k = 0; k < 3; ++k) {
    apart.next(clock_.now(), batch_);
    EXPECT_EQ(batch_.requests.size(), 1u);
    run();
  }
  EXPECT_TRUE(apart.empty());
}

TEST_F(Queue, NoRowsAreARequestToo) {
  push({});
  push({1, 2});
  next();
  run();
  EXPECT_TRUE(answers_[0].values.empty());
  EXPECT_FALSE(answers_[0].refused);
  EXPECT_THAT(answers_[1].values, ElementsAre(3, 5));
}

// Whatever comes in whatever order: each is answered once, with its own rows, and the counts end at nothing.
TEST_F(Queue, EveryRequestIsAnsweredOnce) {
  std::mt19937_64 random(4);
  queue_.set_rule({.rows_max = 7, .wait_max = us(30), .queue_rows_max = 40, .priorities = 3});
  std::vector<float> marks;
  std::size_t refused = 0;
  for (int turn = 0; turn < repeats(2'000); ++turn) {
    clock_.advance(us(static_cast<std::int64_t>(random() % 20)));
    const auto mark = static_cast<float>(turn);
    auto made = request(std::vector<float>(2 * (random() % 9), mark));
    marks.push_back(mark);
    made->priority = static_cast<std::uint8_t>(random() % 4);
    if (random() % 5 == 0) made->deadline = clock_.now() + us(static_cast<std::int64_t>(random() % 60));
    if (queue_.push(made, clock_.now())) made->refuse(Error(Code::exhausted, "full")), ++refused;
    if (random() % 3 == 0) {
      next();
      EXPECT_TRUE(batch_.requests.size() <= 1 || batch_.rows <= 7 + 7) << "empty ones count as one";
      queue_.learn(run());
    }
  }
  for (auto& left : queue_.drain()) left->refuse(Error(Code::cancelled, "the end"));
  EXPECT_EQ(queue_.rows(), 0u);
  EXPECT_GT(refused, 0u);
  for (std::size_t at = 0; at < answers_.size(); ++at)
    for (const float value : answers_[at].values) EXPECT_EQ(value, 2 * marks[at] + 1);
}

}  // namespace
}  // namespace falaj::infer
