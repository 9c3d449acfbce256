// SPDX-License-Identifier: Apache-2.0
// A metric's points packed and unpacked: points a second, bytes a point, and how often smaller than the 24 bytes that a
// point has in memory. Copying those bytes is the limit of speed; steps count up and times are a second apart, give or
// take some milliseconds.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>

#include "lifecycle/track/points.h"

namespace {

using namespace falaj;
using namespace falaj::track;

constexpr std::uint64_t kSeed = 1;

enum Shape { kNoise, kNoise32, kLoss, kLoss32, kSmooth, kDecimals, kIntegers };
constexpr const char* kShapes[] = {
    "noise", "noise of single precision", "loss", "loss of single precision", "smooth", "four decimals", "integers"};

std::vector<Point> points_of(Shape shape, std::size_t count) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> noise;
  std::vector<Point> points(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double curve = 2.3 * std::exp(-4.0 * static_cast<double>(i) / static_cast<double>(count)) + 0.05;
    const double loss = curve + 0.02 * noise(random);
    const double values[] = {noise(random),
                             static_cast<float>(noise(random)),
                             loss,
                             static_cast<float>(loss),
                             curve,
                             std::round(loss * 1e4) / 1e4,
                             static_cast<double>(32 * i)};
    points[i] = {1'700'000'000'000 + 1000 * static_cast<std::int64_t>(i) + static_cast<std::int64_t>(3 * noise(random)),
                 static_cast<std::int64_t>(i), values[shape]};
  }
  tidy(points);
  return points;
}

void describe(benchmark::State& state, std::size_t count, std::size_t bytes) {
  state.SetLabel(kShapes[state.range(0)]);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
  state.counters["bytes_a_point"] = static_cast<double>(bytes) / static_cast<double>(count);
  state.counters["times_smaller"] = static_cast<double>(count * sizeof(Point)) / static_cast<double>(bytes);
}

void pack_points(benchmark::State& state) {
  const auto points = points_of(static_cast<Shape>(state.range(0)), static_cast<std::size_t>(state.range(1)));
  Bytes block;
  for (auto _ : state) benchmark::DoNotOptimize(block = pack(points));
  describe(state, points.size(), block.size());
}
BENCHMARK(pack_points)
    ->ArgsProduct({{kNoise, kNoise32, kLoss, kLoss32, kSmooth, kDecimals, kIntegers}, {100, 1000, 10'000, 65'536}});

void unpack_points(benchmark::State& state) {
  const auto points = points_of(static_cast<Shape>(state.range(0)), static_cast<std::size_t>(state.range(1)));
  const auto block = pack(points);
  for (auto _ : state) benchmark::DoNotOptimize(unpack(block));
  describe(state, points.size(), block.size());
}
BENCHMARK(unpack_points)
    ->ArgsProduct({{kNoise, kNoise32, kLoss, kLoss32, kSmooth, kDecimals, kIntegers}, {100, 1000, 10'000, 65'536}});

void copy_points(benchmark::State& state) {
  const auto points = points_of(kNoise, static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    Bytes block(points.size() * sizeof(Point));
    std::memcpy(block.data(), points.data(), block.size());
    benchmark::DoNotOptimize(block);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy_points)->Arg(1000)->Arg(65'536);

void thin_points(benchmark::State& state) {
  const auto points = points_of(kLoss, static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(thin(points, 1000));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(thin_points)->Arg(10'000)->Arg(1'000'000);

}  // namespace

BENCHMARK_MAIN();
