// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "foundation/sys/random.h"
#include "lifecycle/jobs/dispatcher.h"
#include "lifecycle/jobs/launches.h"
#include "lifecycle/jobs/secrets.h"
#include "lifecycle/jobs/workers.h"
#include "lifecycle/schedule/predict.h"

namespace falaj::jobs {

struct JobsOptions {
  LaunchOptions launch;
  DispatcherOptions dispatcher;
  std::size_t starters = 4, keepers = 2;
  std::size_t submit_max = 100'000;  // jobs of one call
  std::size_t live_max = 1'000'000;  // jobs that have not ended
  sys::Micros poll_wait = std::chrono::seconds(1);
  sys::Micros nodes_every = std::chrono::seconds(5);
  std::shared_ptr<const crypto::Key> secrets_key;  // seals secrets; none = there are none
  sys::Micros usage_every = std::chrono::minutes(1);
  // Where this machine says what its processors drew, and how much they worked (sys/power.h).
  std::string power_directory = "/sys/class/powercap", stat_file = "/proc/stat";
  std::string hooks_directory;  // of programs that node pools name; "" = `hooks` beside the directories of jobs
};

struct Explanation {
  std::string reason;  // as schedule::Reason says it; "" = it does not wait
  std::string text;    // in words
  std::string behind;  // the job that what is free is promised to
  std::optional<std::int64_t> start_p50_us, start_p90_us, promised_us;
};

struct QueueView {
  std::string name, parent;
  double weight = 1;
  std::int64_t pending = 0, running = 0;
  double cpus = 0, gpus = 0, memory_gib = 0;  // held
};

struct NodeView {
  std::string name, zone, pool, executor;
  bool up = true;
  double cpus = 0, cpus_free = 0, gpus = 0, gpus_free = 0;
  std::int64_t memory_bytes = 0, memory_free_bytes = 0;
};

// Jobs, from their submission to what is left of them. Thread-safe.
class Jobs {
 public:
  static std::span<const sql::Migration> migrations() { return Store::migrations(); }  // and those of Secrets
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    iam::Directory& directory;
    vault::Vault& vault;
    track::Track& track;
    const sys::Clock& clock;
    sys::Random& random;
    Metrics& metrics;
    std::shared_ptr<Bell> bell;  // rung when queues and the like change
  };
  using Executors = std::vector<std::pair<std::string, execute::Executor*>>;  // the first is the default
  // All of them outlive this.
  Jobs(Parts parts, Executors executors, JobsOptions options);
  ~Jobs();
  void start();  // goes on with what was there
  void stop();   // what runs goes on running; idempotent

  // ---- submitting: prepare, then insert in the caller's write
  // Throws invalid with every fault of every job; `place_of` says where a path of the job of that index is.
  std::vector<Record> prepare(const Where& where, const std::string& owner, std::vector<NewJob> jobs,
                              const std::function<std::string(std::size_t, const std::string&)>& place_of);
  void insert(sql::Writer& writer, const std::vector<Record>& records);
  void wish(sql::Writer& writer, const Where& where, const Wish& wish);  // throws not_found

  Secrets& secrets() { return secrets_; }

  // ---- looking
  Record job(const Where& where, JobId id) { return store_.job(where, id); }
  std::vector<Record> list(const Where& where, const ListJobs& which) { return store_.list(where, which); }
  std::vector<Transition> history(JobId id) { return store_.history(id); }
  std::vector<Usage> usage(const iam::Scope& scope, UsageBy by, std::int64_t from_us, std::int64_t until_us) {
    return store_.usage(scope, by, from_us, until_us);
  }
  std::vector<PastJob> past(const iam::Scope& scope, std::int64_t from_us, std::int64_t until_us,
                            const std::string& after, std::size_t limit) {
    return store_.past(scope, from_us, until_us, after, limit);
  }
  std::vector<Counted> waiting(const Where& where) { return store_.waiting(where); }
  std::vector<Counted> failed(const Where& where, std::int64_t since_us) { return store_.failed(where, since_us); }
  Explanation explain(const Record& record);
  std::vector<QueueView> queues(const std::string& tenant);
  std::vector<NodeView> nodes();
  std::vector<PoolView> pools() { return dispatcher_->outlook()->pools; }
  std::vector<PoolEvent> pool_events(const std::string& pool, std::size_t limit) {
    return store_.pool_events(pool, limit);
  }
  // Of an attempt (0 = the newest), waiting up to `wait` for more than `offset`.
  execute::LogPage logs(const Where& where, JobId id, std::int64_t epoch, int rank, std::int64_t offset,
                        std::int64_t bytes_max, sys::Micros wait);

  // Now and then: drops what ended jobs left behind long ago, and jobs that a RetentionPolicy keeps no longer.
  void upkeep();
  std::size_t retain();  // the latter alone; how many went
  // Every few seconds: what running jobs told meanwhile goes into their runs, and when they last saved what they did
  // is known to the dispatcher.
  void follow() EXCLUDES(mu_);

 private:
  class LiveHands;
  void dispatch();                          // the dispatcher's thread
  void watch(const std::string& executor);  // one thread for each executor
  execute::Executor& executor(const std::string& name) const;
  void hand_over(const Record& record, execute::Launch& launch);
  std::shared_ptr<const Rules> rules() EXCLUDES(mu_);
  // `together`: the ids of those that are submitted with it.
  void check_new(const Where& where, const NewJob& job, const Rules& rules, const std::set<std::string>& together,
                 Faults& faults);
  void check_deadline(const Where& where, const std::string& owner, const NewJob& job, const Rules& rules,
                      Faults& faults) EXCLUDES(mu_);
  std::string zone_of(const Where& where) const;
  std::vector<std::pair<std::string, std::int64_t>> quotas(const Where& where) const;
  schedule::Guess guess(const Record& record) EXCLUDES(mu_);
  void learn(const Record& record, const Spent& spent) EXCLUDES(mu_);
  bool stopping() const { return stopping_.load(); }
  void rest(sys::Micros span) EXCLUDES(mu_);
  void drop_logs(const Record& record);
  void remember() EXCLUDES(mu_);
  void follow_also(Record record) EXCLUDES(mu_);
  void store_checkpoint(JobId id) EXCLUDES(mu_);

  const Parts parts_;
  const Executors executors_;
  const JobsOptions options_;
  sys::Ids ids_;
  Store store_;
  Secrets secrets_;
  Launches launches_;
  std::unique_ptr<LiveHands> hands_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;

  Mutex mu_;  // guards everything below
  std::condition_variable stop_asked_;
  schedule::Predictor predictor_ GUARDED_BY(mu_);
  std::set<std::pair<std::string, std::string>> ran_ GUARDED_BY(mu_);  // owners and names of whose run times we know
  bool remembered_ GUARDED_BY(mu_) = false;
  std::shared_ptr<const Rules> rules_ GUARDED_BY(mu_);  // null = read anew for the next who asks
  struct Followed {
    Record record;
    std::int64_t offset = 0;    // of what it told
    std::string stored{};       // of its checkpoint, as Launches::store_checkpoint told
    sys::Micros store_next{0};  // when its checkpoint is stored again
    bool storing = false;       // that is under way
    std::int64_t saved_us = 0;  // when its checkpoint last changed, as the dispatcher knows
  };
  // Jobs that run, and have a run, store checkpoints or may be stopped for others.
  std::map<JobId, Followed> followed_ GUARDED_BY(mu_);
};

}  // namespace falaj::jobs
