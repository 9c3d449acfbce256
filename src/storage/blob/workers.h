// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/queue.h"

namespace falaj::blob {

// What came of work done by another thread. An error crosses as a value and is thrown anew here.
template <class Result>
class Pending {
 public:
  struct Outcome {
    std::optional<Result> result;
    Code code = Code::internal;
    std::string message;
  };
  explicit Pending(std::future<Outcome> outcome) : outcome_(std::move(outcome)) {}
  void wait() const { outcome_.wait(); }
  Result get() {
    Outcome outcome = outcome_.get();
    if (!outcome.result) throw Error(outcome.code, outcome.message);
    return std::move(*outcome.result);
  }

 private:
  std::future<Outcome> outcome_;
};

// A few threads for the work on single chunks. When they are all busy the caller does the work itself: nothing queues
// up, and it goes on without any thread. Work must not wait for other work. Thread-safe.
class Workers {
 public:
  explicit Workers(unsigned threads) : queue_(threads + 1) {
    for (unsigned i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (auto work = queue_.pop()) (*work)();
      });
    }
  }
  ~Workers() {
    queue_.close();
    for (auto& thread : threads_) thread.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  template <class F>
  Pending<std::invoke_result_t<F>> run(F work) {
    using Outcome = typename Pending<std::invoke_result_t<F>>::Outcome;
    auto task = std::make_shared<std::packaged_task<Outcome()>>([work = std::move(work)]() mutable -> Outcome {
      try {
        return {work(), Code::internal, ""};
      } catch (const Error& error) {
        return {std::nullopt, error.code(), error.what()};
      } catch (const std::bad_alloc&) {
        return {std::nullopt, Code::exhausted, "out of memory"};
      }
    });
    Pending<std::invoke_result_t<F>> result(task->get_future());
    std::function<void()> call = [task] { (*task)(); };
    if (threads_.empty() || !queue_.try_push(call)) call();
    return result;
  }
  // How much work may be under way at once, with the caller's own.
  std::size_t width() const { return 2 * threads_.size() + 2; }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace falaj::blob
