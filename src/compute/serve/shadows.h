// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "compute/graph/tensor.h"
#include "compute/protocol/inference.h"
#include "compute/serve/catalogue.h"
#include "foundation/base/queue.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// Asks variants that answer nobody what others are asked: copies, on a thread of its own, at the lowest priority that
// the kernel has for it. When it does not keep up copies are dropped and counted; requests never wait for it.
// Thread-safe.
class Shadows {
 public:
  explicit Shadows(const sys::Clock& clock);
  ~Shadows();
  void offer(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const protocol::Ask& ask);

 private:
  struct Copy {
    std::shared_ptr<const Catalogue> from;  // holds the variant
    const ServedVariant* shadow = nullptr;
    std::vector<graph::Tensor> inputs;  // in the order of the model's
  };
  static constexpr std::size_t kWaitingMax = 1024;
  void run();

  const sys::Clock& clock_;
  BoundedQueue<Copy> waiting_;
  std::thread thread_;
};

}  // namespace falaj::serve
