// SPDX-License-Identifier: Apache-2.0
// queues, nodes and what jobs used

#include <fmt/format.h>

#include "api/call.h"
#include "api/project.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::api {
namespace {

constexpr std::int64_t kUsageDefaultUs = std::int64_t{30} * 86'400 * 1'000'000;
constexpr std::string_view kUsageBys[] = {"tenant", "project", "owner", "queue", "job"};

struct QueuesOut {
  std::vector<jobs::QueueView> items;
};
struct NodesOut {
  std::vector<jobs::NodeView> items;
};
struct UsageIn {
  std::string by = "project", since, until;
};
struct UsageOut {
  std::string by, since, until;
  std::vector<jobs::Usage> items;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<jobs::QueueView> {
  using T = jobs::QueueView;
  static constexpr std::string_view name = "QueueView";
  static constexpr auto fields = std::make_tuple(
      field("name", &T::name, "Its name; with its tenant when it is a tenant's."),
      field("parent", &T::parent, "What it is a part of."), field("weight", &T::weight, "Its share."),
      field("pending", &T::pending, "Jobs that wait in it."), field("running", &T::running, "Jobs that hold a place."),
      field("cpus", &T::cpus, "Processors they hold, with those of queues below."),
      field("gpus", &T::gpus, "GPUs they hold."), field("memory_gib", &T::memory_gib, "Memory they hold."));
};
template <>
struct Shape<QueuesOut> {
  static constexpr std::string_view name = "QueueViews";
  static constexpr auto fields = std::make_tuple(field("items", &QueuesOut::items, "All that the project may use."));
};
template <>
struct Shape<jobs::NodeView> {
  using T = jobs::NodeView;
  static constexpr std::string_view name = "NodeView";
  static constexpr auto fields = std::make_tuple(
      field("name", &T::name, "Its name."), field("zone", &T::zone, "Where it is."),
      field("pool", &T::pool, "Its pool."), field("executor", &T::executor, "Who runs jobs there."),
      field("up", &T::up, "Whether it takes jobs."), field("cpus", &T::cpus, "Processors."),
      field("cpus_free", &T::cpus_free, "That no job holds."), field("gpus", &T::gpus, "GPUs."),
      field("gpus_free", &T::gpus_free, "That no job holds."), field("memory_bytes", &T::memory_bytes, "Memory."),
      field("memory_free_bytes", &T::memory_free_bytes, "That no job holds."));
};
template <>
struct Shape<NodesOut> {
  static constexpr std::string_view name = "NodeViews";
  static constexpr auto fields = std::make_tuple(field("items", &NodesOut::items, "All of them."));
};
template <>
struct Shape<UsageIn> {
  using T = UsageIn;
  static constexpr std::string_view name = "UsageQuestion";
  static constexpr auto fields =
      std::make_tuple(field("by", &T::by, "Summed up by what.").one_of(kUsageBys),
                      field("since", &T::since, "From when; 30 days ago when absent.").length(0, 40),
                      field("until", &T::until, "Until when; now when absent.").length(0, 40));
};
template <>
struct Shape<jobs::Usage> {
  using T = jobs::Usage;
  static constexpr std::string_view name = "JobUsage";
  static constexpr auto fields = std::make_tuple(
      field("key", &T::key, "The tenant, project, owner, queue or job."), field("jobs", &T::jobs, "How many."),
      field("attempts", &T::attempts, "How often they were started."),
      field("cpu_seconds", &T::cpu_seconds, "Processor time they used."),
      field("cpu_allocated_seconds", &T::cpu_allocated_seconds, "Processor time they held."),
      field("memory_gib_seconds", &T::memory_gib_seconds, "Memory they held, over time."),
      field("gpu_seconds", &T::gpu_seconds, "GPU time they held."),
      field("lost_seconds", &T::lost_seconds,
            "Processor time held by attempts that ended neither by themselves nor with a checkpoint."));
};
template <>
struct Shape<UsageOut> {
  using T = UsageOut;
  static constexpr std::string_view name = "JobUsages";
  static constexpr auto fields =
      std::make_tuple(field("by", &T::by, "Summed up by what."), field("since", &T::since, "From when."),
                      field("until", &T::until, "Until when."), field("items", &T::items, "The sums."));
};
}  // namespace falaj

namespace falaj::api {
namespace {

std::int64_t moment(const std::string& text, std::string_view field, std::int64_t absent) {
  if (text.empty()) return absent;
  const auto at = parse_time(text);
  if (!at) throw Error(Code::invalid, fmt::format("{}: must be a time such as 2026-01-31T12:00:00Z", field));
  return *at;
}

UsageOut usage(Platform& platform, Call& call, const UsageIn& in) {
  auto by = jobs::UsageBy::tenant;
  for (std::size_t i = 0; i < std::size(kUsageBys); ++i)
    if (kUsageBys[i] == in.by) by = static_cast<jobs::UsageBy>(i);
  const auto now = platform.clock.wall().count();
  const auto until = moment(in.until, "until", now);
  const auto since = moment(in.since, "since", until - kUsageDefaultUs);
  return {in.by, format_time(since), format_time(until), platform.jobs.usage(call.scope(), by, since, until)};
}

}  // namespace

void add_queue_routes(Routes& routes, Platform& platform) {
  const auto reads = [](std::string_view path, std::string_view action, std::string_view summary) {
    return Declaration{Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
                       Place::worker, summary};
  };
  routes.add<Nothing, QueuesOut>(reads("/v1/queues", "queue.list", "Queues and what waits in them."),
                                 [&platform](Call& call, const Nothing&) {
                                   return QueuesOut{platform.jobs.queues(std::string(call.scope().tenant()))};
                                 });
  routes.add<Nothing, NodesOut>(reads("/v1/nodes", "node.list", "Nodes that jobs run on."),
                                [&platform](Call&, const Nothing&) { return NodesOut{platform.jobs.nodes()}; });
  routes.add<UsageIn, UsageOut>(reads("/v1/usage", "usage.read", "What jobs held and used."),
                                [&platform](Call& call, const UsageIn& in) { return usage(platform, call, in); });
}

}  // namespace falaj::api
