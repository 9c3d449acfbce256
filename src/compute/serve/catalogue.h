// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compute/infer/batch.h"
#include "compute/infer/model.h"
#include "compute/serve/answer_cache.h"
#include "compute/serve/counts.h"
#include "compute/serve/features.h"
#include "compute/serve/watching.h"
#include "foundation/base/bytes.h"
#include "foundation/sys/clock.h"
#include "lifecycle/traffic/plan.h"

namespace falaj::serve {

struct LogLayout;

// How urgent a request may be, 1 the most; those that do not say are in the middle.
inline constexpr std::uint32_t kPriorities = 5;
inline constexpr std::uint8_t kPriorityDefault = 2;  // of infer::Request, which counts from 0

// A model in memory, shared by every variant of its bytes. Or what is known of one that sleeps.
struct Held {
  std::string sha256;
  std::shared_ptr<const infer::Model> model;  // null: it sleeps
  std::vector<graph::Port> inputs, outputs;
  bool rows_first = false;
  double call_us = 0;                                                  // of its second call ever
  std::int64_t since_us = 0;                                           // when it was loaded; since 1970
  std::unordered_map<std::string, std::uint16_t> input_of, output_of;  // places by name
};

// One variant of an endpoint that is ready to answer.
struct ServedVariant {
  traffic::Variant plan;
  std::shared_ptr<const Held> held;
  std::shared_ptr<Counts> counts;  // goes on as long as endpoint, variant and version stay the same
  infer::BatchRule rule;
  infer::Micros target_p99{0};             // 0: none; else the rule is the server's to find
  std::uint32_t instances_max = 0;         // calls at the same time; 0: as many as there are threads
  std::uint32_t slot = 0;                  // of its queues in the lanes: one for each endpoint, variant and version
  std::string name_ending{};               // of what its predictions are called, after the id
  std::string version_text{};              // of plan.version, as answers say it
  std::shared_ptr<WatchStream> watched{};  // null: nobody watches
  std::shared_ptr<AnswerCache> cache{};    // null: nothing is kept
  std::shared_ptr<ComparedOutputs> compared{};  // null: nobody compares
};

// A variant that the plan names and that cannot be served; perhaps the version before is in its place.
struct AwayVariant {
  std::string name;
  std::int64_t version = 0;
  std::string state;  // failed, unfetched, quarantined
};

struct ServedEndpoint {
  traffic::Endpoint plan;
  std::string full_name;                             // "tenant.project.name"
  std::shared_ptr<const EndpointFeatures> features;  // null: rows say everything
  std::vector<ServedVariant> variants;               // ready ones, in the plan's order
  std::vector<traffic::Variant> weights;             // of `variants`: what traffic::choose reads
  std::vector<AwayVariant> away;
  std::shared_ptr<const LogLayout> log;  // how predictions are written down; null: they are not
};

struct KnownCaller {
  Digest secret_hash;
  std::int64_t expires_us = 0;
  std::vector<std::uint32_t> endpoints;  // places in Catalogue::endpoints
  std::vector<std::uint32_t> explains;   // of those, where it may see features that were looked up
};

// Everything that requests are answered from. Published whole, and immutable from then on.
struct Catalogue {
  std::uint64_t number = 0;  // counts up; given when it is published
  std::string fingerprint;   // of the plan it was made of
  std::vector<ServedEndpoint> endpoints;
  std::unordered_multimap<std::string, std::uint32_t> by_name;  // "name", "project.name" and "tenant.project.name"
  std::unordered_map<std::string, KnownCaller> callers;         // by id of the token
};

// Takes from callers what they may no longer do.
void revoke(Catalogue& catalogue, const std::vector<traffic::Revoked>& what);

// "tenant.project.endpoint/variant"
std::string name_of(const ServedEndpoint& endpoint, const ServedVariant& variant);

// What a variant is doing, for reports.
struct VariantState {
  std::string tenant, project, endpoint, variant;
  std::int64_t version = 0;
  std::string state, reason;
};

// Makes catalogues of plans. A version that cannot be loaded does not take the one before it away: the variant goes on
// with what it had. Not thread-safe: one thread loads.
class Loader {
 public:
  // The bytes of a model by their digest, verified; and models that must not be loaded again, by why.
  struct Source {
    std::function<Bytes(const std::string& sha256)> bytes;
    std::map<std::string, std::string> quarantined;
    std::map<std::string, std::string> unfetched;  // models that are not on this machine, by why
    FeatureStore features;
    std::set<std::string> asleep{};  // variants (name_of) that need not be in memory, when they were once
  };
  Loader(infer::Runtime runtime, infer::LoadOptions options, const sys::Clock& clock)
      : runtime_(std::move(runtime)), options_(options), clock_(clock) {}

  std::shared_ptr<Catalogue> make(const traffic::Plan& plan, const Catalogue* before, const Source& source);
  const std::vector<VariantState>& states() const { return states_; }

  // Does the reading and loading, so that whoever watches knows what was loaded when the process ended.
  std::function<void(const std::string& sha256, const std::function<void()>& load)> around_loading;

 private:
  std::shared_ptr<const Held> hold(const std::string& sha256, const Source& source);
  std::shared_ptr<const Held> hold_or_keep(const ServedEndpoint& endpoint, ServedVariant& served,
                                           const ServedVariant* same, const Source& source, VariantState& state);
  void warm_up(Held& held) const;
  void find_features(ServedEndpoint& endpoint, const ServedEndpoint* before, const FeatureStore& store);
  void lay_out_log(ServedEndpoint& endpoint);
  void watch(ServedEndpoint& endpoint, const ServedEndpoint* before) const;

  infer::Runtime runtime_;
  infer::LoadOptions options_;
  const sys::Clock& clock_;
  std::map<std::string, std::weak_ptr<const Held>> held_;
  std::vector<VariantState> states_;
  std::uint32_t next_slot_ = 1;
};

}  // namespace falaj::serve
