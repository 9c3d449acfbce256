// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/slow_lane.h"

#include <sys/resource.h>

#include <algorithm>

namespace falaj::serve {
namespace {

constexpr int kGivesWay = 5;  // of the kernel's niceness: who reads requests goes first

}  // namespace

void SlowLane::push(std::uint32_t model, std::string digest, std::function<void()> call) {
  Lock lock(mu_);
  if (closing_) return;
  const auto [at, is_new] = models_.try_emplace(model);
  if (is_new) at->second.used = used_;
  at->second.waiting.push_back({model, std::move(digest), std::move(call)});
  ++waiting_;
  if (idle_ < waiting_ && threads_.size() < threads_max_)
    threads_.emplace_back([this, place = threads_.size()] {
      ::setpriority(PRIO_PROCESS, 0, kGivesWay);  // of this thread alone, as Linux has it
      work(place);
    });
  woken_.notify_one();
}

bool SlowLane::has_room() const {
  Lock lock(mu_);
  return waiting_ < idle_ + (threads_max_ - threads_.size());
}

// Waits for a call; nothing when it is to end.
std::optional<SlowLane::Call> SlowLane::take() {
  Lock lock(mu_);
  ++idle_;
  while (waiting_ == 0 && !closing_) lock.wait(woken_);
  --idle_;
  if (closing_) return {};
  Model* least = nullptr;
  for (auto& [number, model] : models_)
    if (!model.waiting.empty() && (!least || model.used < least->used)) least = &model;
  Call call = std::move(least->waiting.front());
  least->waiting.pop_front();
  --waiting_;
  ++least->running;
  used_ = std::max(used_, least->used);
  return call;
}

void SlowLane::ended(std::uint32_t number, sys::Micros took) {
  Lock lock(mu_);
  auto& model = models_.at(number);
  model.used += took;
  if (--model.running == 0 && model.waiting.empty()) models_.erase(number);
}

void SlowLane::work(std::size_t place) {
  CrashNote::Name* const note = CrashNote::of_other(note_, place + 1);  // 0 is who answers nobody
  while (auto call = take()) {
    const auto began = clock_.now();
    {
      const AtWork at_work(note, call->digest);
      call->run();
    }
    call->run = nullptr;  // what it holds goes outside of the lock
    ended(call->model, clock_.now() - began);
  }
}

void SlowLane::close() {
  std::vector<std::thread> threads;
  std::map<std::uint32_t, Model> dropped;
  {
    Lock lock(mu_);
    closing_ = true;
    waiting_ = 0;
    for (auto& [number, model] : models_) dropped[number].waiting.swap(model.waiting);
    threads.swap(threads_);
    woken_.notify_all();
  }
  dropped.clear();
  for (auto& thread : threads) thread.join();
}

}  // namespace falaj::serve
