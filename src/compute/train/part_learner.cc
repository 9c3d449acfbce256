// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compute/train/learner.h"
#include "compute/train/parts.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

// Each weight of a plan as a part of a flat piece of memory.
std::vector<Tensor> weights_in(const Plan& plan, const Tensor& flat) {
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (const auto& weight : plan.weights) {
    out.push_back(flat.narrow(0, at, weight.count()).view(weight.sizes));
    at += weight.count();
  }
  return out;
}

// How long each piece between two places to cut takes, forth and back.
std::vector<double> costs_of(const Learner::Setting& setting, std::int64_t rows_at_once) {
  constexpr int kTries = 3;
  const auto& plan = setting.plan;
  RowBlock block;
  setting.rows.read(0, std::min(setting.rows.rows(), static_cast<std::size_t>(rows_at_once)), block);
  const auto in = inputs_of(block, setting.rows.layout());
  auto begins = places_to_cut(plan);
  begins.insert(begins.begin(), 0);
  begins.push_back(plan.layers.size());
  std::vector<double> out;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const auto part = stage_of(plan, begins[i], begins[i + 1]);
    Weights weights(part.plan, 1);
    auto x = in.numbers;
    if (i > 0) x = torch::ones({in.labels.size(0), plan.layers[begins[i]].in}).requires_grad_(true);
    auto shortest = sys::Micros::max();
    for (int tries = 0; tries < kTries; ++tries) {
      const auto began = setting.around.clock.now();
      forward(part.plan, weights, x, in.ids, true).sum().backward();
      shortest = std::min(shortest, setting.around.clock.now() - began);
    }
    out.push_back(static_cast<double>(std::max<std::int64_t>(shortest.count(), 1)));
  }
  return out;
}

// Every rank has a part of the network and sees all rows: a stage of a pipeline, or a slice of its layers. Rows go
// through the stages in small batches, one forth, one back, so that no stage holds more of them than there are stages
// behind it.
class PartLearner final : public Learner {
 public:
  PartLearner(const Setting& setting, NetworkPart part, std::size_t stages, std::size_t batches)
      : Learner(setting),
        gang_(setting.gang),
        part_(std::move(part)),
        stages_(stages),
        stage_(stages > 1 ? gang_.rank() : 0),
        batches_(batches),
        own_(part_.plan, 1),
        optimiser_(network_, part_.plan) {
    take(setting.weights.flat(), own_.flat());
  }

  Share share() const override { return {}; }

  Learned learn(const RowBlock& rows, const Step& step, Wish mine) override {
    const auto in = inputs_of(rows, setting_.rows.layout());
    // Last: the squares of each weight's gradient.
    std::vector<float> together(3 + setting_.plan.weights.size(), 0.0F);
    together[1] = mine.stop ? 1 : 0;
    together[2] = mine.save ? 1 : 0;
    const auto loss = pass(in, seed_of(step, 0));
    if (stage_ + 1 == stages_ && (stages_ > 1 || gang_.rank() == 0)) together[0] = loss;
    setting_.around.enter("communication");
    const auto gradients = weights_in(part_.plan, own_.gradient());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (part_.slices[i].tells) together[3 + part_.slices[i].weight] = gradients[i].square().sum().item<float>();
    gang_.sum(together);
    double squares = 0;  // in one order, however the network was cut
    for (std::size_t i = 3; i < together.size(); ++i) squares += together[i];
    setting_.around.enter("optimiser");
    optimiser_.step(own_.flat(), own_.gradient(), step.rate, std::sqrt(squares));
    own_.gradient().zero_();
    return {together[0], {together[1] > 0, together[2] > 0}};
  }

  void collect() override { setting_.weights.flat().copy_(whole(own_.flat())); }

  OptimiserState moments() override {
    return {whole(optimiser_.first()), whole(optimiser_.second()), optimiser_.steps()};
  }

  void restore(const OptimiserState& moments) override {
    take(setting_.weights.flat(), own_.flat());
    take(moments.first, optimiser_.first());
    take(moments.second, optimiser_.second());
    optimiser_.steps() = moments.steps;
  }

 private:
  // What goes through this part, from its way in to its way out.
  struct Passing {
    Inputs rows;
    Tensor in, out;
  };

  // Adds to the gradient what the rows say; returns their loss, of the last stage.
  float pass(const Inputs& in, std::uint64_t seed) {
    const auto rows = in.labels.size(0);
    const auto batches = std::min<std::int64_t>(static_cast<std::int64_t>(batches_), rows);
    const double weight = in.weights.sum().item<float>();
    std::vector<Passing> passing(static_cast<std::size_t>(batches));
    float loss = 0;
    const auto forth = [&](std::int64_t i) {
      const auto first = i * rows / batches;
      auto& one = passing[static_cast<std::size_t>(i)];
      one.rows = in.part(first, (i + 1) * rows / batches - first);
      enter_stage(one, i);
      const Apart apart{gang_, seed * 1009 + static_cast<std::uint64_t>(i), part_.first_layer};
      setting_.around.enter("forward");
      one.out = forward(part_.plan, own_, one.in, one.rows.ids, true, &apart);
      if (stage_ + 1 < stages_) return send(stage_ + 1, 2 * i, one.out);
      one.out = loss_of(one.out, one.rows, setting_.objective, setting_.deviation, weight);
      loss += one.out.item<float>();
    };
    const auto back = [&](std::int64_t i) {
      auto& one = passing[static_cast<std::size_t>(i)];
      Tensor gradient;
      if (stage_ + 1 < stages_) gradient = receive(stage_ + 1, 2 * i + 1, one.out.sizes());
      setting_.around.enter("backward");
      one.out.backward(gradient);
      if (stage_ > 0) send(stage_ - 1, 2 * i + 1, one.in.grad());
      one = {};
    };
    const auto ahead = std::min(batches, static_cast<std::int64_t>(stages_ - 1 - stage_));
    for (std::int64_t i = 0; i < batches + ahead; ++i) {
      if (i < batches) forth(i);
      if (i >= ahead) back(i - ahead);
    }
    setting_.around.enter("communication");
    gang_.finish();
    sent_.clear();
    return loss;
  }

  void enter_stage(Passing& one, std::int64_t i) {
    one.in = one.rows.numbers;
    if (stage_ == 0) return;
    one.in = receive(stage_ - 1, 2 * i, {one.rows.labels.size(0), part_.plan.layers[0].in});
    one.in.requires_grad_(true);
  }
  void send(std::size_t to, std::int64_t tag, const Tensor& tensor) {
    setting_.around.enter("communication");
    sent_.push_back(tensor.contiguous());
    gang_.begin_send(to, static_cast<int>(tag), floats_of(sent_.back()));
  }
  Tensor receive(std::size_t from, std::int64_t tag, at::IntArrayRef sizes) {
    setting_.around.enter("communication");
    auto out = torch::empty(sizes);
    gang_.receive(from, static_cast<int>(tag), floats_of(out));
    return out;
  }

  // ---- Between the whole network and this part of it.
  void take(const Tensor& whole, Tensor& part) {
    if (part.numel() == 0) return;  // an optimiser without such moments
    torch::NoGradGuard no_gradient;
    const auto from = weights_in(setting_.plan, whole);
    const auto to = weights_in(part_.plan, part);
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(sliced(from, part_.slices[i]));
  }
  Tensor whole(const Tensor& part) {
    if (part.numel() == 0) return torch::zeros({0});
    torch::NoGradGuard no_gradient;
    auto all = torch::zeros({setting_.plan.parameters()});
    const auto to = weights_in(setting_.plan, all);
    const auto from = weights_in(part_.plan, part);
    for (std::size_t i = 0; i < from.size(); ++i)
      if (part_.slices[i].tells) sliced(to, part_.slices[i]).copy_(from[i]);
    gang_.unite(floats_of(all));
    return all;
  }
  static Tensor sliced(const std::vector<Tensor>& weights, const WeightSlice& slice) {
    return weights[slice.weight].narrow(slice.dimension, slice.first, slice.count);
  }

  Gang& gang_;
  const NetworkPart part_;
  const std::size_t stages_, stage_, batches_;
  Weights own_;
  Optimiser optimiser_;
  std::vector<Tensor> sent_;  // until it has arrived
};

std::unique_ptr<Learner> make_pipeline(const Learner::Setting& setting) {
  constexpr std::int64_t kBatchesOfAStage = 4;
  auto& gang = setting.gang;
  const auto stages = gang.ranks();
  auto batches = setting.training.parallel.micro_batches;
  if (batches == 0) batches = kBatchesOfAStage * static_cast<std::int64_t>(stages);
  Bytes measured;
  if (gang.rank() == 0) {
    const auto rows = recipe::batch_size(setting.training.network).value_or(1024) / batches;
    const auto costs = costs_of(setting, std::max<std::int64_t>(rows, 1));
    const auto view = std::as_bytes(std::span(costs));
    measured.assign(view.begin(), view.end());
  }
  measured = gang.share(std::move(measured));
  std::vector<double> costs(measured.size() / sizeof(double));
  std::memcpy(costs.data(), measured.data(), measured.size());
  auto begins = stages_of(setting.plan, costs, stages);
  begins.push_back(setting.plan.layers.size());
  return std::make_unique<PartLearner>(setting, stage_of(setting.plan, begins[gang.rank()], begins[gang.rank() + 1]),
                                       stages, static_cast<std::size_t>(batches));
}

}  // namespace

std::unique_ptr<Learner> make_part_learner(const Learner::Setting& setting) {
  if (setting.plan.image) throw Error(Code::invalid, "parallel.mode: networks of images need data");
  if (setting.training.parallel.mode == "pipeline") return make_pipeline(setting);
  return std::make_unique<PartLearner>(setting, split_of(setting.plan, setting.gang.rank(), setting.gang.ranks()), 1,
                                       1);
}

}  // namespace falaj::train
