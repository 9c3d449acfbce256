// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "lifecycle/jobs/groups.h"
#include "lifecycle/jobs/probe.h"
#include "lifecycle/jobs/rules.h"
#include "lifecycle/jobs/store.h"
#include "lifecycle/schedule/forecast.h"
#include "lifecycle/schedule/plan.h"
#include "lifecycle/schedule/state.h"

namespace falaj::jobs {

using schedule::Micros;

// What carries the dispatcher's decisions out. Calls return at once; what came of them is told with Dispatcher::tell.
class Hands {
 public:
  virtual ~Hands() = default;
  virtual void start(const Record& record) = 0;  // answered by Started
  // Not answered: asked again until the attempt is reported to have ended.
  virtual void stop(const std::string& executor, const std::string& attempt, Micros grace) = 0;
  virtual void forget(const std::string& executor, const std::string& attempt) = 0;
  virtual void keep(const Record& record) = 0;  // answered by KeptAll
  virtual void tidy(const Record& record) = 0;
  virtual void scale(const PoolOrder& order) = 0;  // answered by Scaled
};

// ---- what the dispatcher is told
struct Submitted {
  std::vector<Record> records;  // durable
};
struct Wished {
  Wish wish;  // durable
};
struct Started {
  JobId job;
  std::int64_t epoch = 0;
  std::string run_id;
  std::optional<Error> problem;  // it was not
  bool asked = true;             // the executor was: what it refuses it does not run
};
struct KeptAll {
  JobId job;
  std::int64_t epoch = 0;
  std::string problem;
};
struct Seen {
  std::string executor;
  std::vector<execute::Report> reports;  // all it knows
};
struct NodesSeen {
  std::string executor;
  std::vector<execute::Node> nodes;  // all it has
};
struct UsedSeen {  // what attempts that run have taken so far
  std::string executor;
  std::vector<std::pair<std::string, Micros>> cpu;  // by attempt
  double joules_per_cpu_second = 0;                 // of its machine; 0: nobody counts
};
struct Saved {  // the checkpoint of an attempt that runs has changed
  JobId job;
  std::int64_t epoch = 0, at_us = 0;
};
struct RulesChanged {};
// When could this start at the earliest? Answered at once by the stepping thread.
struct Asked {
  Record record;
  std::shared_ptr<std::promise<schedule::Guess>> answer;
};
using News =
    std::variant<Submitted, Wished, Started, KeptAll, Seen, NodesSeen, RulesChanged, UsedSeen, Saved, Scaled, Asked>;

// What the dispatcher last knew, for whoever looks. Immutable.
struct Outlook {
  Micros at{0};
  std::shared_ptr<const std::vector<schedule::Wait>> waits = std::make_shared<std::vector<schedule::Wait>>();
  std::vector<schedule::Promised> promised;
  std::vector<schedule::Node> nodes;
  std::vector<schedule::Amounts> free;  // of each node
  struct QueueState {
    schedule::Queue queue;
    schedule::Amounts held;
    std::int64_t pending = 0, running = 0;
  };
  std::vector<QueueState> queues;
  std::vector<PoolView> pools;
  std::size_t pending = 0, running = 0;
};

struct DispatcherOptions {
  schedule::Policy policy;
  schedule::StateRules rules;
  Micros start_wait = std::chrono::seconds(1);  // before an executor that did not answer is asked again; doubles
  Micros start_wait_max = std::chrono::minutes(1);
  Micros stop_wait = std::chrono::seconds(15);  // beyond the grace, before it is told again to stop
  Micros grow_wait = std::chrono::minutes(5);   // an elastic job runs for so long before it is stopped to be more tasks
  // A job that uses less than this part of the processors it holds for so long is told of.
  double idle_below = 0.05;
  Micros idle_after = std::chrono::minutes(30);
  Micros pools_every = std::chrono::seconds(10);  // between looks at whether pools should grow or shrink
  std::size_t news_per_step = 4096;
};

// The only one that changes lives of jobs. A step takes what it was told, decides, makes all of it durable in one write
// and only then has it carried out; so whatever ends this program, what the database says is what was begun, and
// load() goes on from there.
//
// tell, outlook and wait are thread-safe; load and step belong to one thread.
class Dispatcher {
 public:
  using ReadRules = std::function<Rules()>;
  // The limits on jobs at once that hold in a project, by what they are called.
  using ReadQuotas = std::function<std::vector<std::pair<std::string, std::int64_t>>(const Where&)>;
  using ZoneOf = std::function<std::string(const Where&)>;  // of a project
  using GuessRun = std::function<schedule::Guess(const Record&)>;
  struct Parts {
    Book& book;
    Hands& hands;
    const sys::Clock& clock;
    Metrics& metrics;
    ReadRules rules;
    ReadQuotas quotas;
    ZoneOf zone;
    GuessRun guess;
    std::function<void(const Record&, const Spent&)> learn;
  };
  explicit Dispatcher(Parts parts, DispatcherOptions options = {});

  void tell(News news) EXCLUDES(mu_);
  // Until there is news, or that wall time, or wake().
  void wait(Micros until) EXCLUDES(mu_);
  void wake() EXCLUDES(mu_);
  std::shared_ptr<const Outlook> outlook() const EXCLUDES(mu_);
  // When a job that is not submitted yet could start at the earliest (p50), were it the next in line, and how long it
  // would run (p90). Nothing when it cannot be told, or not in time.
  std::optional<schedule::Guess> earliest(const Record& record, Micros patience) EXCLUDES(mu_);
  // When a job that waits will probably start, as wall times; nothing as long as too little is known to tell.
  std::optional<schedule::Guess> start_of(JobId job) const EXCLUDES(mu_);

  // Reads everything again: at the start, and after a step that threw. Requires: executors report all they know again.
  void load();
  // Returns the wall time at which to look again. Throws what the database throws: then load() again.
  Micros step();

  // For tests: what is believed to be where.
  const schedule::State& state() const { return state_; }
  std::size_t live() const { return live_.size(); }

 private:
  struct Live {
    Record record;
    std::set<std::string> waits_for;  // jobs and arrays that must have ended first
    std::vector<std::string> groups;  // whose room it takes
    bool grouped = false;             // it has it
    std::string held;
    Micros start_again = schedule::kNever, stop_again = schedule::kNever, timer = schedule::kNever;
    int tries = 0;
    bool acknowledged = false;
    bool ambiguous = false;  // the executor may have it without having said so
    int missing = 0;         // reports in a row that did not have it though it was acknowledged
    int absent = 0;          // reports in a row that did not have it
    std::optional<std::size_t> change;
    std::optional<std::pair<Micros, Micros>> cpu;  // taken by its newest attempt, and when that was seen
    Micros idle_from = schedule::kNever;           // it hardly took any since
    bool in_need = false;                          // it may use nodes of burst pools
  };

  // What is done once the step is durable; of an attempt as it was named when this was decided.
  struct Deed {
    JobId job;
    Effect effect;
    std::string executor, attempt;
  };

  std::vector<News> take_news() EXCLUDES(mu_);
  void take(Submitted&& news);
  void take(Wished&& news);
  void take(Started&& news);
  void take(KeptAll&& news);
  void take(Seen&& news);
  void take(NodesSeen&& news);
  void take(RulesChanged&& news);
  void take(UsedSeen&& news);
  void take(Saved&& news);
  void take(Scaled&& news);
  void take(Asked&& news);

  Live* find(JobId id);
  Live& add(Record record);
  void enter(Live& live);  // into the state, as it was stored
  void apply(Live& live, const Event& event);
  void follow(Live& live, Phase was, bool was_stopping);  // with the state, what its life did
  void ended(Live& live);
  Change& change_of(Live& live);
  std::optional<std::string> doom_of(Live& live);  // why it can never begin
  void consider(Live& live);                       // whether anything still holds it
  void arm(Live& live);
  void foretell(Live& live);
  void foretold(Live& live);  // it starts
  void look_at_timers();
  void look_at_pools();
  double cost_of(const Record& record, const Spent& spent) const;
  void plan();
  void begin(const schedule::Start& start);
  void grow(const schedule::Resize& resize);
  void write();
  void act();
  void publish();
  schedule::Job job_of(const Live& live) const;
  schedule::Placement placement_of(const Record& record) const;
  void restore(Live& live);
  void make_up_nodes(const std::vector<Record>& records);
  void set_queues();
  std::vector<Place> places_of(const schedule::Placement& placement) const;
  void plan_deed(const Live& live, Effect effect);
  void refuse_stray(const std::string& executor, const execute::Report& report);
  void let_go(Live live);  // one that has ended
  void refresh_nodes(const std::string& executor);
  void refresh_jobs();

  Book& book_;
  Hands& hands_;
  const sys::Clock& clock_;
  const Parts parts_;
  const DispatcherOptions options_;
  Probe probe_;

  // The stepping thread's own:
  Micros now_{0};
  Rules rules_;
  schedule::State state_;
  std::unordered_map<JobId, Live> live_;
  std::unordered_map<std::string, std::set<JobId>> dependents_;  // by the job or array they wait for
  std::unordered_map<std::string, std::size_t> members_;         // that have not ended, by array
  Groups groups_;
  std::set<JobId> placed_;
  std::map<std::string, std::vector<execute::Node>> nodes_;  // by executor
  bool restoring_ = false;
  std::set<std::string> awaited_;      // executors whose nodes were made up, as they have not said yet what they have
  std::map<std::string, bool> zoned_;  // by executor: its nodes say where they are
  std::map<std::string, double> joules_per_cpu_second_;  // by executor
  std::set<std::pair<Micros, JobId>> timers_;
  std::vector<Change> changes_;
  std::vector<JobId> changed_;  // of each change
  std::vector<Deed> deeds_;
  std::vector<JobId> gone_;
  Pools pools_;
  std::vector<PoolOrder> orders_;
  Micros pools_due_{0};
  bool bursts_ = false;  // there is a pool that only jobs in need may use
  bool plan_due_ = true;
  Micros look_again_ = schedule::kNever;
  std::shared_ptr<const std::vector<schedule::Wait>> waits_;
  std::vector<schedule::Promised> promised_;
  schedule::StartForecast forecast_;
  Micros published_{0};

  mutable Mutex mu_;  // guards everything below
  std::condition_variable told_;
  std::vector<News> news_ GUARDED_BY(mu_);
  // By executor: only the newest of what it said counts, so that what waits stays small while nothing can be written.
  std::map<std::string, Seen> seen_ GUARDED_BY(mu_);
  std::map<std::string, NodesSeen> nodes_seen_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;
  std::shared_ptr<const Outlook> outlook_ GUARDED_BY(mu_);
  std::unordered_map<JobId, schedule::Guess> starts_ GUARDED_BY(mu_);
};

}  // namespace falaj::jobs
