// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "foundation/base/bytes.h"

namespace falaj::train {

// A gradient in fewer bytes. One thread.
class Squeeze {
 public:
  virtual ~Squeeze() = default;
  virtual std::size_t bytes(std::size_t count) const = 0;  // that so many numbers take
  // `first`: where these numbers are in the whole gradient. What is left out is remembered and comes with the next.
  virtual void pack(std::span<float> numbers, std::size_t first, std::span<std::byte> out) = 0;
  virtual void add(BytesView packed, std::span<float> to) const = 0;
};

// fp16 and bf16: half the bytes. topk: the `keep` largest share of the numbers with their places. none: null.
// `count`: of all numbers.
std::unique_ptr<Squeeze> make_squeeze(const std::string& kind, double keep, std::int64_t count);

}  // namespace falaj::train
