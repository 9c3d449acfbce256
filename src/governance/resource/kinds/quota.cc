// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct QuotaSpec {
  std::string tenant, project;
  std::optional<std::int64_t> blob_bytes, blob_objects, requests_per_second, concurrent_jobs;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::QuotaSpec> {
  using S = resource::QuotaSpec;
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  static constexpr std::string_view name = "QuotaSpec";
  static Fields fields() {
    return {field("tenant", &S::tenant, "The tenant it limits, when the quota belongs to the platform.")
                .text({is_name, kNameRule}),
            field("project", &S::project, "The project it limits, when the quota belongs to a tenant.")
                .text({is_name, kNameRule}),
            field("blobBytes", &S::blob_bytes, "Bytes stored.").bytes().range(0, kMost),
            field("blobObjects", &S::blob_objects, "Objects stored.").range(0, kMost),
            field("requestsPerSecond", &S::requests_per_second, "API calls a second, on average, of each principal.")
                .range(1, 1'000'000),
            field("concurrentJobs", &S::concurrent_jobs, "Jobs running at the same time.").range(0, 1'000'000)};
  }
};

namespace falaj::resource {
namespace {

// Whoever is limited must not be the one who declares the limit, so it belongs to the level above.
void check_quota(const World&, const Metadata& metadata, const QuotaSpec& spec, Faults& faults) {
  const bool of_platform = metadata.tenant.empty();
  if (of_platform && spec.tenant.empty())
    faults.push_back({"spec.tenant", "required: a quota of the platform limits a tenant"});
  if (of_platform && !spec.project.empty())
    faults.push_back({"spec.project", "a quota of the platform limits a whole tenant; declare this one in the tenant"});
  if (!of_platform && spec.project.empty())
    faults.push_back({"spec.project", "required: a quota of a tenant limits one of its projects"});
  if (!of_platform && !spec.tenant.empty())
    faults.push_back({"spec.tenant", "only for quotas of the platform: leave out metadata.tenant to limit a tenant"});
  if (!spec.blob_bytes && !spec.blob_objects && !spec.requests_per_second && !spec.concurrent_jobs)
    faults.push_back({"spec", "must limit something: blobBytes, blobObjects, requestsPerSecond or concurrentJobs"});
}

}  // namespace

Kind quota_kind(iam::Directory& directory) {
  KindOf<QuotaSpec> kind{"Quota",
                         "quotas",
                         "What a tenant or a project may use; declared one level above what it limits.",
                         {.platform = true, .tenant = true},
                         {},
                         {},
                         {}};
  kind.check = check_quota;
  kind.refers_to = [](const World&, const Metadata& metadata, const QuotaSpec& spec) {
    std::vector<Reference> out;
    if (!spec.tenant.empty()) out.push_back({{"Tenant", "", "", spec.tenant}, "spec.tenant"});
    if (!spec.project.empty()) out.push_back({{"Project", metadata.tenant, "", spec.project}, "spec.project"});
    return out;
  };
  kind.changed = [&directory](const ChangeOf<QuotaSpec>& c) {
    const auto& m = c.metadata;
    if (!c.after) return directory.remove<iam::Quota>(c.writer, iam::owned_name(m.tenant, m.name));
    const auto scope =
        m.tenant.empty() ? iam::Scope::of_tenant(c.after->tenant) : iam::Scope::of_project(m.tenant, c.after->project);
    directory.put(c.writer, iam::Quota{m.tenant, m.name, scope, c.after->blob_bytes, c.after->blob_objects,
                                       c.after->requests_per_second, c.after->concurrent_jobs});
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
