// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "compute/train/learner.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

enum Tag { kPush = 1, kPull, kSquares };

// Before the numbers of every message, as bits.
struct Head {
  std::uint32_t kind = 0;  // 0: a gradient; 1: nothing more until everybody has paused
  std::uint32_t stop = 0, save = 0;
  float loss = 0, weight = 0;  // sums over the rows
  float square = 0;            // of the whole gradient's length
  double rate = 0;
  std::uint64_t step = 0;
};
constexpr std::size_t kHead = sizeof(Head) / sizeof(float);

Head head_of(std::span<const float> message) {
  Head head;
  std::memcpy(&head, message.data(), sizeof head);
  return head;
}
// What its sums are to be divided by: rows that weigh nothing say nothing.
double weight_of(const Head& head) { return std::max<double>(head.weight, kWeightMin); }
void set_head(std::span<float> message, const Head& head) { std::memcpy(message.data(), &head, sizeof head); }

// The last ranks are servers: each has a part of the weights and their moments, and makes the steps. The others learn:
// they send each server its part of their gradient, and get the weights back.
//  - synchronous: a step is made of everybody's gradients, as one process makes it of all rows.
//  - asynchronous: of each gradient a step, as it comes; nobody waits for anybody.
//  - bounded: the same, but who is more than `staleness` steps ahead of the last waits for it.
class ServerLearner final : public Learner {
 public:
  explicit ServerLearner(const Setting& setting)
      : Learner(setting),
        gang_(setting.gang),
        servers_(static_cast<std::size_t>(setting.training.parallel.servers)),
        workers_(gang_.ranks() - servers_),
        synchronous_(setting.training.parallel.update == "synchronous"),
        ahead_max_(setting.training.parallel.update == "bounded"
                       ? static_cast<std::uint64_t>(setting.training.parallel.staleness)
                       : std::numeric_limits<std::uint64_t>::max()) {
    for (std::size_t server = 0; server < servers_; ++server) {
      const auto all = static_cast<std::size_t>(setting.plan.parameters());
      const auto first = server * all / servers_;
      parts_.push_back({first, (server + 1) * all / servers_ - first});
      messages_.emplace_back(kHead + parts_.back().count);
    }
    if (!serves()) return;
    optimiser_.emplace(network_, setting.plan, static_cast<std::int64_t>(mine().first),
                       static_cast<std::int64_t>(mine().count));
    waiting_.resize(workers_);
    done_.resize(workers_);
  }

  Share share() const override {
    if (serves()) return {0, 0};
    return {gang_.rank(), workers_};
  }

  // ---- A worker.
  Learned learn(const RowBlock& rows, const Step& step, Wish wish) override {
    const auto& around = setting_.around;
    torch::manual_seed(seed_of(step, gang_.rank()));
    around.enter("forward");
    const auto in = inputs_of(rows, setting_.rows.layout());
    const auto predicted = forward_at_precision(setting_.plan, setting_.weights, in, network_.precision);
    around.enter("backward");
    // The sum over rows: servers know what it is to be divided by.
    const auto loss = loss_of(predicted, in, setting_.objective, setting_.deviation, 1.0);
    loss.backward();
    Head head;
    head.stop = wish.stop;
    head.save = wish.save;
    head.loss = loss.item<float>();
    head.weight = in.weights.sum().item<float>();
    head.rate = step.rate;
    head.step = step.number;
    around.enter("communication");
    const auto answer = exchange(head);
    if (synchronous_) return {answer.loss / weight_of(answer), {answer.stop != 0, answer.save != 0}};
    return {head.loss / weight_of(head), {answer.stop != 0, answer.save != 0}};
  }

  void pause() override {
    if (serves()) return;
    Head head;
    head.kind = 1;
    for (std::size_t server = 0; server < servers_; ++server) {
      set_head(messages_[server], head);
      gang_.begin_send(workers_ + server, kPush, messages_[server]);
    }
    gang_.finish();
  }

  // ---- A server.
  Wish serve() override {
    Wish wish;
    std::fill(done_.begin(), done_.end(), std::nullopt);
    auto& message = messages_[gang_.rank() - workers_];
    for (std::size_t paused = 0; paused < workers_;) {
      setting_.around.enter("communication");
      const auto from = gang_.receive_any(kPush, message);
      const auto head = head_of(message);
      wish.stop = wish.stop || head.stop != 0;
      wish.save = wish.save || head.save != 0;
      if (head.kind == 1) {
        done_[from] = std::numeric_limits<std::uint64_t>::max();
        ++paused;
      } else {
        done_[from] = head.step + 1;
        waiting_[from] = message;
        if (!synchronous_) step_of(from, head);
      }
      if (synchronous_)
        step_of_all(wish);
      else
        answer_whom_nobody_holds_up(wish);
    }
    return wish;
  }

  // ---- All of them.
  void collect() override { setting_.weights.flat().copy_(whole(my_weights())); }

  OptimiserState moments() override {
    const auto second = network_.optimiser != "sgd";
    auto steps = torch::zeros({2});
    if (gang_.rank() == workers_) std::memcpy(steps.data_ptr(), &optimiser_->steps(), sizeof(std::uint64_t));
    gang_.unite(floats_of(steps));
    OptimiserState out{whole(optimiser_ ? optimiser_->first() : Tensor()),
                       second ? whole(optimiser_ ? optimiser_->second() : Tensor()) : torch::zeros({0})};
    std::memcpy(&out.steps, steps.data_ptr(), sizeof out.steps);
    return out;
  }

  void restore(const OptimiserState& moments) override {
    if (!optimiser_) return;
    torch::NoGradGuard no_gradient;
    const auto take = [&](Tensor& to, const Tensor& from) {
      if (to.numel() > 0)
        to.copy_(from.narrow(0, static_cast<std::int64_t>(mine().first), static_cast<std::int64_t>(mine().count)));
    };
    take(optimiser_->first(), moments.first);
    take(optimiser_->second(), moments.second);
    optimiser_->steps() = moments.steps;
  }

 private:
  struct Part {
    std::size_t first, count;  // of the flat weights
  };
  bool serves() const { return gang_.rank() >= workers_; }
  const Part& mine() const { return parts_[gang_.rank() - workers_]; }
  Tensor my_weights() {
    if (!serves()) return {};
    return setting_.weights.flat().narrow(0, static_cast<std::int64_t>(mine().first),
                                          static_cast<std::int64_t>(mine().count));
  }
  // What servers have a part of each, everywhere.
  Tensor whole(const Tensor& part) {
    torch::NoGradGuard no_gradient;
    auto all = torch::zeros({setting_.plan.parameters()});
    if (part.defined())
      all.narrow(0, static_cast<std::int64_t>(mine().first), static_cast<std::int64_t>(mine().count)).copy_(part);
    gang_.unite(floats_of(all));
    return all;
  }

  Head exchange(Head head) {
    torch::NoGradGuard no_gradient;
    auto& gradient = setting_.weights.gradient();
    const double norm = network_.clip > 0 && !synchronous_ ? gradient.norm().item<float>() : 0;
    head.square = static_cast<float>(norm * norm);
    const auto gradients = floats_of(gradient), weights = floats_of(setting_.weights.flat());
    for (std::size_t server = 0; server < servers_; ++server) {
      auto& message = messages_[server];
      set_head(message, head);
      std::copy_n(gradients.begin() + static_cast<std::ptrdiff_t>(parts_[server].first), parts_[server].count,
                  message.begin() + kHead);
      gang_.begin_send(workers_ + server, kPush, message);
    }
    // Servers wait until their answer is taken, so it is taken before it is known that all have got what was sent.
    Head answer;
    for (std::size_t server = 0; server < servers_; ++server) {
      auto& message = messages_[server];
      gang_.receive(workers_ + server, kPull, message);
      const auto told = head_of(message);
      if (server == 0) answer = told;
      answer.stop |= told.stop;
      answer.save |= told.save;
      std::copy_n(message.begin() + kHead, parts_[server].count,
                  weights.begin() + static_cast<std::ptrdiff_t>(parts_[server].first));
    }
    gang_.finish();
    gradient.zero_();
    return answer;
  }

  void step_of(std::size_t worker, const Head& head) {
    const auto gradient = gradient_of(waiting_[worker]) / weight_of(head);
    step(gradient, head.rate / static_cast<double>(workers_), std::sqrt(head.square) / weight_of(head));
  }

  // In the order of ranks, whoever was first: equal sums every time.
  void step_of_all(const Wish& wish) {
    if (std::any_of(waiting_.begin(), waiting_.end(), [](const auto& one) { return one.empty(); })) return;
    torch::NoGradGuard no_gradient;
    Head all;
    Tensor sum;
    for (const auto& one : waiting_) {
      const auto head = head_of(one);
      all.loss += head.loss;
      all.weight += head.weight;
      all.rate = head.rate;
      sum = sum.defined() ? sum.add_(gradient_of(one)) : gradient_of(one).clone();
    }
    sum.div_(weight_of(all));
    step(sum, all.rate, network_.clip > 0 ? norm_of_all(sum) : 0);
    all.stop = wish.stop;
    all.save = wish.save;
    for (std::size_t worker = 0; worker < workers_; ++worker) answer(worker, all);
  }

  // Of the whole gradient, of which each server has a part.
  double norm_of_all(const Tensor& part) {
    const float own = part.square().sum().item<float>();
    std::vector<float> squares(servers_, own);
    const auto me = gang_.rank() - workers_;
    for (std::size_t other = 0; other < servers_; ++other)
      if (other != me) gang_.begin_send(workers_ + other, kSquares, {&own, 1});
    for (std::size_t other = 0; other < servers_; ++other)
      if (other != me) gang_.receive(workers_ + other, kSquares, {&squares[other], 1});
    gang_.finish();
    double sum = 0;
    for (const double one : squares) sum += one;
    return std::sqrt(sum);
  }

  void step(Tensor gradient, double rate, double norm) {
    torch::NoGradGuard no_gradient;
    setting_.around.enter("optimiser");
    auto weights = my_weights();
    optimiser_->step(weights, gradient, rate, norm);
    setting_.around.enter("communication");
  }

  void answer_whom_nobody_holds_up(const Wish& wish) {
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    for (const auto& done : done_) last = std::min(last, done.value_or(0));
    Head head;
    head.stop = wish.stop;
    head.save = wish.save;
    for (std::size_t worker = 0; worker < workers_; ++worker)
      if (!waiting_[worker].empty() && (wish.stop || wish.save || done_[worker].value_or(0) - last <= ahead_max_))
        answer(worker, head);
  }

  void answer(std::size_t worker, const Head& head) {
    auto& message = waiting_[worker];
    set_head(message, head);
    const auto weights = my_weights();
    std::memcpy(message.data() + kHead, weights.data_ptr<float>(), mine().count * sizeof(float));
    gang_.send(worker, kPull, message);
    message.clear();
  }

  static Tensor gradient_of(const std::vector<float>& message) {
    return torch::from_blob(const_cast<float*>(message.data()) + kHead,
                            {static_cast<std::int64_t>(message.size() - kHead)});
  }

  Gang& gang_;
  const std::size_t servers_, workers_;
  const bool synchronous_;
  const std::uint64_t ahead_max_;
  std::vector<Part> parts_;                   // of servers
  std::vector<std::vector<float>> messages_;  // a worker's for each server; a server's own is what it receives into
  // A server's.
  std::optional<Optimiser> optimiser_;
  std::vector<std::vector<float>> waiting_;         // messages of workers that have no answer yet
  std::vector<std::optional<std::uint64_t>> done_;  // steps of each worker
};

}  // namespace

std::unique_ptr<Learner> make_server_learner(const Learner::Setting& setting) {
  return std::make_unique<ServerLearner>(setting);
}

}  // namespace falaj::train
