// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "foundation/base/error.h"
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

// A rule for one version: another version begins anew.
std::string canary_text(const traffic::CanaryRule& rule, const traffic::Endpoint& planned);

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
  ~Endpoints();

  struct Current {
    std::string fingerprint;
    std::shared_ptr<const traffic::Plan> plan;
    std::vector<Problem> problems;
    std::set<std::string> awaited;  // scopes of endpoints that stay as they were until a new version's file was read
  };
  // Waits for no file: one that was never read is read meanwhile.
  Current current();
  // Tells once, from a thread of its own: as soon as it is another than `after`, or after `wait_us`, or when `stop` was
  // called; or what went wrong. `then` must neither wait nor throw. Throws exhausted.
  using Then = std::function<void(const Current& now, const Error* failed)>;
  void follow(std::string after, std::int64_t wait_us, Then then);
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
  struct Making {  // what a plan is being made of
    Current made;
    traffic::Plan plan;
    std::map<std::string, resource::Stored> declared;  // by scope
    std::map<std::string, std::pair<Where, vault::Entry>> by_digest;
    PlannedSpaces spaces;
    std::map<std::string, std::pair<Where, vault::Entry>> unread;  // by content
  };
  Current make() REQUIRES(making_);
  void add_endpoint(const resource::Stored& stored, Making& making) REQUIRES(making_);
  struct Found {
    const File* file = nullptr;
    std::string trouble;  // why it cannot be read
  };
  Found file_of(const Where& where, const models::Version& version, Making& making) REQUIRES(making_);
  void add_model(const File& file, Making& making) const;
  void keep_as_it_was(traffic::Endpoint endpoint, Making& making) REQUIRES(making_);
  std::string& last_recorded(const traffic::Endpoint& endpoint) REQUIRES(making_);
  std::optional<std::string> known_hash(const Digest& content) const;
  std::optional<std::string> hash_of(const Where& where, const vault::Entry& file);
  std::optional<std::string> next_to_read() REQUIRES(mu_);
  void read_files();
  void tell_followers();
  void add_watching(traffic::Plan& plan) const;
  void add_callers(traffic::Plan& plan) const;
  void record(const traffic::Plan& plan, const std::map<std::string, resource::Stored>& declared) REQUIRES(making_);
  struct Canary;
  std::optional<traffic::Endpoint> planned(const resource::Stored& stored);
  std::vector<traffic::Tally> tallies(const traffic::Endpoint& endpoint) const;
  std::optional<Canary> kept_canary(const resource::Metadata& metadata) const;
  void keep_canary(const resource::Stored& stored, const std::optional<Canary>& canary);
  void meet_servers(const resource::Stored& stored, const traffic::Endpoint& endpoint, Canary& canary);
  void count(const resource::Stored& stored, const EndpointSpec& spec);
  std::vector<traffic::Arm> arms(const resource::Stored& stored, const EndpointSpec& spec, std::int64_t* since_us);
  void follow_bandit(const resource::Stored& stored, EndpointSpec spec);
  bool rescue(const resource::Stored& stored, const EndpointSpec& spec);  // whether it was needed, and done
  bool follow_schedule(const resource::Stored& stored, EndpointSpec spec);
  resource::Stored restore(const Where& where, const std::string& endpoint, const Served& wanted, const sql::Act& act,
                           const resource::Authorise& authorise, const std::string& why);
  void watch_canary(const resource::Stored& stored, const EndpointSpec& spec);
  void set_share(const resource::Stored& stored, EndpointSpec spec, double percent, bool ends, const std::string& why);
  // Of the canary, and of all others together.
  std::pair<traffic::Observed, traffic::Observed> observed(const traffic::Endpoint& endpoint,
                                                           const traffic::CanaryRule& rule,
                                                           const traffic::Tallies& began) const;
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
  bool stopping_ GUARDED_BY(mu_) = false, ending_ GUARDED_BY(mu_) = false;
  struct Follower {
    std::string after;
    sys::Micros until;
    Then then;
  };
  std::vector<Follower> followers_ GUARDED_BY(mu_);
  // Files of declared versions whose hash is not known, by content, and why some cannot be read.
  std::map<std::string, std::pair<Where, vault::Entry>> unread_ GUARDED_BY(mu_);
  std::map<std::string, std::string> unreadable_ GUARDED_BY(mu_);
  sys::Micros read_again_ GUARDED_BY(mu_){0};
  std::int64_t reads_ GUARDED_BY(mu_) = 0, seen_reads_ GUARDED_BY(mu_) = 0;

  std::thread reading_, telling_;  // last: they use all of the above
};

}  // namespace falaj::serving
