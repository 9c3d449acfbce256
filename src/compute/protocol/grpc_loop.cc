// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_loop.h"

namespace falaj::protocol {
namespace {

constexpr int kPolledMax = 256;           // events before posted work has its turn
constexpr std::int64_t kExactUs = 2'000;  // delays shorter than this are kept exactly

}  // namespace

GrpcLoop::GrpcLoop(std::size_t index, std::unique_ptr<grpc::ServerCompletionQueue> events, const sys::Clock& clock)
    : index_(index), events_(std::move(events)), clock_(clock) {}

void GrpcLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void GrpcLoop::close() {
  {
    Lock lock(mu_);
    closed_ = true;
  }
  events_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {  // never started
    while (poll(gpr_inf_future(GPR_CLOCK_MONOTONIC)) != Polled::closed) {
    }
  }
}

void GrpcLoop::post(std::function<void()> work) {
  Lock lock(mu_);
  if (closed_) return;
  posted_.push_back(std::move(work));
  // The thread itself looks before it waits.
  if (waking_ || std::this_thread::get_id() == runs_on_) return;
  waking_ = true;
  alarm_.Set(events_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), &wake_);
}

void GrpcLoop::Wake::happened(bool) {
  Lock lock(loop.mu_);
  loop.waking_ = false;
}

void GrpcLoop::after(std::int64_t micros, std::function<void()> work) {
  timers_.push({clock_.now().count() + micros, timers_made_++, micros < kExactUs, std::move(work)});
}

void GrpcLoop::run() {
  {
    Lock lock(mu_);
    runs_on_ = std::this_thread::get_id();
  }
  for (;;) {
    // All that is ready before what was posted: requests that came together are then seen together.
    bool busy = false;
    for (int n = 0; n < kPolledMax; ++n) {
      const auto polled = poll(gpr_inf_past(GPR_CLOCK_MONOTONIC));
      if (polled == Polled::closed) return;
      if (polled == Polled::none) break;
      busy = true;
    }
    busy |= run_posted();
    busy |= run_due();
    if (!busy && poll(wait()) == Polled::closed) return;
  }
}

GrpcLoop::Polled GrpcLoop::poll(gpr_timespec until) {
  void* tag = nullptr;
  bool ok = false;
  switch (events_->AsyncNext(&tag, &ok, until)) {
    case grpc::CompletionQueue::GOT_EVENT:
      static_cast<GrpcEvent*>(tag)->happened(ok);
      return Polled::one;
    case grpc::CompletionQueue::TIMEOUT:
      return Polled::none;
    case grpc::CompletionQueue::SHUTDOWN:
      break;
  }
  return Polled::closed;
}

bool GrpcLoop::run_posted() {
  {
    Lock lock(mu_);
    running_.swap(posted_);
  }
  const bool any = !running_.empty();
  for (auto& work : running_) work();
  running_.clear();
  return any;
}

bool GrpcLoop::run_due() {
  bool any = false;
  while (!timers_.empty() && timers_.top().due_us <= clock_.now().count()) {
    auto work = std::move(const_cast<Timer&>(timers_.top()).work);
    timers_.pop();
    work();
    any = true;
  }
  return any;
}

// gRPC waits in whole milliseconds. That is near enough for long delays; for short ones the thread looks again and
// again, and gives way to others meanwhile.
gpr_timespec GrpcLoop::wait() const {
  if (timers_.empty()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const auto left = timers_.top().due_us - clock_.now().count();
  if (timers_.top().exact || left <= 0) {
    std::this_thread::yield();
    return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  }
  return gpr_time_from_micros(left, GPR_TIMESPAN);
}

}  // namespace falaj::protocol
