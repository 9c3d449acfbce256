// SPDX-License-Identifier: Apache-2.0
// Nodes and queues, and what is on them when everything is read again.
#include "lifecycle/jobs/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/log.h"

namespace falaj::jobs {
namespace {

// Nodes while what runs on them is put back: whatever was given once stays given, even where it would not be today.
constexpr std::int64_t kPlenty = std::int64_t{1} << 55;
void roomy(schedule::Node& node) {
  node.up = true;
  node.capacity.cpu_millis += kPlenty;
  node.capacity.memory_bytes += kPlenty;
  node.capacity.disk_bytes += kPlenty;
}

bool has_burst(const Rules& rules) {
  return std::any_of(rules.pools.begin(), rules.pools.end(), [](const auto& pool) { return pool.second.burst; });
}

std::string owner_of(const schedule::Node& node) {
  const auto found = node.labels.find(std::string(kExecutorLabel));
  return found == node.labels.end() ? "" : found->second;
}

}  // namespace

void Dispatcher::take(NodesSeen&& news) {
  nodes_[news.executor] = std::move(news.nodes);
  refresh_nodes(news.executor);
}

void Dispatcher::take(RulesChanged&&) {
  rules_ = parts_.rules();
  bursts_ = has_burst(rules_);
  pools_.keep_only(rules_);
  pools_due_ = Micros(0);
  set_queues();
  refresh_jobs();
  set_queues();
  for (const auto& entry : nodes_) refresh_nodes(entry.first);
}

// As the rules have them, and those that are declared no more but still hold jobs.
void Dispatcher::set_queues() {
  auto queues = rules_.queues;
  if (restoring_)
    for (auto& queue : queues) {
      queue.limit.reset();
      queue.guaranteed.reset();
    }
  std::set<std::string> names;
  for (const auto& queue : queues) names.insert(queue.name);
  const auto keep = [&](const std::string& name) {
    if (!names.insert(name).second) return;
    schedule::Queue old;
    old.name = name;
    queues.push_back(std::move(old));
  };
  for (const auto id : state_.pending_ids()) keep(state_.pending(id)->queue);
  for (const auto id : state_.running_ids()) keep(state_.running(id)->job.queue);
  state_.set_queues(std::move(queues));
}

void Dispatcher::refresh_nodes(const std::string& executor) {
  bool zoned = false;
  std::set<std::string> there;
  for (const auto& seen : nodes_[executor]) {
    auto node = to_node(seen, executor, rules_);
    if (!node.up)
      pools_.left(node.name);
    else if (pools_.is_leaving(node.name))
      node.up = false;
    if (restoring_) roomy(node);
    zoned |= !node.zone.empty();
    if (const auto known = state_.node(node.name); known >= 0) {
      const auto& owner = owner_of(state_.nodes()[static_cast<std::size_t>(known)]);
      if (owner != executor) {
        log::error("node_name_taken", {{"node", node.name}, {"executor", executor}, {"by", owner}});
        continue;
      }
    }
    there.insert(node.name);
    try {
      state_.set_node(std::move(node));
    } catch (const Error& e) {  // its devices changed under those who use them
      log::error("node_refused", {{"executor", executor}, {"why", e.what()}});
    }
  }
  for (std::size_t i = 0; i < state_.nodes().size(); ++i) {
    const auto& node = state_.nodes()[i];
    if (owner_of(node) != executor || there.contains(node.name)) continue;
    pools_.left(node.name);
    if (node.up) state_.set_up(static_cast<int>(i), false);
  }
  plan_due_ = true;
  if (auto& was = zoned_[executor]; was != zoned) {
    was = zoned;
    refresh_jobs();
  }
}

void Dispatcher::refresh_jobs() {
  for (auto& entry : live_)
    if (state_.pending(entry.first)) state_.change(job_of(entry.second));
  for (const auto id : groups_.all_waiting())
    if (auto* live = find(id)) consider(*live);
  plan_due_ = true;
}

void Dispatcher::enter(Live& live) {
  const auto& life = live.record.life;
  if (life.phase == Phase::finishing) {
    plan_deed(live, Effect::keep);
    return;
  }
  if (!is_placed(life.phase)) {
    for (const auto* list : {&live.record.spec->after.ok, &live.record.spec->after.any})
      for (const auto& other : *list) live.waits_for.insert(other);
    for (const auto& other : live.waits_for) dependents_[other].insert(live.record.id);
    state_.add(job_of(live));
    consider(live);
    foretell(live);
    arm(live);
    return;
  }
  restore(live);
}

// One that holds a place, as the database says.
void Dispatcher::restore(Live& live) {
  const auto& life = live.record.life;
  if (!live.groups.empty()) {  // it was let in; limits that were lowered since do not push it out
    groups_.enter(live.record.id, live.groups);
    groups_.forget(live.record.id, live.groups);
    live.grouped = true;
  }
  placed_.insert(live.record.id);
  auto job = job_of(live);
  job.where = {};  // it is where it is
  job.where.gpu_type = live.record.spec->gpu_type;
  state_.add(std::move(job));
  try {
    const auto since = life.started_us > 0 ? life.started_us : life.placed_us;
    state_.start({live.record.id, placement_of(live.record), false}, Micros(since));
    if (life.checkpointed_us > 0) state_.checkpointed(live.record.id, Micros(life.checkpointed_us));
    if (!life.stop.empty()) state_.stopping(live.record.id, now_ + Micros(live.record.spec->grace_us));
  } catch (const Error& e) {  // devices that are no more: it must make room
    state_.remove(live.record.id, now_);
    log::error("job_without_room", {{"job", live.record.id.str()}, {"why", e.what()}});
    apply(live, RequeueAsked{"the platform, as its node has changed"});
  }
  const bool began = life.started_us > 0;
  if (!began) plan_deed(live, Effect::start);
  live.acknowledged = began;
  live.ambiguous = true;
  if (!life.stop.empty()) plan_deed(live, Effect::stop);
  arm(live);
}

std::vector<Place> Dispatcher::places_of(const schedule::Placement& placement) const {
  std::vector<Place> out;
  for (const auto& part : placement) {
    const auto& node = state_.nodes()[static_cast<std::size_t>(part.node)];
    Place place{node.name, part.tasks, {}};
    for (const auto device : part.devices) place.gpus.push_back(node.devices[static_cast<std::size_t>(device)].id);
    out.push_back(std::move(place));
  }
  return out;
}

// Nodes that are not known today but hold jobs: they hold what they hold and get nothing new.
void Dispatcher::make_up_nodes(const std::vector<Record>& records) {
  std::map<std::string, schedule::Node> made;
  for (const auto& record : records) {
    if (!is_placed(record.life.phase)) continue;
    for (const auto& place : record.life.places) {
      if (state_.node(place.node) >= 0) continue;
      auto& node = made[place.node];
      node.name = place.node;
      node.labels[std::string(kExecutorLabel)] = record.life.executor;
      for (const auto& gpu : place.gpus)
        if (std::none_of(node.devices.begin(), node.devices.end(), [&](const auto& d) { return d.id == gpu; }))
          node.devices.push_back({gpu, record.spec->gpu_type});
      awaited_.insert(record.life.executor);
    }
  }
  for (auto& entry : made) {
    roomy(entry.second);
    state_.set_node(std::move(entry.second));
  }
}

schedule::Placement Dispatcher::placement_of(const Record& record) const {
  schedule::Placement out;
  for (const auto& place : record.life.places) {
    schedule::Part part{state_.node(place.node), static_cast<int>(place.tasks), {}};
    if (part.node < 0) throw Error(Code::conflict, fmt::format("no node {}", place.node));
    const auto& devices = state_.nodes()[static_cast<std::size_t>(part.node)].devices;
    for (const auto& gpu : place.gpus)
      for (std::size_t i = 0; i < devices.size(); ++i)
        if (devices[i].id == gpu) part.devices.push_back(static_cast<int>(i));
    out.push_back(std::move(part));
  }
  return out;
}

void Dispatcher::load() {
  now_ = clock_.wall();
  {  // what was submitted so far is read below; told again it would begin again
    Lock lock(mu_);
    std::erase_if(news_, [](const News& news) { return std::holds_alternative<Submitted>(news); });
    starts_.clear();
  }
  live_.clear();
  dependents_.clear();
  members_.clear();
  groups_.clear();
  placed_.clear();
  timers_.clear();
  changes_.clear();
  changed_.clear();
  deeds_.clear();
  gone_.clear();
  waits_ = std::make_shared<const std::vector<schedule::Wait>>();
  state_ = schedule::State(options_.rules);
  zoned_.clear();
  rules_ = parts_.rules();
  bursts_ = has_burst(rules_);
  pools_.load(book_.pools());
  pools_.keep_only(rules_);
  orders_.clear();
  restoring_ = true;
  set_queues();
  for (const auto& entry : nodes_) refresh_nodes(entry.first);
  std::vector<JobId> ids;
  auto records = book_.live();
  awaited_.clear();
  make_up_nodes(records);
  for (auto& record : records) {
    ids.push_back(record.id);
    add(std::move(record));
  }
  for (const auto id : ids)
    if (auto& live = live_.at(id); is_placed(live.record.life.phase)) enter(live);
  restoring_ = false;
  set_queues();
  for (const auto& node : std::vector(state_.nodes().begin(), state_.nodes().end())) {  // those seen come back below
    auto gone = node;
    gone.up = false;
    gone.capacity = {};
    state_.set_node(std::move(gone));
  }
  for (const auto& entry : nodes_) refresh_nodes(entry.first);
  for (const auto id : ids)
    if (auto& live = live_.at(id); !is_placed(live.record.life.phase)) enter(live);
  for (auto& wish : book_.wishes()) tell(Wished{std::move(wish)});
  plan_due_ = true;
}

}  // namespace falaj::jobs
