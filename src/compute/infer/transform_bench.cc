// SPDX-License-Identifier: Apache-2.0
// Preparing rows for a model, three ways that give the same numbers in the same run: the transform as the trainer runs
// it, ONNX Runtime running what the transform exports, and a loop written by hand for exactly these columns, the limit.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compute/graph/testing.h"
#include "compute/graph/transform.h"
#include "compute/infer/session.h"
#include "compute/infer/testing.h"
#include "foundation/base/json.h"

namespace falaj::infer {
namespace {

using namespace falaj::graph;

constexpr std::size_t kNumbers = 20, kTexts = 4;

std::vector<Column> bench_columns() {
  std::vector<Column> out;
  for (std::size_t k = 0; k < kNumbers; ++k) out.push_back({"n" + std::to_string(k), Kind::float64, true});
  for (std::size_t k = 0; k < kTexts; ++k) out.push_back({"t" + std::to_string(k), Kind::text, true});
  return out;
}

// Seconds a call takes: the best of nine rounds of both in turn, since the machine is shared.
template <class Ours, class Theirs>
std::pair<double, double> time_both(Ours ours, Theirs theirs) {
  const auto seconds = [](auto& f) {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t times = 0;
    std::chrono::duration<double> taken{};
    do {
      f();
      ++times;
      taken = std::chrono::steady_clock::now() - begin;
    } while (taken.count() < 0.05);
    return taken.count() / static_cast<double>(times);
  };
  std::pair<double, double> best = {1e9, 1e9};
  for (int round = 0; round < 9; ++round) {
    best.first = std::min(best.first, seconds(ours));
    best.second = std::min(best.second, seconds(theirs));
  }
  return best;
}

void claim(const std::string& what, std::size_t rows, std::pair<double, double> seconds, const char* against,
           double goal) {
  const double ours = static_cast<double>(rows) / seconds.first, theirs = static_cast<double>(rows) / seconds.second;
  std::puts(json::serialize(json::object{{"claim", what},
                                         {"ours", ours / 1e6},
                                         {"unit", "M rows/s"},
                                         {"against", against},
                                         {"limit", theirs / 1e6},
                                         {"ratio", ours / theirs},
                                         {"goal", goal},
                                         {"better", "higher"}})
                .c_str());
}

// What a person would write for these columns, knowing them. The constants do not matter for the time.
class ByHand {
 public:
  explicit ByHand(const Batch& batch) {
    for (std::size_t k = 0; k < kTexts; ++k) {
      const auto& texts = std::get<std::span<const std::string_view>>(batch.columns[kNumbers + k]);
      for (const auto text : texts) ids_[k].emplace(text, static_cast<std::int64_t>(ids_[k].size()) + 1);
    }
  }
  void run(const Batch& batch, std::span<float> floats, std::span<std::int64_t> ids) const {
    constexpr std::size_t kWidth = 2 * kNumbers;
    for (std::size_t k = 0; k < kNumbers; ++k) {
      const double* in = std::get<std::span<const double>>(batch.columns[k]).data();
      for (std::size_t row = 0; row < batch.rows; ++row) {
        const bool missing = !(std::fabs(in[row]) <= 3.4e38);
        floats[row * kWidth + k] = static_cast<float>(((missing ? 0.25 : in[row]) - 1.5) * 0.75);
        floats[row * kWidth + kNumbers + k] = missing;
      }
    }
    for (std::size_t k = 0; k < kTexts; ++k) {
      const auto& texts = std::get<std::span<const std::string_view>>(batch.columns[kNumbers + k]);
      for (std::size_t row = 0; row < batch.rows; ++row) {
        const auto found = ids_[k].find(texts[row]);
        ids[row * kTexts + k] = found == ids_[k].end() ? 0 : found->second;
      }
    }
  }

 private:
  std::unordered_map<std::string_view, std::int64_t> ids_[kTexts];
};

void run_at(const Transform& transform, const Session& session, RandomColumns& random, std::size_t rows) {
  random.fill(rows, true);
  const auto batch = random.batch();
  const auto tensors = random.tensors();
  std::vector<NamedTensor> inputs;
  for (std::size_t at = 0; at < tensors.size(); ++at) inputs.push_back({transform.columns()[at].name, tensors[at]});
  std::vector<float> floats(rows * transform.float_names().size());
  std::vector<std::int64_t> ids(rows * transform.ids().size());
  const auto ours = [&] { transform.apply(batch, floats, ids); };
  const auto label = "20 numbers and 4 texts, " + std::to_string(rows) + " rows at a time";
  claim(label, rows, time_both(ours, [&] { session.run(inputs); }), "ONNX Runtime, the exported graph", 1.0);
  if (rows == 1) return;  // nobody waits for one row prepared by hand
  const ByHand hand(batch);
  claim(label, rows, time_both(ours, [&] { hand.run(batch, floats, ids); }), "a loop by hand", 0.5);
}

void run_all() {
  const auto columns = bench_columns();
  RandomColumns random(columns, 1);
  random.fill(10'000, false);
  Fitter fitter(columns, automatic(columns, For::network));
  fitter.add(random.batch());
  const auto transform = fitter.finish();
  Graph graph;
  const auto emitted = transform.emit(graph);
  graph.add_output("floats", emitted.floats, Element::float32, {std::string(kRows), std::string()});
  graph.add_output("ids", emitted.ids, Element::int64, {std::string(kRows), std::string()});
  std::printf("the exported graph has %zu nodes\n", graph.nodes.size());
  const auto session = Session::open(runtime(), serialise(graph));
  for (const std::size_t rows : {std::size_t{1}, std::size_t{4096}}) run_at(transform, session, random, rows);
}

}  // namespace
}  // namespace falaj::infer

int main() {
  try {
    falaj::infer::run_all();
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "transform_bench: %s\n", error.what());
    return 2;
  }
}
