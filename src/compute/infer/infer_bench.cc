// SPDX-License-Identifier: Apache-2.0
// Models as they are served against a bare loop around ONNX Runtime on the same rows, one thread: a network
// 64-256-256-10 and 200 trees of depth 6. Rows rotate: the same row again and again would flatter whoever predicts
// branches. Then what models take while they wait, and what is left when they are gone.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "compute/graph/testing.h"
#include "compute/graph/transform.h"
#include "compute/infer/batch.h"
#include "compute/infer/model.h"
#include "compute/infer/ort.h"
#include "compute/infer/testing.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"

namespace falaj::infer {
namespace {

constexpr std::size_t kWidth = 64, kRowsMade = 8192;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// What this thread worked: others on the machine do not count.
double worked_now() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds a call works, of each: the best of several rounds of all in turn, since the machine is shared.
std::vector<double> time_all(const std::vector<std::function<void()>>& calls, double round_seconds = 0.04) {
  std::vector<double> best(calls.size(), 1e9);
  for (int round = 0; round < 9; ++round) {
    for (std::size_t at = 0; at < calls.size(); ++at) {
      const double begin = worked_now();
      std::size_t times = 0;
      double taken = 0;
      do {
        for (int k = 0; k < 8; ++k) calls[at]();
        times += 8;
        taken = worked_now() - begin;
      } while (taken < round_seconds);
      best[at] = std::min(best[at], taken / static_cast<double>(times));
    }
  }
  return best;
}

void claim(const std::string& what, double ours, const char* unit, const char* against, double theirs, double ratio,
           double goal, const char* better) {
  std::puts(json::serialize(json::object{{"claim", what},
                                         {"ours", ours},
                                         {"unit", unit},
                                         {"against", against},
                                         {"limit", theirs},
                                         {"ratio", ratio},
                                         {"goal", goal},
                                         {"better", better}})
                .c_str());
  std::fflush(stdout);
}

// What anybody would write around the C interface, with nothing checked.
class BareLoop {
 public:
  BareLoop(BytesView bytes, std::size_t batch, const std::vector<float>& rows, const char* output, bool arena = true,
           bool pattern = true)
      : api_(runtime().rep()->api), session_(api_->ReleaseSession), batch_(batch), rows_(rows), output_(output) {
    Owned<OrtSessionOptions> with(api_->ReleaseSessionOptions);
    must(api_->CreateSessionOptions(with.put()));
    must(api_->SetIntraOpNumThreads(with.get(), 1));
    must(api_->SetInterOpNumThreads(with.get(), 1));
    if (!arena) must(api_->DisableCpuMemArena(with.get()));
    if (!pattern) must(api_->DisableMemPattern(with.get()));
    must(api_->CreateSessionFromArray(runtime().rep()->env.get(), bytes.data(), bytes.size(), with.get(),
                                      session_.put()));
  }
  void operator()() {
    const std::int64_t sizes[] = {static_cast<std::int64_t>(batch_), kWidth};
    auto* data = const_cast<float*>(rows_.data()) + first_ * kWidth;
    first_ = first_ + 2 * batch_ > kRowsMade ? 0 : first_ + batch_;
    OrtValue *in = nullptr, *out = nullptr;
    must(api_->CreateTensorWithDataAsOrtValue(runtime().rep()->memory.get(), data, batch_ * kWidth * sizeof(float),
                                              sizes, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &in));
    const char* inputs[] = {"x"};
    must(api_->Run(session_.get(), nullptr, inputs, &in, 1, &output_, 1, &out));
    api_->ReleaseValue(in);
    api_->ReleaseValue(out);
  }

 private:
  void must(OrtStatus* status) { api_.must(status, "the bare loop"); }
  const Api& api_;
  Owned<OrtSession> session_;
  std::size_t batch_;
  const std::vector<float>& rows_;
  const char* output_;
  std::size_t first_ = 0;
};

class ModelLoop {
 public:
  ModelLoop(const Model& model, std::size_t batch, const std::vector<float>& rows, std::uint16_t output)
      : model_(model), batch_(batch), rows_(rows), wanted_{output} {}
  void operator()() {
    const TensorView in{graph::Element::float32,
                        {static_cast<std::int64_t>(batch_), std::int64_t{kWidth}},
                        std::as_bytes(std::span(rows_).subspan(first_ * kWidth, batch_ * kWidth)),
                        {}};
    first_ = first_ + 2 * batch_ > kRowsMade ? 0 : first_ + batch_;
    const auto out = model_.run(std::span(&in, 1), wanted_);
    if (out.tensors()[0].bytes.empty()) std::abort();
  }

 private:
  const Model& model_;
  std::size_t batch_;
  const std::vector<float>& rows_;
  std::vector<std::uint16_t> wanted_;
  std::size_t first_ = 0;
};

class BenchRequest final : public Request {
 public:
  void answer(const Ran& ran) noexcept override {
    if (ran.outputs[0].bytes.empty()) std::abort();
  }
  void refuse(const Error& why) noexcept override {
    std::fprintf(stderr, "%s\n", why.what());
    std::abort();
  }
};

// As many requests of one row as the batch has, through the queue.
class QueueLoop {
 public:
  QueueLoop(const Model& model, std::size_t batch, const std::vector<float>& rows, std::uint16_t output)
      : model_(model),
        batch_(batch),
        rows_(rows),
        output_(output),
        queue_({.rows_max = static_cast<std::uint32_t>(batch)}, model.rows_first()) {}
  void operator()() {
    for (std::size_t k = 0; k < batch_; ++k) {
      std::unique_ptr<Request> request = std::make_unique<BenchRequest>();
      request->inputs.push_back({graph::Element::float32,
                                 {std::int64_t{1}, std::int64_t{kWidth}},
                                 std::as_bytes(std::span(rows_).subspan(first_ * kWidth, kWidth)),
                                 {}});
      request->wanted = {output_};
      first_ = (first_ + 1) % kRowsMade;
      if (queue_.push(request, clock_.now())) std::abort();
    }
    while (!queue_.empty()) {
      queue_.next(clock_.now(), taken_);
      queue_.learn(run_batch(model_, taken_, clock_));
    }
  }

 private:
  const Model& model_;
  std::size_t batch_;
  const std::vector<float>& rows_;
  std::uint16_t output_;
  BatchQueue queue_;
  Batch taken_;
  sys::RealClock clock_;
  std::size_t first_ = 0;
};

void compare(const std::string& what, BytesView bytes, const char* output, std::uint16_t number, bool trees) {
  const auto rows = random_numbers(kRowsMade * kWidth, 5);
  LoadOptions plain;
  plain.native_trees = false;
  const auto by_onnx = Model::load(runtime(), bytes, plain);
  const auto ours = Model::load(runtime(), bytes);
  for (const std::size_t batch : {std::size_t{1}, std::size_t{32}, std::size_t{1024}}) {
    BareLoop bare(bytes, batch, rows, output);
    ModelLoop plain_model(*by_onnx, batch, rows, number), our_model(*ours, batch, rows, number);
    QueueLoop plain_queue(*by_onnx, batch, rows, number), our_queue(*ours, batch, rows, number);
    const auto times = time_all(
        {std::ref(bare), std::ref(plain_model), std::ref(plain_queue), std::ref(our_model), std::ref(our_queue)});
    const auto name = [&](const char* how) { return what + ", batch " + std::to_string(batch) + ": " + how; };
    const auto rate = [&](double s) { return static_cast<double>(batch) / s; };
    claim(name("Model::run by ONNX Runtime"), rate(times[1]), "rows/s", "bare ONNX Runtime", rate(times[0]),
          times[0] / times[1], 0.9, "higher");
    claim(name("one-row requests through the queue"), rate(times[2]), "rows/s", "bare ONNX Runtime", rate(times[0]),
          times[0] / times[2], 0.6, "higher");
    if (!trees) continue;
    claim(name("our trees"), rate(times[3]), "rows/s", "bare ONNX Runtime", rate(times[0]), times[0] / times[3], 2,
          "higher");
    claim(name("our trees, one-row requests through the queue"), rate(times[4]), "rows/s", "bare ONNX Runtime",
          rate(times[0]), times[0] / times[4], 1, "higher");
  }
}

// One session of two threads, as models are shared, against a session each.
void compare_threads(const std::string& what, BytesView bytes, const char* output) {
  const auto rows = random_numbers(kRowsMade * kWidth, 5);
  LoadOptions plain;
  plain.native_trees = false;
  const auto model = Model::load(runtime(), bytes, plain);
  const auto rate = [&](const auto& make) {
    std::vector<std::thread> threads;
    std::vector<double> rates(2);
    for (std::size_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        auto loop = make();
        const double begin = seconds_now();
        std::size_t times = 0;
        for (; seconds_now() - begin < 0.3; times += 16)
          for (int k = 0; k < 16; ++k) loop();
        rates[t] = static_cast<double>(times) / (seconds_now() - begin);
      });
    for (auto& thread : threads) thread.join();
    return rates[0] + rates[1];
  };
  double shared = 0, each = 0;
  for (int round = 0; round < 4; ++round) {
    shared = std::max(shared, rate([&] { return ModelLoop(*model, 1, rows, 0); }));
    each = std::max(each, rate([&] { return BareLoop(bytes, 1, rows, output); }));
  }
  claim(what + ", batch 1, two threads: one shared model", shared, "calls/s", "a bare session per thread", each,
        shared / each, 0.9, "higher");
}

// As our trainer exports trees: raw columns come in, numbers and texts, and are prepared inside of the graph.
void compare_prepared() {
  std::vector<graph::Column> columns;
  for (std::size_t k = 0; k < 16; ++k) columns.push_back({"n" + std::to_string(k), graph::Kind::float64, true});
  for (std::size_t k = 0; k < 4; ++k) columns.push_back({"t" + std::to_string(k), graph::Kind::text, true});
  graph::RandomColumns random(columns, 1);
  random.fill(2'000, false);
  graph::Fitter fitter(columns, graph::automatic(columns, graph::For::trees));
  fitter.add(random.batch());
  const auto transform = fitter.finish();
  graph::Graph graph;
  const auto emitted = transform.emit(graph);
  const auto trees = random_trees(200, 6, transform.float_names().size(), 1, 1);
  const auto out = trees.emit(graph, emitted.floats);
  graph.add_output("predictions", out.predictions, graph::Element::float32,
                   {std::string(graph::kRows), std::int64_t{1}});
  const auto bytes = graph::serialise(graph);
  LoadOptions plain;
  plain.native_trees = false;
  const auto by_onnx = Model::load(runtime(), bytes, plain), ours = Model::load(runtime(), bytes);
  random.fill(kRowsMade, false);
  const auto tensors = random.tensors();
  std::vector<std::vector<std::string_view>> texts(tensors.size());
  std::vector<TensorView> all;
  for (const auto& port : ours->inputs())
    for (std::size_t at = 0; at < tensors.size(); ++at)
      if (columns[at].name == port.name) {
        texts[at].assign(tensors[at].texts.begin(), tensors[at].texts.end());
        all.push_back(TensorView::of(tensors[at], texts[at]));
      }
  for (const std::size_t batch : {std::size_t{1}, std::size_t{32}, std::size_t{1024}}) {
    std::size_t first = 0;
    const auto run = [&](const Model& model) {
      first = first + 2 * batch > kRowsMade ? 0 : first + batch;
      std::vector<TensorView> some;
      for (const auto& view : all) some.push_back(view.rows(first, batch));
      (void)model.run(some);
    };
    const auto times = time_all({[&] { run(*by_onnx); }, [&] { run(*ours); }});
    claim(
        "200 trees of depth 6 behind preparation, batch " + std::to_string(batch) + ": " + std::string(ours->engine()),
        static_cast<double>(batch) / times[1], "rows/s", "ONNX Runtime", static_cast<double>(batch) / times[0],
        times[0] / times[1], 1, "higher");
  }
}

double resident_bytes_now() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

void measure_resident() {
  for (const bool trees : {false, true}) {
    ::malloc_trim(0);  // what earlier ones left behind is not found again
    std::vector<std::shared_ptr<const Model>> models;
    const auto make = [&](std::uint64_t seed) {
      return trees ? trees_model(random_trees(200, 6, kWidth, 1, seed)) : network_model(256, seed);
    };
    models.push_back(Model::load(runtime(), make(1)));
    const double before = resident_bytes_now();
    for (std::uint64_t seed = 2; seed <= 201; ++seed) models.push_back(Model::load(runtime(), make(seed)));
    const double each = (resident_bytes_now() - before) / 200, said = static_cast<double>(models[0]->resident_bytes());
    claim(std::string("200 models resident, each: ") + (trees ? "trees" : "network"), each / 1024, "KiB",
          "what the model says of itself", said / 1024, each / said, 1.5, "lower");
  }
}

void measure_cycles(std::size_t cycles) {
  const auto network = network_model(), trees = trees_model(random_trees(200, 6, kWidth, 1, 1)),
             large = network_model(1024);
  const auto rows = random_numbers(kRowsMade * kWidth, 5);
  double first = 0;
  const double begin = seconds_now();
  for (std::size_t cycle = 0; cycle < cycles; ++cycle) {
    for (const auto* bytes : {&network, &trees, &large}) {
      const auto model = Model::load(runtime(), *bytes);
      ModelLoop(*model, 32, rows, 0)();
    }
    if (cycle == cycles / 20) first = resident_bytes_now();
  }
  const double last = resident_bytes_now();
  claim(std::to_string(cycles) + " cycles of loading, running and unloading three models: resident at the end",
        last / 1024 / 1024, "MiB", "after the first twentieth", first / 1024 / 1024, last / first, 1.05, "lower");
  std::printf("a cycle took %.2f ms\n", (seconds_now() - begin) * 1e3 / static_cast<double>(cycles));
}

// What the choice of no arena rests on.
void compare_settings(BytesView bytes, const char* output) {
  const auto rows = random_numbers(kRowsMade * kWidth, 5);
  for (const std::size_t batch : {std::size_t{1}, std::size_t{32}, std::size_t{1024}}) {
    BareLoop usual(bytes, batch, rows, output), no_pattern(bytes, batch, rows, output, true, false);
    BareLoop no_arena(bytes, batch, rows, output, false, true), neither(bytes, batch, rows, output, false, false);
    const auto times = time_all({std::ref(usual), std::ref(no_pattern), std::ref(no_arena), std::ref(neither)});
    std::printf("batch %zu, us a call: arena %.2f, arena without pattern %.2f, no arena %.2f, neither %.2f\n", batch,
                times[0] * 1e6, times[1] * 1e6, times[2] * 1e6, times[3] * 1e6);
  }
}

}  // namespace
}  // namespace falaj::infer

int main(int argc, char** argv) {
  using namespace falaj::infer;
  const std::string only = argc > 1 ? argv[1] : "";
  const auto asked = [&](const char* part) { return only.empty() || only == part; };
  const auto network = network_model();
  const auto trees = trees_model(random_trees(200, 6, kWidth, 1, 1));
  if (only == "settings") compare_settings(network, "y");
  if (asked("network")) compare("network 64-256-256-10", network, "y", 0, false);
  if (asked("trees")) compare("200 trees of depth 6", trees, "predictions", 1, true);
  if (asked("prepared")) compare_prepared();
  if (asked("threads")) compare_threads("network 64-256-256-10", network, "y");
  if (asked("resident")) measure_resident();
  if (asked("cycles")) measure_cycles(argc > 2 ? std::stoul(argv[2]) : 1'000);
}
