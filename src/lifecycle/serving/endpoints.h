// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/serving/feature_plan.h"
#include "lifecycle/serving/kind.h"
#include "lifecycle/serving/predictions.h"
#include "lifecycle/traffic/plan.h"
#include "storage/sql/database.h"

namespace falaj::serving {

using models::Where;

inline constexpr std::size_t kPastMax = 1'000;                // states that are looked through for one to go back to
inline constexpr std::string_view kInfer = "endpoint.infer";  // what a caller of an endpoint needs

// Why a variant that is declared is not in the plan.
struct Problem {
  std::string endpoint;  // its scope
  std::string variant, what;
};

// How an endpoint was served from some time on.
struct Served {
  std::int64_t number = 0, at_us = 0, revision = 0;
  std::vector<traffic::Variant> variants;
  std::string by, why;
};

// What a serving program says of itself, now and then.
struct VariantReport {
  std::string tenant, project, endpoint, variant;
  std::int64_t version = 0;
  std::string state, reason;  // ready, loading, failed, quarantined
  std::int64_t requests = 0, failures = 0;
  double p50_us = 0, p99_us = 0;
  std::int64_t rows = 0;
  // How often an answer took how long: the number of a bucket of stats::TimeBuckets<4> and its count, in turn.
  std::vector<std::int64_t> latency{};
  std::string outputs{};  // traffic::Sketches of what it predicted, base64; "": nobody compares
};
struct ServerReport {
  std::string server, url, grpc;
  std::string fingerprint;  // of the plan it serves
  std::int64_t resident_bytes = 0;
  std::vector<VariantReport> variants;
  std::int64_t at_us = 0;  // when it came; ours
};

struct ExperimentSeen {
  traffic::ExperimentRule rule;
  std::int64_t since_us = 0;
  std::vector<traffic::ArmSeen> arms;  // the baseline first
};

// Which versions an endpoint serves, as it was last recorded; nothing when it never served.
using ServedVersion = std::pair<std::string, std::int64_t>;  // of a model
std::optional<std::vector<ServedVersion>> versions_of(sql::Reader& reader, const Where& where,
                                                      const std::string& endpoint);
std::vector<std::string> endpoints_of(sql::Reader& reader, const Where& where, const std::string& model,
                                      std::int64_t version);

// Endpoints: what is declared, made into a plan that serving programs follow, and what they say. Thread-safe.
class Endpoints {
 public:
  static std::span<const sql::Migration> migrations();
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    const iam::Directory& directory;
    models::Registry& models;
    models::Promotions& promotions;
    vault::Vault& vault;
    features::Online& online;
    PredictionLog& predictions;
    const sys::Clock& clock;
  };
  // `writes` counts what was ever committed: while it stands still no plan changes.
  Endpoints(Parts parts, std::function<std::int64_t()> writes, Metrics& metrics);

  struct Current {
    std::string fingerprint;
    std::shared_ptr<const traffic::Plan> plan;
    std::vector<Problem> problems;
  };
  Current current();
  // As soon as it is another than `after`, or after `wait_us`, or when `stop` was called.
  Current wait(const std::string& after, std::int64_t wait_us);
  void stop();

  // The ONNX file of a version that is in the plan. Throws not_found.
  std::unique_ptr<blob::ObjectReader> open_model(const std::string& sha256);
  // What opens the rows of a space that the plan names, and whose features those are. Throws not_found, conflict.
  std::pair<traffic::SpaceKeys, PlannedSpace> share(const std::string& space);

  // ---- what is served
  std::vector<Served> history(const Where& where, const std::string& endpoint, std::size_t limit);  // newest first
  std::optional<Served> served_at(const Where& where, const std::string& endpoint, std::int64_t unix_us);
  void report(ServerReport report);
  std::vector<ServerReport> reports() const;  // of those heard of lately

  // ---- changing what is declared; each is a revision of the endpoint
  // Weights of variants by name; those left out keep theirs. `at`: not now but then. Throws not_found, invalid.
  resource::Stored shift(const Where& where, const std::string& endpoint, const ScheduledShift& to, const sql::Act& act,
                         const resource::Authorise& authorise);
  // Declares what was served before, by version. `to`: a number of history, 0: the one before. Throws conflict when
  // nothing was.
  resource::Stored rollback(const Where& where, const std::string& endpoint, std::int64_t to, const sql::Act& act,
                            const resource::Authorise& authorise);

  // How the variants compare so far. Throws not_found, and conflict when the endpoint has no experiment.
  ExperimentSeen experiment(const Where& where, const std::string& endpoint);

  // Looks at what servers say of every endpoint. A canary gets the share of its first step at once, later ones as it
  // does well; an endpoint whose model crashed its server goes back to what it served before. Called now and then.
  void watch();

  static std::int64_t report_life_us() { return 30'000'000; }

 private:
  struct File {  // of a version
    traffic::Statement statement;
    traffic::SignedStatement signed_by_us;
    Where where;
    vault::Entry entry;
  };
  struct Making;
  Current make() REQUIRES(making_);
  void add_endpoint(const resource::Stored& stored, Making& making) REQUIRES(making_);
  const File& file_of(const Where& where, const models::Version& version) REQUIRES(making_);
  void add_watching(traffic::Plan& plan) const;
  void add_callers(traffic::Plan& plan) const;
  void record(const traffic::Plan& plan, const std::map<std::string, resource::Stored>& declared) REQUIRES(making_);
  struct Canary;
  void count(const resource::Stored& stored, const EndpointSpec& spec);
  std::vector<traffic::Arm> arms(const resource::Stored& stored, const EndpointSpec& spec, std::int64_t* since_us);
  void follow_bandit(const resource::Stored& stored, EndpointSpec spec);
  void rescue(const resource::Stored& stored);
  bool follow_schedule(const resource::Stored& stored, EndpointSpec spec);
  resource::Stored restore(const Where& where, const std::string& endpoint, const Served& wanted, const sql::Act& act,
                           const resource::Authorise& authorise, const std::string& why);
  void watch_canary(const resource::Stored& stored, const EndpointSpec& spec);
  void set_share(const resource::Stored& stored, EndpointSpec spec, double percent, bool ends, const std::string& why);
  std::pair<traffic::Observed, traffic::Observed> observed(const resource::Metadata& metadata,
                                                           const EndpointSpec& spec) const;
  resource::Stored declare(resource::Stored stored, const EndpointSpec& spec, sql::Act act,
                           const resource::Authorise& authorise, const std::string& why);

  Parts parts_;
  const std::function<std::int64_t()> writes_;
  Gauge& endpoints_gauge_;

  Mutex making_;                                                                     // one plan at a time; before mu_
  std::map<std::pair<std::int64_t, std::int64_t>, File> files_ GUARDED_BY(making_);  // by model row and version
  std::map<std::string, std::string> recorded_ GUARDED_BY(making_);  // by endpoint: what was recorded last

  mutable Mutex mu_;  // guards everything below
  std::condition_variable changed_;
  std::int64_t seen_writes_ GUARDED_BY(mu_) = -1;
  sys::Micros seen_at_ GUARDED_BY(mu_){0};
  bool settled_ GUARDED_BY(mu_) = false;  // the plan was made a moment after the last write, too
  Current current_ GUARDED_BY(mu_);
  std::map<std::string, std::pair<Where, vault::Entry>> by_digest_ GUARDED_BY(mu_);
  PlannedSpaces spaces_ GUARDED_BY(mu_);
  std::map<std::string, ServerReport> reports_ GUARDED_BY(mu_);
  std::map<std::string, std::string> whys_ GUARDED_BY(mu_);  // by endpoint: of the change that is about to be recorded
  std::map<std::string, std::int64_t> bandits_ GUARDED_BY(mu_);  // by endpoint: when its shares were looked at
  bool stopping_ GUARDED_BY(mu_) = false;
};

}  // namespace falaj::serving
