// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
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
// the kernel has for it. When it does not keep up, or copies would take more memory than they may, they are dropped and
// counted; requests never wait for it, nor fail by it. But it is the same process: a model that crashes it as a shadow
// has crashed it for all. Thread-safe.
class Shadows {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // of all copies that wait or are asked

  // `note`: where it says which model is at work; null: nowhere.
  Shadows(const sys::Clock& clock, CrashNote::Name* note, std::size_t bytes_max = kBytesMax);
  ~Shadows();
  // `inputs`: of the model that answers, which names them.
  void offer(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const Held& answers,
             std::span<const infer::TensorView> inputs) noexcept;

 private:
  struct Copy {
    std::shared_ptr<const Catalogue> from;  // holds the variant
    const ServedVariant* shadow = nullptr;
    std::vector<graph::Tensor> inputs;  // in the order of the model's
    std::size_t bytes = 0;              // of them
  };
  static constexpr std::size_t kWaitingMax = 1024;
  void run();
  void ask(const Copy& copy) const noexcept;
  bool take_copy(const std::shared_ptr<const Catalogue>& from, const ServedVariant& shadow, const Held& answers,
                 std::span<const infer::TensorView> inputs);

  const sys::Clock& clock_;
  const std::size_t bytes_max_;
  std::atomic<std::size_t> bytes_{0};
  CrashNote::Name* const note_;
  BoundedQueue<Copy> waiting_;
  std::thread thread_;
};

}  // namespace falaj::serve
