// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the gRPC server.

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <thread>
#include <vector>

#include "compute/protocol/grpc_library.h"
#include "foundation/base/mutex.h"
#include "foundation/net/http.h"
#include "foundation/sys/clock.h"

namespace falaj::protocol {

// What a completion queue hands back.
class GrpcEvent {
 public:
  virtual void happened(bool ok) = 0;

 protected:
  ~GrpcEvent() = default;
};

// A thread over a completion queue.
class GrpcLoop final : public net::Loop {
 public:
  GrpcLoop(std::size_t index, std::unique_ptr<grpc::ServerCompletionQueue> events, const sys::Clock& clock);

  std::size_t index() const override { return index_; }
  void post(std::function<void()> work) override;
  void after(std::int64_t micros, std::function<void()> work) override;
  grpc::ServerCompletionQueue& events() { return *events_; }

  void start();
  // Posts are dropped from now on; ends the thread when every operation on the queue has ended, and joins it.
  void close();

 private:
  struct Timer {
    std::int64_t due_us;
    std::uint64_t number;  // of two that are due at once the older goes first
    bool exact;
    std::function<void()> work;
    bool operator<(const Timer& other) const {
      return due_us != other.due_us ? due_us > other.due_us : number > other.number;
    }
  };
  struct Wake final : GrpcEvent {
    explicit Wake(GrpcLoop& of) : loop(of) {}
    void happened(bool) override;
    GrpcLoop& loop;
  };
  enum class Polled { one, none, closed };

  void run();
  Polled poll(gpr_timespec until);
  bool run_posted();
  bool run_due();
  gpr_timespec wait() const;

  const std::size_t index_;
  const std::unique_ptr<grpc::ServerCompletionQueue> events_;
  const sys::Clock& clock_;
  Wake wake_{*this};
  std::priority_queue<Timer> timers_;  // of this thread alone
  std::uint64_t timers_made_ = 0;
  std::vector<std::function<void()>> running_;

  Mutex mu_;  // guards everything below
  std::vector<std::function<void()>> posted_ GUARDED_BY(mu_);
  grpc::Alarm alarm_ GUARDED_BY(mu_);
  bool waking_ GUARDED_BY(mu_) = false;
  bool closed_ GUARDED_BY(mu_) = false;
  std::thread::id runs_on_ GUARDED_BY(mu_);  // none before it runs

  std::thread thread_;
};

}  // namespace falaj::protocol
