// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "foundation/base/mutex.h"

namespace falaj {

// A bounded first-in first-out queue between threads. Full is an answer, not a wait.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t limit) : limit_(limit) {}

  // False when full or closed; the item is then still the caller's.
  bool try_push(T& item) {
    Lock lock(mu_);
    if (closed_ || items_.size() >= limit_) return false;
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return true;
  }
  // Waits for an item; empty only when closed and drained.
  std::optional<T> pop() {
    Lock lock(mu_);
    while (items_.empty() && !closed_) lock.wait(not_empty_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  // Waits for at least one item and takes up to `most`; empty only when closed and drained.
  std::vector<T> pop_many(std::size_t most) {
    Lock lock(mu_);
    while (items_.empty() && !closed_) lock.wait(not_empty_);
    std::vector<T> taken;
    while (!items_.empty() && taken.size() < most) {
      taken.push_back(std::move(items_.front()));
      items_.pop_front();
    }
    return taken;
  }
  // No more pushes; what is inside is still handed out.
  void close() {
    Lock lock(mu_);
    closed_ = true;
    not_empty_.notify_all();
  }
  std::size_t size() const {
    Lock lock(mu_);
    return items_.size();
  }

 private:
  const std::size_t limit_;  // constant after construction

  mutable Mutex mu_;  // guards everything below
  std::condition_variable not_empty_;
  std::deque<T> items_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace falaj
