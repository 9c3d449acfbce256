// SPDX-License-Identifier: Apache-2.0
#include "compute/train/tensors.h"

#include <malloc.h>

#include <cmath>

namespace falaj::train {

void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

Weights::Weights(const Plan& plan, std::uint64_t seed)
    : flat_(torch::zeros({plan.parameters()})), gradient_(torch::zeros_like(flat_)) {
  torch::Generator generator = at::detail::createCPUGenerator(seed);
  std::int64_t at = 0;
  torch::NoGradGuard no_gradient;
  for (const auto& weight : plan.weights) {
    auto part = flat_.narrow(0, at, weight.count());
    if (weight.init == Weight::Init::ones) part.fill_(1);
    if (weight.init == Weight::Init::uniform) part.uniform_(-weight.bound, weight.bound, generator);
    auto leaf = part.view(weight.sizes).variable_data().requires_grad_(weight.learns);
    if (weight.learns) leaf.mutable_grad() = gradient_.narrow(0, at, weight.count()).view(weight.sizes);
    parts_.push_back(leaf);
    at += weight.count();
  }
}

std::vector<std::vector<float>> Weights::values() const {
  std::vector<std::vector<float>> out;
  for (const auto& part : parts_) out.emplace_back(part.data_ptr<float>(), part.data_ptr<float>() + part.numel());
  return out;
}

Tensor forward(const Plan& plan, const Weights& weights, const Tensor& numbers, const Tensor& ids, bool training) {
  Tensor x;
  std::vector<Tensor> kept;
  for (const auto& layer : plan.layers) {
    switch (layer.op) {
      case Layer::Op::join: {
        std::vector<Tensor> parts;
        if (numbers.size(1) > 0) parts.push_back(numbers);
        for (std::size_t i = 0; i < layer.weights.size(); ++i)
          parts.push_back(torch::embedding(weights[layer.weights[i]], ids.select(1, static_cast<std::int64_t>(i))));
        x = parts.size() == 1 ? parts[0] : torch::cat(parts, 1);
        break;
      }
      case Layer::Op::linear:
        x = torch::linear(x, weights[layer.weights[0]], weights[layer.weights[1]]);
        break;
      case Layer::Op::relu:
        x = torch::relu(x);
        break;
      case Layer::Op::norm:
        x = torch::layer_norm(x, {layer.in}, weights[layer.weights[0]], weights[layer.weights[1]], 1e-5);
        break;
      case Layer::Op::dropout:
        x = torch::dropout(x, layer.a, training);
        break;
      case Layer::Op::keep:
        kept.push_back(x);
        break;
      case Layer::Op::add:
        x = x + kept.back();
        kept.pop_back();
        break;
      case Layer::Op::scale:
        x = x * layer.a + layer.b;
        break;
      case Layer::Op::image: {
        // The bytes lie with channels last, and so does every layer's output: nothing is copied, and the kernels for
        // convolutions like it best.
        const auto& image = *plan.image;
        x = numbers
                .view({-1, static_cast<std::int64_t>(image.height), static_cast<std::int64_t>(image.width),
                       static_cast<std::int64_t>(image.channels)})
                .permute({0, 3, 1, 2});
        break;
      }
      case Layer::Op::conv: {
        const auto padding = layer.kernel / 2;
        x = torch::conv2d(x, weights[layer.weights[0]], {}, layer.stride, padding, 1, layer.groups);
        break;
      }
      case Layer::Op::batch_norm:
        x = torch::batch_norm(x, weights[layer.weights[0]], weights[layer.weights[1]], weights[layer.weights[2]],
                              weights[layer.weights[3]], training, kBatchNormMomentum, kBatchNormEpsilon, false);
        break;
      case Layer::Op::relu6:
        x = torch::clamp(x, 0, 6);
        break;
      case Layer::Op::silu:
        x = torch::silu(x);
        break;
      case Layer::Op::max_pool:
        x = torch::max_pool2d(x, 2);
        break;
      case Layer::Op::average:
        x = x.mean(at::IntArrayRef{2, 3});
        break;
      case Layer::Op::flatten:
        x = x.flatten(1);
        break;
    }
  }
  return x;
}

Inputs inputs_of(const RowBlock& block, const loader::Layout& layout) {
  const auto n = static_cast<std::int64_t>(block.rows);
  const auto view = [](const std::vector<float>& values, at::IntArrayRef sizes) {
    return torch::from_blob(const_cast<float*>(values.data()), sizes);
  };
  Inputs out;
  out.numbers = view(block.numbers, {n, static_cast<std::int64_t>(layout.numbers)});
  if (layout.pixels > 0)
    out.numbers = torch::from_blob(const_cast<std::uint8_t*>(block.pixels.data()),
                                   {n, static_cast<std::int64_t>(layout.pixels)}, torch::kUInt8)
                      .to(torch::kFloat32)
                      .div_(255);
  out.ids = torch::from_blob(const_cast<std::int32_t*>(block.ids.data()), {n, static_cast<std::int64_t>(layout.ids)},
                             torch::kInt32);
  out.labels = view(block.labels, {n});
  out.weights = view(block.weights, {n});
  return out;
}

Tensor linked(const Tensor& out, Objective objective) {
  if (objective == Objective::binary) return torch::sigmoid(out);
  if (objective == Objective::multiclass) return torch::softmax(out, 1);
  return out;
}

Tensor loss_of(const Tensor& out, const Inputs& rows, Objective objective, double deviation,
               std::optional<double> weight) {
  Tensor each;
  if (objective == Objective::binary) {
    each = torch::binary_cross_entropy_with_logits(out.squeeze(1), rows.labels, {}, {}, at::Reduction::None);
  } else if (objective == Objective::multiclass) {
    each = torch::cross_entropy_loss(out, rows.labels.to(torch::kInt64), {}, at::Reduction::None);
  } else {
    each = torch::mse_loss(out.squeeze(1), rows.labels, at::Reduction::None) / (deviation * deviation);
  }
  const auto sum = (each * rows.weights).sum();
  return weight ? sum / *weight : sum / rows.weights.sum();
}

Optimiser::Optimiser(const recipe::Network& network, const Plan& plan)
    : network_(network),
      first_(torch::zeros({plan.parameters()})),
      second_(torch::zeros({network.optimiser == "sgd" ? 0 : plan.parameters()})) {
  // What decays is decided weight by weight.
  std::vector<Tensor> factors;
  for (const auto& weight : plan.weights) factors.push_back(torch::full({weight.count()}, weight.decays ? 1.0F : 0.0F));
  decays_ = torch::cat(factors);
}

void Optimiser::step(Tensor& weights, Tensor& gradient, double rate) {
  torch::NoGradGuard no_gradient;
  ++steps_;
  if (network_.clip > 0) {
    const double norm = gradient.norm().item<float>();
    if (norm > network_.clip) gradient.mul_(network_.clip / norm);
  }
  if (network_.optimiser == "sgd") {
    if (network_.weight_decay > 0) gradient.addcmul_(weights, decays_, network_.weight_decay);
    first_.mul_(network_.momentum).add_(gradient);
    weights.add_(first_, -rate);
    return;
  }
  constexpr double kFirst = 0.9, kSecond = 0.999, kEpsilon = 1e-8;
  if (network_.optimiser == "adamw" && network_.weight_decay > 0)
    weights.addcmul_(weights * decays_, torch::ones({1}), -rate * network_.weight_decay);
  first_.lerp_(gradient, 1 - kFirst);
  second_.mul_(kSecond).addcmul_(gradient, gradient, 1 - kSecond);
  const double one = 1 - std::pow(kFirst, static_cast<double>(steps_));
  const double two = 1 - std::pow(kSecond, static_cast<double>(steps_));
  weights.addcdiv_(first_, (second_ / two).sqrt_().add_(kEpsilon), -rate / one);
}

}  // namespace falaj::train
