// SPDX-License-Identifier: Apache-2.0
#include "compute/train/power_gradients.h"

#include "compute/train/learner.h"

namespace falaj::train {
namespace {

// Makes columns orthogonal and of length 1, one after the other: the same bits wherever the same is put in.
void make_orthogonal(Tensor& matrix) {
  constexpr double kLeast = 1e-8;
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    auto column = matrix.select(1, i);
    for (std::int64_t before = 0; before < i; ++before) {
      const auto other = matrix.select(1, before);
      column.sub_(other * (column * other).sum());
    }
    column.div_(column.norm().clamp_min(kLeast));
  }
}

}  // namespace

PowerGradients::PowerGradients(const Plan& plan, Weights& weights, Gang& gang, std::int64_t rank, std::uint64_t seed)
    : gang_(gang) {
  torch::NoGradGuard no_gradient;
  std::int64_t at = 0, p = 0, q = 0, plain = 0;
  for (const auto& weight : plan.weights) {
    const auto count = weight.count(), rows = weight.sizes[0], columns = count / std::max<std::int64_t>(rows, 1);
    const auto gradient = weights.gradient().narrow(0, at, count);
    at += count;
    if (rank * (rows + columns) * 2 > count) {
      others_.push_back(gradient);
      plain += count;
      continue;
    }
    matrices_.push_back({gradient.view({rows, columns}), torch::zeros({rows, columns}), {}, {}});
    p += rows * rank;
    q += columns * rank;
  }
  p_ = torch::zeros({p});
  q_ = torch::zeros({q});
  plain_ = torch::zeros({plain});
  torch::Generator generator = at::detail::createCPUGenerator(seed);
  q_.normal_(0, 1, generator);
  p = q = 0;
  for (auto& matrix : matrices_) {
    const auto rows = matrix.left.size(0), columns = matrix.left.size(1);
    matrix.p = p_.narrow(0, p, rows * rank).view({rows, rank});
    matrix.q = q_.narrow(0, q, columns * rank).view({columns, rank});
    p += rows * rank;
    q += columns * rank;
  }
}

void PowerGradients::finish() {
  torch::NoGradGuard no_gradient;
  if (!others_.empty()) plain_.copy_(torch::cat(others_));
  if (plain_.numel() > 0) gang_.begin_sum(floats_of(plain_));
  for (auto& matrix : matrices_) {
    matrix.left.add_(matrix.gradient);
    at::mm_out(matrix.p, matrix.left, matrix.q);
  }
  if (p_.numel() > 0) gang_.begin_sum(floats_of(p_));
  gang_.finish();
  for (auto& matrix : matrices_) {
    make_orthogonal(matrix.p);
    at::mm_out(matrix.q, matrix.left.t(), matrix.p);
  }
  gang_.sum(floats_of(q_));
  for (auto& matrix : matrices_) {
    at::mm_out(matrix.gradient, matrix.p, matrix.q.t());
    matrix.left.sub_(matrix.gradient, 1.0 / static_cast<double>(gang_.ranks()));
  }
  std::int64_t at = 0;
  for (auto& other : others_) {
    other.copy_(plain_.narrow(0, at, other.numel()));
    at += other.numel();
  }
}

}  // namespace falaj::train
