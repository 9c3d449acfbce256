// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compute/infer/batch.h"
#include "compute/infer/tune.h"
#include "compute/serve/catalogue.h"
#include "compute/serve/crash_note.h"
#include "compute/serve/slow_lane.h"
#include "foundation/base/error.h"
#include "foundation/net/http.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// From how long on a call is not made where requests are read.
inline constexpr infer::Micros kSlowCall{1'000};

// How long the calling thread has worked: what it waited does not count. Only differences mean anything.
using WorkTime = infer::Micros (*)();

// The queues of one I/O thread, which also runs the models: no request changes threads, and no lock is taken for it.
// What came in one turn of the loop runs together. Only calls that take long are made elsewhere. Not thread-safe: its
// loop's thread only.
class Lane {
 public:
  Lane(net::Loop& loop, const sys::Clock& clock, CrashNote::Name* running, SlowLane& slow, infer::Micros slow_from,
       WorkTime worked)
      : loop_(loop), clock_(clock), running_(running), slow_(slow), slow_from_(slow_from), work_time_(worked) {}
  ~Lane();

  // Answered or refused later, never in here. `now`: about the time.
  void push(const ServedVariant& variant, std::unique_ptr<infer::Request> request, infer::Micros now);
  // Lets go of queues whose slot is in none of these.
  void tidy(const Catalogue& catalogue);

  // Keeps a request whose model sleeps until retry_parked(), which calls it with nothing, or `until` is over or the
  // lane ends: then it is told why. Throws exhausted when too many wait.
  using Again = std::function<void(std::optional<Error> why)>;
  void park(infer::Micros until, Again again);
  void retry_parked();

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
    std::uint32_t away = 0;       // batches of it in the slow lane
    std::uint32_t instances_max;  // of those
    bool forgotten = false;       // by the catalogue; goes when the last came back
  };
  struct Away;
  void run_ready();
  bool is_slow(const Queue& queue, std::uint32_t rows) const;
  bool may_run(const Queue& queue) const;
  void run_here(Queue& queue);
  void send_away(Queue& queue);
  void came_back(Away& away);
  void ran(Queue& queue, const infer::BatchDone& done, const infer::Batch& batch);
  infer::Micros worked_since_last();
  void tune(Queue& queue, const ServedVariant& variant);
  void post();
  void end_parked(std::optional<infer::Micros> due_until, const Error& why);

  net::Loop& loop_;
  const sys::Clock& clock_;
  CrashNote::Name* const running_;
  SlowLane& slow_;
  const infer::Micros slow_from_;
  const WorkTime work_time_;
  std::map<std::uint32_t, std::unique_ptr<Queue>> queues_;
  std::vector<Queue*> waiting_;  // with requests in them
  std::vector<std::pair<infer::Micros, Again>> parked_;
  infer::Batch batch_;
  infer::Micros worked_{0};  // by this thread, when it was last asked
  bool posted_ = false;
  infer::Micros alarm_ = infer::kNever;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what was posted may come after our end
};

}  // namespace falaj::serve
