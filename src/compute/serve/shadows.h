// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "compute/graph/tensor.h"
#include "compute/serve/catalogue.h"
#include "compute/serve/crash_note.h"
#include "foundation/base/queue.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// Asks variants that answer nobody what others are asked: copies, on a thread of its own, at the lowest priority that
// the kernel has for it. When it does not keep up copies are dropped and counted; requests never wait for it.
// Thread-safe.
class Shadows {
 public:
  // `note`: where it says which model is at work; null: nowhere.
  Shadows(const sys::Clock& clock, CrashNote::Name* note);
  ~Shadows();
  // `inputs`: of the model that answers, which names them.
  void offer(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const Held& answers,
             std::span<const infer::TensorView> inputs);

 private:
  struct Copy {
    std::shared_ptr<const Catalogue> from;  // holds the variant
    const ServedVariant* shadow = nullptr;
    std::vector<graph::Tensor> inputs;  // in the order of the model's
  };
  static constexpr std::size_t kWaitingMax = 1024;
  void run();

  const sys::Clock& clock_;
  CrashNote::Name* const note_;
  BoundedQueue<Copy> waiting_;
  std::thread thread_;
};

}  // namespace falaj::serve
