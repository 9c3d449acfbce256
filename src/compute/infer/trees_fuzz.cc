// SPDX-License-Identifier: Apache-2.0
// Any lists of attributes are no trees that are known here, or trees that every kind of lanes walks alike, within the
// row.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "compute/infer/tree_operator.h"
#include "compute/infer/trees.h"

using namespace falaj;
using namespace falaj::infer;

namespace {

class Feed {
 public:
  Feed(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  bool done() const { return size_ == 0; }
  float number() {
    constexpr float kSome[] = {0, -0.0F, 1, -1, 2, 3, 1e30F, 1e-42F, -1e30F, 0.5F};
    const std::uint8_t which = byte();
    if (which < 200) return kSome[which % 10];
    std::uint32_t bits = 0;
    for (int k = 0; k < 4; ++k) bits = bits << 8 | byte();
    float out = 0;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kModes[] = {"LEAF",      "BRANCH_LT", "BRANCH_LEQ", "BRANCH_GTE",
                                    "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MAYBE"};
  Feed feed(data, size);
  const std::uint8_t shape = feed.byte();
  const bool classifier = shape & 1;
  const std::size_t outputs = 1 + (shape >> 1) % 4, nodes = feed.byte() % 64, weights = feed.byte() % 64;
  std::vector<std::int64_t> trees, ids, features, yes, no, missing, leaf_trees, leaf_nodes, leaf_ids;
  std::vector<float> values, leaf_values;
  std::vector<std::string> modes;
  for (std::size_t at = 0; at < nodes; ++at) {
    const std::uint8_t how = feed.byte();
    trees.push_back(feed.byte() % 3), ids.push_back(feed.byte() % 32), features.push_back(feed.byte() % 5);
    modes.emplace_back(kModes[how % 8]), values.push_back(feed.number());
    yes.push_back(feed.byte() % 32), no.push_back(feed.byte() % 32), missing.push_back(how >> 7);
  }
  for (std::size_t at = 0; at < weights; ++at) {
    leaf_trees.push_back(feed.byte() % 3), leaf_nodes.push_back(feed.byte() % 32);
    leaf_ids.push_back(feed.byte() % 5 - (shape >> 7)), leaf_values.push_back(feed.number());
  }
  const std::string of = classifier ? "class_" : "target_";
  graph::Node node{classifier ? "TreeEnsembleClassifier" : "TreeEnsembleRegressor",
                   std::string(graph::kMl),
                   "",
                   {"x"},
                   classifier ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a"},
                   {}};
  node.attributes = {{"nodes_treeids", trees},       {"nodes_nodeids", ids},
                     {"nodes_featureids", features}, {"nodes_modes", modes},
                     {"nodes_values", values},       {"nodes_truenodeids", yes},
                     {"nodes_falsenodeids", no},     {"nodes_missing_value_tracks_true", missing},
                     {of + "treeids", leaf_trees},   {of + "nodeids", leaf_nodes},
                     {of + "ids", leaf_ids},         {of + "weights", leaf_values}};
  if (classifier)
    node.attributes["classlabels_int64s"] = std::vector<std::int64_t>(outputs, 7);
  else
    node.attributes["n_targets"] = static_cast<std::int64_t>(outputs);
  const auto found = Trees::of(node, outputs);
  if (!found) return 0;
  const std::size_t width = std::max<std::size_t>(1, found->features()), count = 1 + feed.byte() % 70;
  std::vector<float> rows(count * width);
  for (float& v : rows) v = feed.number();
  std::vector<float> plain(count * outputs), wide(count * outputs), widest(count * outputs);
  found->add_with(Trees::Lanes::plain, rows, width, plain);
  found->add_with(std::min(Trees::Lanes::avx2, Trees::lanes()), rows, width, wide);
  found->add_with(Trees::lanes(), rows, width, widest);
  if (std::memcmp(plain.data(), wide.data(), plain.size() * sizeof(float)) != 0) std::abort();
  if (std::memcmp(plain.data(), widest.data(), plain.size() * sizeof(float)) != 0) std::abort();
  if (const auto whole = TreeOperator::of(node)) {
    std::vector<float> scores(count * whole->scores());
    std::vector<std::uint32_t> classes(count);
    whole->run(rows.data(), count, width, scores.data(), classes.data());
    for (const auto index : classes)
      if (index >= whole->scores()) std::abort();
  }
  return 0;
}
