// SPDX-License-Identifier: Apache-2.0
// queues, nodes and what jobs used

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::api {
namespace {

constexpr std::int64_t kUsageDefaultUs = std::int64_t{30} * 86'400 * 1'000'000;
constexpr std::int64_t kTraceItems = 10'000;
constexpr std::string_view kUsageBys[] = {"tenant", "project", "owner", "queue", "job"};

struct QueuesOut {
  std::vector<jobs::QueueView> items;
};
struct NodesOut {
  std::vector<jobs::NodeView> items;
};
struct PoolOut {
  std::string name, scaling, zone, why;
  std::int64_t min = 0, max = 0, up = 0, busy = 0, coming = 0, leaving = 0, wanted = 0;
  bool burst = false;
  double cost_per_hour = 0, spent = 0, spend_max = 0;
  std::optional<std::string> spent_since, changed, not_before;
};
struct PoolEventOut {
  std::int64_t number = 0, nodes = 0;
  std::string at, what, why;
};
struct PoolsOut {
  std::vector<PoolOut> items;
};
struct PoolDetails {
  PoolOut pool;
  std::vector<std::string> nodes;
  std::vector<PoolEventOut> events;
};
struct UsageIn {
  std::string by = "project", since, until;
};
struct TraceIn {
  std::string since, until, cursor;
  std::int64_t limit = kTraceItems;
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
  static Fields fields() {
    return {field("name", &T::name, "Its name; with its tenant when it is a tenant's."),
            field("parent", &T::parent, "What it is a part of."),
            field("weight", &T::weight, "Its share."),
            field("pending", &T::pending, "Jobs that wait in it."),
            field("running", &T::running, "Jobs that hold a place."),
            field("cpus", &T::cpus, "Processors they hold, with those of queues below."),
            field("gpus", &T::gpus, "GPUs they hold."),
            field("memory_gib", &T::memory_gib, "Memory they hold.")};
  }
};
template <>
struct Shape<QueuesOut> {
  static constexpr std::string_view name = "QueueViews";
  static Fields fields() { return {field("items", &QueuesOut::items, "All that the project may use.")}; }
};
template <>
struct Shape<jobs::NodeView> {
  using T = jobs::NodeView;
  static constexpr std::string_view name = "NodeView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("zone", &T::zone, "Where it is."),
            field("pool", &T::pool, "Its pool."),
            field("executor", &T::executor, "Who runs jobs there."),
            field("up", &T::up, "Whether it takes jobs."),
            field("cpus", &T::cpus, "Processors."),
            field("cpus_free", &T::cpus_free, "That no job holds."),
            field("gpus", &T::gpus, "GPUs."),
            field("gpus_free", &T::gpus_free, "That no job holds."),
            field("memory_bytes", &T::memory_bytes, "Memory."),
            field("memory_free_bytes", &T::memory_free_bytes, "That no job holds.")};
  }
};
template <>
struct Shape<NodesOut> {
  static constexpr std::string_view name = "NodeViews";
  static Fields fields() { return {field("items", &NodesOut::items, "All of them.")}; }
};
template <>
struct Shape<PoolOut> {
  using T = PoolOut;
  static constexpr std::string_view name = "PoolView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("scaling", &T::scaling, "How nodes come and go: fixed, hooks, slurm."),
            field("zone", &T::zone, "Where its nodes are."),
            field("min", &T::min, "Never fewer."),
            field("max", &T::max, "Never more."),
            field("up", &T::up, "Nodes that take jobs."),
            field("busy", &T::busy, "Of these, with jobs on them."),
            field("coming", &T::coming, "Asked for and not up yet."),
            field("leaving", &T::leaving, "Being given back."),
            field("wanted", &T::wanted, "Up and coming."),
            field("burst", &T::burst, "Only for jobs that would wait too long elsewhere."),
            field("cost_per_hour", &T::cost_per_hour, "Of one node."),
            field("spent", &T::spent, "Today."),
            field("spend_max", &T::spend_max, "Of a day; 0 = no cap."),
            field("spent_since", &T::spent_since, "From when."),
            field("changed", &T::changed, "When it last grew or shrank."),
            field("not_before", &T::not_before, "After a failure nothing is asked for before."),
            field("why", &T::why, "The newest change, and its reason.")};
  }
};
template <>
struct Shape<PoolEventOut> {
  using T = PoolEventOut;
  static constexpr std::string_view name = "PoolEvent";
  static Fields fields() {
    return {field("number", &T::number, "Counts up."), field("at", &T::at, "When."),
            field("what", &T::what, "asked, came, missing, returning, returned or failed."),
            field("nodes", &T::nodes, "How many."), field("why", &T::why, "In words.")};
  }
};
template <>
struct Shape<PoolsOut> {
  static constexpr std::string_view name = "PoolViews";
  static Fields fields() { return {field("items", &PoolsOut::items, "All of them.")}; }
};
template <>
struct Shape<PoolDetails> {
  using T = PoolDetails;
  static constexpr std::string_view name = "PoolDetails";
  static Fields fields() {
    return {field("pool", &T::pool, "As it is now."), field("nodes", &T::nodes, "Its nodes that are up."),
            field("events", &T::events, "What happened to it, newest first.")};
  }
};
template <>
struct Shape<UsageIn> {
  using T = UsageIn;
  static constexpr std::string_view name = "UsageQuestion";
  static Fields fields() {
    return {field("by", &T::by, "Summed up by what.").one_of(kUsageBys),
            field("since", &T::since, "From when; 30 days ago when absent.").length(0, 40),
            field("until", &T::until, "Until when; now when absent.").length(0, 40)};
  }
};
template <>
struct Shape<TraceIn> {
  using T = TraceIn;
  static constexpr std::string_view name = "TraceQuestion";
  static Fields fields() {
    return {field("since", &T::since, "Ended after; 30 days ago when absent.").length(0, 40),
            field("until", &T::until, "Ended by; now when absent.").length(0, 40),
            field("cursor", &T::cursor, "").length(0, 26), field("limit", &T::limit, "").range(1, kTraceItems)};
  }
};
template <>
struct Shape<jobs::PastJob> {
  using T = jobs::PastJob;
  static constexpr std::string_view name = "PastJob";
  static Fields fields() {
    return {field("id", &T::id, "The job."),
            field("name", &T::name, "Its name."),
            field("owner", &T::owner, "Whose."),
            field("queue", &T::queue, "Where it waited."),
            field("submitted_us", &T::submitted_us, "When; microseconds."),
            field("ran_us", &T::ran_us, "How long it ran, without what was stopped or lost."),
            field("limit_us", &T::limit_us, "Its time limit; 0 = none."),
            field("deadline_us", &T::deadline_us, "Its deadline; 0 = none."),
            field("tasks", &T::tasks, "How many."),
            field("cpu_millis", &T::cpu_millis, "Of each; 1000 are a processor."),
            field("memory_bytes", &T::memory_bytes, "Of each."),
            field("gpu_millis", &T::gpu_millis, "Of each.")};
  }
};
template <>
struct Shape<jobs::Usage> {
  using T = jobs::Usage;
  static constexpr std::string_view name = "JobUsage";
  static Fields fields() {
    return {
        field("key", &T::key, "The tenant, project, owner, queue or job."),
        field("jobs", &T::jobs, "How many."),
        field("attempts", &T::attempts, "How often they were started."),
        field("cpu_seconds", &T::cpu_seconds, "Processor time they used."),
        field("cpu_allocated_seconds", &T::cpu_allocated_seconds, "Processor time they held."),
        field("memory_gib_seconds", &T::memory_gib_seconds, "Memory they held, over time."),
        field("gpu_seconds", &T::gpu_seconds, "GPU time they held."),
        field("cost", &T::cost, "By what the pools of their nodes cost, for the part of a node that they held."),
        field("energy_joules", &T::energy_joules,
              "Of processors of this machine: what it drew, by the processor time they used; 0 where it does not say."),
        field("lost_seconds", &T::lost_seconds,
              "Processor time held by attempts that ended neither by themselves nor with a checkpoint.")};
  }
};
template <>
struct Shape<UsageOut> {
  using T = UsageOut;
  static constexpr std::string_view name = "JobUsages";
  static Fields fields() {
    return {field("by", &T::by, "Summed up by what."), field("since", &T::since, "From when."),
            field("until", &T::until, "Until when."), field("items", &T::items, "The sums.")};
  }
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

PoolOut out_of(const jobs::PoolView& view) {
  PoolOut out;
  out.name = view.name;
  out.scaling = view.scaling;
  out.zone = view.zone;
  out.why = view.why;
  out.min = view.nodes_min;
  out.max = view.nodes_max;
  out.up = view.up;
  out.busy = view.busy;
  out.coming = view.coming;
  out.leaving = view.leaving;
  out.wanted = view.up + view.coming;
  out.burst = view.burst;
  out.cost_per_hour = view.cost_per_hour;
  out.spent = view.spent;
  out.spend_max = view.spend_max;
  if (view.period_us > 0) out.spent_since = format_time(view.period_us);
  if (view.changed_us > 0) out.changed = format_time(view.changed_us);
  if (view.not_before_us > 0) out.not_before = format_time(view.not_before_us);
  return out;
}

PoolsOut pools(Platform& platform) {
  PoolsOut out;
  for (const auto& view : platform.jobs.pools()) out.items.push_back(out_of(view));
  return out;
}

PoolDetails pool(Platform& platform, Call& call) {
  constexpr std::size_t kEvents = 100;
  const auto name = call.parameter("name");
  for (const auto& view : platform.jobs.pools()) {
    if (view.name != name) continue;
    PoolDetails out{out_of(view), {}, {}};
    for (const auto& node : platform.jobs.nodes())
      if (node.pool == name && node.up) out.nodes.push_back(node.name);
    for (const auto& e : platform.jobs.pool_events(view.name, kEvents))
      out.events.push_back({e.number, e.nodes, format_time(e.at_us), e.what, e.why});
    return out;
  }
  throw Error(Code::not_found, fmt::format("no node pool '{}'", name.substr(0, 64)));
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

Page<jobs::PastJob> trace(Platform& platform, Call& call, const TraceIn& in) {
  const auto until = moment(in.until, "until", platform.clock.wall().count());
  const auto since = moment(in.since, "since", until - kUsageDefaultUs);
  const auto limit = static_cast<std::size_t>(in.limit);
  Page<jobs::PastJob> out{platform.jobs.past(call.scope(), since, until, in.cursor, limit), std::nullopt};
  if (out.items.size() == limit) out.next = out.items.back().id;
  return out;
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
  routes.add<Nothing, PoolsOut>(reads("/v1/pools", "node.list", "Node pools: what is there, wanted and spent."),
                                [&platform](Call&, const Nothing&) { return pools(platform); });
  routes.add<Nothing, PoolDetails>(reads("/v1/pools/{name}", "node.list", "A node pool and what happened to it."),
                                   [&platform](Call& call, const Nothing&) { return pool(platform, call); });
  routes.add<UsageIn, UsageOut>(reads("/v1/usage", "usage.read", "What jobs held and used."),
                                [&platform](Call& call, const UsageIn& in) { return usage(platform, call, in); });
  routes.add<TraceIn, Page<jobs::PastJob>>(
      reads("/v1/usage/trace", "usage.read", "Jobs that ran, to be run again in simulation."),
      [&platform](Call& call, const TraceIn& in) { return trace(platform, call, in); });
}

}  // namespace falaj::api
