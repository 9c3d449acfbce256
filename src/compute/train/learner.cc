// SPDX-License-Identifier: Apache-2.0
#include "compute/train/learner.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "compute/train/gang_gradients.h"
#include "compute/train/power_gradients.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

std::unique_ptr<GradientSum> make_sum(const Learner::Setting& setting) {
  const auto& parallel = setting.training.parallel;
  if (parallel.compress == "powersgd")
    return std::make_unique<PowerGradients>(setting.plan, setting.weights, setting.gang, parallel.rank,
                                            static_cast<std::uint64_t>(setting.training.seed));
  return std::make_unique<GangGradients>(setting.plan, setting.weights, setting.gang,
                                         make_squeeze(parallel.compress, parallel.keep, setting.plan.parameters()));
}

// Every rank has the whole network and learns from its part of the rows; what they say is summed up, and all make the
// same step. With shardOptimiser each makes it for a part of the weights, and has the moments of that part alone.
class DataLearner final : public Learner {
 public:
  explicit DataLearner(const Setting& setting)
      : Learner(setting),
        gang_(setting.gang),
        mine_(range_of(setting)),
        optimiser_(network_, setting.plan, mine_.first, mine_.count),
        gradients_(make_sum(setting)) {
    if (setting.training.parallel.shard_optimiser) {
      told_weights_ = torch::zeros({mine_.room});
      all_weights_ = torch::zeros({mine_.room * static_cast<std::int64_t>(gang_.ranks())});
    }
  }

  Share share() const override { return {gang_.rank(), gang_.ranks()}; }

  Learned learn(const RowBlock& rows, const Step& step, Wish mine) override {
    const auto& around = setting_.around;
    torch::manual_seed(seed_of(step, gang_.rank()));
    around.enter("forward");
    const auto in = inputs_of(rows, setting_.rows.layout(), setting_.weights.device());
    // What all rows of the step weigh, and what anybody wants. It is on its way during forward().
    float together[] = {in.weights.sum().item<float>(), mine.stop ? 1.0F : 0, mine.save ? 1.0F : 0};
    gang_.begin_sum(together);
    const auto predicted = forward_at_precision(setting_.plan, setting_.weights, in, network_.precision);
    around.enter("communication");
    gang_.finish();
    around.enter("backward");
    const auto loss = loss_of(predicted, in, setting_.objective, setting_.deviation, together[0]);
    if (step.whole) gradients_->begin();
    scaled(loss, network_.accumulate, scale_).backward();
    around.enter("communication");
    const double all_loss = agree(loss.item<float>(), step.whole);
    if (step.whole) update(step.rate);
    return {all_loss, {together[1] > 0, together[2] > 0}};
  }

  OptimiserState moments() override {
    if (mine_.count == setting_.plan.parameters())
      return {optimiser_.first(), optimiser_.second(), optimiser_.steps(), scale_};
    return {whole(optimiser_.first()), whole(optimiser_.second()), optimiser_.steps(), scale_};
  }
  void restore(const OptimiserState& moments) override {
    torch::NoGradGuard no_gradient;
    const auto take = [&](Tensor& to, const Tensor& from) {
      if (to.numel() > 0) to.copy_(from.narrow(0, mine_.first, mine_.count));
    };
    take(optimiser_.first(), moments.first);
    take(optimiser_.second(), moments.second);
    optimiser_.steps() = moments.steps;
    scale_ = moments.scale;
  }

 private:
  // Of the flat weights, those whose moments are here; `room` is the same for all.
  struct Range {
    std::int64_t first = 0, count = 0, room = 0;
  };
  static Range range_of(const Setting& setting) {
    const auto all = setting.plan.parameters();
    if (!setting.training.parallel.shard_optimiser) return {0, all, all};
    const auto ranks = static_cast<std::int64_t>(setting.gang.ranks());
    const auto room = (all + ranks - 1) / ranks;
    const auto first = std::min(all, room * static_cast<std::int64_t>(setting.gang.rank()));
    return {first, std::min(room, all - first), room};
  }

  // The gradient of all ranks' rows, their loss, and the mean of what layers keep of them.
  double agree(float loss, bool whole) {
    told_ = {loss};
    const auto ranks = static_cast<float>(gang_.ranks());
    each_statistic([&](float& value) { told_.push_back(value / ranks); });
    gang_.begin_sum(told_);
    if (whole) gradients_->finish();
    gang_.finish();
    auto mean = told_.begin() + 1;
    each_statistic([&](float& value) { value = *mean++; });
    return told_[0];
  }

  // What layers keep of the rows they saw and nothing is learned into: ranks saw others, and agree on the mean.
  void each_statistic(const std::function<void(float&)>& f) {
    for (std::size_t i = 0; i < setting_.plan.weights.size(); ++i) {
      auto weight = setting_.weights[i];
      if (weight.requires_grad()) continue;
      const auto here = weight.cpu();  // itself, on a processor
      for (auto& value : floats_of(here)) f(value);
      weight.copy_(here);
    }
  }

  void update(double rate) {
    torch::NoGradGuard no_gradient;
    setting_.around.enter("optimiser");
    auto& weights = setting_.weights.flat();
    auto& gradient = setting_.weights.gradient();
    const double norm = network_.clip > 0 || scale_.on() ? gradient.norm().item<float>() : 0;
    const auto factor = scale_.take(norm);  // the gradient is everybody's: all decide alike
    if (!factor) {
      gradient.zero_();
      return;
    }
    auto my_weights = weights.narrow(0, mine_.first, mine_.count);
    auto my_gradient = gradient.narrow(0, mine_.first, mine_.count);
    optimiser_.step(my_weights, my_gradient, rate, norm, *factor);
    gradient.zero_();
    if (!all_weights_.defined()) return;
    setting_.around.enter("communication");
    told_weights_.narrow(0, 0, mine_.count).copy_(my_weights);
    gang_.begin_gather(std::as_bytes(floats_of(told_weights_)), std::as_writable_bytes(floats_of(all_weights_)));
    gang_.finish();
    weights.copy_(all_weights_.narrow(0, 0, weights.numel()));
  }

  Tensor whole(const Tensor& part) {
    if (part.numel() == 0) return part;
    auto all = torch::zeros({setting_.plan.parameters()});
    all.narrow(0, mine_.first, mine_.count).copy_(part);
    gang_.unite(floats_of(all));
    return all;
  }

  Gang& gang_;
  const Range mine_;
  Optimiser optimiser_;
  LossScale scale_ = network_.precision == "fp16" ? LossScale::dynamic() : LossScale();
  const std::unique_ptr<GradientSum> gradients_;
  Tensor told_weights_, all_weights_;  // of a step, when each makes a part of it
  std::vector<float> told_;
};

}  // namespace

Wish Learner::serve() { throw Error(Code::internal, "serving, with rows to learn from"); }

std::unique_ptr<Learner> make_data_learner(const Learner::Setting& setting) {
  return std::make_unique<DataLearner>(setting);
}

std::unique_ptr<Learner> make_learner(const Learner::Setting& setting) {
  const auto& mode = setting.training.parallel.mode;
  if (mode == "data") return make_data_learner(setting);
  for (const auto& weight : setting.plan.weights)
    if (!weight.learns)
      throw Error(Code::invalid, "parallel.mode: networks with norms over a batch, as those of images, need data");
  return mode == "server" ? make_server_learner(setting) : make_part_learner(setting);
}

}  // namespace falaj::train
