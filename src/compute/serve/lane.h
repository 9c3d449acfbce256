// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "compute/infer/batch.h"
#include "compute/infer/tune.h"
#include "compute/serve/catalogue.h"
#include "foundation/net/http.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// What this process is doing, in memory that outlives it: when it crashes, the model that was at work is known.
// Each is a digest, or begins with 0.
struct CrashNote {
  static constexpr std::size_t kLanes = 256, kDigest = 64;
  using Name = char[kDigest];
  Name running[kLanes];  // by lane
  Name loading;
  Name crashed;  // left by the handler of the signal that ended it
};

// Says for a while, on this thread, which model is at work.
class AtWork {
 public:
  AtWork(CrashNote::Name* at, std::string_view digest);
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  static void leave_name(CrashNote& note) noexcept;  // of what this thread was doing; safe in a handler of a signal

 private:
  CrashNote::Name* const at_;
};

// The queues of one I/O thread, which also runs the models: no request changes threads, and no lock is taken for it.
// What came in one turn of the loop runs together. Not thread-safe: its loop's thread only.
class Lane {
 public:
  Lane(net::Loop& loop, const sys::Clock& clock, CrashNote::Name* running)
      : loop_(loop), clock_(clock), running_(running) {}
  ~Lane();

  // Answered or refused later, never in here.
  void push(const ServedVariant& variant, std::unique_ptr<infer::Request> request);
  // Lets go of queues whose slot is in none of these.
  void tidy(const Catalogue& catalogue);

  net::Loop& loop() { return loop_; }

  // The catalogue as this lane knows it; the host brings it up to date.
  std::shared_ptr<const Catalogue> catalogue;

 private:
  struct Queue {
    std::uint32_t slot;
    std::shared_ptr<const Held> held;
    std::shared_ptr<Counts> counts;
    infer::BatchQueue queue;
    std::optional<infer::QueueTuner> tuner;  // where a latency is to be held
    infer::Micros target_p99{0};
  };
  void run_ready();
  void tune(Queue& queue, const ServedVariant& variant);
  void post();

  net::Loop& loop_;
  const sys::Clock& clock_;
  CrashNote::Name* const running_;
  std::map<std::uint32_t, std::unique_ptr<Queue>> queues_;
  std::vector<Queue*> waiting_;  // with requests in them
  infer::Batch batch_;
  bool posted_ = false;
  infer::Micros alarm_ = infer::kNever;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what was posted may come after our end
};

}  // namespace falaj::serve
