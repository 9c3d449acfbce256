// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/rules.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace falaj::jobs {
namespace {

using schedule::Micros;

constexpr std::string_view kDefaultQueue = "default";

std::int64_t millis(double amount) { return std::llround(amount * 1000); }

schedule::Amounts amounts(const AmountsSpec& spec, std::int64_t absent_gpus) {
  using schedule::kUnbounded;
  return {spec.cpus ? millis(*spec.cpus) : kUnbounded, spec.memory_bytes.value_or(kUnbounded),
          spec.disk_bytes.value_or(kUnbounded), spec.gpus ? millis(*spec.gpus) : absent_gpus};
}

bool may_use(const std::vector<std::string>& tenants, const std::string& tenant) {
  return tenants.empty() || std::find(tenants.begin(), tenants.end(), tenant) != tenants.end();
}

// Every resource of a kind, whoever asks.
template <class Each>
void each_resource(resource::Resources& resources, std::string_view kind, Each each) {
  resource::ListOptions options{"", "", "", "", 1000};
  do {
    const auto page = resources.list(kind, options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) each(stored);
    options.cursor = page.next;
  } while (!options.cursor.empty());
}

// What a queue does not say, those above it do.
void inherit_executors(Rules& rules) {
  std::map<std::string, std::string> parents;
  for (const auto& queue : rules.queues) parents[queue.name] = queue.parent;
  for (const auto& queue : rules.queues) {
    auto above = queue.name;
    for (std::size_t steps = 0; steps < rules.queues.size() && !above.empty(); ++steps) {
      if (const auto found = rules.queue_executors.find(above); found != rules.queue_executors.end()) {
        rules.queue_executors.emplace(queue.name, std::string(found->second));
        break;
      }
      const auto parent = parents.find(above);
      above = parent == parents.end() ? "" : parent->second;
    }
  }
}

}  // namespace

std::optional<std::string> Rules::queue_of(const std::string& tenant, const std::string& queue) const {
  const auto own = fmt::format("{}/{}", tenant, queue);
  if (queue_users.contains(own)) return own;
  const auto found = queue_users.find(queue);
  if (found == queue_users.end() || !may_use(found->second, tenant)) return std::nullopt;
  return queue;
}

const std::string& Rules::executor_of(const std::string& tenant, const JobSpec& spec) const {
  if (!spec.executor.empty()) return spec.executor;
  const auto queue = queue_of(tenant, spec.queue);
  const auto found = queue ? queue_executors.find(*queue) : queue_executors.end();
  return found == queue_executors.end() ? executors.at(0) : found->second;
}

const std::string& Rules::executor_of(const Record& record) const {
  const auto was = std::find(executors.begin(), executors.end(), record.life.executor);
  return was != executors.end() ? *was : executor_of(record.where.tenant.str(), *record.spec);
}

Rules read_rules(resource::Resources& resources, std::vector<std::string> executors) {
  Rules out;
  out.executors = std::move(executors);
  std::vector<std::pair<schedule::Queue, std::string>> of_tenants;  // with the tenant
  each_resource(resources, "Queue", [&](const resource::Stored& stored) {
    const auto& m = stored.resource.metadata;
    const auto spec = decode<QueueSpec>(stored.resource.spec, "queue");
    schedule::Queue queue;
    queue.name = m.tenant.empty() ? m.name : fmt::format("{}/{}", m.tenant, m.name);
    queue.parent = spec.parent;
    queue.weight = spec.weight;
    queue.borrows = spec.borrows;
    if (spec.guaranteed) queue.guaranteed = amounts(*spec.guaranteed, 0);
    if (spec.limit) queue.limit = amounts(*spec.limit, schedule::kUnbounded);
    out.queue_users[queue.name] = spec.tenants;
    if (!spec.executor.empty()) out.queue_executors[queue.name] = spec.executor;
    if (m.tenant.empty())
      out.queues.push_back(std::move(queue));
    else
      of_tenants.emplace_back(std::move(queue), m.tenant);
  });
  for (auto& [queue, tenant] : of_tenants) {
    const auto own = fmt::format("{}/{}", tenant, queue.parent);
    if (own != queue.name && out.queue_users.contains(own)) queue.parent = own;
    out.queues.push_back(std::move(queue));
  }
  inherit_executors(out);
  if (!out.queue_users.contains(std::string(kDefaultQueue))) {
    out.queue_users[std::string(kDefaultQueue)] = {};
    schedule::Queue queue;
    queue.name = kDefaultQueue;
    out.queues.push_back(std::move(queue));
  }
  each_resource(resources, "PriorityClass", [&](const resource::Stored& stored) {
    const auto& name = stored.resource.metadata.name;
    auto spec = decode<PriorityClassSpec>(stored.resource.spec, "priority class");
    if (spec.is_default && out.default_class.empty()) out.default_class = name;
    out.classes[name] = std::move(spec);
  });
  each_resource(resources, "NodePool", [&](const resource::Stored& stored) {
    out.pools.emplace_back(stored.resource.metadata.name, decode<NodePoolSpec>(stored.resource.spec, "node pool"));
  });
  return out;
}

void check(const JobSpec& spec, const std::string& tenant, const Rules& rules, Faults& faults) {
  if (!rules.queue_of(tenant, spec.queue)) {
    std::vector<std::string> have;
    for (const auto& [name, tenants] : rules.queue_users) {
      const auto slash = name.find('/');
      if (slash == std::string::npos ? may_use(tenants, tenant) : name.substr(0, slash) == tenant)
        have.push_back(slash == std::string::npos ? name : name.substr(slash + 1));
    }
    faults.push_back({"spec.queue", fmt::format("no queue '{}'; there are: {}", spec.queue, fmt::join(have, ", "))});
  }
  if (!spec.priority_class.empty()) {
    const auto found = rules.classes.find(spec.priority_class);
    if (found == rules.classes.end() || !may_use(found->second.tenants, tenant))
      faults.push_back({"spec.priorityClass", fmt::format("no priority class '{}'", spec.priority_class)});
  }
  const auto& executor = rules.executor_of(tenant, spec);
  if (std::find(rules.executors.begin(), rules.executors.end(), executor) == rules.executors.end())
    faults.push_back({spec.executor.empty() ? "spec.queue" : "spec.executor",
                      fmt::format("no executor '{}'; there are: {}", executor, fmt::join(rules.executors, ", "))});
}

schedule::Job to_job(const Record& record, const Rules& rules, const std::string& zone, schedule::Guess run) {
  const auto& spec = *record.spec;
  const auto& life = record.life;
  schedule::Job job;
  job.id = record.id;
  job.queue = rules.queue_of(record.where.tenant.str(), spec.queue).value_or(std::string(kDefaultQueue));
  const auto priority = rules.classes.find(spec.priority_class.empty() ? rules.default_class : spec.priority_class);
  if (priority != rules.classes.end()) {
    job.priority = priority->second.value;
    job.preempts = priority->second.preempts;
    job.preempt_cooldown = Micros(priority->second.preempt_cooldown_us);
    job.preemptions_max = static_cast<int>(priority->second.preemptions_max);
  }
  job.preemptible = spec.preemptible;
  job.submitted = Micros(record.submitted_us);
  job.tasks_max = static_cast<int>(spec.tasks);
  job.tasks_min = static_cast<int>(spec.tasks_min.value_or(spec.tasks));
  job.task = {std::max<std::int64_t>(millis(spec.cpus), 1), spec.memory_bytes, spec.disk_bytes, millis(spec.gpus)};
  job.where.labels = spec.nodes.labels;
  job.where.labels[std::string(kExecutorLabel)] = rules.executor_of(record);
  job.where.labels_refused = spec.nodes.not_labels;
  job.where.gpu_type = spec.gpu_type;
  job.where.zones = spec.nodes.zones;
  if (job.where.zones.empty() && !zone.empty()) job.where.zones = {zone};
  job.layout = spec.nodes.layout == "spread" ? schedule::Layout::spread : schedule::Layout::pack;
  if (spec.time_limit_us > 0) job.limit = Micros(spec.time_limit_us);
  job.run = run;
  if (!spec.deadline.empty()) job.deadline = Micros(parse_time(spec.deadline).value_or(0));
  job.grace = Micros(spec.grace_us);
  job.not_before = Micros(life.not_before_us);
  job.restartable = spec.preemptible;
  job.trials = static_cast<int>(life.trials);
  job.preemptions = static_cast<int>(life.preemptions);
  job.preempted = Micros(life.preempted_us);
  return job;
}

schedule::Node to_node(const execute::Node& node, const std::string& executor, const Rules& rules) {
  schedule::Node out;
  out.name = node.name;
  out.zone = node.zone;
  out.labels = node.labels;
  out.labels[std::string(kExecutorLabel)] = executor;
  out.capacity = {node.cpu_millis, node.memory_bytes, node.disk_bytes,
                  static_cast<std::int64_t>(node.gpus.size()) * 1000};
  for (const auto& gpu : node.gpus) out.devices.push_back({gpu.id, gpu.type});
  out.up = node.up;
  for (const auto& [name, pool] : rules.pools) {
    if (std::none_of(pool.nodes.begin(), pool.nodes.end(), [&](const auto& p) { return matches_glob(p, node.name); }))
      continue;
    out.pool = name;
    if (!pool.zone.empty()) out.zone = pool.zone;
    if (pool.burst) out.labels[std::string(kBurstLabel)] = "yes";
    for (const auto& [key, value] : pool.labels) out.labels[key] = value;
    break;
  }
  return out;
}

}  // namespace falaj::jobs
