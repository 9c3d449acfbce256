// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "foundation/base/testing.h"

namespace falaj::cli {
namespace {

using net::Heard;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

Heard answer_after(std::int64_t us, int status = 200) { return {0, Heard::What::answer, us, 0, status, "body"}; }

TEST(LoadTally, KnowsQuantilesToOnePartIn128) {
  LoadTally tally(net::Load{100, 10, 8});
  for (int us = 1; us <= 100'000; ++us) tally.add(answer_after(us));
  tally.finish({10, 0.5});
  for (const double share : {0.5, 0.9, 0.99, 0.999}) {
    EXPECT_GE(tally.quantile_us(share), share * 1e5);
    EXPECT_LE(tally.quantile_us(share), share * 1e5 * (1 + 1.0 / 128) + 2);
  }
  EXPECT_EQ(tally.quantile_us(1), 100'000);  // the greatest is kept as it is
  EXPECT_EQ(tally.per_second(), 10'000);
  EXPECT_EQ(tally.busy(), 0.05);
  tally.add({0, net::Heard::What::answer, 5000, 3000, 200, ""});
  EXPECT_LE(tally.tardy_us(0.99), 1);
  EXPECT_NEAR(tally.tardy_us(0.999995), 3000, 3000.0 / 128);
}

// Who refuses at once must not look fast, and who lets people wait until they give up must not look as if nobody had.
TEST(LoadTally, CountsWaitingWithoutAnAnswerAsLatencyAndRefusalsNot) {
  LoadTally tally(net::Load{100, 1, 8});
  tally.add(answer_after(1000));
  for (int i = 0; i < 10; ++i) tally.add(answer_after(1, 429));
  for (int i = 0; i < 5; ++i) tally.add({0, Heard::What::unsent, 900'000, 0, 0, "no connection was free"});
  tally.add({0, Heard::What::late, 2'000'000, 0, 0, "no answer in time"});
  tally.add({0, Heard::What::broken, 1, 0, 0, "closed"});
  tally.finish({1, 0});
  EXPECT_GE(tally.quantile_us(0.5), 900'000);
  EXPECT_EQ(tally.failures(), 17U);
  const auto told = tally.to_json();
  EXPECT_EQ(told.at("errors"), (json::value{{"429", 10}, {"broken", 1}, {"late", 1}, {"unsent", 5}}));
  EXPECT_EQ(told.at("answers"), json::value(1U));
  EXPECT_EQ(told.at("latency_us").at("max"), json::value(2'000'000));
  EXPECT_EQ(tally.first_trouble(), "429: body");
}

TEST(LoadTally, DrawsItsHistogramByHalfPowersOfTwo) {
  LoadTally tally(net::Load{});
  for (int i = 0; i < 30; ++i) tally.add(answer_after(70));
  for (int i = 0; i < 10; ++i) tally.add(answer_after(130));
  EXPECT_THAT(tally.histogram(6), ElementsAre("    64 us to     96 us  ######         30   75.0 %",
                                              "    96 us to    128 us                  0    0.0 %",
                                              "   128 us to    192 us  ##             10   25.0 %"));
  EXPECT_TRUE(LoadTally(net::Load{}).histogram(6).empty());
}

TEST(LatencyChart, IsByRateOrByNines) {
  LoadTally one(net::Load{100, 1, 8});
  for (int i = 1; i <= 1000; ++i) one.add(answer_after(i));
  one.finish({1, 0});
  const LoadTally steps[] = {one, one};
  EXPECT_EQ(latency_chart("x", steps).lines.size(), 4U);
  EXPECT_THAT(latency_chart("x", steps).lines[0].x, ElementsAre(1000, 1000));
  const auto single = latency_chart("x", std::span(steps).first(1));
  EXPECT_EQ(single.lines.size(), 1U);
  EXPECT_NEAR(single.lines[0].y.back(), 1000, 20);
}

TEST(Rates, AreNumbersAboveZero) {
  EXPECT_THAT(parse_rates("100, 2.5"), ElementsAre(100, 2.5));
  for (const auto* text : {"", "0", "-1", "1,,2", "1x", "nan", "1e9"}) EXPECT_ERROR(parse_rates(text), Code::invalid);
}

const std::vector<PortShape> kPorts = {
    {"x", "FP32", {-1, 2}}, {"n", "INT16", {-1, 1}}, {"t", "BYTES", {-1}}, {"b", "BOOL", {-1}}};

TEST(BenchRequests, PutTensorsBehindAHeadThatSaysWhereTheyAre) {
  const auto metadata = parse_json(
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"t","datatype":"BYTES","shape":[-1]}]})");
  const auto ports = ports_of(metadata, "inputs");
  const std::vector<json::object> rows = {{{"x", {1.5, 2}}, {"t", "ab"}}, {{"x", {3, nullptr}}}};
  const auto request = request_of({"h:1", "a.b.c", "tok", false}, ports, rows);
  const auto end = request.find("\r\n\r\n") + 4;
  const auto head = request.substr(0, end);
  EXPECT_THAT(head, HasSubstr("POST /v2/models/a.b.c/infer HTTP/1.1\r\nHost: h:1\r\nAuthorization: Bearer tok\r\n"));
  const auto data_at = request.rfind('}') + 1;
  const auto about = parse_json(request.substr(end, data_at - end));
  EXPECT_EQ(about.at("inputs").at(0).at("shape"), json::value({2, 2}));
  EXPECT_EQ(about.at("inputs").at(1).at("shape"), json::value(json::array{2}));
  EXPECT_THAT(head, HasSubstr("Inference-Header-Content-Length: " + std::to_string(json::serialize(about).size())));
  const auto data = request.substr(data_at);
  ASSERT_EQ(data.size(), 4 * sizeof(float) + 4 + 2 + 4);
  float values[4];
  std::memcpy(values, data.data(), sizeof values);
  EXPECT_THAT(std::vector<float>(values, values + 3), ElementsAre(1.5, 2, 3));
  EXPECT_TRUE(values[3] != values[3]);
  EXPECT_EQ(data.substr(16), std::string("\x02\0\0\0ab\0\0\0\0", 10));
}

TEST(BenchRequests, SendRowsAsTheyAreWithJson) {
  const std::vector<json::object> rows = {{{"entity", "kate"}}};
  EXPECT_THAT(request_of({"h", "m", "", true}, kPorts, rows), EndsWith("\r\n\r\n{\"rows\":[{\"entity\":\"kate\"}]}"));
  EXPECT_ERROR(request_of({"h", "m", "", false}, kPorts, rows), Code::invalid);  // no such input
}

TEST(BenchRequests, SayWhichValueOfWhichRowDoesNotFit) {
  for (const auto* row : {R"({"x": [1], "n": 1, "b": true})", R"({"x": [1, "a"], "n": 1, "b": true})",
                          R"({"x": [1, 2], "n": 40000, "b": true})", R"({"x": [1, 2], "n": 1, "b": 2})",
                          R"({"x": [1, 2], "n": 1, "b": true, "t": 7})", R"({"x": [1, 2], "b": true})"}) {
    const std::vector<json::object> rows = {parse_json(row).as_object()};
    try {
      request_of({"h", "m", "", false}, kPorts, rows);
      ADD_FAILURE() << row;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid);
      EXPECT_THAT(e.what(), HasSubstr("row 1, field '")) << row;
    }
  }
}

TEST(BenchRequests, MadeRowsFitEveryTypeAndAreTheSameForASeed) {
  std::vector<PortShape> ports;
  std::size_t bytes = 0;
  for (const auto& [type, size] : std::vector<std::pair<std::string, std::size_t>>{{"BOOL", 1},
                                                                                   {"INT8", 1},
                                                                                   {"INT16", 2},
                                                                                   {"INT32", 4},
                                                                                   {"INT64", 8},
                                                                                   {"UINT8", 1},
                                                                                   {"UINT16", 2},
                                                                                   {"UINT32", 4},
                                                                                   {"UINT64", 8},
                                                                                   {"FP16", 2},
                                                                                   {"BF16", 2},
                                                                                   {"FP32", 4},
                                                                                   {"FP64", 8},
                                                                                   {"BYTES", 5}}) {
    ports.push_back({type, type, {-1, 3}});
    bytes += 3 * size;
  }
  const auto row = made_row(ports, 7);
  EXPECT_EQ(row, made_row(ports, 7));
  EXPECT_NE(row, made_row(ports, 8));
  const std::vector<json::object> rows = {row};
  std::size_t made = 0;
  for (const auto& port : ports) made += tensor_bytes(port, rows).size();
  EXPECT_EQ(made, bytes);
}

TEST(BenchRequests, RoundToHalfPrecision) {
  const PortShape half{"h", "FP16", {-1}};
  const auto bits = [&](double value) {
    const std::vector<json::object> rows = {{{"h", value}}};
    std::uint16_t out = 0;
    const auto bytes = tensor_bytes(half, rows);
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  };
  EXPECT_EQ(bits(1), 0x3C00);
  EXPECT_EQ(bits(-2), 0xC000);
  EXPECT_EQ(bits(65504), 0x7BFF);
  EXPECT_EQ(bits(1e9), 0x7C00);
  EXPECT_EQ(bits(0.1), 0x2E66);
  EXPECT_EQ(bits(5.960464477539063e-08), 0x0001);
  EXPECT_EQ(bits(1.00048828125), 0x3C00);  // half way: to even
  EXPECT_EQ(bits(1.00146484375), 0x3C02);
}

}  // namespace
}  // namespace falaj::cli
