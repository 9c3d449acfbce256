// SPDX-License-Identifier: Apache-2.0
#include "compute/train/tensors.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "foundation/base/error.h"

namespace falaj::train {

torch::Device device_of(const recipe::Training& training) {
  if (training.resources.gpus == 0) return torch::kCPU;
  if (!torch::cuda::is_available())
    throw Error(Code::invalid,
                "resources.gpus: a GPU was asked for, and libtorch finds none here: either it is built for processors "
                "only, or there is no driver; without resources.gpus it runs on processors");
  return {torch::kCUDA, 0};
}

void check_device(const recipe::Training& training) { device_of(training); }

void keep_memory() {
  malloc_trim(0);  // what reading the rows took is not kept
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void release_memory() {
  constexpr int kMapsMax = 65'536, kTrim = 128 << 10;  // as glibc has them
  mallopt(M_MMAP_MAX, kMapsMax);
  mallopt(M_TRIM_THRESHOLD, kTrim);
  malloc_trim(0);
}

Weights::Weights(const Plan& plan, std::uint64_t seed, torch::Device device)
    : flat_(torch::zeros({plan.parameters()})) {
  torch::Generator generator = at::detail::createCPUGenerator(seed);  // the same wherever they then are
  torch::NoGradGuard no_gradient;
  std::int64_t at = 0;
  for (const auto& weight : plan.weights) {
    auto part = flat_.narrow(0, at, weight.count());
    if (weight.init == Weight::Init::ones) part.fill_(1);
    if (weight.init == Weight::Init::uniform) part.uniform_(-weight.bound, weight.bound, generator);
    at += weight.count();
  }
  flat_ = flat_.to(device);
  gradient_ = torch::zeros_like(flat_);
  at = 0;
  for (const auto& weight : plan.weights) {
    auto leaf = flat_.narrow(0, at, weight.count()).view(weight.sizes).variable_data().requires_grad_(weight.learns);
    if (weight.learns) leaf.mutable_grad() = gradient_.narrow(0, at, weight.count()).view(weight.sizes);
    parts_.push_back(leaf);
    at += weight.count();
  }
}

std::vector<std::vector<float>> Weights::values() const {
  torch::NoGradGuard no_gradient;
  std::vector<std::vector<float>> out;
  for (const auto& part : parts_) {
    const auto here = part.cpu();
    out.emplace_back(here.data_ptr<float>(), here.data_ptr<float>() + here.numel());
  }
  return out;
}

namespace {

// The same on its way forth; back, what all ranks say of it is summed up.
class SumBack : public torch::autograd::Function<SumBack> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, std::int64_t gang) {
    context->saved_data["gang"] = gang;
    return x.view_as(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    auto sum = gradients[0].contiguous().clone();
    sum_up(sum, context->saved_data["gang"].toInt());
    return {sum, Tensor()};
  }
  static void sum_up(Tensor& x, std::int64_t gang) {
    reinterpret_cast<Gang*>(gang)->sum({x.data_ptr<float>(), static_cast<std::size_t>(x.numel())});
  }
};

// The sum over all ranks on its way forth; back, the same.
class SumForth : public torch::autograd::Function<SumForth> {
 public:
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, std::int64_t gang) {
    auto sum = x.contiguous().clone();
    SumBack::sum_up(sum, gang);
    return sum;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0], Tensor()};
  }
};

Tensor linear(const Layer& layer, const Weights& weights, const Tensor& x, const Apart* apart) {
  const auto &weight = weights[layer.weights[0]], &bias = weights[layer.weights[1]];
  if (layer.split == Layer::Split::none) return torch::linear(x, weight, bias);
  const auto gang = reinterpret_cast<std::int64_t>(&apart->gang);
  if (layer.split == Layer::Split::out) return torch::linear(SumBack::apply(x, gang), weight, bias);
  return SumForth::apply(torch::linear(x, weight), gang) + bias;
}

// What is everybody's must be left out alike by all; of what is split, each has another part.
void seed_dropout(const Layer& layer, std::size_t number, const Apart& apart) {
  const auto part = layer.split == Layer::Split::none ? 0 : apart.gang.rank() + 1;
  torch::manual_seed((apart.seed * 4099 + apart.first_layer + number) * 65'537 + part);
}

}  // namespace

Tensor forward(const Plan& plan, const Weights& weights, const Tensor& numbers, const Tensor& ids, bool training,
               const Apart* apart) {
  Tensor x = numbers;
  std::vector<Tensor> kept;
  for (std::size_t number = 0; number < plan.layers.size(); ++number) {
    const auto& layer = plan.layers[number];
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
        x = linear(layer, weights, x, apart);
        break;
      case Layer::Op::relu:
        x = torch::relu(x);
        break;
      case Layer::Op::norm:
        x = torch::layer_norm(x, {layer.in}, weights[layer.weights[0]], weights[layer.weights[1]], 1e-5);
        break;
      case Layer::Op::dropout:
        if (apart) seed_dropout(layer, number, *apart);
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

Tensor forward_at_precision(const Plan& plan, const Weights& weights, const Inputs& in, const std::string& precision) {
  const bool low = precision != "fp32", gpu = weights.device().is_cuda();
  const auto type = precision == "fp16" ? at::kHalf : at::kBFloat16;
  const auto enable = [&](bool on) { gpu ? at::autocast::set_enabled(on) : at::autocast::set_cpu_enabled(on); };
  if (low) {
    gpu ? at::autocast::set_autocast_gpu_dtype(type) : at::autocast::set_autocast_cpu_dtype(type);
    enable(true);
  }
  const auto out = forward(plan, weights, in.numbers, in.ids, true);
  if (low) {
    at::autocast::clear_cache();
    enable(false);
  }
  return out.to(torch::kFloat32);
}

Inputs inputs_of(const RowBlock& block, const loader::Layout& layout, torch::Device device) {
  const auto n = static_cast<std::int64_t>(block.rows);
  const auto view = [](const std::vector<float>& values, at::IntArrayRef sizes) {
    return torch::from_blob(const_cast<float*>(values.data()), sizes);
  };
  Inputs out;
  out.numbers = view(block.numbers, {n, static_cast<std::int64_t>(layout.numbers)});
  if (layout.pixels > 0)
    out.numbers = torch::from_blob(const_cast<std::uint8_t*>(block.pixels.data()),
                                   {n, static_cast<std::int64_t>(layout.pixels)}, torch::kUInt8)
                      .to(device)
                      .to(torch::kFloat32)
                      .div_(255);
  out.ids = torch::from_blob(const_cast<std::int32_t*>(block.ids.data()), {n, static_cast<std::int64_t>(layout.ids)},
                             torch::kInt32);
  out.labels = view(block.labels, {n});
  out.weights = view(block.weights, {n});
  out.groups = view(block.groups, {n});
  for (auto* part : {&out.numbers, &out.ids, &out.labels, &out.weights, &out.groups}) *part = part->to(device);
  return out;
}

Inputs Inputs::part(std::int64_t first, std::int64_t count) const {
  const auto of = [&](const Tensor& all) { return all.narrow(0, first, count); };
  return {of(numbers), of(ids), of(labels), of(weights), of(groups)};
}

namespace {

class CountedBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::int64_t, std::int64_t, c10::Device) override {
    now_ += bytes;
    most = std::max(most, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t most = 0;

 private:
  std::int64_t now_ = 0;
};

// Each pair of rows of a group of which one has the higher label should have the higher score, too; each group counts
// alike. The logistic loss of the difference (Burges and others, 2005, "Learning to Rank using Gradient Descent").
Tensor pairs_loss(const Tensor& scores, const Inputs& rows) {
  const auto groups_here = rows.groups.cpu(), labels_here = rows.labels.cpu();
  const auto* groups = groups_here.data_ptr<float>();
  const auto* labels = labels_here.data_ptr<float>();
  const auto n = rows.groups.numel();
  std::vector<std::int64_t> higher, lower;
  std::vector<float> counts;  // of each pair
  double all = 0;
  for (std::int64_t first = 0, last = 0; first < n; first = last) {
    while (last < n && groups[last] == groups[first]) ++last;
    const auto before = higher.size();
    for (auto i = first; i < last; ++i)
      for (auto j = first; j < last; ++j)
        if (labels[i] > labels[j]) {
          higher.push_back(i);
          lower.push_back(j);
        }
    if (higher.size() == before) continue;
    counts.resize(higher.size(), 1 / static_cast<float>(higher.size() - before));
    all += 1;
  }
  if (higher.empty()) return scores.sum() * 0;  // nothing to tell apart
  const auto size = static_cast<std::int64_t>(higher.size());
  // Copies: backward() still needs them.
  const auto index = [&](std::vector<std::int64_t>& of) {
    return torch::from_blob(of.data(), {size}, torch::kInt64).clone().to(scores.device());
  };
  const auto difference = scores.index_select(0, index(higher)) - scores.index_select(0, index(lower));
  return (torch::softplus(-difference) * torch::from_blob(counts.data(), {size}).clone().to(scores.device())).sum() /
         all;
}

}  // namespace

std::int64_t most_bytes_of(const std::function<void()>& work) {
  const auto counted = std::make_shared<CountedBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
  work();
  return counted->most;
}

bool is_out_of_memory(const std::exception& e) {
  return dynamic_cast<const std::bad_alloc*>(&e) ||
         std::string_view(e.what()).find("t allocate memory") != std::string_view::npos ||
         std::string_view(e.what()).find("CUDA out of memory") != std::string_view::npos;
}

Tensor linked(const Tensor& out, Objective objective) {
  if (objective == Objective::binary) return torch::sigmoid(out);
  if (objective == Objective::multiclass) return torch::softmax(out, 1);
  return out;
}

Tensor loss_of(const Tensor& out, const Inputs& rows, Objective objective, double deviation,
               std::optional<double> weight) {
  if (objective == Objective::ranking) return pairs_loss(out.squeeze(1), rows);
  Tensor each;
  if (objective == Objective::binary) {
    each = torch::binary_cross_entropy_with_logits(out.squeeze(1), rows.labels, {}, {}, at::Reduction::None);
  } else if (objective == Objective::multiclass) {
    each = torch::cross_entropy_loss(out, rows.labels.to(torch::kInt64), {}, at::Reduction::None);
  } else {
    each = torch::mse_loss(out.squeeze(1), rows.labels, at::Reduction::None) / (deviation * deviation);
  }
  const auto sum = (each * rows.weights).sum();
  if (weight) return sum / std::max(*weight, kWeightMin);
  return sum / rows.weights.sum().clamp_min(kWeightMin);
}

Tensor scaled(const Tensor& loss, std::int64_t accumulate, const LossScale& scale) {
  const auto share = accumulate > 1 ? loss / static_cast<double>(accumulate) : loss;
  return scale.on() ? share * scale.value() : share;
}

Optimiser::Optimiser(const recipe::Network& network, const Plan& plan, std::int64_t first, std::int64_t count)
    : network_(network),
      first_(torch::zeros({count})),
      second_(torch::zeros({network.optimiser == "sgd" ? 0 : count})) {
  // What decays is decided weight by weight.
  std::vector<Tensor> factors;
  for (const auto& weight : plan.weights) factors.push_back(torch::full({weight.count()}, weight.decays ? 1.0F : 0.0F));
  decays_ = torch::cat(factors).narrow(0, first, count).clone();
}

void Optimiser::step(Tensor& weights, Tensor& gradient, double rate, std::optional<double> length, double scale) {
  torch::NoGradGuard no_gradient;
  ++steps_;
  if (network_.clip > 0) {
    const double norm = scale * (length ? *length : gradient.norm().item<float>());
    if (norm > network_.clip) scale *= network_.clip / norm;
  }
  for (auto* own : {&first_, &second_, &decays_}) *own = own->to(weights.device());
  if (network_.optimiser == "sgd") {
    if (scale != 1) gradient.mul_(scale);
    if (network_.weight_decay > 0) gradient.addcmul_(weights, decays_, network_.weight_decay);
    first_.mul_(network_.momentum).add_(gradient);
    weights.add_(first_, -rate);
    return;
  }
  AdamStep step;
  step.rate = rate;
  step.decay = network_.optimiser == "adamw" ? network_.weight_decay : 0;
  step.scale = scale;
  step.first_left = 1 - std::pow(kAdamFirst, static_cast<double>(steps_));
  step.second_left = 1 - std::pow(kAdamSecond, static_cast<double>(steps_));
  if (!weights.is_cpu()) return adam_step(step, weights, gradient, first_, second_, decays_);
  constexpr std::int64_t kAtOnce = 1 << 16;
  at::parallel_for(0, weights.numel(), kAtOnce, [&](std::int64_t first, std::int64_t end) {
    const auto part = [&](Tensor& of) {
      return std::span(of.data_ptr<float>() + first, static_cast<std::size_t>(end - first));
    };
    adam_step(step, {part(weights), part(gradient), part(first_), part(second_), part(decays_)});
  });
}

void adam_step(const AdamStep& step, Tensor& weights, const Tensor& gradient, Tensor& first, Tensor& second,
               const Tensor& decays) {
  torch::NoGradGuard no_gradient;
  const auto g = gradient * step.scale;
  first.mul_(kAdamFirst).add_(g, 1 - kAdamFirst);
  second.mul_(kAdamSecond).addcmul_(g, g, 1 - kAdamSecond);
  if (step.decay > 0) weights.addcmul_(weights, decays, -step.rate * step.decay);
  weights.addcdiv_(first, (second / step.second_left).sqrt_().add_(1e-8), -step.rate / step.first_left);
}

}  // namespace falaj::train
