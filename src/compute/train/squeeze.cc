// SPDX-License-Identifier: Apache-2.0
#include "compute/train/squeeze.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

at::Tensor view_of(std::span<float> numbers) {
  return torch::from_blob(numbers.data(), {static_cast<std::int64_t>(numbers.size())});
}

class Halves final : public Squeeze {
 public:
  explicit Halves(at::ScalarType type) : type_(type) {}

  std::size_t bytes(std::size_t count) const override { return 2 * count; }
  void pack(std::span<float> numbers, std::size_t, std::span<std::byte> out) override {
    torch::NoGradGuard no_gradient;
    halves(out.data(), numbers.size()).copy_(view_of(numbers));
  }
  void add(BytesView packed, std::span<float> to) const override {
    torch::NoGradGuard no_gradient;
    view_of(to).add_(halves(const_cast<std::byte*>(packed.data()), to.size()).to(torch::kFloat32));
  }

 private:
  at::Tensor halves(std::byte* at, std::size_t count) const {
    return torch::from_blob(at, {static_cast<std::int64_t>(count)}, type_);
  }
  const at::ScalarType type_;
};

// The largest numbers only. What is not sent is added to the next gradient: nothing is lost, it comes later (Stich and
// others, 2018, "Sparsified SGD with Memory").
class Largest final : public Squeeze {
 public:
  Largest(double keep, std::int64_t count) : keep_(keep), left_(torch::zeros({count})) {}

  std::size_t bytes(std::size_t count) const override { return kept(count) * (sizeof(std::int32_t) + sizeof(float)); }
  void pack(std::span<float> numbers, std::size_t first, std::span<std::byte> out) override {
    torch::NoGradGuard no_gradient;
    const auto count = kept(numbers.size());
    auto left = left_.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(numbers.size()));
    left.add_(view_of(numbers));
    const auto places = std::get<1>(left.abs().topk(static_cast<std::int64_t>(count), 0, true, false));
    const auto values = left.index_select(0, places).contiguous();
    const auto narrow = places.to(torch::kInt32).contiguous();
    std::memcpy(out.data(), narrow.data_ptr<std::int32_t>(), count * sizeof(std::int32_t));
    std::memcpy(out.data() + count * sizeof(std::int32_t), values.data_ptr<float>(), count * sizeof(float));
    left.index_fill_(0, places, 0);
  }
  void add(BytesView packed, std::span<float> to) const override {
    const auto count = kept(to.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t place = 0;
      float value = 0;
      std::memcpy(&place, packed.data() + i * sizeof place, sizeof place);
      std::memcpy(&value, packed.data() + count * sizeof place + i * sizeof value, sizeof value);
      if (place < 0 || static_cast<std::size_t>(place) >= to.size())
        throw Error(Code::internal, "a number of a gradient is outside of it");
      to[static_cast<std::size_t>(place)] += value;
    }
  }

 private:
  std::size_t kept(std::size_t count) const {
    return std::clamp<std::size_t>(static_cast<std::size_t>(std::llround(keep_ * static_cast<double>(count))), 1,
                                   count);
  }
  const double keep_;
  at::Tensor left_;
};

}  // namespace

std::unique_ptr<Squeeze> make_squeeze(const std::string& kind, double keep, std::int64_t count) {
  if (kind == "fp16") return std::make_unique<Halves>(at::kHalf);
  if (kind == "bf16") return std::make_unique<Halves>(at::kBFloat16);
  if (kind == "topk") return std::make_unique<Largest>(keep, count);
  return nullptr;
}

}  // namespace falaj::train
