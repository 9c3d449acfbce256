// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "compute/loader/batches.h"
#include "compute/train/checkpoint_writer.h"
#include "compute/train/gang.h"
#include "compute/train/gang_gradients.h"
#include "compute/train/layers.h"
#include "compute/train/model.h"
#include "compute/train/score.h"
#include "compute/train/tensors.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

constexpr std::size_t kRowsAtOnce = 8192;  // of predicting

// Fewer where a row becomes many numbers on its way.
std::size_t rows_at_once(const Plan& plan) {
  constexpr std::size_t kNumbers = 16 << 20;
  return std::clamp<std::size_t>(kNumbers / static_cast<std::size_t>(std::max<std::int64_t>(1, plan.widest)), 1,
                                 kRowsAtOnce);
}

double rate_at(const recipe::Network& network, std::size_t step, std::size_t steps) {
  const auto warmup = std::max<double>(1, network.warmup * static_cast<double>(steps));
  const auto at = static_cast<double>(step);
  if (at < warmup) return network.learning_rate * (at + 1) / warmup;
  const double done = (at - warmup) / std::max(1.0, static_cast<double>(steps) - warmup);
  if (network.schedule == "cosine") return network.learning_rate * 0.5 * (1 + std::cos(M_PI * done));
  if (network.schedule == "linear") return network.learning_rate * (1 - done);
  return network.learning_rate;
}

class NetworkModel final : public Model {
 public:
  NetworkModel(Plan plan, std::vector<std::vector<float>> weights, Objective objective)
      : plan_(std::move(plan)), values_(std::move(weights)), weights_(plan_, 0), objective_(objective) {
    torch::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < values_.size(); ++i)
      std::memcpy(weights_[i].data_ptr<float>(), values_[i].data(), values_[i].size() * sizeof(float));
  }
  std::vector<float> predict(const Packed& rows) override {
    return predict(plan_, weights_, rows, 0, rows.rows(), objective_);
  }

  // Of the rows from `first` to before `last`.
  static std::vector<float> predict(const Plan& plan, const Weights& weights, const Packed& rows, std::size_t first,
                                    std::size_t last, Objective objective) {
    torch::NoGradGuard no_gradient;
    std::vector<float> out;
    RowBlock block;
    const auto at_once = rows_at_once(plan);
    for (; first < last; first += at_once) {
      rows.read(first, std::min(at_once, last - first), block);
      const auto in = inputs_of(block, rows.layout());
      const auto predicted = linked(forward(plan, weights, in.numbers, in.ids, false), objective).contiguous();
      out.insert(out.end(), predicted.data_ptr<float>(), predicted.data_ptr<float>() + predicted.numel());
    }
    return out;
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

// What rank 0 has, everywhere.
std::optional<Checkpoint> shared(Gang& gang, const std::optional<Checkpoint>& mine) {
  ByteWriter out;
  if (mine) {
    out.u64(mine->number);
    out.u32(static_cast<std::uint32_t>(mine->parts.size()));
    for (const auto& [name, bytes] : mine->parts) {
      out.text(name);
      out.u64(bytes.size());
      out.raw(bytes);
    }
  }
  const auto encoded = gang.share(out.take());
  if (encoded.empty()) return std::nullopt;
  ByteReader in(encoded, encoded.size());
  Checkpoint checkpoint;
  checkpoint.number = in.u64();
  for (auto parts = in.u32(); parts > 0; --parts) {
    auto name = in.text();
    const auto content = in.raw(in.u64());
    checkpoint.parts.emplace(std::move(name), Bytes(content.begin(), content.end()));
  }
  return checkpoint;
}

struct Moments {
  double mean = 0, deviation = 1;
};
Moments moments_of(const Packed& rows) {
  RowBlock block;
  double n = 0, mean = 0, squares = 0;
  const auto at_once = rows.rows_at_once(kRowsAtOnce);
  for (std::size_t first = 0; first < rows.rows(); first += at_once) {
    rows.read(first, std::min(at_once, rows.rows() - first), block);
    for (const double v : block.labels) {
      n += 1;
      const double delta = v - mean;
      mean += delta / n;
      squares += delta * (v - mean);
    }
  }
  const double deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return {mean, deviation > 0 ? deviation : 1};
}

class NetworkTraining {
 public:
  NetworkTraining(const recipe::Training& training, const Problem& problem, const graph::Transform& transform,
                  const Rows::Parts& parts, Surroundings& around)
      : training_(training),
        network_(training.network),
        problem_(problem),
        transform_(transform),
        parts_(parts),
        around_(around),
        label_(problem.objective == Objective::regression ? moments_of(*parts.train) : Moments{}),
        plan_(plan_network(network_, transform, problem.outputs(), label_.mean, label_.deviation, problem.image)),
        weights_(plan_, static_cast<std::uint64_t>(training.seed)),
        optimiser_(network_, plan_),
        options_{static_cast<std::size_t>(recipe::batch_size(network_).value_or(1024)),
                 around.gang ? around.gang->rank() : 0,
                 around.gang ? around.gang->ranks() : 1,
                 static_cast<std::uint64_t>(training.seed),
                 true,
                 network_.augment ? problem.image : std::nullopt},
        steps_(steps_of(parts.train->rows(), options_)) {
    at::set_num_threads(around.threads);
    keep_memory();
    const auto together = std::min(options_.batch, parts.train->rows());
    if (together < options_.ranks)
      throw Error(Code::invalid,
                  fmt::format("resources.tasks: {} cannot share the {} rows of a step", options_.ranks, together));
    if (around.gang) gradients_.emplace(plan_, weights_, *around.gang);
    best_weights_ = weights_.flat().clone();
    resume();
  }

  std::unique_ptr<Model> run() {
    saved_ = around_.clock.now();
    const auto epochs = static_cast<std::size_t>(network_.epochs);
    while (epoch_ < epochs &&
           !(training_.patience > 0 && epoch_ > best_epoch_ + static_cast<std::size_t>(training_.patience))) {
      run_epoch(epochs);
      evaluate(epochs);
    }
    writer_.finish();
    if (around_.gang) around_.gang->leave();
    torch::NoGradGuard no_gradient;
    weights_.flat().copy_(best_weights_);
    return std::make_unique<NetworkModel>(plan_, weights_.values(), problem_.objective);
  }

 private:
  void run_epoch(std::size_t epochs) {
    loader::Batches batches(*parts_.train, options_, epoch_, step_, around_.clock);
    while (const auto* block = batches.next()) {
      const auto at = epoch_ * steps_ + step_;
      // Chance depends on the place alone: who goes on from a checkpoint draws the same.
      torch::manual_seed((static_cast<std::uint64_t>(training_.seed) + (options_.rank << 32)) * 1'000'003 + at);
      ++step_;
      const bool whole = step_ % static_cast<std::size_t>(network_.accumulate) == 0 || step_ == steps_;
      loss_sum_ += learn(*block, whole);
      ++losses_;
      if (whole) {
        optimiser_.step(weights_.flat(), weights_.gradient(), rate_at(network_, at, epochs * steps_));
        weights_.gradient().zero_();
      }
      if (!std::isfinite(loss_sum_))
        throw Error(
            Code::invalid,
            fmt::format("network.learningRate: the loss is not a number any more at step {}; try a smaller one than {}",
                        at, network_.learning_rate));
      tell(epochs);
      look_up(false);
    }
  }

  // Adds what these rows say to the gradient, and returns their loss; of a gang, the loss of all ranks' rows, and when
  // the gradient is `whole`, all ranks' sum of it.
  double learn(const RowBlock& block, bool whole) {
    const auto in = inputs_of(block, parts_.train->layout());
    // What all rows of the step weigh, and whether somebody wants this place. It is on its way during forward().
    float together[] = {0, 0};
    if (around_.gang) {
      together[0] = in.weights.sum().item<float>();
      together[1] = around_.must_stop() ? 1 : 0;
      around_.gang->begin_sum(together);
    }
    const auto out = forward_at_precision(in);
    std::optional<double> weight;
    if (around_.gang) {
      around_.gang->finish();
      weight = together[0];
      stop_ = stop_ || together[1] > 0;
    }
    const auto accumulate = static_cast<double>(network_.accumulate);
    const auto loss = loss_of(out, in, problem_.objective, label_.deviation, weight);
    if (gradients_ && whole) gradients_->begin();
    (network_.accumulate > 1 ? loss / accumulate : loss).backward();
    if (!around_.gang) return loss.item<float>();
    told_ = {loss.item<float>()};
    each_statistic([&](float& value) { told_.push_back(value / static_cast<float>(options_.ranks)); });
    around_.gang->begin_sum(told_);
    if (whole) gradients_->finish();
    around_.gang->finish();
    auto mean = told_.begin() + 1;
    each_statistic([&](float& value) { value = *mean++; });
    return told_[0];
  }

  // What layers keep of the rows they saw and nothing is learned into: ranks saw others, and agree on the mean.
  void each_statistic(const std::function<void(float&)>& f) {
    for (std::size_t i = 0; i < plan_.weights.size(); ++i) {
      if (weights_[i].requires_grad()) continue;
      auto* values = weights_[i].data_ptr<float>();
      for (std::int64_t at = 0; at < weights_[i].numel(); ++at) f(values[at]);
    }
  }

  Tensor forward_at_precision(const Inputs& in) {
    const bool low = network_.precision == "bf16";
    if (low) {
      at::autocast::set_cpu_enabled(true);
      at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    }
    const auto out = forward(plan_, weights_, in.numbers, in.ids, true);
    if (low) {
      at::autocast::clear_cache();
      at::autocast::set_cpu_enabled(false);
    }
    return out.to(torch::kFloat32);
  }

  void tell(std::size_t epochs) {
    constexpr std::size_t kEvery = 50;
    if (losses_ < kEvery && step_ != steps_) return;
    around_.tell(
        {epoch_ * steps_ + step_, epochs * steps_, {{"train_loss", loss_sum_ / static_cast<double>(losses_)}}});
    loss_sum_ = 0;
    losses_ = 0;
  }

  void evaluate(std::size_t epochs) {
    ++epoch_;
    step_ = 0;
    std::vector<float> labels, groups;
    RowBlock block;
    const auto& rows = *parts_.valid;
    const auto at_once = rows.rows_at_once(kRowsAtOnce);
    for (std::size_t first = 0; first < rows.rows(); first += at_once) {
      rows.read(first, std::min(at_once, rows.rows() - first), block);
      labels.insert(labels.end(), block.labels.begin(), block.labels.end());
    }
    const auto predicted = predict(rows);
    const auto all = scores(problem_.objective, predicted, labels, problem_.outputs());
    auto decides = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == training_.metric; });
    if (decides == all.end()) decides = all.begin();
    const double value = decides->score.value;
    const bool better = best_epoch_ == 0 || (higher_is_better(decides->name) ? value > best_ : value < best_);
    if (better) {
      best_ = value;
      best_epoch_ = epoch_;
      torch::NoGradGuard no_gradient;
      best_weights_.copy_(weights_.flat());
    }
    Told told{epoch_ * steps_, epochs * steps_, {}};
    for (const auto& one : all) told.metrics.emplace_back("valid_" + one.name, one.score.value);
    around_.tell(told);
    look_up(epoch_ == epochs);
  }

  // Ranks predict a part each, and all have all of it: what follows from it they then do alike.
  std::vector<float> predict(const Packed& rows) {
    const auto place = [&](std::size_t rank) { return rank * rows.rows() / options_.ranks; };
    const auto first = place(options_.rank), last = place(options_.rank + 1);
    auto mine = NetworkModel::predict(plan_, weights_, rows, first, last, problem_.objective);
    if (!around_.gang) return mine;
    std::vector<float> all(rows.rows() * problem_.outputs(), 0.0F);
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(first * problem_.outputs()));
    around_.gang->sum(all);
    return all;
  }

  // Saves when it is time to, and goes when somebody wants the place. A gang agrees on that at each step, and has the
  // same weights everywhere: rank 0 saves them, whenever it likes.
  void look_up(bool at_end) {
    if (!around_.gang) stop_ = stop_ || around_.must_stop();
    if (!stop_ && (at_end || around_.clock.now() - saved_ < sys::Micros(training_.checkpoints.every_us))) return;
    if (step_ % static_cast<std::size_t>(network_.accumulate) != 0 && step_ != steps_) return;  // in the middle of one
    if (options_.rank == 0) save();
    saved_ = around_.clock.now();
    if (!stop_) return;
    writer_.finish();
    if (around_.gang) around_.gang->leave();
    throw Stopped{};
  }

  // Only copies: writing goes on while the next steps are made.
  void save() {
    Checkpoint checkpoint;
    checkpoint.number = epoch_ * steps_ + step_;
    const auto put = [&](const char* name, const Tensor& tensor) {
      const auto view = std::as_bytes(std::span(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())));
      checkpoint.parts[name] = Bytes(view.begin(), view.end());
    };
    put("weights", weights_.flat());
    put("first", optimiser_.first());
    put("second", optimiser_.second());
    put("best", best_weights_);
    ByteWriter position;
    for (const auto n :
         {std::uint64_t{epoch_}, std::uint64_t{step_}, optimiser_.steps(), std::uint64_t{best_epoch_},
          std::bit_cast<std::uint64_t>(best_), std::bit_cast<std::uint64_t>(loss_sum_), std::uint64_t{losses_}})
      position.u64(n);
    checkpoint.parts["position"] = position.take();
    checkpoint.parts["transform"] = transform_.encode();
    writer_.save(std::move(checkpoint));
  }

  void resume() {
    std::optional<Checkpoint> checkpoint;
    if (options_.rank == 0) checkpoint = around_.checkpoints.newest();
    if (around_.gang) checkpoint = shared(*around_.gang, checkpoint);
    if (!checkpoint) return;
    torch::NoGradGuard no_gradient;
    const auto get = [&](const char* name, Tensor& tensor) {
      const auto& bytes = checkpoint->parts.at(name);
      if (bytes.size() != static_cast<std::size_t>(tensor.numel()) * sizeof(float))
        throw Error(Code::corrupt, fmt::format("a checkpoint has {} bytes of {}, and this network another number",
                                               bytes.size(), name));
      std::memcpy(tensor.data_ptr<float>(), bytes.data(), bytes.size());
    };
    get("weights", weights_.flat());
    get("first", optimiser_.first());
    get("second", optimiser_.second());
    get("best", best_weights_);
    ByteReader position(checkpoint->parts.at("position"));
    epoch_ = position.u64();
    step_ = position.u64();
    optimiser_.steps() = position.u64();
    best_epoch_ = position.u64();
    best_ = std::bit_cast<double>(position.u64());
    loss_sum_ = std::bit_cast<double>(position.u64());
    losses_ = position.u64();
  }

  const recipe::Training& training_;
  const recipe::Network& network_;
  const Problem& problem_;
  const graph::Transform& transform_;
  const Rows::Parts& parts_;
  Surroundings& around_;
  const Moments label_;
  const Plan plan_;
  Weights weights_;
  Optimiser optimiser_;
  const loader::BatchOptions options_;
  const std::size_t steps_;  // of an epoch
  std::size_t epoch_ = 0, step_ = 0, best_epoch_ = 0, losses_ = 0;
  double best_ = 0, loss_sum_ = 0;
  Tensor best_weights_;
  sys::Micros saved_{0};
  bool stop_ = false;        // somebody wants the place
  std::vector<float> told_;  // to the gang
  CheckpointWriter writer_{around_.checkpoints};
  std::optional<GangGradients> gradients_;
};

}  // namespace

std::unique_ptr<Model> train_network(const recipe::Training& training, const Problem& problem,
                                     const graph::Transform& transform, const Rows::Parts& parts,
                                     Surroundings& around) {
  if (problem.objective == Objective::ranking)
    throw Error(Code::invalid, "model: networks do not rank yet; use xgboost");
  return NetworkTraining(training, problem, transform, parts, around).run();
}

}  // namespace falaj::train
