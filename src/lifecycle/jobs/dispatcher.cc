// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/log.h"

namespace falaj::jobs {
namespace {

using schedule::kNever;

constexpr int kTriesMax = 8;    // to prepare what perhaps runs already
constexpr int kMissingMax = 2;  // one report may have been made before the executor knew of it

Micros micros(std::int64_t us) { return Micros(us); }

// Nodes while what runs on them is put back: whatever was given once stays given, even where it would not be today.
constexpr std::int64_t kPlenty = std::int64_t{1} << 55;
void roomy(schedule::Node& node) {
  node.up = true;
  node.capacity.cpu_millis += kPlenty;
  node.capacity.memory_bytes += kPlenty;
  node.capacity.disk_bytes += kPlenty;
}

std::string owner_of(const schedule::Node& node) {
  const auto found = node.labels.find(std::string(kExecutorLabel));
  return found == node.labels.end() ? "" : found->second;
}

std::string array_group(const std::string& array) { return "array " + array; }

}  // namespace

Dispatcher::Dispatcher(Parts parts, DispatcherOptions options)
    : book_(parts.book),
      hands_(parts.hands),
      clock_(parts.clock),
      parts_(std::move(parts)),
      options_(options),
      probe_(parts_.metrics),
      state_(options.rules),
      waits_(std::make_shared<const std::vector<schedule::Wait>>()),
      outlook_(std::make_shared<const Outlook>()) {}

void Dispatcher::tell(News news) {
  Lock lock(mu_);
  news_.push_back(std::move(news));
  told_.notify_all();
}

void Dispatcher::wake() {
  Lock lock(mu_);
  woken_ = true;
  told_.notify_all();
}

void Dispatcher::wait(Micros until) {
  constexpr Micros kLongest = std::chrono::seconds(60);  // the wall clock may jump
  Lock lock(mu_);
  const auto left = std::min(until == kNever ? kLongest : until - clock_.wall(), kLongest);
  if (news_.empty() && !woken_ && left > Micros(0)) lock.wait_for(told_, left);
  woken_ = false;
}

std::shared_ptr<const Outlook> Dispatcher::outlook() const {
  Lock lock(mu_);
  return outlook_;
}

std::optional<schedule::Guess> Dispatcher::start_of(JobId job) const {
  Lock lock(mu_);
  const auto found = starts_.find(job);
  return found == starts_.end() ? std::nullopt : std::optional(found->second);
}

// ---- what it is told

Dispatcher::Live* Dispatcher::find(JobId id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

void Dispatcher::take(Submitted&& news) {
  for (auto& record : news.records) {
    if (find(record.id)) continue;
    probe_.submitted.Increment();
    enter(add(std::move(record)));
  }
}

void Dispatcher::take(Wished&& news) {
  auto* live = find(news.wish.job);
  if (!live) {  // it has ended; perhaps it is to begin again
    auto record = book_.find(news.wish.job);
    if (!record) return;
    live = &add(std::move(*record));
  }
  change_of(*live).granted = news.wish.what;
  if (news.wish.what == "cancel")
    apply(*live, CancelAsked{news.wish.by});
  else if (news.wish.what == "requeue")
    apply(*live, RequeueAsked{news.wish.by});
  if (has_ended(live->record.life.phase)) gone_.push_back(live->record.id);
}

void Dispatcher::take(Started&& news) {
  auto* live = find(news.job);
  if (!live || live->record.life.epoch != news.epoch || !is_placed(live->record.life.phase)) return;
  live->start_again = kNever;
  if (!news.problem) {
    live->acknowledged = true;
    live->missing = 0;
    apply(*live, Acknowledged{news.run_id});
  } else if (news.problem->retryable() || (!news.asked && live->ambiguous && live->tries < kTriesMax)) {
    // Perhaps it was started and only the answer was lost: the same attempt is started again, never another.
    const auto wait = std::min(options_.start_wait * (1 << std::min(live->tries, 16)), options_.start_wait_max);
    live->tries += 1;
    live->ambiguous |= news.asked;
    live->start_again = now_ + wait;
    log::warn("job_not_started", {{"job", live->record.id.str()}, {"why", news.problem->what()}});
  } else {
    apply(*live, Refused{news.problem->what()});
  }
  arm(*live);
}

void Dispatcher::take(KeptAll&& news) {
  if (auto* live = find(news.job); live && live->record.life.epoch == news.epoch) apply(*live, Kept{news.problem});
}

void Dispatcher::plan_deed(const Live& live, Effect effect) {
  deeds_.push_back({live.record.id, effect, live.record.life.executor, live.record.attempt()});
}

// What is not the newest attempt of a job that holds a place is of the past, or not ours.
void Dispatcher::refuse_stray(const std::string& executor, const execute::Report& report) {
  if (report.phase == execute::Phase::ended) {
    deeds_.push_back({{}, Effect::forget, executor, report.attempt});
    return;
  }
  probe_.strays.Increment();
  log::warn("stray_attempt", {{"attempt", report.attempt}, {"executor", executor}});
  deeds_.push_back({{}, Effect::stop, executor, report.attempt});
}

void Dispatcher::take(Seen&& news) {
  std::set<JobId> there;
  for (auto& report : news.reports) {
    const auto name = parse_attempt(report.attempt);
    auto* live = name ? find(name->job) : nullptr;
    if (!live || live->record.life.epoch != name->epoch || !is_placed(live->record.life.phase)) {
      refuse_stray(news.executor, report);
      continue;
    }
    there.insert(name->job);
    live->acknowledged = true;
    live->missing = 0;
    live->start_again = kNever;
    apply(*live, Reported{std::move(report)});
    arm(*live);
  }
  for (const auto id : placed_) {
    auto& live = live_.at(id);
    if (!live.acknowledged || live.record.life.executor != news.executor || there.contains(id)) continue;
    if (++live.missing < kMissingMax) continue;
    // It acknowledged the attempt and knows nothing of it. Starting the same attempt is right whether it runs or not.
    live.missing = 0;
    live.acknowledged = false;
    log::warn("job_unknown_to_executor", {{"job", id.str()}, {"executor", news.executor}});
    plan_deed(live, Effect::start);
  }
}

void Dispatcher::take(NodesSeen&& news) {
  nodes_[news.executor] = std::move(news.nodes);
  refresh_nodes(news.executor);
}

void Dispatcher::take(RulesChanged&&) {
  rules_ = parts_.rules();
  set_queues();
  refresh_jobs();
  set_queues();
  for (const auto& entry : nodes_) refresh_nodes(entry.first);
}

// As the rules have them, and those that are declared no more but still hold jobs.
void Dispatcher::set_queues() {
  auto queues = rules_.queues;
  if (restoring_)
    for (auto& queue : queues) queue.limit.reset();
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
    if (node.up && owner_of(node) == executor && !there.contains(node.name)) state_.set_up(static_cast<int>(i), false);
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

// ---- one job

schedule::Job Dispatcher::job_of(const Live& live) const {
  const auto& executor = rules_.executor_of(*live.record.spec);
  const auto zoned = zoned_.find(executor);
  const bool asks = zoned != zoned_.end() && zoned->second;
  auto job = to_job(live.record, rules_, asks ? parts_.zone(live.record.where) : "", parts_.guess(live.record));
  job.held = live.held;
  return job;
}

Dispatcher::Live& Dispatcher::add(Record record) {
  const auto id = record.id;
  auto& live = live_[id];
  live.record = std::move(record);
  const auto& spec = *live.record.spec;
  if (!live.record.array.empty()) {
    members_[live.record.array] += 1;
    if (spec.array && spec.array->parallel > 0) {
      live.groups.push_back(array_group(live.record.array));
      groups_.set_limit(live.groups.back(), spec.array->parallel);
    }
  }
  for (const auto& [name, limit] : parts_.quotas(live.record.where)) {
    live.groups.push_back(name);
    groups_.set_limit(name, limit);
  }
  return live;
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
    state_.start({live.record.id, placement_of(live.record), false}, micros(since));
    if (life.checkpointed_us > 0) state_.checkpointed(live.record.id, micros(life.checkpointed_us));
    if (!life.stop.empty()) state_.stopping(live.record.id, now_ + micros(live.record.spec->grace_us));
  } catch (const Error& e) {  // devices that are no more: it must make room
    state_.remove(live.record.id, now_);
    log::error("job_without_room", {{"job", live.record.id.str()}, {"why", e.what()}});
    apply(live, RequeueAsked{"the platform, as its node has changed"});
  }
  if (life.phase == Phase::starting) plan_deed(live, Effect::start);
  live.acknowledged = life.phase != Phase::starting;
  live.ambiguous = true;
  if (!life.stop.empty()) plan_deed(live, Effect::stop);
  arm(live);
}

Change& Dispatcher::change_of(Live& live) {
  if (!live.change) {
    live.change = changes_.size();
    changes_.emplace_back().record = &live.record;
    changed_.push_back(live.record.id);
  }
  return changes_[*live.change];
}

void Dispatcher::apply(Live& live, const Event& event) {
  auto& record = live.record;
  const auto was = record.life.phase;
  const auto why = record.life.why;
  const bool was_stopping = !record.life.stop.empty();
  auto made = next(*record.spec, record.life, event, now_.count());
  if (!made.changed && !made.spent && made.effects.empty()) return;
  record.life = std::move(made.life);
  for (const auto effect : made.effects) plan_deed(live, effect);
  if (!made.changed && !made.spent) return;
  auto& change = change_of(live);
  if (record.life.phase != was || record.life.why != why)
    change.transitions.push_back({0, now_.count(), record.life.epoch, record.life.phase, record.life.why});
  if (made.spent) {
    const auto seconds = static_cast<double>(made.spent->ended_us - made.spent->started_us) / 1e6;
    std::int64_t tasks = 0;
    for (const auto& place : made.spent->places) tasks += place.tasks;
    probe_.cpu_seconds.Increment(seconds * record.spec->cpus * static_cast<double>(tasks));
    probe_.gpu_seconds.Increment(seconds * record.spec->gpus * static_cast<double>(tasks));
    if (made.spent->reason != "finished" && made.spent->reason != "checkpointed")
      probe_.lost_cpu_seconds.Increment(seconds * record.spec->cpus * static_cast<double>(tasks));
    if (made.spent->reason == "node_lost") probe_.lost.Increment();
    if (parts_.learn) parts_.learn(record, *made.spent);
    change.spent.push_back(std::move(*made.spent));
  }
  follow(live, was, was_stopping);
}

void Dispatcher::follow(Live& live, Phase was, bool was_stopping) {
  const auto& life = live.record.life;
  const auto id = live.record.id;
  plan_due_ = true;
  if (was == Phase::starting && life.phase != Phase::starting && life.started_us > 0) {
    probe_.started.Increment();
    probe_.start_seconds.Observe(static_cast<double>(now_.count() - life.placed_us) / 1e6);
    if (life.epoch == 1)
      probe_.wait_seconds.Observe(static_cast<double>(life.placed_us - live.record.submitted_us) / 1e6);
  }
  if (is_placed(was) && !is_placed(life.phase)) {
    placed_.erase(id);
    live.acknowledged = false;
    live.start_again = live.stop_again = kNever;
    live.tries = live.missing = 0;
    live.ambiguous = false;
    if (life.phase == Phase::pending) {
      if (state_.running(id))
        state_.requeue(job_of(live), now_);
      else
        state_.add(job_of(live));
      consider(live);
    } else {
      state_.remove(id, now_);
    }
  } else if (!was_stopping && !life.stop.empty()) {
    if (state_.running(id)) state_.stopping(id, now_ + micros(live.record.spec->grace_us));
  }
  if (has_ended(was) && life.phase == Phase::pending) enter(live);
  if (!is_placed(was) && !has_ended(was) && (has_ended(life.phase) || life.phase == Phase::finishing))
    state_.remove(id, now_);
  if (has_ended(life.phase)) ended(live);
  arm(live);
}

void Dispatcher::ended(Live& live) {
  const auto& record = live.record;
  switch (record.life.phase) {
    case Phase::succeeded:
      probe_.succeeded.Increment();
      break;
    case Phase::failed:
      probe_.failed.Increment();
      break;
    default:
      probe_.cancelled.Increment();
  }
  gone_.push_back(record.id);
}

// Why a job can never begin: something it needs ended otherwise than well. Drops what it waits for no more.
std::optional<std::string> Dispatcher::doom_of(Live& live) {
  const auto& ok = live.record.spec->after.ok;
  for (auto it = live.waits_for.begin(); it != live.waits_for.end();) {
    const auto outcome = book_.outcome(*it);
    if (outcome && outcome->live > 0) {
      ++it;
      continue;
    }
    const bool must_succeed = std::find(ok.begin(), ok.end(), *it) != ok.end();
    if (must_succeed && (!outcome || outcome->succeeded < outcome->members))
      return fmt::format("job {}, which had to succeed before, did not", *it);
    dependents_[*it].erase(live.record.id);
    it = live.waits_for.erase(it);
  }
  return std::nullopt;
}

void Dispatcher::consider(Live& live) {
  const auto& life = live.record.life;
  if (life.phase != Phase::pending && life.phase != Phase::admitted) return;
  if (!live.waits_for.empty())
    if (const auto doom = doom_of(live)) return apply(live, Doomed{*doom});
  std::string held;
  if (!live.waits_for.empty()) {
    held = "job " + *live.waits_for.begin();
  } else if (!live.groups.empty() && !live.grouped) {
    if (const auto* full = groups_.enter(live.record.id, live.groups))
      held = *full + ", which has as many at once as it may";
    else
      live.grouped = true;
  }
  if (held != live.held) {
    live.held = held;
    state_.change(job_of(live));
    plan_due_ = true;
  }
  if (held.empty() && life.not_before_us <= now_.count()) apply(live, Released{});
}

// How long it will wait, said when it comes and held against what happens. Of many that come together, or wait, only
// some are looked at: each costs a look at all the others.
void Dispatcher::foretell(Live& live) {
  constexpr std::size_t kForetoldMax = 2000;
  if (live.record.array_index > 0 || state_.pending_count() > kForetoldMax || !live.held.empty()) return;
  const auto* job = state_.pending(live.record.id);
  if (!job) return;
  live.crowd = schedule::crowd(state_, *job, now_);
  live.told = forecast_.guess(*live.crowd);
  if (!forecast_.knows_enough()) return;
  Lock lock(mu_);
  starts_[live.record.id] = {now_ + live.told.p50, now_ + live.told.p90, 0};
}

void Dispatcher::foretold(Live& live) {
  if (live.crowd && live.record.life.epoch == 1)
    forecast_.learn(*live.crowd, now_ - micros(live.record.submitted_us), live.told);
  live.crowd.reset();
  Lock lock(mu_);
  starts_.erase(live.record.id);
}

void Dispatcher::arm(Live& live) {
  auto at = std::min(live.start_again, live.stop_again);
  const auto& life = live.record.life;
  if (!live.record.spec->deadline.empty() && !has_ended(life.phase) && life.phase != Phase::finishing &&
      life.stop != kStopDeadline && life.stop != kStopCancel)
    at = std::min(at, micros(parse_time(live.record.spec->deadline).value_or(0)));
  if (at == live.timer) return;
  timers_.erase({live.timer, live.record.id});
  live.timer = at;
  if (at != kNever) timers_.insert({at, live.record.id});
}

void Dispatcher::look_at_timers() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const auto id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    auto* live = find(id);
    if (!live) continue;
    live->timer = kNever;
    if (live->start_again <= now_) {
      live->start_again = kNever;
      if (live->record.life.phase == Phase::starting) plan_deed(*live, Effect::start);
    }
    if (live->stop_again <= now_) {
      live->stop_again = kNever;
      plan_deed(*live, Effect::stop);
    }
    const auto& deadline = live->record.spec->deadline;
    if (!deadline.empty() && micros(parse_time(deadline).value_or(0)) <= now_) apply(*live, DeadlinePassed{});
    arm(*live);
  }
}

// ---- placing

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

void Dispatcher::begin(const schedule::Start& start) {
  auto* live = find(start.job);
  if (!live) return;
  const auto executor = rules_.executor_of(*live->record.spec);
  try {
    state_.start(start, now_);
  } catch (const Error& e) {  // planned again with what is there now
    log::warn("plan_rejected", {{"job", start.job.str()}, {"why", e.what()}});
    plan_due_ = true;
    return;
  }
  apply(*live, Released{});
  apply(*live, Placed{executor, places_of(start.placement), start.trial});
  placed_.insert(start.job);
  foretold(*live);
}

void Dispatcher::plan() {
  if (!plan_due_ && now_ < look_again_) return;
  plan_due_ = false;
  const auto began = clock_.now();
  auto made = schedule::plan(state_, options_.policy, now_);
  probe_.plan_seconds.Observe(static_cast<double>((clock_.now() - began).count()) / 1e6);
  look_again_ = made.look_again;
  for (const auto& start : made.starts) begin(start);
  for (const auto id : made.keeps)
    if (auto* live = find(id)) {
      state_.keep(id);
      live->record.life.trial = false;
    }
  for (const auto& preempt : made.preempts)
    if (auto* live = find(preempt.job)) {
      probe_.preempted.Increment();
      apply(*live, Displaced{"job " + preempt.in_favour_of.str()});
    }
  waits_ = std::make_shared<const std::vector<schedule::Wait>>(std::move(made.waits));
  state_.note_promises(made);
  promised_ = std::move(made.promised);
  plan_due_ = false;  // its own starts are what it planned for
}

// ---- the step

void Dispatcher::write() {
  if (changes_.empty()) return;
  probe_.changes_per_write.Observe(static_cast<double>(changes_.size()));
  book_.write(changes_);
  for (const auto id : changed_) live_.at(id).change.reset();
  changes_.clear();
  changed_.clear();
}

void Dispatcher::act() {
  for (const auto& deed : std::exchange(deeds_, {})) {
    auto* live = find(deed.job);
    const bool newest = live && live->record.attempt() == deed.attempt;
    switch (deed.effect) {
      case Effect::start:
        if (newest && is_placed(live->record.life.phase)) hands_.start(live->record);
        break;
      case Effect::stop: {
        const auto grace = live ? micros(live->record.spec->grace_us) : Micros(0);
        hands_.stop(deed.executor, deed.attempt, grace);
        if (!newest || !is_placed(live->record.life.phase)) break;
        live->stop_again = now_ + grace + options_.stop_wait;
        arm(*live);
        break;
      }
      case Effect::forget:
        hands_.forget(deed.executor, deed.attempt);
        break;
      case Effect::keep:
        if (live) hands_.keep(live->record);
        break;
      case Effect::tidy:
        if (live) hands_.tidy(live->record);
        break;
    }
  }
}

void Dispatcher::publish() {
  // Looking at thousands for every job that starts would cost more than starting it.
  constexpr std::size_t kMany = 1000;
  if (state_.nodes().size() + live_.size() > kMany && now_ < published_ + std::chrono::seconds(1)) return;
  published_ = now_;
  auto outlook = std::make_shared<Outlook>();
  outlook->at = now_;
  outlook->waits = waits_;
  outlook->nodes.assign(state_.nodes().begin(), state_.nodes().end());
  outlook->promised = promised_;
  std::map<std::string_view, std::size_t> index;
  for (const auto& queue : rules_.queues) {
    index[queue.name] = outlook->queues.size();
    outlook->queues.push_back({queue, state_.held_by(queue.name), 0, 0});
  }
  for (const auto& entry : live_) {
    const auto id = entry.first;
    const auto* waiting = state_.pending(id);
    const auto* running = waiting ? nullptr : state_.running(id);
    const auto found = waiting ? index.find(waiting->queue) : running ? index.find(running->job.queue) : index.end();
    if (found != index.end())
      (waiting ? outlook->queues[found->second].pending : outlook->queues[found->second].running) += 1;
  }
  outlook->pending = state_.pending_count();
  outlook->running = state_.running_count();
  double cpus = 0, cpus_free = 0, gpus = 0, gpus_free = 0, up = 0;
  for (std::size_t i = 0; i < outlook->nodes.size(); ++i) {
    outlook->free.push_back(state_.free_of(static_cast<int>(i)));
    const auto& node = outlook->nodes[i];
    if (!node.up) continue;
    up += 1;
    cpus += static_cast<double>(node.capacity.cpu_millis);
    gpus += static_cast<double>(node.capacity.gpu_millis);
    cpus_free += static_cast<double>(outlook->free[i].cpu_millis);
    gpus_free += static_cast<double>(outlook->free[i].gpu_millis);
  }
  probe_.pending.Set(static_cast<double>(outlook->pending));
  probe_.running.Set(static_cast<double>(outlook->running));
  probe_.nodes_up.Set(up);
  probe_.cpu_free_ratio.Set(cpus > 0 ? cpus_free / cpus : 0);
  probe_.gpu_free_ratio.Set(gpus > 0 ? gpus_free / gpus : 0);
  Lock lock(mu_);
  outlook_ = std::move(outlook);
}

void Dispatcher::let_go(Live live) {
  const auto id = live.record.id;
  timers_.erase({live.timer, id});
  {
    Lock lock(mu_);
    starts_.erase(id);
  }
  std::vector<std::string> freed{id.str()};
  if (const auto& array = live.record.array; !array.empty() && --members_[array] == 0) {
    members_.erase(array);
    freed.push_back(array);
  }
  for (const auto& name : freed) {
    const auto waiting = dependents_.find(name);
    if (waiting == dependents_.end()) continue;
    const auto ids = waiting->second;  // considering them changes it
    for (const auto dependent : ids)
      if (auto* other = find(dependent)) consider(*other);
    dependents_.erase(name);
  }
  for (const auto& name : live.waits_for)
    if (const auto others = dependents_.find(name); others != dependents_.end()) others->second.erase(id);
  groups_.forget(id, live.groups);
  if (live.grouped) groups_.leave(live.groups);
  for (const auto& group : live.groups)
    while (const auto other = groups_.next(group))
      if (auto* let_in = find(*other)) consider(*let_in);
}

Micros Dispatcher::step() {
  std::vector<News> news;
  {
    Lock lock(mu_);
    const auto many = std::min(news_.size(), options_.news_per_step);
    news.assign(std::make_move_iterator(news_.begin()),
                std::make_move_iterator(news_.begin() + static_cast<std::ptrdiff_t>(many)));
    news_.erase(news_.begin(), news_.begin() + static_cast<std::ptrdiff_t>(many));
  }
  const auto began = clock_.now();
  now_ = clock_.wall();
  bool known_now = false;
  for (auto& item : news) {
    auto* nodes = std::get_if<NodesSeen>(&item);
    if (!nodes || !awaited_.contains(nodes->executor)) continue;
    nodes_[nodes->executor] = nodes->nodes;
    known_now = true;
  }
  if (known_now) load();  // what is there can be told from what was made up only by looking at all of it again
  for (auto& item : news) std::visit([this](auto&& one) { take(std::move(one)); }, item);
  look_at_timers();
  plan();
  write();
  act();
  // Those that ended are known only to the database from now on, and whoever waited for them may go on.
  for (const auto id : std::exchange(gone_, {})) {
    const auto found = live_.find(id);
    if (found == live_.end() || !has_ended(found->second.record.life.phase)) continue;
    auto live = std::move(found->second);
    live_.erase(found);
    let_go(std::move(live));
  }
  publish();
  probe_.step_seconds.Observe(static_cast<double>((clock_.now() - began).count()) / 1e6);
  const bool more = plan_due_ || !changes_.empty() || !gone_.empty() || !deeds_.empty();
  if (more) return now_;
  return std::min(look_again_, timers_.empty() ? kNever : timers_.begin()->first);
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
