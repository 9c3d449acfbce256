// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/flow/probe.h"
#include "lifecycle/flow/store.h"
#include "lifecycle/jobs/workers.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/track/track.h"

namespace falaj::flow {

// What it takes: to begin a run, to stop another's, to say yes.
inline constexpr std::string_view kStartRun = "pipelinerun.create", kCancelRun = "pipelinerun.cancel",
                                  kApproveRun = "pipelinerun.approve";

struct FlowOptions {
  std::size_t workers = 2;  // steps that the control plane does itself, at once; 0 = each on the caller's thread
  sys::Micros look_every = std::chrono::milliseconds(100);  // at what runs wait for
  sys::Micros triggers_every = std::chrono::seconds(2);
};

// Who begins a run, why, and with what.
struct Begin {
  std::string pipeline;
  json::object parameters;
  json::object cause;  // {"by": "user/ada"}, {"trigger": "dataset", "version": 4}
  std::string key;     // the same key of the same pipeline is the same run; "" = a new one
  std::string owner;   // in whose name it acts; "" = who declared the pipeline last
  bool cached = true;  // what was made before may be used again
  std::string request_id;
};

// Pipelines that run. All state is in the database: one write says what happened to a run and does what follows from
// it, so that a kill at any moment neither loses a step nor does one twice. Thread-safe.
class Flow {
 public:
  static std::span<const sql::Migration> migrations() { return Store::migrations(); }
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    const iam::Directory& directory;
    data::Datasets& datasets;
    models::Promotions& promotions;
    track::Track& track;
    Work& work;
    alerts::Alerts& alerts;
    const sys::Clock& clock;
    sys::Random& random;
    Metrics& metrics;
  };
  // All of them outlive this.
  Flow(Parts parts, FlowOptions options);
  ~Flow();
  void start();  // goes on with what was there
  void stop();   // idempotent

  // ---- asking. The caller has the right to.
  // Throws not_found, invalid (parameters), denied (the owner may not), exhausted (too many wait).
  Run start(const Where& where, const Begin& begin);
  // For those who watch: begins a run in the name of who declared the pipeline, once for a key.
  Run start(const Where& where, const std::string& pipeline, const json::object& parameters, json::object cause,
            const std::string& key) {
    return start(where, Begin{pipeline, parameters, std::move(cause), key, "", true, ""});
  }
  Run cancel(const Where& where, const std::string& run, const std::string& why, const sql::Act& act);
  Run resume(const Where& where, const std::string& run, const sql::Act& act);
  // Of a step that asks. `may` are the caller's own names: its principal and groups. Throws conflict, denied.
  Run decide(const Where& where, const std::string& run, const std::string& step, bool approve, const std::string& why,
             const std::vector<std::string>& may, const sql::Act& act);
  // A signed call of a repository's host: `signature` is its X-Hub-Signature-256. It begins one run however often it
  // comes. Throws denied for anything that is not signed by whoever has the secret.
  std::optional<Run> pushed(const Where& where, const std::string& pipeline, const std::string& signature,
                            std::string_view body, const std::function<std::string(const std::string& secret)>& reveal);

  Store& runs() { return store_; }

  // ---- one look at everything; what the thread does again and again
  // When the next is due, in wall time; INT64_MAX = when somebody asks.
  std::int64_t pass();
  std::size_t run_triggers();  // how many runs were begun
  std::size_t forget();        // runs that pipelines do not keep any longer: how many went; called now and then
  void wake() EXCLUDES(mu_);

 private:
  struct Result {
    std::string run, step;
    std::int64_t attempt = 0;
    Work::Acted acted;
  };
  // A run that is looked at, and what its write does besides.
  struct Turn {
    Run& run;
    std::vector<std::function<void(sql::Writer&, Run&)>> with;
    std::vector<std::string> said;  // what changed, for the audit log
    std::vector<Task> acts;         // to be given to workers when it is durable
    std::int64_t wishes = 0;        // seen to, up to this number
    bool changed = false;
  };
  void loop();
  std::int64_t advance(Run& run, const std::vector<Wish>& wishes, std::vector<Result> results);
  void admit(Turn& turn);
  void grant(Turn& turn, const std::vector<Wish>& wishes);
  void hold(Turn& turn);
  void take(Turn& turn, std::vector<Result>& results);
  void look(Turn& turn);
  std::int64_t go_on(Turn& turn);
  void begin_step(Turn& turn, const std::string& id);
  void ended(Turn& turn, const std::string& id, const Done& done);
  void commit(Turn& turn);
  void close_tracking(const Run& run);
  std::string open_tracking(const Run& run);
  void tell_to_stop(const Run& run, const std::string& step);
  std::string broken(const Where& where, const PipelineSpec& spec) const;
  Task task_of(const Run& run, const Instance& instance) const;
  void give(const Task& task) EXCLUDES(mu_);
  bool over_budget(const Run& run, std::string& why);
  void count(const RunLife& before, const RunLife& after);

  // Something that a trigger listens to. They are seen in the order of `number`, which the pipeline's cursor keeps.
  struct Happened {
    std::int64_t number = 0;
    json::object facts;
  };
  std::size_t trigger(const resource::Stored& stored, const PipelineSpec& spec, std::size_t which, std::int64_t now_us);
  std::vector<Happened> happened(const resource::Stored& stored, const TriggerSpec& trigger,
                                 std::optional<std::int64_t> seen, std::int64_t not_before_us, std::int64_t now_us);
  bool begin_triggered(const resource::Stored& stored, const PipelineSpec& spec, const TriggerSpec& trigger,
                       const Happened& cause, const std::string& cursor);
  Run make_run(const Where& where, const Begin& begin, const resource::Stored& stored);
  void check_owner(const Where& where, const std::string& owner) const;

  const Parts parts_;
  const FlowOptions options_;
  Probe probe_;
  Store store_;
  sys::Ids ids_;
  std::unique_ptr<jobs::Workers> workers_;
  std::thread thread_;

  // The thread's own.
  std::map<std::string, Run> runs_;     // those that have not ended, as they are stored
  std::set<std::string> told_to_stop_;  // tickets
  sys::Micros triggers_due_{0};

  Mutex mu_;  // guards everything below
  std::condition_variable changed_;
  std::vector<Result> results_ GUARDED_BY(mu_);
  std::set<std::string> under_way_ GUARDED_BY(mu_);  // tasks that workers have
  bool awake_ GUARDED_BY(mu_) = false;
  bool stopping_ GUARDED_BY(mu_) = false;
};

// Of everything that a step's outputs depend on.
std::string key_of(const std::string& kind, const json::value& body, const json::value& depends);

}  // namespace falaj::flow
