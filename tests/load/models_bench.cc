// SPDX-License-Identifier: Apache-2.0
// models_bench [cycles|resident] [CYCLES]
//
// Memory of a running falaj-serve, as its control plane tells it what to serve: what is left after models were loaded,
// asked and unloaded a thousand times, and what each of 200 takes that stay.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compute/infer/testing.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "tests/load/feature_world.h"
#include "tests/load/serving_world.h"

namespace falaj::tests {
namespace {

constexpr std::size_t kWidth = 64, kEndpoints = 10, kVersions = 30, kResident = 200;

double resident_bytes_of(int pid) {
  const auto text = read_text(fmt::format("/proc/{}/statm", pid));
  const auto words = split(text, ' ');
  return 4096 * static_cast<double>(words.size() > 1 ? parse_int(words[1]).value_or(0) : 0);
}

std::string question() {
  std::string numbers;
  for (std::size_t i = 0; i < 32 * kWidth; ++i) numbers += fmt::format("{}{}", i ? "," : "", i % 7);
  return fmt::format(R"({{"inputs":[{{"name":"x","shape":[32,{}],"datatype":"FP32","data":[{}]}}]}})", kWidth, numbers);
}

// Asks until this version answers.
void await_version(ServingWorld& world, client::ApiClient& serving, const std::string& endpoint, std::size_t version) {
  static const auto body = parse_json(question());
  world.until(fmt::format("version {} of {} answers", version, endpoint), [&] {
    try {
      const auto answer = serving.post("/v2/models/" + endpoint + "/infer", body);
      return answer.at("model_version").as_string() == std::to_string(version);
    } catch (const Error& e) {
      if (e.code() != Code::unavailable && e.code() != Code::not_found) throw;
      return false;
    }
  });
}

std::string variants(const std::string& model, std::size_t version) {
  return fmt::format("variants: [{{name: a, model: {}, version: {}}}]", model, version);
}

// Networks of a third, of four megabytes, and trees.
Bytes some_model(std::uint64_t seed) {
  if (seed % 3 == 0) return infer::network_model(1024, seed);
  if (seed % 3 == 1) return infer::network_model(256, seed);
  return infer::trees_model(infer::random_trees(200, 6, kWidth, 1, seed));
}

void measure_cycles(std::size_t cycles) {
  ServingWorld world(falaj_beside_this());
  for (std::uint64_t seed = 0; seed < kVersions; ++seed) world.register_version("turn", some_model(seed));
  const auto name = [](std::size_t e) { return fmt::format("turn{}", e); };
  const auto steps = std::max<std::size_t>(20, cycles / kEndpoints);
  // Three steps make a turn of all versions, which are not of one size: memory is the mean of a turn.
  constexpr std::size_t kTurn = kVersions / kEndpoints;
  double first = 0, last = 0;
  std::unique_ptr<client::ApiClient> serving;
  for (std::size_t step = 0; step < steps; ++step) {
    // Every endpoint has another version in each step, so that as many models are loaded as are unloaded.
    std::vector<ServingWorld::Declared> all;
    const auto version = [&](std::size_t e) { return (step * kEndpoints + e) % kVersions + 1; };
    for (std::size_t e = 0; e < kEndpoints; ++e) all.push_back({name(e), variants("turn", version(e))});
    world.apply(all);
    if (step == 0) world.wait_ready(name(0));
    if (!serving) serving = std::make_unique<client::ApiClient>(world.serving(name(0), world.token()), 1);
    for (std::size_t e = 0; e < kEndpoints; ++e) await_version(world, *serving, name(e), version(e));
    const auto now = resident_bytes_of(world.worker());
    if (step >= steps / 20 && step < steps / 20 + kTurn) first += now / kTurn;
    if (step >= steps - kTurn) last += now / kTurn;
    if (step % 10 == 9) fmt::print("{} models loaded: {:.1f} MiB resident\n", (step + 1) * kEndpoints, now / (1 << 20));
    std::fflush(stdout);
  }
  claim(fmt::format("{} cycles of loading, asking and unloading models in falaj-serve: resident at the end",
                    steps * kEndpoints),
        last / (1 << 20), "MiB", "after the first twentieth", first / (1 << 20), last / first, 1.05, "lower");
}

void measure_resident() {
  for (const bool trees : {false, true}) {
    ServingWorld world(falaj_beside_this());
    const auto name = [](std::size_t i) { return fmt::format("kept{}", i); };
    double file_bytes = 0;
    for (std::size_t i = 0; i <= kResident; ++i) {
      const auto bytes = trees ? infer::trees_model(infer::random_trees(200, 6, kWidth, 1, i))
                               : infer::network_model(256, static_cast<std::uint64_t>(i));
      file_bytes = static_cast<double>(bytes.size());
      world.register_version("kept", bytes);
    }
    world.apply({{name(0), variants("kept", 1)}});
    world.wait_ready(name(0));
    client::ApiClient serving(world.serving(name(0), world.token()), 1);
    await_version(world, serving, name(0), 1);
    const double before = resident_bytes_of(world.worker());
    std::vector<ServingWorld::Declared> all;
    for (std::size_t i = 1; i <= kResident; ++i) all.push_back({name(i), variants("kept", i + 1)});
    world.apply(all);
    for (std::size_t i = 1; i <= kResident; ++i) await_version(world, serving, name(i), i + 1);
    const double after = resident_bytes_of(world.worker()), each = (after - before) / kResident;
    fmt::print("{} {} in one falaj-serve, each asked: {:.1f} MiB resident, {:.1f} MiB with one\n", kResident,
               trees ? "ensembles of 200 trees" : "networks", after / (1 << 20), before / (1 << 20));
    claim(fmt::format("{} models resident in falaj-serve, each: {}", kResident, trees ? "trees" : "network"),
          each / 1024, "KiB", "its file", file_bytes / 1024, each / file_bytes, trees ? 2.5 : 2, "lower");
  }
}

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj::tests;
  const std::string only = argc > 1 ? argv[1] : "";
  try {
    if (only != "resident") measure_cycles(argc > 2 ? std::stoul(argv[2]) : 1'000);
    if (only != "cycles") measure_resident();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "models_bench: %s\n", error.what());
    return 2;
  }
}
