// SPDX-License-Identifier: Apache-2.0
#pragma once

// Executors and a store in memory, with time and faults in the hands of the test.

#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/jobs/store.h"

namespace falaj::jobs {

// How often something goes wrong, 0 to 1.
struct FakeFaults {
  double start_lost = 0;     // unavailable, and it was not started
  double answer_lost = 0;    // unavailable, but it was started
  double stop_lost = 0;      // as if it had not been said
  double poll_fails = 0;     // unavailable
  double poll_stale = 0;     // what it said the last time, once more
  double forget_lost = 0;    // as if it had not been said
  double fails = 0;          // an attempt ends with 1
  double crashes = 0;        // an attempt is killed by a signal
  double saves = 1;          // one that is told to stop ends with 75, not by force
  double saves_unasked = 0;  // an attempt ends with 75 by itself
};

// Runs nothing: an attempt ends when its time, which follows from the seed and its name, has passed. What was started
// survives whoever started it. It checks what it is told: no node may be given more than it has, no job may have two
// attempts at once, all tasks of an attempt must be placed. Thread-safe.
class FakeExecutor final : public execute::Executor {
 public:
  FakeExecutor(const sys::Clock& clock, std::uint64_t seed, std::vector<execute::Node> nodes, FakeFaults faults = {});

  std::vector<execute::Node> nodes() override;
  void start(const execute::Launch& launch) override;
  void stop(std::string_view attempt, execute::Micros grace) override;
  std::vector<execute::Report> poll(std::uint64_t& seen, execute::Micros at_most) override;
  execute::LogPage logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) override;
  void forget(std::string_view attempt) override;
  void drop_logs(std::string_view attempt) override;
  std::optional<execute::Used> used(std::string_view attempt) override;

  // ---- the test's own
  void run_for(execute::Micros least, execute::Micros most);  // how long attempts take
  void lose_node(const std::string& name);                    // with all that runs on it
  void set_node(const std::string& name, bool up);
  void set_busy(double part);                // of a processor that an attempt uses
  void keep_apart(execute::Isolation most);  // what asks for more is not started; isolated at first
  void add_node(execute::Node node);
  void remove_node(const std::string& name);  // which must be idle
  void set_faults(FakeFaults faults);
  std::vector<std::string> violations() const;  // what must never be, in words
  std::size_t running() const;
  std::size_t known() const;                           // attempts that were not forgotten
  std::size_t starts() const;                          // attempts that really began
  std::optional<execute::Micros> next_change() const;  // wall time
  std::string last_launch_of(const std::string& job) const;

 private:
  struct Attempt {
    execute::Launch launch;
    execute::Micros started{0}, ends{0}, stop_at{0};
    bool told_to_stop = false, checkpoints = false;
    std::optional<execute::Ending> ending;
    execute::Ending by_itself;
  };
  bool happens(double probability) REQUIRES(mu_);
  void settle() REQUIRES(mu_);  // ends what is due
  void end(Attempt& attempt, execute::Ending ending) REQUIRES(mu_);
  void check_room(const Attempt& attempt) REQUIRES(mu_);
  std::vector<execute::Report> reports() REQUIRES(mu_);

  const sys::Clock& clock_;
  const std::uint64_t seed_;

  mutable Mutex mu_;  // guards everything below
  std::condition_variable changed_;
  sys::SimRandom random_;
  FakeFaults faults_ GUARDED_BY(mu_);
  std::vector<execute::Node> nodes_ GUARDED_BY(mu_);
  std::map<std::string, Attempt, std::less<>> attempts_ GUARDED_BY(mu_);
  std::vector<execute::Report> last_ GUARDED_BY(mu_);
  std::map<std::string, std::string> launches_ GUARDED_BY(mu_);  // the newest attempt by job
  std::vector<std::string> violations_ GUARDED_BY(mu_);
  execute::Micros least_ GUARDED_BY(mu_), most_ GUARDED_BY(mu_);
  double busy_ GUARDED_BY(mu_) = 1;
  execute::Isolation apart_ GUARDED_BY(mu_) = execute::Isolation::isolated;
  std::map<std::string, execute::Used, std::less<>> used_ GUARDED_BY(mu_);
  std::size_t starts_ GUARDED_BY(mu_) = 0;
  std::uint64_t version_ GUARDED_BY(mu_) = 0;
};

// Jobs in memory; what is written stays over a restart of the dispatcher. Lives go through their stored form.
class MemoryBook final : public Book {
 public:
  void insert(const std::vector<Record>& records);
  void wish(const Wish& wish) { wishes_[wish.job] = wish; }
  void fail_writes(std::int64_t many) { failing_ = many; }

  void write(std::span<Change> changes) override;
  std::vector<Record> live() override;
  std::vector<Wish> wishes() override;
  std::optional<Record> find(JobId id) override;
  std::optional<Outcome> outcome(const std::string& id) override;
  void write_pools(std::span<const PoolChange> changes) override;
  std::map<std::string, PoolLife> pools() override { return pools_; }

  const std::vector<std::pair<std::string, PoolEvent>>& pool_events() const { return pool_events_; }
  const std::map<JobId, std::pair<Record, std::vector<Transition>>>& all() const { return jobs_; }
  std::uint64_t fingerprint() const { return fingerprint_; }  // of everything that was written, in order

 private:
  std::map<JobId, std::pair<Record, std::vector<Transition>>> jobs_;
  std::map<JobId, Wish> wishes_;
  std::map<std::string, PoolLife> pools_;
  std::vector<std::pair<std::string, PoolEvent>> pool_events_;
  std::int64_t failing_ = 0;
  std::uint64_t fingerprint_ = 1469598103934665603u;
};

}  // namespace falaj::jobs
