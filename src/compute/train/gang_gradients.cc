// SPDX-License-Identifier: Apache-2.0
#include "compute/train/gang_gradients.h"

#include <torch/csrc/autograd/function_hook.h>

namespace falaj::train {

namespace {
constexpr std::int64_t kPieceFloats = 256 << 10;  // less is all delay, more leaves nothing to be done meanwhile
}

class GangGradients::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(GangGradients& gradients, std::size_t piece) : gradients_(gradients), piece_(piece) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    gradients_.ready(piece_);
    return outputs;
  }

 private:
  GangGradients& gradients_;
  const std::size_t piece_;
};

GangGradients::GangGradients(const Plan& plan, Weights& weights, Gang& gang, std::unique_ptr<Squeeze> squeeze)
    : weights_(weights), gang_(gang), squeeze_(std::move(squeeze)) {
  auto end = plan.parameters();
  for (std::size_t i = plan.weights.size(); i-- > 0;) {
    const auto count = plan.weights[i].count();
    if (pieces_.empty() || pieces_.back().count >= kPieceFloats) pieces_.push_back({end, 0, 0, 0, {}, {}});
    auto& piece = pieces_.back();
    end -= count;
    piece.first = end;
    piece.count += count;
    if (!weights[i].requires_grad()) continue;
    ++piece.weights;
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(weights[i]));
    hooks_.push_back(accumulators_.back()->add_post_hook(std::make_unique<Hook>(*this, pieces_.size() - 1)));
  }
  if (!squeeze_) return;
  for (auto& piece : pieces_) {
    piece.mine.resize(squeeze_->bytes(static_cast<std::size_t>(piece.count)));
    piece.all.resize(piece.mine.size() * gang.ranks());
  }
}

GangGradients::~GangGradients() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

void GangGradients::begin() {
  for (auto& piece : pieces_) piece.missing = piece.weights;
  sent_ = 0;
  active_ = true;
}

void GangGradients::ready(std::size_t piece) {
  if (!active_) return;
  --pieces_[piece].missing;
  send_ready();
}

std::span<float> GangGradients::floats(const Piece& piece) {
  return {weights_.gradient().data_ptr<float>() + piece.first, static_cast<std::size_t>(piece.count)};
}

// In one order, which is everybody's.
void GangGradients::send_ready() {
  for (; sent_ < pieces_.size() && pieces_[sent_].missing == 0; ++sent_) {
    auto& piece = pieces_[sent_];
    if (!squeeze_) {
      weights_.device().is_cuda() ? gang_.begin_sum_on_gpu(floats(piece)) : gang_.begin_sum(floats(piece));
      continue;
    }
    squeeze_->pack(floats(piece), static_cast<std::size_t>(piece.first), piece.mine);
    gang_.begin_gather(piece.mine, piece.all);
  }
}

void GangGradients::finish() {
  active_ = false;
  for (auto& piece : pieces_) piece.missing = 0;  // a weight that nothing came from
  send_ready();
  gang_.finish();
  if (!squeeze_) return;
  torch::NoGradGuard no_gradient;
  weights_.gradient().zero_();
  for (const auto& piece : pieces_)
    for (std::size_t rank = 0; rank < gang_.ranks(); ++rank)
      squeeze_->add(BytesView(piece.all).subspan(rank * piece.mine.size(), piece.mine.size()), floats(piece));
}

}  // namespace falaj::train
