// SPDX-License-Identifier: Apache-2.0
#include "compute/train/parts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

using Op = Layer::Op;

bool bends(Op op) { return op == Op::relu || op == Op::dropout || op == Op::relu6 || op == Op::silu; }

// Adds a weight of the whole, or a slice of it, to a part.
std::size_t add_slice(NetworkPart& part, const Plan& whole, const WeightSlice& slice) {
  auto weight = whole.weights[slice.weight];
  weight.sizes[static_cast<std::size_t>(slice.dimension)] = slice.count;
  part.plan.weights.push_back(std::move(weight));
  part.slices.push_back(slice);
  return part.plan.weights.size() - 1;
}
std::size_t add_whole(NetworkPart& part, const Plan& whole, std::size_t weight, bool tells) {
  return add_slice(part, whole, {weight, 0, 0, whole.weights[weight].sizes[0], tells});
}

// The linear layer that is split by what goes in when that at `first` is split by what comes out.
std::optional<std::size_t> partner_of(const Plan& plan, std::size_t first) {
  auto at = first + 1;
  while (at < plan.layers.size() && bends(plan.layers[at].op)) ++at;
  if (at == plan.layers.size() || plan.layers[at].op != Op::linear) return std::nullopt;
  return at;
}

}  // namespace

std::vector<std::size_t> places_to_cut(const Plan& plan) {
  std::vector<std::size_t> out;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const auto op = plan.layers[i].op;
    // Before what costs something: a bend belongs to the layer before it.
    const bool begins = op == Op::linear || op == Op::norm || op == Op::keep;
    if (i > 1 && kept == 0 && begins) out.push_back(i);
    if (op == Op::keep) ++kept;
    if (op == Op::add) --kept;
  }
  return out;
}

std::vector<std::size_t> stages_of(const Plan& plan, std::span<const double> costs, std::size_t stages) {
  auto places = places_to_cut(plan);
  places.insert(places.begin(), 0);
  const auto n = places.size();
  CHECK(costs.size() == n, "a cost for each piece");
  if (n < stages)
    throw Error(Code::invalid,
                fmt::format("resources.tasks: this network can be cut into {} stages at most, not {}", n, stages));
  std::vector<double> before(n + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // dearest[s][i]: of the first i pieces in s stages; from[s][i]: where the last of them begins.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector dearest(stages + 1, std::vector<double>(n + 1, kNever));
  std::vector from(stages + 1, std::vector<std::size_t>(n + 1, 0));
  dearest[0][0] = 0;
  for (std::size_t s = 1; s <= stages; ++s)
    for (std::size_t i = s; i <= n; ++i)
      for (std::size_t j = s - 1; j < i; ++j) {
        const auto cost = std::max(dearest[s - 1][j], before[i] - before[j]);
        if (cost < dearest[s][i]) dearest[s][i] = cost, from[s][i] = j;
      }
  std::vector<std::size_t> out(stages);
  for (std::size_t s = stages, i = n; s > 0; --s) {
    i = from[s][i];
    out[s - 1] = places[i];
  }
  return out;
}

NetworkPart stage_of(const Plan& plan, std::size_t first_layer, std::size_t end_layer) {
  NetworkPart part;
  part.first_layer = first_layer;
  part.plan.inputs = plan.inputs;
  part.plan.outputs = plan.outputs;
  part.plan.widest = plan.widest;
  for (auto i = first_layer; i < end_layer; ++i) {
    auto layer = plan.layers[i];
    for (auto& weight : layer.weights) weight = add_whole(part, plan, weight, true);
    part.plan.layers.push_back(std::move(layer));
  }
  return part;
}

NetworkPart split_of(const Plan& plan, std::size_t rank, std::size_t ranks) {
  NetworkPart part;
  part.plan.inputs = plan.inputs;
  part.plan.outputs = plan.outputs;
  part.plan.widest = plan.widest;
  std::optional<std::size_t> partner;
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  const auto place = [&](std::int64_t size, std::size_t of) {
    return size * static_cast<std::int64_t>(of) / static_cast<std::int64_t>(ranks);
  };
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    auto layer = plan.layers[i];
    const auto whole = layer.weights;
    if (partner == i) {
      const auto first = place(layer.in, rank), count = place(layer.in, rank + 1) - first;
      layer.split = Layer::Split::in;
      layer.in = count;
      layer.weights = {add_slice(part, plan, {whole[0], 1, first, count, true}),
                       add_whole(part, plan, whole[1], rank == 0)};
      partner.reset();
    } else if (layer.op == Op::linear && !partner && (partner = partner_of(plan, i))) {
      narrowest = std::min(narrowest, layer.out);
      const auto first = place(layer.out, rank), count = place(layer.out, rank + 1) - first;
      layer.split = Layer::Split::out;
      layer.out = count;
      layer.weights = {add_slice(part, plan, {whole[0], 0, first, count, true}),
                       add_slice(part, plan, {whole[1], 0, first, count, true})};
    } else {
      if (partner) layer.split = Layer::Split::out;
      for (auto& weight : layer.weights) weight = add_whole(part, plan, weight, rank == 0);
    }
    part.plan.layers.push_back(std::move(layer));
  }
  if (narrowest == std::numeric_limits<std::int64_t>::max())
    throw Error(Code::invalid, "parallel.mode: tensor needs two linear layers, one after the other");
  if (narrowest < static_cast<std::int64_t>(ranks))
    throw Error(Code::invalid, fmt::format("resources.tasks: {} of them cannot share a layer of {}", ranks, narrowest));
  return part;
}

}  // namespace falaj::train
