// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/watching.h"

#include <cmath>
#include <deque>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "compute/serve/catalogue.h"
#include "foundation/crypto/hash.h"
#include "foundation/sys/testing.h"

namespace falaj::serve {
namespace {

using graph::Element;

// Numbers of one row after the other, `width` each.
struct Asked {
  std::vector<float> numbers;
  std::vector<std::string_view> texts;
  std::vector<infer::TensorView> views(std::int64_t rows, std::int64_t width) const {
    return {{Element::float32, infer::Shape({rows, width}), std::as_bytes(std::span(numbers)), {}},
            {Element::text, infer::Shape({rows, 1}), {}, texts}};
  }
};

const std::vector<WatchCell> kCells = {{"x", 0, false, Element::float32, 0, false, false},
                                       {"who", 1, false, Element::text, 0, false, false},
                                       {"out_y", 0, true, Element::float32, 0, false, false}};

class WatchStreamTest : public testing::Test {
 protected:
  void see(WatchStream& stream, int rows, float first = 0) {
    Asked asked, answered;
    for (int i = 0; i < rows; ++i) {
      asked.numbers.push_back(first + static_cast<float>(i));
      asked.texts.push_back(i % 2 ? "ada" : "");
      answered.numbers.push_back(1);
    }
    const auto in = asked.views(rows, 1), out = answered.views(rows, 1);
    stream.see(in, std::span(out).first(1), {}, static_cast<std::uint32_t>(rows), clock_);
  }
  sys::SimClock clock_;
};

TEST_F(WatchStreamTest, SeesEveryRowWhileTheyAreFew) {
  WatchStream stream(kCells, {1000, 1000});
  for (int i = 0; i < 10; ++i) see(stream, 10);
  const auto taken = stream.take();
  EXPECT_EQ(taken.rows, 100u);
  ASSERT_EQ(taken.pieces.size(), 1u);
  EXPECT_EQ(taken.pieces[0].looked_at, 100u);
  const auto sketches = stream.sketch(taken.pieces[0]);
  EXPECT_EQ(sketches.at("x").numbers.count(), 100u);
  EXPECT_EQ(sketches.at("x").numbers.max(), 9);
  EXPECT_EQ(sketches.at("who").missing, 50u);
  EXPECT_EQ(sketches.at("who").texts.counted("ada"), 50u);
  EXPECT_EQ(sketches.at("out_y").numbers.count(), 100u);
  EXPECT_TRUE(stream.take().pieces.empty());
}

TEST_F(WatchStreamTest, ThinsWhenThereAreManyAndLetsMoreInAgain) {
  WatchStream stream(kCells, {100, 1000});
  for (int i = 0; i < 10'000; ++i) see(stream, 1);
  auto taken = stream.take();
  EXPECT_EQ(taken.rows, 10'000u) << "all are counted";
  std::uint64_t looked_at = 0;
  for (const auto& piece : taken.pieces) {
    EXPECT_LE(piece.looked_at, 100u);
    looked_at += piece.looked_at;
  }
  EXPECT_LE(looked_at, 800u);
  const auto thin = stream.halvings();
  EXPECT_GE(thin, 5u);
  for (int i = 0; i < 9; ++i) stream.take();
  EXPECT_EQ(stream.halvings(), thin) << "not at once";
  for (int i = 0; i < 200; ++i) stream.take();
  EXPECT_EQ(stream.halvings(), 0u);
}

TEST_F(WatchStreamTest, ALargeRequestIsThinnedByItself) {
  WatchStream stream(kCells, {100, 1000});
  see(stream, 10'000);
  const auto taken = stream.take();
  EXPECT_EQ(taken.rows, 10'000u);
  ASSERT_EQ(taken.pieces.size(), 1u);
  EXPECT_LE(taken.pieces[0].looked_at, 200u);
  EXPECT_EQ(taken.pieces[0].halvings, 7u);
}

// Whatever the chance, what is looked at has the distribution of what came.
TEST_F(WatchStreamTest, ThinningDoesNotPrefer) {
  WatchStream stream(kCells, {500, 1000});
  double sum = 0, count = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 5'000; ++i) see(stream, 1, static_cast<float>(i % 100));
    for (const auto& piece : stream.take().pieces) {
      if (piece.halvings == 0) continue;
      for (std::size_t i = 0; i < piece.numbers.size(); i += 2) sum += piece.numbers[i], ++count;
    }
  }
  ASSERT_GT(count, 5'000);
  EXPECT_NEAR(sum / count, 49.5, 5 * 28.9 / std::sqrt(count));
}

TEST_F(WatchStreamTest, PiecesHaveAtMostSoManyRows) {
  WatchStream stream(kCells, {1'000, 64});
  see(stream, 200);
  see(stream, 30);
  const auto taken = stream.take();
  ASSERT_EQ(taken.pieces.size(), 4u);
  EXPECT_EQ(taken.pieces[0].looked_at, 64u);
  EXPECT_EQ(taken.pieces[3].looked_at, 38u);
  EXPECT_EQ(stream.sketch(taken.pieces[1]).at("x").numbers.min(), 64);
}

TEST_F(WatchStreamTest, OutputsThatNobodyAskedForAreNotMissing) {
  auto cells = kCells;
  cells.push_back({"out_z", 1, true, Element::float32, 0, false, false});
  WatchStream stream(cells, {1000, 1000});
  Asked asked{{1, std::numeric_limits<float>::quiet_NaN()}, {"a", "b"}}, answered{{7, 8}, {}};
  const auto in = asked.views(2, 1), out = answered.views(2, 1);
  const std::uint16_t wanted[] = {1};
  stream.see(in, std::span(out).first(1), wanted, 2, clock_);
  const auto sketches = stream.sketch(stream.take().pieces.at(0));
  EXPECT_FALSE(sketches.contains("out_y"));
  EXPECT_EQ(sketches.at("out_z").numbers.min(), 7);
  EXPECT_EQ(sketches.at("x").missing, 1u);
}

TEST_F(WatchStreamTest, TellsSomeRowsWholeWhereSomebodyAsks) {
  WatchStream stream(kCells, {1000, 1000, 20}, 7), nobody_asks(kCells, {1000, 1000});
  see(stream, 200);
  const auto taken = stream.take();
  const auto first = stream.sample(taken.pieces.at(0)), second = stream.sample(taken.pieces.at(0));
  EXPECT_EQ(first.seen(), 200u);
  EXPECT_GE(first.count(), 20u);
  EXPECT_LE(first.count(), 25u);
  const std::vector<stats::RowSample::Column> inputs = {{"x", false}, {"who", true}};
  EXPECT_EQ(first.columns(), inputs) << "what it answers follows from them";
  for (std::size_t i = 0; i < first.count(); ++i) {
    const double x = first.rows().values[2 * i], who = first.rows().values[2 * i + 1];
    if (static_cast<int>(x) % 2)
      EXPECT_EQ(who, stats::text_code("ada")) << "a row is whole";
    else
      EXPECT_TRUE(std::isnan(who));
  }
  EXPECT_NE(traffic::encode_rows(first), traffic::encode_rows(second)) << "each time others";
  see(nobody_asks, 10);
  EXPECT_EQ(nobody_asks.sample(nobody_asks.take().pieces.at(0)).seen(), 0u);
}

TEST_F(WatchStreamTest, HiddenColumnsAreInNoRow) {
  auto cells = kCells;
  cells[0].hidden = true;
  WatchStream stream(cells, {1000, 1000, 50}, 7);
  see(stream, 30);
  const auto sample = stream.sample(stream.take().pieces.at(0));
  ASSERT_EQ(sample.columns().size(), 1u);
  EXPECT_EQ(sample.columns()[0].name, "who");
  EXPECT_EQ(sample.rows().values[1], stats::text_code("ada")) << "the others stay in their places";
}

// What a log hides is hidden here too.
class WatchCellsTest : public testing::Test {
 protected:
  WatchCellsTest() {
    const graph::Dimension rows = std::string("rows");
    graph::Graph graph;
    const auto age = graph.add_input("age", Element::float32, {rows, std::int64_t{1}});
    const auto who = graph.add_input("who", Element::text, {rows, std::int64_t{1}});
    const auto where = graph.add_input("where", Element::float32, {rows, std::int64_t{2}});
    const auto picture = graph.add_input("picture", Element::float32, {rows, std::int64_t{28}, std::int64_t{28}});
    graph.add_output("echo", graph.add_node("Identity", {who}), Element::text, {rows, std::int64_t{1}});
    graph.add_output("same", graph.add_node("Identity", {where}), Element::float32, {rows, std::int64_t{2}});
    graph.add_output("age2", graph.add_node("Identity", {age}), Element::float32, {rows, std::int64_t{1}});
    graph.add_output("p", graph.add_node("Identity", {picture}), Element::float32,
                     {rows, std::int64_t{28}, std::int64_t{28}});
    model_ = graph::serialise(graph);
    source_.bytes = [this](const std::string&) { return model_; };
    auto& endpoint = plan_.endpoints.emplace_back();
    endpoint.tenant = "acme", endpoint.project = "flights", endpoint.name = "people";
    endpoint.variants = {{"a", "m", 1, crypto::sha256(model_).hex(), 1, false, "", ""}};
    endpoint.watch.emplace();
  }
  std::shared_ptr<const Catalogue> make(const Catalogue* before = nullptr) {
    return loader_.make(plan_, before, source_);
  }
  Bytes model_;
  Loader::Source source_;
  traffic::Plan plan_;
  sys::SimClock clock_;
  Loader loader_{infer::runtime(), {}, clock_};
};

TEST_F(WatchCellsTest, NamesColumnsByInputAndOutput) {
  const auto made = make();
  std::vector<std::string> names;
  for (const auto& cell : made->endpoints[0].variants[0].watched->cells()) names.push_back(cell.name);
  EXPECT_EQ(names, (std::vector<std::string>{"out_echo", "out_same[0]", "out_same[1]", "out_age2", "out_p", "age",
                                             "who", "where[0]", "where[1]", "picture"}));
}

TEST_F(WatchCellsTest, HidesWhatALogHides) {
  auto& log = plan_.endpoints[0].log.emplace();
  log.columns = {{"who", "drop"}, {"age", "mask"}, {"echo", "hash"}};
  const auto made = make();
  for (const auto& cell : made->endpoints[0].variants[0].watched->cells()) {
    EXPECT_NE(cell.name, "who");
    EXPECT_EQ(cell.hidden, cell.name == "age" || cell.name == "out_echo") << cell.name;
  }
  log.columns = {{"whoo", "drop"}};
  EXPECT_FALSE(make()->endpoints[0].variants[0].watched) << "a slip of the pen hides nothing: nothing is watched";
}

TEST_F(WatchCellsTest, GoesOnWhileNothingOfItChanges) {
  const auto first = make();
  plan_.endpoints[0].revision = 2;
  const auto second = make(first.get());
  EXPECT_EQ(first->endpoints[0].variants[0].watched, second->endpoints[0].variants[0].watched);
  plan_.endpoints[0].watch->rows_per_second = 5;
  EXPECT_NE(make(second.get())->endpoints[0].variants[0].watched, second->endpoints[0].variants[0].watched);
  plan_.endpoints[0].watch.reset();
  EXPECT_FALSE(make(second.get())->endpoints[0].variants[0].watched);
}

TEST_F(WatchCellsTest, SegmentsHoldWhatWasSeenOnce) {
  const auto made = make();
  const auto& stream = *made->endpoints[0].variants[0].watched;
  std::vector<json::object> sent;
  sys::SimClock clock;
  Watcher watcher(clock, [&](const json::object& segment) { sent.push_back(segment); });
  watcher.turn(*made);
  EXPECT_TRUE(sent.empty());
  std::vector<float> numbers(784, 2);
  const std::vector<std::string_view> who = {"ada"};
  const auto view = [&](std::int64_t width) {
    return infer::TensorView{Element::float32,
                             infer::Shape({1, width}),
                             std::as_bytes(std::span(numbers).first(static_cast<std::size_t>(width))),
                             {}};
  };
  const infer::TensorView text{Element::text, infer::Shape({1, 1}), {}, who};
  const std::vector<infer::TensorView> in = {view(1), text, view(2), view(784)},
                                       out = {text, view(2), view(1), view(784)};
  made->endpoints[0].variants[0].watched->see(in, out, {}, 1, clock);
  watcher.turn(*made);
  watcher.turn(*made);
  ASSERT_EQ(sent.size(), 1u);
  const auto segment = decode<traffic::WatchedSegment>(sent[0].at("watched"), "segment");
  EXPECT_EQ(segment.rows, 1);
  EXPECT_EQ(segment.variant, "a");
  EXPECT_EQ(segment.rows_whole, "") << "nobody asked for whole rows";
  const auto sketches = traffic::decode_sketches(from_base64(segment.sketches));
  EXPECT_EQ(sketches.size(), stream.cells().size());
  EXPECT_EQ(sketches.at("picture").numbers.min(), 2);
  EXPECT_EQ(sketches.at("where[1]").numbers.count(), 1u);
}

}  // namespace
}  // namespace falaj::serve
