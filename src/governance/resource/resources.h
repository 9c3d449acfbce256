// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/clock.h"
#include "governance/resource/document.h"
#include "governance/resource/kind.h"
#include "governance/resource/resource.h"
#include "governance/resource/text_cache.h"
#include "storage/sql/database.h"

namespace falaj::resource {

enum class Outcome { created, updated, unchanged, deleted };
std::string_view name(Outcome outcome);

struct Change {
  Outcome outcome = Outcome::unchanged;
  Key key;
  std::int64_t revision = 0;      // it has now; in a plan that was not carried out, the one it had (0 = none)
  std::vector<std::string> diff;  // as resource::diff
};

// Says whether the caller may: nothing when it may, otherwise why not.
using Authorise = std::function<std::optional<std::string>(std::string_view action, const iam::Scope& resource)>;

struct Page {
  std::vector<Stored> items;
  std::string next;  // cursor of the next page; "" = this was the last
};
struct ListOptions {
  std::string tenant, project;  // within these; "" = all
  std::string selector;         // of labels
  std::string cursor;           // from the page before
  std::int64_t limit = 100;     // 1 to 1000
};

// Everything declared, with all its revisions. Thread-safe. A change is all or nothing, in one audited write.
// Errors: invalid with every fault at its place ("roles.yaml:12: spec.rules[0].effect"), denied with every refusal,
// conflict (a revision that is not the current one, or something still needed), not_found.
class Resources {
 public:
  static std::span<const sql::Migration> migrations();

  // Requires: the migrations are applied. All of them outlive this.
  Resources(sql::Database& database, const Registry& registry, const sys::Clock& clock)
      : database_(database), registry_(registry), clock_(clock) {}

  const Registry& registry() const { return registry_; }

  // What apply would change, checked in every way apply checks it. Tenants before projects, and so on.
  std::vector<Change> plan(std::span<const Document> documents, const Authorise& authorise);
  // Declares them: what is not there is created, what differs is updated, what is the same is left alone; when nothing
  // differs nothing is written. `act` needs actor and request_id; verb and resource are filled in when empty:
  // what happened to which resource, or "resource.apply" and the narrowest scope of several.
  std::vector<Change> apply(sql::Act act, std::span<const Document> documents, const Authorise& authorise);
  // Refused with conflict when something that stays needs one of them, naming it. `also` takes away, in the same write,
  // what they would not be removed for.
  std::vector<Change> remove(sql::Act act, std::span<const Key> keys, const Authorise& authorise,
                             const std::function<void(sql::Writer&)>& also = {});
  // Declares again what a revision declared. It becomes a new revision.
  std::vector<Change> rollback(sql::Act act, const Key& key, std::int64_t revision, const Authorise& authorise);

  Stored get(const Key& key);  // throws not_found
  // get(key).json() as text, kept for the next who asks.
  TextCache::Text get_text(const Key& key);
  // Those the caller may read.
  Page list(std::string_view kind, const ListOptions& options, const Authorise& authorise);
  std::vector<Revision> history(const Key& key);  // oldest first; throws not_found
  // YAML of what lies in a scope and the caller may read, which applies cleanly to an empty platform.
  std::string export_yaml(const iam::Scope& scope, const Authorise& authorise);

 private:
  std::vector<Change> carry_out(sql::Writer& writer, const sql::Act& act, std::span<const struct Step> steps,
                                std::int64_t now_us);

  sql::Database& database_;
  const Registry& registry_;
  const sys::Clock& clock_;
  TextCache texts_;
};

}  // namespace falaj::resource
