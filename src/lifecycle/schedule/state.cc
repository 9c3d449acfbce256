// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "foundation/base/error.h"
#include "lifecycle/schedule/book.h"

namespace falaj::schedule {
namespace {

constexpr Free kNothingFree{-1, -1, -1, {}};

// Of what a job asks of a node: equal for jobs that ask for the same.
std::size_t hash_of(const Amounts& task, const Where& where) {
  std::size_t hash = 0;
  const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL; };
  const auto word = [&](const std::string& w) { mix(std::hash<std::string>{}(w)); };
  for (const std::int64_t amount : {task.cpu_millis, task.memory_bytes, task.disk_bytes, task.gpu_millis}) {
    mix(static_cast<std::size_t>(amount));
  }
  for (const std::string& zone : where.zones) word(zone);
  for (const auto* labels : {&where.labels, &where.labels_refused}) {
    for (const auto& [key, value] : *labels) word(key), word(value);
  }
  if (!where.gpu_type.empty()) word(where.gpu_type);
  return hash;
}

Match match(const AskKind& ask, const NodeKind& node) {
  Match match;
  const Where& where = ask.where;
  match.zone = where.zones.empty() || std::ranges::find(where.zones, node.zone) != where.zones.end();
  match.shape = std::ranges::all_of(where.labels,
                                    [&](const auto& label) {
                                      const auto found = node.labels.find(label.first);
                                      return found != node.labels.end() && found->second == label.second;
                                    }) &&
                std::ranges::none_of(where.labels_refused, [&](const auto& label) {
                  const auto found = node.labels.find(label.first);
                  return found != node.labels.end() && found->second == label.second;
                });
  match.demand = {ask.task.cpu_millis, ask.task.memory_bytes, ask.task.disk_bytes,
                  static_cast<int>(ask.task.gpu_millis), 0};
  for (std::size_t i = 0; i < node.device_types.size(); ++i) {
    if (where.gpu_type.empty() || where.gpu_type == node.device_types[i]) {
      match.demand.devices = static_cast<std::uint16_t>(match.demand.devices | 1U << i);
    }
  }
  if (ask.task.gpu_millis > 0 && match.demand.devices == 0) match.shape = false;
  return match;
}

int kind_of(Book& book, const Node& node) {
  NodeKind kind{node.zone, node.labels, {}};
  for (const Device& device : node.devices) kind.device_types.push_back(device.type);
  for (std::size_t i = 0; i < book.node_kinds.size(); ++i) {
    const NodeKind& known = book.node_kinds[i];
    if (known.zone == kind.zone && known.labels == kind.labels && known.device_types == kind.device_types) {
      return static_cast<int>(i);
    }
  }
  for (AskKind& ask : book.ask_kinds) ask.matches.push_back(match(ask, kind));
  book.node_kinds.push_back(std::move(kind));
  return static_cast<int>(book.node_kinds.size()) - 1;
}

int ask_of(Book& book, const Job& job) {
  const std::size_t hash = hash_of(job.task, job.where);
  const auto [first, last] = book.ask_index.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const AskKind& known = book.ask_kinds[at->second];
    if (known.task == job.task && known.where == job.where) return at->second;
  }
  AskKind ask{job.task, job.where, {}};
  for (const NodeKind& node : book.node_kinds) ask.matches.push_back(match(ask, node));
  book.ask_kinds.push_back(std::move(ask));
  const int added = static_cast<int>(book.ask_kinds.size()) - 1;
  book.ask_index.emplace(hash, added);
  return added;
}

OrderKey key_of(const Book& book, const Job& job) {
  const double score = book.rules.order == Order::hastiest ? -job.run.haste : 0;
  return {-job.priority, score, job.submitted, job.id};
}

Waiting waiting_of(const Book& book, const Pending& pending) {
  const Job& job = pending.job;
  return {key_of(book, job), &pending,      lasts(job),
          pending.ask,       job.tasks_min, !job.held.empty() || job.not_before > Micros{0},
          job.restartable};
}

void publish(Book& book, int node) {
  book.free.set(static_cast<std::size_t>(node), book.nodes[node].up ? book.truly_free[node] : kNothingFree);
}

// Changes what a queue and those above it hold.
void hold(Book& book, int queue, const Amounts& amounts, int sign, Micros now) {
  for (int at = queue; at >= 0; at = book.queues[at].parent) {
    QueueEntry& entry = book.queues[at];
    entry.lately = lately_at(entry, now, book.rules.usage_half_life);
    entry.lately_at = now;
    entry.held = plus(entry.held, amounts, sign);
    entry.share = dominant_share(entry.held, 1, book.capacity);
  }
}

void note_waiting(Book& book, int queue, int change) {
  for (int at = queue; at >= 0; at = book.queues[at].parent)
    book.queues[at].waiting += static_cast<std::size_t>(change);
}

void insert(Book& book, Job job) {
  const auto queue = book.queue_index.find(job.queue);
  if (queue == book.queue_index.end()) throw Error(Code::invalid, fmt::format("no such queue: {}", job.queue));
  if (job.tasks_min < 1 || job.tasks_max < job.tasks_min) {
    throw Error(Code::invalid, fmt::format("tasks must be 1 or more: {}..{}", job.tasks_min, job.tasks_max));
  }
  const JobId id = job.id;
  const int ask = ask_of(book, job);
  if (job.limit != kNever && job.limit > book.longest_limit) book.longest_limit = job.limit;
  const auto [at, added] = book.pending.try_emplace(id, Pending{std::move(job), ask, queue->second, {}, 0});
  CHECK(added, "a pending job is inserted once");
  at->second.patient_until = patience_of(book, at->second.job);
  book.patience.emplace(at->second.patient_until, id);
  book.queues[queue->second].pending.insert(waiting_of(book, at->second));
  if (at->second.job.preempts) book.preempting.insert(key_of(book, at->second.job));
  ++book.ask_kinds[ask].pending;
  note_waiting(book, queue->second, 1);
}

Job extract(Book& book, std::unordered_map<JobId, Pending>::iterator at) {
  Pending& pending = at->second;
  book.patience.erase({pending.patient_until, pending.job.id});
  book.queues[pending.queue].pending.erase(key_of(book, pending.job));
  if (pending.job.preempts) book.preempting.erase(key_of(book, pending.job));
  --book.ask_kinds[pending.ask].pending;
  note_waiting(book, pending.queue, -1);
  Job job = std::move(pending.job);
  book.pending.erase(at);
  return job;
}

// Takes what `placement` says, or nothing: throws conflict.
void occupy(Book& book, int ask, const Placement& placement) {
  for (std::size_t i = 0; i < placement.size(); ++i) {
    const Part& part = placement[i];
    const bool known = part.node >= 0 && part.node < static_cast<int>(book.nodes.size()) && part.tasks > 0;
    if (known && book.nodes[part.node].up && book.eligible(ask, part.node) &&
        take_exactly(book.truly_free[part.node], book.demand(ask, part.node), part)) {
      publish(book, part.node);
      continue;
    }
    for (std::size_t k = 0; k < i; ++k) {
      give_back(book.truly_free[placement[k].node], book.demand(ask, placement[k].node), placement[k]);
      publish(book, placement[k].node);
    }
    throw Error(Code::conflict, fmt::format("no room for {} tasks on node {}", part.tasks,
                                            known ? book.nodes[part.node].name : std::to_string(part.node)));
  }
}

void vacate(Book& book, int ask, const Placement& placement) {
  for (const Part& part : placement) {
    give_back(book.truly_free[part.node], book.demand(ask, part.node), part);
    publish(book, part.node);
  }
}

void check_limits(const Book& book, int queue, const Amounts& more) {
  for (int at = queue; at > 0; at = book.queues[at].parent) {
    const QueueEntry& entry = book.queues[at];
    if (entry.queue.limit && !may_add(entry.held, more, *entry.queue.limit)) {
      throw Error(Code::conflict, fmt::format("over the limit of queue {}", entry.queue.name));
    }
    if (!entry.queue.borrows && entry.queue.guaranteed && !may_add(entry.held, more, *entry.queue.guaranteed)) {
      throw Error(Code::conflict, fmt::format("over what queue {} may hold without borrowing", entry.queue.name));
    }
  }
}

void settle(Book& book, const RunningEntry& entry) {
  const Placement& placement = entry.running.placement;
  for (std::size_t i = 0; i < placement.size(); ++i) book.on_node[placement[i].node].push_back({&entry, i});
}

void unsettle(Book& book, const RunningEntry& entry) {
  for (const Part& part : entry.running.placement) {
    std::erase_if(book.on_node[part.node], [&](const Occupant& occupant) { return occupant.entry == &entry; });
  }
}

std::unordered_map<JobId, RunningEntry>::iterator find_running(Book& book, JobId job) {
  const auto found = book.running.find(job);
  if (found == book.running.end()) throw Error(Code::not_found, fmt::format("not running: {}", job.str()));
  return found;
}

void note_end(Book& book, RunningEntry& entry, Micros ends_by) {
  if (entry.ends_by != kNever) book.ends.erase({entry.ends_by, entry.running.job.id});
  entry.ends_by = ends_by;
  if (ends_by != kNever && !entry.running.trial) book.ends.emplace(std::pair(ends_by, entry.running.job.id), &entry);
}

void index(Book& book, const RunningEntry& entry) {
  const Running& running = entry.running;
  if (running.trial) {
    book.trials.emplace(running.job.id, &entry);
    book.patience.emplace(entry.patient_until, running.job.id);
  }
  if (running.job.preemptible && !running.stopping && !running.trial) book.preemptible.insert(running.job.id);
  if (tasks_of(running.placement) < running.job.tasks_max) book.elastic.insert(running.job.id);
}

void forget(Book& book, const RunningEntry& entry) {
  const JobId job = entry.running.job.id;
  if (book.trials.erase(job) > 0) book.patience.erase({entry.patient_until, job});
  book.stopping.erase(job);
  book.preemptible.erase(job);
  book.elastic.erase(job);
}

void leave(Book& book, std::unordered_map<JobId, RunningEntry>::iterator at, Micros now) {
  RunningEntry& entry = at->second;
  unsettle(book, entry);
  vacate(book, entry.ask, entry.running.placement);
  hold(book, entry.queue, times(entry.running.job.task, tasks_of(entry.running.placement)), -1, now);
  book.ends.erase({entry.ends_by, entry.running.job.id});
  forget(book, entry);
  book.running.erase(at);
}

}  // namespace

Micros moment_after(Micros moment, Micros span) {
  return moment == kNever || span == kNever || moment > kNever - span ? kNever : moment + span;
}

Micros lasts(const Job& job) {
  if (job.limit != kNever) return moment_after(job.limit, job.grace);
  return job.run.p90 > Micros{0} ? job.run.p90 : kNever;
}

double dominant_share(const Amounts& amounts, double tasks, const Amounts& capacity) {
  double share = 0;
  const auto part = [&](std::int64_t of, std::int64_t all) {
    if (of > 0) share = std::max(share, all > 0 ? static_cast<double>(of) * tasks / static_cast<double>(all) : 1.0);
  };
  part(amounts.cpu_millis, capacity.cpu_millis);
  part(amounts.memory_bytes, capacity.memory_bytes);
  part(amounts.disk_bytes, capacity.disk_bytes);
  part(amounts.gpu_millis, capacity.gpu_millis);
  return share;
}

Amounts times(const Amounts& a, int tasks) {
  return {a.cpu_millis * tasks, a.memory_bytes * tasks, a.disk_bytes * tasks, a.gpu_millis * tasks};
}

Amounts plus(const Amounts& a, const Amounts& b, int sign) {
  return {a.cpu_millis + sign * b.cpu_millis, a.memory_bytes + sign * b.memory_bytes,
          a.disk_bytes + sign * b.disk_bytes, a.gpu_millis + sign * b.gpu_millis};
}

bool may_add(const Amounts& held, const Amounts& more, const Amounts& bound) {
  const auto ok = [](std::int64_t has, std::int64_t asks, std::int64_t most) {
    return asks <= 0 || has + asks <= most;
  };
  return ok(held.cpu_millis, more.cpu_millis, bound.cpu_millis) &&
         ok(held.memory_bytes, more.memory_bytes, bound.memory_bytes) &&
         ok(held.disk_bytes, more.disk_bytes, bound.disk_bytes) &&
         ok(held.gpu_millis, more.gpu_millis, bound.gpu_millis);
}

bool is_about(const Amounts& bound, const Amounts& more) {
  const auto is = [](std::int64_t most, std::int64_t asks) { return most < kUnbounded && asks > 0; };
  return is(bound.cpu_millis, more.cpu_millis) || is(bound.memory_bytes, more.memory_bytes) ||
         is(bound.disk_bytes, more.disk_bytes) || is(bound.gpu_millis, more.gpu_millis);
}

double lately_at(const QueueEntry& queue, Micros now, Micros half_life) {
  const double passed = static_cast<double>((now - queue.lately_at).count());
  if (passed <= 0) return queue.lately;
  const double kept = std::exp2(-passed / static_cast<double>(half_life.count()));
  return queue.lately * kept + queue.share * (1 - kept);
}

Micros patience_of(const Book& book, const Job& job) {
  const Micros longest = book.rules.patience.value_or(book.longest_limit);
  const double rest = 1 - std::min(1.0, dominant_share(job.task, job.tasks_min, book.capacity));
  Micros until = job.submitted + Micros(static_cast<std::int64_t>(static_cast<double>(longest.count()) * rest));
  if (job.deadline != kNever) until = std::min(until, job.deadline - (job.limit != kNever ? job.limit : job.run.p90));
  return std::max(until, job.submitted);
}

State::State(StateRules rules) : book_(std::make_unique<Book>()) {
  book_->rules = rules;
  book_->queues.emplace_back();
}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

void State::set_queues(std::vector<Queue> queues) {
  Book& book = *book_;
  std::map<std::string, int, std::less<>> index;
  for (const Queue& queue : queues) {
    if (queue.name.empty()) throw Error(Code::invalid, "a queue needs a name");
    if (!index.try_emplace(queue.name, static_cast<int>(index.size()) + 1).second) {
      throw Error(Code::invalid, fmt::format("two queues have the name {}", queue.name));
    }
  }
  std::vector<QueueEntry> entries(queues.size() + 1);
  index.clear();
  for (std::size_t i = 0; i < queues.size(); ++i) index[queues[i].name] = static_cast<int>(i) + 1;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const auto parent = queues[i].parent.empty() ? index.end() : index.find(queues[i].parent);
    if (!queues[i].parent.empty() && parent == index.end()) {
      throw Error(Code::invalid, fmt::format("queue {}: no such parent: {}", queues[i].name, queues[i].parent));
    }
    entries[i + 1].parent = queues[i].parent.empty() ? 0 : parent->second;
    entries[i + 1].queue = queues[i];
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    int at = static_cast<int>(i);
    for (std::size_t steps = 0; at > 0; at = entries[at].parent) {
      if (++steps > entries.size()) {
        throw Error(Code::invalid, fmt::format("queue {} is its own ancestor", entries[i].queue.name));
      }
    }
    entries[entries[i].parent].children.push_back(static_cast<int>(i));
  }
  const auto place = [&](const std::string& name) {
    const auto found = index.find(name);
    if (found == index.end()) throw Error(Code::invalid, fmt::format("queue {} has jobs: it cannot go", name));
    return found->second;
  };
  for (const auto& [id, pending] : book.pending) place(pending.job.queue);
  for (const auto& [id, entry] : book.running) place(entry.running.job.queue);

  for (QueueEntry& entry : entries) {
    const auto before = book.queue_index.find(entry.queue.name);
    if (before == book.queue_index.end()) continue;
    entry.lately = book.queues[before->second].lately;
    entry.lately_at = book.queues[before->second].lately_at;
  }
  book.queues = std::move(entries);
  book.queue_index = index;
  for (auto& [id, pending] : book.pending) {
    pending.queue = place(pending.job.queue);
    book.queues[pending.queue].pending.insert(waiting_of(book, pending));
    note_waiting(book, pending.queue, 1);
  }
  for (auto& [id, entry] : book.running) {
    entry.queue = place(entry.running.job.queue);
    const Amounts held = times(entry.running.job.task, tasks_of(entry.running.placement));
    for (int at = entry.queue; at >= 0; at = book.queues[at].parent) {
      book.queues[at].held = plus(book.queues[at].held, held);
      book.queues[at].share = dominant_share(book.queues[at].held, 1, book.capacity);
    }
  }
}

int State::set_node(Node node) {
  Book& book = *book_;
  if (node.name.empty()) throw Error(Code::invalid, "a node needs a name");
  if (node.devices.size() > kDevicesMax) {
    throw Error(Code::invalid,
                fmt::format("node {}: at most {} devices: {}", node.name, kDevicesMax, node.devices.size()));
  }
  node.capacity.gpu_millis = static_cast<std::int64_t>(node.devices.size()) * kWholeDevice;
  const auto known = book.node_index.find(node.name);
  if (known != book.node_index.end()) {
    const int at = known->second;
    const Node& before = book.nodes[at];
    const Amounts grown = plus(node.capacity, before.capacity, -1);
    if (node.devices.size() != before.devices.size() && book.truly_free[at].device != [&] {
          std::array<std::int16_t, kDevicesMax> all{};
          std::fill_n(all.begin(), before.devices.size(), static_cast<std::int16_t>(kWholeDevice));
          return all;
        }()) {
      throw Error(Code::conflict, fmt::format("node {}: its devices are in use", node.name));
    }
    if (before.up) book.capacity = plus(book.capacity, before.capacity, -1);
    if (node.up) book.capacity = plus(book.capacity, node.capacity);
    Free& free = book.truly_free[at];
    free.cpu += grown.cpu_millis;
    free.memory += grown.memory_bytes;
    free.disk += grown.disk_bytes;
    if (node.devices.size() != before.devices.size()) {
      free.device = {};
      std::fill_n(free.device.begin(), node.devices.size(), static_cast<std::int16_t>(kWholeDevice));
    }
    book.node_kind[at] = kind_of(book, node);
    book.nodes[at] = std::move(node);
    publish(book, at);
    return at;
  }
  const int at = static_cast<int>(book.nodes.size());
  Free free{node.capacity.cpu_millis, node.capacity.memory_bytes, node.capacity.disk_bytes, {}};
  std::fill_n(free.device.begin(), node.devices.size(), static_cast<std::int16_t>(kWholeDevice));
  book.node_index.emplace(node.name, at);
  book.node_kind.push_back(kind_of(book, node));
  if (node.up) book.capacity = plus(book.capacity, node.capacity);
  book.nodes.push_back(std::move(node));
  book.truly_free.push_back(free);
  book.on_node.emplace_back();
  if (book.free.size() < book.nodes.size()) book.free.resize(book.nodes.size());
  publish(book, at);
  return at;
}

void State::set_up(int node, bool up) {
  Node changed = book_->nodes.at(static_cast<std::size_t>(node));
  changed.up = up;
  set_node(std::move(changed));
}

void State::know(const Job& job) { ask_of(*book_, job); }

void State::add(Job job) {
  if (book_->pending.contains(job.id) || book_->running.contains(job.id)) {
    throw Error(Code::exists, fmt::format("job is known already: {}", job.id.str()));
  }
  insert(*book_, std::move(job));
}

void State::change(Job job) {
  const auto found = book_->pending.find(job.id);
  if (found == book_->pending.end()) throw Error(Code::not_found, fmt::format("not pending: {}", job.id.str()));
  if (!book_->queue_index.contains(job.queue)) throw Error(Code::invalid, fmt::format("no such queue: {}", job.queue));
  extract(*book_, found);
  insert(*book_, std::move(job));
}

void State::remove(JobId job, Micros now) {
  if (const auto found = book_->pending.find(job); found != book_->pending.end()) extract(*book_, found);
  if (const auto found = book_->running.find(job); found != book_->running.end()) leave(*book_, found, now);
}

void State::start(const Start& start, Micros now) {
  Book& book = *book_;
  const auto found = book.pending.find(start.job);
  if (found == book.pending.end()) throw Error(Code::not_found, fmt::format("not pending: {}", start.job.str()));
  const Pending& pending = found->second;
  const int tasks = tasks_of(start.placement);
  if (tasks < pending.job.tasks_min || tasks > pending.job.tasks_max) {
    throw Error(Code::conflict,
                fmt::format("needs {}..{} tasks, placed: {}", pending.job.tasks_min, pending.job.tasks_max, tasks));
  }
  const Amounts taken = times(pending.job.task, tasks);
  check_limits(book, pending.queue, taken);
  occupy(book, pending.ask, start.placement);
  RunningEntry entry{{{}, start.placement, now, {}, start.trial, false, kNever},
                     pending.ask,
                     pending.queue,
                     kNever,
                     pending.patient_until};
  entry.running.job = extract(book, found);
  hold(book, entry.queue, taken, 1, now);
  const Job& job = entry.running.job;
  const Micros ends_by = moment_after(now, lasts(job));
  RunningEntry& kept = book.running.emplace(start.job, std::move(entry)).first->second;
  settle(book, kept);
  note_end(book, kept, ends_by);
  index(book, kept);
}

void State::resize(JobId job, Placement placement, Micros now) {
  Book& book = *book_;
  RunningEntry& entry = find_running(book, job)->second;
  const int before = tasks_of(entry.running.placement);
  const int after = tasks_of(placement);
  if (after < entry.running.job.tasks_min || after > entry.running.job.tasks_max) {
    throw Error(Code::conflict, fmt::format("needs {}..{} tasks, placed: {}", entry.running.job.tasks_min,
                                            entry.running.job.tasks_max, after));
  }
  if (after > before) check_limits(book, entry.queue, times(entry.running.job.task, after - before));
  vacate(book, entry.ask, entry.running.placement);
  try {
    occupy(book, entry.ask, placement);
  } catch (const Error&) {
    occupy(book, entry.ask, entry.running.placement);
    throw;
  }
  hold(book, entry.queue, times(entry.running.job.task, after - before), 1, now);
  unsettle(book, entry);
  entry.running.placement = std::move(placement);
  settle(book, entry);
  forget(book, entry);
  index(book, entry);
}

void State::keep(JobId job) {
  RunningEntry& entry = find_running(*book_, job)->second;
  forget(*book_, entry);
  entry.running.trial = false;
  index(*book_, entry);
  note_end(*book_, entry, entry.ends_by);
}

void State::stopping(JobId job, Micros gone_by) {
  RunningEntry& entry = find_running(*book_, job)->second;
  entry.running.stopping = true;
  entry.running.stops_by = gone_by;
  forget(*book_, entry);
  entry.running.trial = false;
  book_->stopping.insert(job);
  note_end(*book_, entry, std::min(entry.ends_by, gone_by));
}

void State::checkpointed(JobId job, Micros at) { find_running(*book_, job)->second.running.checkpointed = at; }

void State::note_promises(const Plan& plan) {
  const auto firm = std::ranges::find(plan.promised, true, &Promised::firm);
  book_->firm = firm == plan.promised.end() ? JobId{} : firm->job;
  book_->certain = firm != plan.promised.end() && !firm->guessed;
}

void State::requeue(Job job, Micros now) {
  leave(*book_, find_running(*book_, job.id), now);
  insert(*book_, std::move(job));
}

std::span<const Node> State::nodes() const { return book_->nodes; }

int State::node(std::string_view name) const {
  const auto found = book_->node_index.find(name);
  return found == book_->node_index.end() ? -1 : found->second;
}

const Job* State::pending(JobId job) const {
  const auto found = book_->pending.find(job);
  return found == book_->pending.end() ? nullptr : &found->second.job;
}

const Running* State::running(JobId job) const {
  const auto found = book_->running.find(job);
  return found == book_->running.end() ? nullptr : &found->second.running;
}

std::size_t State::pending_count() const { return book_->pending.size(); }
std::size_t State::running_count() const { return book_->running.size(); }

std::vector<JobId> State::pending_ids() const {
  std::vector<JobId> ids;
  for (const QueueEntry& queue : book_->queues) {
    for (const Waiting& waiting : queue.pending) ids.push_back(waiting.key.id);
  }
  return ids;
}

std::vector<JobId> State::running_ids() const {
  std::vector<JobId> ids;
  for (const auto& [id, entry] : book_->running) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

Amounts State::free_of(int node) const {
  const Free& free = book_->truly_free.at(static_cast<std::size_t>(node));
  std::int64_t gpu = 0;
  for (const int millis : free.device) gpu += millis;
  return {free.cpu, free.memory, free.disk, gpu};
}

Amounts State::capacity() const { return book_->capacity; }

Amounts State::held_by(std::string_view queue) const {
  const auto found = book_->queue_index.find(queue);
  return found == book_->queue_index.end() ? Amounts{} : book_->queues[found->second].held;
}

double State::share_of(std::string_view queue, Micros now) const {
  const auto found = book_->queue_index.find(queue);
  if (found == book_->queue_index.end()) return 0;
  const QueueEntry& entry = book_->queues[found->second];
  return entry.share + lately_at(entry, now, book_->rules.usage_half_life);
}

}  // namespace falaj::schedule
