// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compute/loader/batches.h"
#include "compute/train/batch_auto.h"
#include "compute/train/checkpoint_writer.h"
#include "compute/train/gang.h"
#include "compute/train/layers.h"
#include "compute/train/learner.h"
#include "compute/train/model.h"
#include "compute/train/network_model.h"
#include "compute/train/score.h"
#include "compute/train/tensors.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

constexpr std::size_t kRowsAtOnce = 8192;  // of looking at labels

double rate_at(const recipe::Network& network, std::size_t step, std::size_t steps) {
  const auto warmup = std::max<double>(1, network.warmup * static_cast<double>(steps));
  const auto at = static_cast<double>(step);
  if (at < warmup) return network.learning_rate * (at + 1) / warmup;
  const double done = (at - warmup) / std::max(1.0, static_cast<double>(steps) - warmup);
  if (network.schedule == "cosine") return network.learning_rate * 0.5 * (1 + std::cos(M_PI * done));
  if (network.schedule == "linear") return network.learning_rate * (1 - done);
  return network.learning_rate;
}

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
        weights_(plan_, static_cast<std::uint64_t>(training.seed), device_of(training)),
        options_{static_cast<std::size_t>(recipe::batch_size(network_).value_or(1024)),
                 0,
                 1,
                 static_cast<std::uint64_t>(training.seed),
                 true,
                 network_.augment ? problem.image : std::nullopt,
                 problem.objective == Objective::ranking},
        steps_(steps_of(parts.train->rows(), options_)) {
    at::set_num_threads(around.threads);
    keep_memory();
    if (!recipe::batch_size(network_)) choose_batch();
    if (around.gang)
      join_gang();
    else
      optimiser_.emplace(network_, plan_);
    best_weights_ = weights_.flat().clone();
    resume();
  }

  std::unique_ptr<Model> run() {
    saved_ = around_.clock.now();
    const auto epochs = static_cast<std::size_t>(network_.epochs);
    while (epoch_ < epochs &&
           !(training_.patience > 0 && epoch_ > best_epoch_ + static_cast<std::size_t>(training_.patience)) &&
           !(best_epoch_ > 0 && around_.time_is_up())) {
      run_epoch(epochs);
      evaluate(epochs);
    }
    if (!around_.gang) save();  // what follows may be stopped, too
    writer_.finish();
    if (around_.gang) around_.gang->leave();
    torch::NoGradGuard no_gradient;
    weights_.flat().copy_(best_weights_);
    return make_network_model(plan_, weights_.values(), problem_.objective);
  }

 private:
  void join_gang() {
    learner_ = make_learner(
        {training_, plan_, weights_, problem_.objective, label_.deviation, *parts_.train, around_, *around_.gang});
    const auto share = learner_->share();
    serves_ = share.parts == 0;
    options_.rank = share.part;
    options_.ranks = std::max<std::size_t>(share.parts, 1);
    const auto together = std::min(options_.batch, parts_.train->rows());
    if (together < options_.ranks)
      throw Error(Code::invalid,
                  fmt::format("resources.tasks: {} cannot share the {} rows of a step", options_.ranks, together));
  }
  bool is_first() const { return !around_.gang || around_.gang->rank() == 0; }

  void run_epoch(std::size_t epochs) {
    std::optional<loader::Batches> batches;
    if (!serves_) batches.emplace(*parts_.train, options_, epoch_, step_, around_.clock);
    told_at_ = around_.clock.now();
    for (bool more = true; more;) {
      Wish wish;
      if (serves_) wish = learner_->serve();
      while (batches && !wish.any()) {
        around_.enter("data");
        const auto* block = batches->next();
        if (!block) break;
        wish = step(*block, epochs);
      }
      more = !serves_ && step_ < steps_;
      if (learner_) {
        learner_->pause();
        agree(wish, more);
      }
      heed(wish);
    }
    around_.enter("evaluate");
  }

  // Learns from the rows of a step, and tells what somebody wants to be done after it.
  Wish step(const RowBlock& block, std::size_t epochs) {
    const auto at = epoch_ * steps_ + step_++;
    const bool whole = step_ % static_cast<std::size_t>(network_.accumulate) == 0 || step_ == steps_;
    const auto rate =
        rate_at(network_, at, epochs * steps_) * (largest_ > 0 ? rate_factor(network_.optimiser, options_.batch) : 1);
    Wish wish = whole ? wanted() : Wish{};  // not in the middle of a gradient
    if (learner_) {
      const auto learned = learner_->learn(block, {at, rate, whole}, wish);
      loss_sum_ += learned.loss;
      wish = learned.wish;
    } else {
      // Chance depends on the place alone: who goes on from a checkpoint draws the same.
      torch::manual_seed(static_cast<std::uint64_t>(training_.seed) * 1'000'003 + at);
      around_.enter("forward");
      loss_sum_ += learn(block);
      around_.enter("optimiser");
      if (whole) make_step(rate);
    }
    ++losses_;
    rows_told_ += options_.batch;
    if (!std::isfinite(loss_sum_))
      throw Error(
          Code::invalid,
          fmt::format("network.learningRate: the loss is not a number any more at step {}; try a smaller one than {}",
                      at, network_.learning_rate));
    around_.enter("checkpoint");
    if (around_.profile) around_.profile->step();
    tell(epochs);
    return wish;
  }

  void make_step(double rate) {
    torch::NoGradGuard no_gradient;
    auto& gradient = weights_.gradient();
    std::optional<double> norm;
    if (scale_.on()) norm = gradient.norm().item<float>();
    if (const auto factor = scale_.take(norm.value_or(0)))
      optimiser_->step(weights_.flat(), gradient, rate, norm, *factor);
    gradient.zero_();
  }

  // ---- batch: auto.

  // As many rows as usual or as fit, until it is known how noisy gradients are.
  void choose_batch() {
    const auto saved = weights_.flat().clone();  // layers keep means of what they see
    RowBlock block;
    const auto measured = [&](std::size_t rows) {
      rows = std::min(rows, parts_.train->rows());
      parts_.train->read(0, rows, block);
      return StepMemory{rows, most_bytes_of([&] {
                          const auto in = inputs_of(block, parts_.train->layout());
                          loss_of(forward_at_precision(in), in, problem_.objective, label_.deviation).backward();
                        })};
    };
    constexpr std::size_t kSmall = 32;
    const auto rows = parts_.train->rows();
    largest_ = rows <= kSmall ? 1
                              : largest_batch(measured(kSmall / 2), measured(kSmall), parts_.train->layout().bytes(),
                                              around_.memory_bytes, rows);
    torch::NoGradGuard no_gradient;
    weights_.flat().copy_(saved);
    weights_.gradient().zero_();
    set_batch(std::min(largest_, kBatchUsual));
  }
  void set_batch(std::size_t rows) {
    options_.batch = rows;
    steps_ = steps_of(parts_.train->rows(), options_);
  }
  void adapt_batch() {
    const auto next = next_batch(options_.batch, noise_, largest_);
    if (next == options_.batch) return;
    noise_ = {};  // of the next batch it is measured anew
    set_batch(next);
  }

  // A step a few rows at a time: to see how far parts of it agree, and when all at once do not fit.
  double learn_in_pieces(const Inputs& in) {
    constexpr std::size_t kLookEvery = 4;
    const bool look = step_ % kLookEvery == 0;
    for (;; pieces_ *= 2) {
      try {
        return learn_in_pieces(in, look ? std::max<std::size_t>(pieces_, 2) : pieces_);
      } catch (const std::exception& e) {
        if (!is_out_of_memory(e) || 2 * pieces_ > options_.batch) throw;
      }
      torch::NoGradGuard no_gradient;
      weights_.gradient().zero_();
    }
  }
  double learn_in_pieces(const Inputs& in, std::size_t pieces) {
    const auto rows = in.labels.size(0), count = static_cast<std::int64_t>(pieces);
    const double weight = in.weights.sum().item<float>();
    Tensor half;
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto first = i * rows / count;
      const auto part = in.part(first, (i + 1) * rows / count - first);
      around_.enter("forward");
      auto loss = loss_of(forward_at_precision(part), part, problem_.objective, label_.deviation, weight);
      if (problem_.objective == Objective::ranking) loss = loss / count;
      around_.enter("backward");
      loss.backward();
      sum += loss.item<float>();
      if (2 * (i + 1) == count) half = weights_.gradient().clone();
    }
    if (half.defined()) {
      torch::NoGradGuard no_gradient;
      const auto square = [](const Tensor& t) { return t.square().sum().item<float>(); };
      const auto& whole = weights_.gradient();
      // Each half's own mean is twice its share.
      const double of_halves = (square(half) + square(whole - half)) * 4 / 2;
      noise_.add(square(whole), of_halves, options_.batch);
    }
    return sum;
  }

  // How far it is: rises, whatever a batch is.
  std::size_t place() const {
    return largest_ > 0 ? epoch_ * parts_.train->rows() + step_ * options_.batch : epoch_ * steps_ + step_;
  }
  std::size_t places(std::size_t epochs) const { return epochs * (largest_ > 0 ? parts_.train->rows() : steps_); }

  // Adds what these rows say to the gradient, and returns their loss.
  double learn(const RowBlock& block) {
    const auto in = inputs_of(block, parts_.train->layout(), weights_.device());
    if (largest_ > 0) return learn_in_pieces(in);
    const auto loss = loss_of(forward_at_precision(in), in, problem_.objective, label_.deviation);
    around_.enter("backward");
    scaled(loss, network_.accumulate, scale_).backward();
    return loss.item<float>();
  }

  Tensor forward_at_precision(const Inputs& in) {
    return train::forward_at_precision(plan_, weights_, in, network_.precision);
  }

  void tell(std::size_t epochs) {
    constexpr std::size_t kEvery = 50;
    if (losses_ < kEvery && step_ != steps_) return;
    Told told{place(), places(epochs), {{"train_loss", loss_sum_ / static_cast<double>(losses_)}}, {}};
    if (around_.profile) told.aside = around_.profile->since_last();
    const auto now = around_.clock.now();
    const auto took = std::chrono::duration<double>(now - told_at_).count();
    if (took > 0) told.aside.emplace_back("rows_per_second", static_cast<double>(rows_told_) / took);
    if (largest_ > 0) {
      told.aside.emplace_back("batch", static_cast<double>(options_.batch));
      if (const auto noise = noise_.rows()) told.aside.emplace_back("gradient_noise_scale", *noise);
    }
    around_.tell(told);
    told_at_ = now;
    rows_told_ = 0;
    loss_sum_ = 0;
    losses_ = 0;
  }

  void evaluate(std::size_t epochs) {
    if (learner_) learner_->collect();
    std::vector<float> labels, groups;
    RowBlock block;
    const auto& rows = *parts_.valid;
    const auto at_once = rows.rows_at_once(kRowsAtOnce);
    for (std::size_t first = 0; first < rows.rows(); first += at_once) {
      rows.read(first, std::min(at_once, rows.rows() - first), block);
      labels.insert(labels.end(), block.labels.begin(), block.labels.end());
      groups.insert(groups.end(), block.groups.begin(), block.groups.end());
    }
    const auto predicted = predict(rows);
    ++epoch_;
    step_ = 0;
    const auto all = scores(problem_.objective, predicted, labels, problem_.outputs(), groups);
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
    Told told{place(), places(epochs), {}, {}};
    for (const auto& one : all) told.metrics.emplace_back("valid_" + one.name, one.score.value);
    around_.tell(told);
    if (largest_ > 0) adapt_batch();
    auto wish = wanted();
    wish.save = wish.save && epoch_ < epochs;
    bool more = false;
    if (learner_) agree(wish, more);
    heed(wish);
  }

  // Ranks predict a part each, and all have all of it: what follows from it they then do alike.
  std::vector<float> predict(const Packed& rows) {
    if (!around_.gang) {
      try {
        return predict_rows(plan_, weights_, rows, 0, rows.rows(), problem_.objective, around_.look);
      } catch (const Stopped&) {  // the epoch's steps are made; it is evaluated again
        save();
        writer_.finish();
        throw;
      }
    }
    const auto place = [&](std::size_t rank) { return rank * rows.rows() / around_.gang->ranks(); };
    const auto first = place(around_.gang->rank()), last = place(around_.gang->rank() + 1);
    const auto mine = predict_rows(plan_, weights_, rows, first, last, problem_.objective);
    std::vector<float> all(rows.rows() * problem_.outputs(), 0.0F);
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(first * problem_.outputs()));
    around_.gang->sum(all);
    return all;
  }

  // What this process wants: to go when somebody wants its place, to save when it is time to.
  Wish wanted() const {
    const bool due = around_.clock.now() - saved_ >= sys::Micros(training_.checkpoints.every_us);
    return {around_.must_stop(), is_first() && due};
  }
  // What anybody wants becomes what all do; `more`: there are rows left to learn from.
  void agree(Wish& wish, bool& more) {
    if (training_.parallel.mode == "server") around_.gang->meet();  // some are slower than others
    float wants[] = {wish.stop ? 1.0F : 0, wish.save ? 1.0F : 0, more ? 1.0F : 0};
    around_.gang->sum(wants);
    wish = {wants[0] > 0, wants[1] > 0};
    more = wants[2] > 0;
  }
  void heed(const Wish& wish) {
    if (!wish.any()) return;
    around_.enter("checkpoint");
    save();
    saved_ = around_.clock.now();
    if (!wish.stop) return;
    writer_.finish();
    if (around_.gang) around_.gang->leave();
    throw Stopped{};
  }

  // Only copies: writing goes on while the next steps are made. Of a gang rank 0 does, what all have together.
  void save() {
    if (learner_) learner_->collect();
    const auto state = optimiser_state();
    if (!is_first()) return;
    Checkpoint checkpoint;
    checkpoint.number = place();
    const auto put = [&](const char* name, const Tensor& tensor) {
      const auto here = tensor.cpu();
      const auto view = std::as_bytes(std::span(here.data_ptr<float>(), static_cast<std::size_t>(here.numel())));
      checkpoint.parts[name] = Bytes(view.begin(), view.end());
    };
    put("weights", weights_.flat());
    put("first", state.first);
    put("second", state.second);
    put("best", best_weights_);
    ByteWriter position;
    for (const auto n :
         {std::uint64_t{epoch_}, std::uint64_t{step_}, state.steps, std::uint64_t{best_epoch_},
          std::bit_cast<std::uint64_t>(best_), std::bit_cast<std::uint64_t>(loss_sum_), std::uint64_t{losses_}})
      position.u64(n);
    checkpoint.parts["position"] = position.take();
    if (state.scale.on()) {
      ByteWriter scale;
      state.scale.encode(scale);
      checkpoint.parts["scale"] = scale.take();
    }
    if (largest_ > 0) {
      ByteWriter batch;
      batch.u64(options_.batch);
      batch.u64(pieces_);
      noise_.encode(batch);
      checkpoint.parts["batch"] = batch.take();
    }
    checkpoint.parts["transform"] = transform_.encode();
    writer_.save(std::move(checkpoint));
  }

  OptimiserState optimiser_state() {
    if (learner_) return learner_->moments();
    return {optimiser_->first(), optimiser_->second(), optimiser_->steps(), scale_};
  }

  void resume() {
    std::optional<Checkpoint> checkpoint;
    if (is_first()) checkpoint = around_.checkpoints.newest();
    if (around_.gang) checkpoint = shared(*around_.gang, checkpoint);
    if (!checkpoint) return;
    torch::NoGradGuard no_gradient;
    const auto get = [&](const char* name, Tensor& tensor) {
      const auto& bytes = checkpoint->parts.at(name);
      if (bytes.size() != static_cast<std::size_t>(tensor.numel()) * sizeof(float))
        throw Error(Code::corrupt, fmt::format("a checkpoint has {} bytes of {}, and this network another number",
                                               bytes.size(), name));
      tensor.copy_(torch::from_blob(const_cast<std::byte*>(bytes.data()), tensor.sizes()));
    };
    get("weights", weights_.flat());
    OptimiserState state;
    if (optimiser_)
      state = optimiser_state();
    else
      state = {torch::zeros({plan_.parameters()}),
               torch::zeros({network_.optimiser == "sgd" ? 0 : plan_.parameters()})};
    get("first", state.first);
    get("second", state.second);
    get("best", best_weights_);
    ByteReader position(checkpoint->parts.at("position"));
    epoch_ = position.u64();
    step_ = position.u64();
    state.steps = position.u64();
    if (network_.precision == "fp16") {
      ByteReader scale(checkpoint->parts.at("scale"));
      state.scale = LossScale::dynamic();
      state.scale.decode(scale);
    }
    if (learner_) {
      learner_->restore(state);
    } else {
      optimiser_->steps() = state.steps;
      scale_ = state.scale;
    }
    best_epoch_ = position.u64();
    best_ = std::bit_cast<double>(position.u64());
    loss_sum_ = std::bit_cast<double>(position.u64());
    losses_ = position.u64();
    if (largest_ == 0) return;
    ByteReader batch(checkpoint->parts.at("batch"));
    set_batch(batch.u64());
    pieces_ = batch.u64();
    noise_ = NoiseScale::decode(batch);
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
  std::optional<Optimiser> optimiser_;  // when alone
  LossScale scale_ = network_.precision == "fp16" ? LossScale::dynamic() : LossScale();
  loader::BatchOptions options_;
  std::size_t steps_;  // of an epoch
  // batch: auto. `largest_` is 0 when the batch is given; steps are made in pieces when they do not fit.
  std::size_t largest_ = 0, pieces_ = 1;
  NoiseScale noise_;
  std::size_t epoch_ = 0, step_ = 0, best_epoch_ = 0, losses_ = 0;
  double best_ = 0, loss_sum_ = 0;
  Tensor best_weights_;
  sys::Micros saved_{0};
  sys::Micros told_at_{0};
  std::size_t rows_told_ = 0;  // learned from since
  CheckpointWriter writer_{around_.checkpoints};
  std::unique_ptr<Learner> learner_;  // of a gang
  bool serves_ = false;               // in it, and has no rows
};

}  // namespace

std::unique_ptr<Model> train_network(const recipe::Training& training, const Problem& problem,
                                     const graph::Transform& transform, const Rows::Parts& parts,
                                     Surroundings& around) {
  if (around.gang && problem.objective == Objective::ranking)
    throw Error(Code::invalid, "objective: rankings are learned by one task");
  auto model = NetworkTraining(training, problem, transform, parts, around).run();
  release_memory();
  return model;
}

}  // namespace falaj::train
