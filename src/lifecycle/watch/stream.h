// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/watch/look.h"
#include "lifecycle/watch/reference.h"
#include "storage/sql/database.h"

namespace falaj::watch {

using vault::Where;

// Windows of one version behind a variant, as one monitor makes them.
struct Stream {
  std::string tenant, project, monitor, variant;
  std::int64_t version = 0;
  friend auto operator<=>(const Stream&, const Stream&) = default;
};
// Labels, and performance, have windows of their own, of streams that are called like the variant with this behind it.
inline constexpr std::string_view kLabelsOf = " labels", kPerformanceOf = " performance";

inline bool is_labels(const Stream& stream) { return stream.variant.ends_with(kLabelsOf); }

// What evidence was gathered for; by another rule it begins anew. Ends with a space and the endpoint.
std::string rule_of(const MonitorSpec& spec);
// The same without the number of windows and the endpoint.
std::string reference_rule(const MonitorSpec& spec);

inline iam::Scope monitor_scope(const Stream& stream) {
  return iam::Scope::of(stream.tenant, stream.project, "monitor", stream.monitor);
}
inline sql::Act watch_act(const Stream& stream, const char* verb) {
  return {"system/watch", verb, monitor_scope(stream).str(), ""};
}
inline Where where_of(const Stream& stream) {
  return {TenantName::parse(stream.tenant), ProjectName::parse(stream.project)};
}

// What stands goes on under its number; what no longer does has ended.
void write_findings(sql::Writer& w, const Stream& stream, const std::string& endpoint,
                    const std::vector<Finding>& findings, std::int64_t now_us);

// Of windows of a stream, those that are the reference because a time was chosen; none where both are -1.
struct Numbers {
  std::int64_t from = -1, to = -1;
};
Numbers chosen_windows(sql::Reader& r, const Stream& stream, const std::optional<Past>& past);
Numbers chosen_outcomes(sql::Reader& r, const Stream& stream, const std::optional<Past>& past);

// What the model behind a variant was tested on; null where it left nothing, and why not.
struct Trainings {
  resource::Resources& resources;
  models::Registry& models;
  vault::Vault& vault;
};
std::shared_ptr<const Reference> trained_reference(const Trainings& trainings, const Stream& stream,
                                                   const std::string& endpoint, std::string* why_not);

}  // namespace falaj::watch
