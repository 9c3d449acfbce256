// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/kinds.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace falaj::jobs {
namespace {

using resource::Key;
using resource::Metadata;
using resource::Reference;
using resource::World;

// A tenant's queue is a part of one of its own, or of the platform's: what the platform gives it is not its to widen.
Key parent_key(const World& world, const Metadata& metadata, const std::string& parent) {
  const Key own{"Queue", metadata.tenant, "", parent};
  if (metadata.tenant.empty() || (parent != metadata.name && world.spec(own))) return own;
  return {"Queue", "", "", parent};
}

void check_queue(const World& world, const Metadata& metadata, const QueueSpec& spec, Faults& faults) {
  if (!metadata.tenant.empty() && spec.parent.empty())
    faults.push_back({"spec.parent", "required: a tenant's queue is a part of one of the platform's"});
  if (!metadata.tenant.empty() && !spec.tenants.empty())
    faults.push_back({"spec.tenants", "only for queues of the platform"});
  if (spec.weight <= 0) faults.push_back({"spec.weight", "must be above 0"});
  std::set<Key> seen{{"Queue", metadata.tenant, "", metadata.name}};
  Metadata at = metadata;
  for (std::string parent = spec.parent; !parent.empty();) {
    const auto key = parent_key(world, at, parent);
    if (!seen.insert(key).second) {
      faults.push_back({"spec.parent", fmt::format("'{}' is below this queue itself", spec.parent)});
      return;
    }
    const auto above = world.spec(key);
    if (!above) return;  // said by refers_to
    const auto of = decode<QueueSpec>(*above, "queue");
    if (key.tenant.empty() && !metadata.tenant.empty() && !of.tenants.empty() &&
        std::find(of.tenants.begin(), of.tenants.end(), metadata.tenant) == of.tenants.end())
      faults.push_back({"spec.parent", fmt::format("queue '{}' is not for tenant '{}'", key.name, metadata.tenant)});
    at.tenant = key.tenant;
    at.name = key.name;
    parent = of.parent;
  }
}

void check_pool(const World&, const Metadata&, const NodePoolSpec& spec, Faults& faults) {
  const bool scaled = spec.scaling != "fixed";
  if (scaled && spec.nodes_max < std::max<std::int64_t>(spec.nodes_min, 1))
    faults.push_back({"spec.max", "must be at least 1, and at least spec.min"});
  if (!scaled && (spec.nodes_min > 0 || spec.nodes_max > 0))
    faults.push_back({"spec.scaling", "fixed nodes neither come nor go: spec.min and spec.max need hooks or slurm"});
  if ((spec.scaling == "hooks") != spec.hooks.has_value())
    faults.push_back({"spec.hooks", "required with scaling: hooks, and only there"});
  if (spec.scaling == "hooks" && !spec.shape)
    faults.push_back({"spec.shape", "required with scaling: hooks: what a node that is not there yet will have"});
}

std::vector<Reference> above_queue(const World& world, const Metadata& metadata, const QueueSpec& spec) {
  if (spec.parent.empty()) return {};
  return {{parent_key(world, metadata, spec.parent), "spec.parent"}};
}

void check_schedule(const World&, const Metadata&, const ScheduleSpec& spec, Faults& faults) {
  Faults of_job;
  check(spec.job, of_job);
  for (auto& fault : of_job) faults.push_back({"spec.job" + fault.where.substr(4), std::move(fault.what)});
  if (!spec.job.deadline.empty() || !spec.job.not_before.empty())
    faults.push_back({"spec.job", "a fixed deadline or notBefore does not go with a schedule"});
}

template <class Spec>
resource::Kind ringing(resource::KindOf<Spec> kind, const std::shared_ptr<Bell>& bell) {
  kind.changed = [bell](const resource::ChangeOf<Spec>& change) {
    change.writer.after_commit([bell] { bell->ring(); });
  };
  return resource::make_kind(std::move(kind));
}

}  // namespace

void Bell::set(std::function<void()> ring) {
  Lock lock(mu_);
  ring_ = std::move(ring);
}
void Bell::ring() {
  Lock lock(mu_);
  if (ring_) ring_();
}

std::vector<resource::Kind> job_kinds(std::shared_ptr<Bell> bell) {
  resource::KindOf<QueueSpec> queue{"Queue",
                                    "queues",
                                    "Where jobs wait, and what they may hold together.",
                                    {.platform = true, .tenant = true},
                                    check_queue,
                                    above_queue,
                                    {}};
  resource::KindOf<PriorityClassSpec> priority{
      "PriorityClass", "priorityclasses", "How urgent jobs are.", {.platform = true}, {}, {}, {}};
  resource::KindOf<NodePoolSpec> pool{"NodePool",
                                      "nodepools",
                                      "Nodes of one sort: where they are and what they cost.",
                                      {.platform = true},
                                      check_pool,
                                      [](const World&, const Metadata&, const NodePoolSpec& spec) {
                                        if (spec.zone.empty()) return std::vector<Reference>{};
                                        return std::vector<Reference>{{{"Zone", "", "", spec.zone}, "spec.zone"}};
                                      },
                                      {}};
  resource::KindOf<ScheduleSpec> schedule{
      "Schedule", "schedules", "A job that is submitted again and again.", {.project = true}, check_schedule, {}, {}};
  return {ringing(std::move(queue), bell), ringing(std::move(priority), bell), ringing(std::move(pool), bell),
          ringing(std::move(schedule), bell)};
}

}  // namespace falaj::jobs
