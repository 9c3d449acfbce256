// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/base/metrics.h"
#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::models {

// What a RetentionPolicy says, for one project. `archive`: puts runs away that ended longer than `keep` ago. Otherwise:
// removes for good what was deleted longer ago than that, and blobs that are older.
struct RetentionRule {
  std::string policy;                  // "acme/flights/raw-recordings"
  std::string prefix;                  // of paths as the policy sees them: "p/flights/" when it is a tenant's
  std::vector<std::string> resources;  // patterns
  std::int64_t keep_us = 0;
  bool archive = false;
};

// Something a rule may speak of.
struct Candidate {
  std::vector<std::string> paths;  // each of them names it: "run/ID", "experiment/NAME/run/ID"
  bool deleted = false;            // put away before; a blob counts as such from the beginning
  std::int64_t changed_us = 0;     // since when it is as it is
};

// The rule by which the candidate is due at `now_us`; null when it stays. Of several rules of one sort that speak of it
// the longest keeps it: a policy is a promise to keep as much as one to remove.
const RetentionRule* due(std::span<const RetentionRule> rules, const Candidate& candidate, std::int64_t now_us);

struct KeptThing {
  std::string resource, policy, why;
};
struct RetentionReport {
  std::int64_t at_us = 0;
  bool dry_run = false;
  bool more = false;  // the limit was reached: the next pass goes on
  std::int64_t policies = 0;
  std::int64_t archived_runs = 0;
  std::int64_t removed_runs = 0, removed_experiments = 0, removed_models = 0, removed_blobs = 0;
  std::int64_t erased_rows = 0;             // of people, past the retention of their dataset; data::Erasures does it
  std::int64_t files = 0, bytes = 0;        // of what was removed: artifacts, blobs, points
  std::optional<std::int64_t> freed_bytes;  // that the store gave back; unset: it was not collected
  std::int64_t kept = 0;                    // due, but not removed
  std::vector<KeptThing> reasons;           // the first of them
  struct OfPolicy {
    std::string policy;
    std::int64_t archived = 0, removed = 0, bytes = 0;
  };
  std::vector<OfPolicy> by_policy;
};

inline constexpr std::size_t kRetentionPerPass = 10'000, kRetentionReasons = 100;

// Makes RetentionPolicies act. Holds nothing in memory but its place; every removal is a write of its own, so a pass
// that is killed leaves nothing half gone and the next one goes on. Without a policy nothing is removed.
class Retention {
 public:
  struct Parts {
    sql::Database& database;
    const iam::Directory& directory;
    resource::Resources& resources;
    vault::Vault& vault;
    track::Track& track;
    track::LoggedModels& logged_models;
    Metrics& metrics;
  };
  struct Asked {
    iam::Scope scope{};  // only projects within
    bool dry_run = false;
    std::string actor = "system/retention", request_id{};
    std::function<bool()> go_on = [] { return true; };  // asked before every step
  };
  explicit Retention(const Parts& parts) : parts_(parts) {}

  // Everything that is due at `now_us`. Over the whole platform it also has the store collected and is remembered.
  RetentionReport pass(std::int64_t now_us, const Asked& asked);
  // Of the last such pass; nothing when there was none.
  std::optional<RetentionReport> last();

 private:
  const Parts parts_;
};

}  // namespace falaj::models

namespace falaj {
template <>
struct Shape<models::KeptThing> {
  using T = models::KeptThing;
  static constexpr std::string_view name = "KeptThing";
  static Fields fields() {
    return {field("resource", &T::resource, "What."), field("policy", &T::policy, "That would remove it."),
            field("why", &T::why, "Why it stays.")};
  }
};
template <>
struct Shape<models::RetentionReport::OfPolicy> {
  using T = models::RetentionReport::OfPolicy;
  static constexpr std::string_view name = "RetentionOfPolicy";
  static Fields fields() {
    return {field("policy", &T::policy, "Which."), field("archived", &T::archived, "Runs put away because of it."),
            field("removed", &T::removed, "Things removed because of it."), field("bytes", &T::bytes, "They took.")};
  }
};
template <>
struct Shape<models::RetentionReport> {
  using T = models::RetentionReport;
  static constexpr std::string_view name = "RetentionReport";
  static Fields fields() {
    return {
        field("at_us", &T::at_us, "When."),
        field("dry_run", &T::dry_run, "Nothing was done: this is what would be."),
        field("more", &T::more, "There is more than one pass does; the next one goes on."),
        field("policies", &T::policies, "Policies that were looked at."),
        field("archived_runs", &T::archived_runs, "Runs put away; they can be restored."),
        field("removed_runs", &T::removed_runs, "Runs removed for good."),
        field("removed_experiments", &T::removed_experiments, "Experiments removed for good."),
        field("removed_models", &T::removed_models, "Logged models removed for good."),
        field("removed_blobs", &T::removed_blobs, "Blobs whose names were removed."),
        field("erased_rows", &T::erased_rows, "Rows about people that were kept for as long as their dataset says."),
        field("files", &T::files, "Files of what was removed."),
        field("bytes", &T::bytes, "Of those files, blobs and points of metrics."),
        field("freed_bytes", &T::freed_bytes, "That the store gave back; absent when it was not collected."),
        field("kept", &T::kept, "Things that were due but stay."),
        field("reasons", &T::reasons, "Why; the first of them."),
        field("by_policy", &T::by_policy, "The same by policy.")};
  }
};
}  // namespace falaj
