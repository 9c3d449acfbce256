// SPDX-License-Identifier: Apache-2.0
// Models that were changed on purpose, by their bytes and by what they say, are loaded and run in a child that may use
// little memory and time. Each is refused as invalid or runs; a crash of ONNX Runtime ends the child and nothing else,
// and is counted. FALAJ_CASES says how many; FALAJ_SEED where to begin.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compute/infer/model.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj::infer {
namespace {

// What the child tells, in memory that both see.
struct Told {
  std::uint64_t done = 0;  // seeds; the next is the one at hand
  std::uint64_t refused = 0, ran = 0, failed = 0, wrong = 0;
  char first_wrong[400] = {};
};

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Bytes bytes(Bytes model) {
    for (std::size_t times = 1 + below(4); times > 0 && !model.empty(); --times) {
      const std::size_t at = below(model.size());
      const auto place = model.begin() + static_cast<std::ptrdiff_t>(at);
      switch (below(5)) {
        case 0:
          model[at] = static_cast<std::byte>(random_());
          break;
        case 1:
          model[at] ^= static_cast<std::byte>(1U << below(8));
          break;
        case 2:
          model.erase(place, place + static_cast<std::ptrdiff_t>(std::min(model.size() - at, 1 + below(8))));
          break;
        case 3:
          model.insert(place, 1 + below(8), static_cast<std::byte>(random_()));
          break;
        default:
          model.resize(at);
      }
    }
    return model;
  }

  // Still a model by its form, so that it comes further.
  void meaning(graph::Graph& graph) {
    for (std::size_t times = 1 + below(3); times > 0; --times) {
      switch (below(6)) {
        case 0:
          if (!graph.initialisers.empty()) tensor(graph.initialisers[below(graph.initialisers.size())].tensor);
          break;
        case 1:
          if (!graph.inputs.empty()) port(graph.inputs[below(graph.inputs.size())]);
          break;
        case 2:
          if (!graph.outputs.empty()) port(graph.outputs[below(graph.outputs.size())]);
          break;
        default:
          if (!graph.nodes.empty()) node(graph, graph.nodes[below(graph.nodes.size())]);
      }
    }
  }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

 private:
  std::int64_t whole() {
    constexpr std::int64_t kEdges[] = {0, 1, -1, 2, 7, 64, 1 << 20, 0x7fffffff, INT64_MIN, INT64_MAX, -100};
    return kEdges[below(std::size(kEdges))];
  }
  void tensor(graph::Tensor& tensor) {
    if (below(2) == 0 && !tensor.bytes.empty()) {
      tensor.bytes[below(tensor.bytes.size())] = static_cast<std::byte>(random_());
    } else if (!tensor.sizes.empty()) {
      tensor.sizes.assign(1, static_cast<std::int64_t>(tensor.count()));  // flat
    }
  }
  void port(graph::Port& port) {
    if (below(2) == 0)
      port.element = graph::kElements[below(std::size(graph::kElements))];
    else if (!port.shape.empty() && below(2) == 0)
      port.shape[below(port.shape.size())] = static_cast<std::int64_t>(below(5));
    else
      port.shape.emplace_back(std::string());
  }
  void node(graph::Graph& graph, graph::Node& node) {
    switch (below(4)) {
      case 0:
        if (!node.inputs.empty()) std::swap(node.inputs[0], node.inputs[below(node.inputs.size())]);
        break;
      case 1:
        node.op = graph.nodes[below(graph.nodes.size())].op;
        break;
      case 2:
        if (!node.inputs.empty()) node.inputs.push_back(node.inputs[below(node.inputs.size())]);
        break;
      default:
        if (!node.attributes.empty())
          attribute(
              std::next(node.attributes.begin(), static_cast<std::ptrdiff_t>(below(node.attributes.size())))->second);
    }
  }
  void attribute(graph::Attribute& attribute) {
    if (auto* one = std::get_if<std::int64_t>(&attribute)) *one = whole();
    if (auto* one = std::get_if<float>(&attribute)) *one = static_cast<float>(whole());
    if (auto* text = std::get_if<std::string>(&attribute)) *text += "x";
    if (auto* list = std::get_if<std::vector<std::int64_t>>(&attribute)) change(*list, whole());
    if (auto* list = std::get_if<std::vector<float>>(&attribute)) change(*list, static_cast<float>(whole()));
    if (auto* list = std::get_if<std::vector<std::string>>(&attribute)) change(*list, std::string("LEAF"));
    if (auto* inner = std::get_if<graph::Tensor>(&attribute)) tensor(*inner);
  }
  template <class T>
  void change(std::vector<T>& list, T value) {
    if (list.empty() || below(4) == 0)
      list.push_back(std::move(value));
    else if (below(4) == 0)
      list.pop_back();
    else
      list[below(list.size())] = std::move(value);
  }

  std::mt19937_64 random_;
};

std::vector<Bytes> whole_models() {
  std::vector<Bytes> out = {affine_model(), network_model(8), trees_model(random_trees(4, 3, 5, 2, 1)),
                            trees_model(random_trees(3, 2, 5, 1, 2))};
  const auto names = onnx_cases();
  for (std::size_t at = 0; at < names.size(); at += 3) {
    auto model = onnx_model(names[at]);
    if (model.size() < 50'000) out.push_back(std::move(model));
  }
  return out;
}

// Zeros, of few rows.
void run_once(const Model& model) {
  std::vector<graph::Tensor> tensors;
  for (const auto& port : model.inputs()) {
    graph::Sizes sizes;
    for (const auto& dimension : port.shape) {
      const auto* size = std::get_if<std::int64_t>(&dimension);
      sizes.push_back(size ? *size : 2);
    }
    if (graph::count_of(sizes) > (1 << 20)) return;
    tensors.push_back(graph::Tensor::empty(port.element, sizes));
  }
  std::vector<TensorView> views;
  std::vector<std::vector<std::string_view>> texts;
  texts.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    texts.emplace_back(tensor.texts.begin(), tensor.texts.end());
    views.push_back(TensorView::of(tensor, texts.back()));
  }
  (void)model.run(views);
}

void try_one(const std::vector<Bytes>& models, std::uint64_t seed, Told& told) {
  bool loaded = false;
  try {
    Mutator mutator(seed);
    Bytes bytes = models[mutator.below(models.size())];
    if (mutator.below(3) == 0) {
      bytes = mutator.bytes(std::move(bytes));
    } else {
      auto graph = graph::parse(bytes);
      mutator.meaning(graph);
      bytes = graph::serialise(graph);
    }
    const auto model = Model::load(runtime(), bytes);
    loaded = true;
    run_once(*model);
    ++told.ran;
  } catch (const Error& error) {
    ++(loaded ? told.failed : told.refused);
    if (error.code() == Code::invalid && is_utf8(error.what())) return;
    if (told.wrong++ == 0) snprintf(told.first_wrong, sizeof told.first_wrong, "seed %lu: %s", seed, error.what());
  } catch (const std::exception& error) {
    if (told.wrong++ == 0) snprintf(told.first_wrong, sizeof told.first_wrong, "seed %lu: %s", seed, error.what());
  }
}

[[noreturn]] void be_the_child(const std::vector<Bytes>& models, std::uint64_t first, std::uint64_t end, Told& told) {
#ifndef FALAJ_SANITIZED  // they reserve more than any limit
  const rlimit memory = {std::uint64_t{4} << 30, std::uint64_t{4} << 30};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  for (std::uint64_t seed = first; seed < end; ++seed) {
    ::alarm(20);
    try_one(models, seed, told);
    told.done = seed + 1;
  }
  ::_exit(0);
}

TEST(Hostile, ChangedModelsAreRefusedOrRunAndNoCrashEscapes) {
  const auto* asked = std::getenv("FALAJ_CASES");
  const auto* begin = std::getenv("FALAJ_SEED");
  const std::uint64_t first = begin ? std::strtoull(begin, nullptr, 10) : 0;
  const std::uint64_t end = first + (asked ? std::strtoull(asked, nullptr, 10) : repeats(std::uint64_t{300}));
  const auto models = whole_models();
  void* memory = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Told& told = *new (memory) Told;
  told.done = first;
  (void)runtime();
  std::vector<std::uint64_t> crashed;
  while (told.done < end) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) be_the_child(models, told.done, end, told);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    crashed.push_back(told.done);
    ++told.done;
  }
  std::printf("%lu models: %lu refused, %lu ran, %lu failed while running, %zu ended the child\n", end - first,
              told.refused, told.ran, told.failed, crashed.size());
  EXPECT_EQ(told.refused + told.ran + told.failed + crashed.size(), end - first);
  EXPECT_EQ(told.wrong, 0u) << told.first_wrong;
  EXPECT_GT(told.refused, (end - first) / 10);
  EXPECT_GT(told.ran, (end - first) / 50);
  // ONNX Runtime's own faults: rare, contained, and known to whoever reads this.
  EXPECT_LE(crashed.size(), 1 + (end - first) / 100) << "the first: seed " << (crashed.empty() ? 0 : crashed[0]);
  ::munmap(memory, sizeof(Told));
}

}  // namespace
}  // namespace falaj::infer
