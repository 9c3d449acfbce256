// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/features/online.h"
#include "lifecycle/flow/gate.h"
#include "lifecycle/flow/work.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/track/track.h"

namespace falaj::flow {

inline constexpr std::string_view kCanaryTicket = "canary/";

// The job that carries out a training; known to who knows trainings. Throws invalid.
using MakeTraining = std::function<jobs::NewJob(const Where& where, const std::string& name, const json::value& spec)>;
// How far what a monitor sees now is from what a version was tested on; known to who watches.
using DriftNow = std::function<DriftSeen(const Where& where, const std::string& monitor, const std::string& model,
                                         std::int64_t version)>;

// What steps do on this platform, in the name of whoever began their run, as long as they may. Thread-safe.
class Steps final : public Work {
 public:
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    const iam::Directory& directory;
    vault::Vault& vault;
    data::Datasets& datasets;
    features::Online& online;
    track::Track& track;
    models::Registry& models;
    models::Promotions& promotions;
    jobs::Jobs& jobs;
    serving::Endpoints& endpoints;
    const sys::Clock& clock;
  };
  struct Asks {  // of others
    MakeTraining training;
    DriftNow drift;
  };
  // `version`: of our programs. What they make depends on it.
  Steps(Parts parts, Asks asks, std::string version)
      : parts_(parts), asks_(std::move(asks)), version_(std::move(version)) {}

  Settled settle(const Task& task) override;
  Job submit(const Task& task) override;
  Acted act(const Task& task) override;
  std::optional<Done> look(const Task& task, const std::string& ticket) override;
  void stop(const Task& task, const std::string& ticket, const std::string& why) override;
  bool is_there(const Where& where, std::string_view kind, const json::value& outputs) override;
  Spent spent(const Where& where, const std::vector<std::string>& tickets, std::int64_t since_us) override;

 private:
  // ---- job_steps.cc
  jobs::NewJob job_of(const Task& task) const;
  Settled settle_job(const Task& task) const;
  json::value digest_of_input(const Task& task, const jobs::InputSpec& input) const;
  Done ended(const Task& task, const jobs::Record& record);
  void adopt(const Task& task, const std::string& run_id) EXCLUDES(mu_);

  // ---- data_steps.cc
  Settled settle_sql(const Task& task) const;
  Settled settle_train_set(const Task& task) const;
  Settled settle_ingest(const Task& task) const;
  Settled settle_check(const Task& task) const;
  Done run_sql(const Task& task) const;
  Done make_train_set(const Task& task) const;
  Done ingest(const Task& task) const;
  Done check(const Task& task) const;
  std::vector<std::pair<std::string, data::ExpectationSpec>> expectations_of(const Task& task,
                                                                             const std::string& dataset) const;
  void declare_dataset(const Task& task, const std::string& name, const table::Schema& schema) const;
  data::Version pinned(const Task& task, const std::string& name) const;
  vault::Entry source_of(const Task& task) const;

  // ---- model_steps.cc
  struct Judged {
    GateBody gate;
    std::vector<VersionSeen> versions;
    std::optional<VersionSeen> against;
  };
  Judged evidence(const Task& task) const;
  VersionSeen seen_of(const Task& task, const GateBody& gate, std::int64_t version) const;
  LatencySeen latency_of(const Task& task, const std::string& endpoint, const std::string& model,
                         std::int64_t version) const;
  std::map<std::string, double> metrics_of(const Where& where, const std::string& run_id) const;
  Settled settle_gate(const Task& task) const;
  Settled settle_promote(const Task& task) const;
  Settled settle_deploy(const Task& task) const;
  Acted promote(const Task& task) const;
  Done deploy(const Task& task) const;
  std::optional<Done> look_at_canary(const Task& task, const std::string& ticket) const;
  void take_canary_back(const Task& task, const std::string& ticket, const std::string& why) const;

  // Throws denied unless the owner may, now.
  void require(const Task& task, std::string_view action, const iam::Scope& scope) const;
  void require(const Task& task, std::string_view action) const { require(task, action, task.where.scope()); }
  resource::Authorise authorise(const Task& task) const;
  iam::Identity identity_of(const Task& task) const;
  static sql::Act act_of(const Task& task, std::string_view verb);
  static iam::Scope scope_of(const Task& task, std::string_view kind, const std::string& name);

  const Parts parts_;
  const Asks asks_;
  const std::string version_;

  Mutex mu_;
  std::set<std::string> adopted_ GUARDED_BY(mu_);  // runs that know whose children they are
};

}  // namespace falaj::flow
