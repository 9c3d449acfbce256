// SPDX-License-Identifier: Apache-2.0
#include "compute/train/network_model.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace falaj::train {
namespace {

// Fewer where a row becomes many numbers on its way.
std::size_t rows_at_once(const Plan& plan) {
  constexpr std::size_t kRows = 8192, kNumbers = 16 << 20;
  return std::clamp<std::size_t>(kNumbers / static_cast<std::size_t>(std::max<std::int64_t>(1, plan.widest)), 1, kRows);
}

class NetworkModel final : public Model {
 public:
  NetworkModel(Plan plan, std::vector<std::vector<float>> weights, Objective objective)
      : plan_(std::move(plan)), values_(std::move(weights)), weights_(plan_, 0), objective_(objective) {
    torch::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < values_.size(); ++i)
      std::memcpy(weights_[i].data_ptr<float>(), values_[i].data(), values_[i].size() * sizeof(float));
  }
  std::vector<float> predict(const Packed& rows, const Look& look) override {
    return predict_rows(plan_, weights_, rows, 0, rows.rows(), objective_, look);
  }

  std::string emit(graph::Graph& graph, const graph::Transform::Emitted& inputs) override {
    const auto out = emit_layers(plan_, values_, graph, inputs);
    if (objective_ == Objective::binary) return graph.add_node("Sigmoid", {out});
    if (objective_ == Objective::multiclass) return graph.add_node("Softmax", {out}, {{"axis", std::int64_t{1}}});
    return out;
  }

 private:
  const Plan plan_;
  const std::vector<std::vector<float>> values_;
  Weights weights_;
  const Objective objective_;
};

}  // namespace

std::vector<float> predict_rows(const Plan& plan, const Weights& weights, const Packed& rows, std::size_t first,
                                std::size_t last, Objective objective, const Look& look) {
  torch::NoGradGuard no_gradient;
  std::vector<float> out;
  RowBlock block;
  const auto at_once = rows_at_once(plan);
  for (; first < last; first += at_once) {
    if (look) look();
    rows.read(first, std::min(at_once, last - first), block);
    const auto in = inputs_of(block, rows.layout(), weights.device());
    const auto predicted = linked(forward(plan, weights, in.numbers, in.ids, false), objective).cpu().contiguous();
    out.insert(out.end(), predicted.data_ptr<float>(), predicted.data_ptr<float>() + predicted.numel());
  }
  return out;
}

std::unique_ptr<Model> make_network_model(Plan plan, std::vector<std::vector<float>> values, Objective objective) {
  return std::make_unique<NetworkModel>(std::move(plan), std::move(values), objective);
}

}  // namespace falaj::train
