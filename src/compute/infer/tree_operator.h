// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to infer: ONNX's two operators of trees, and models that are nothing but one of them.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/infer/trees.h"
#include "compute/infer/view.h"

namespace falaj::infer {

// TreeEnsembleRegressor or TreeEnsembleClassifier over floats. Sums start from the base values and take the trees in
// their order, as XGBoost does; ONNX Runtime adds the base at the end, so the two may differ in the last bits.
class TreeOperator {
 public:
  // Nothing for what this does not know; ONNX Runtime then runs it.
  static std::optional<TreeOperator> of(const graph::Node& node);

  std::size_t features() const { return trees_.features(); }
  std::size_t scores() const { return scores_; }  // per row
  bool classifies() const { return classifies_; }
  const std::vector<std::int64_t>& labels() const { return labels_; }
  // Null unless labels are texts; shared, since answers show them.
  const std::shared_ptr<const std::vector<std::string>>& text_labels() const { return text_labels_; }
  std::size_t resident_bytes() const { return trees_.resident_bytes(); }

  // `scores`: count * scores() numbers. `classes`: the index of each row's label, or nothing when nobody asks.
  // Requires: rows of `stride` numbers, at least features().
  void run(const float* rows, std::size_t count, std::size_t stride, float* scores, std::uint32_t* classes) const;

 private:
  enum class After { nothing, logistic, softmax };
  explicit TreeOperator(Trees trees) : trees_(std::move(trees)) {}
  static std::optional<TreeOperator> regressor(const graph::Node& node);
  static std::optional<TreeOperator> classifier(const graph::Node& node);
  std::uint32_t finish_two(float sum, float* scores) const;

  Trees trees_;
  std::vector<float> base_;  // per sum, or none
  bool average_ = false;
  After after_ = After::nothing;
  std::size_t scores_ = 1;
  bool classifies_ = false;
  bool one_sum_ = false;       // two classes, of which leaves speak of one
  bool all_positive_ = false;  // they hold probabilities
  std::vector<std::int64_t> labels_;
  std::shared_ptr<const std::vector<std::string>> text_labels_;
};

// A model that is one such operator right behind its one input, and at most a link behind it.
class TreePlan {
 public:
  static std::optional<TreePlan> of(const graph::Graph& graph);

  const std::vector<graph::Port>& inputs() const { return inputs_; }
  const std::vector<graph::Port>& outputs() const { return outputs_; }
  std::size_t resident_bytes() const { return operator_.resident_bytes(); }

  // What run() made; views show it.
  struct Made {
    std::unique_ptr<std::uint64_t[]> numbers;
    std::vector<std::string_view> texts;
    std::shared_ptr<const std::vector<std::string>> shown;
  };
  // Appends a view per wanted output.
  void run(const TensorView& rows, std::span<const std::uint16_t> wanted, Made& made,
           std::vector<TensorView>& out) const;

 private:
  enum class Link { none, logistic, exponential, softmax };
  struct Output {
    bool label = false;
    std::vector<Link> links;  // of scores
  };
  explicit TreePlan(TreeOperator found) : operator_(std::move(found)) {}
  bool follow(const graph::Graph& graph, const graph::Node& trees);
  static void apply(Link link, std::span<float> scores, std::size_t width);

  TreeOperator operator_;
  std::vector<graph::Port> inputs_, outputs_;
  std::vector<Output> made_;  // how each output is made
};

}  // namespace falaj::infer
