// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "foundation/base/log.h"

namespace falaj::jobs {
namespace {

constexpr int kTriesMax = 8;    // to prepare what perhaps runs already
constexpr int kMissingMax = 2;  // one report may have been made before the executor knew of it

// Of one resource, over all nodes that are up.
struct Sums {
  double all = 0, free = 0, pieces = 0;
  void add(std::int64_t has, std::int64_t left) {
    all += static_cast<double>(has);
    free += static_cast<double>(left);
    if (left < has) pieces += static_cast<double>(left);
  }
  double used() const { return all > 0 ? 1 - free / all : 0; }
  double fragmented() const { return free > 0 ? pieces / free : 0; }
};

}  // namespace

using schedule::kNever;

Dispatcher::Dispatcher(Parts parts, DispatcherOptions options)
    : book_(parts.book),
      hands_(parts.hands),
      clock_(parts.clock),
      parts_(std::move(parts)),
      options_(options),
      probe_(parts_.metrics),
      state_(options.rules),
      pools_(parts_.metrics),
      waits_(std::make_shared<const std::vector<schedule::Wait>>()),
      outlook_(std::make_shared<const Outlook>()) {}

void Dispatcher::tell(News news) {
  Lock lock(mu_);
  if (auto* seen = std::get_if<Seen>(&news))
    seen_[seen->executor] = std::move(*seen);
  else if (auto* nodes = std::get_if<NodesSeen>(&news))
    nodes_seen_[nodes->executor] = std::move(*nodes);
  else
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
  if (news_.empty() && seen_.empty() && nodes_seen_.empty() && !woken_ && left > Micros(0)) lock.wait_for(told_, left);
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
    live->acknowledged = live->ambiguous = true;
    live->missing = 0;
    apply(*live, Acknowledged{news.run_id});
  } else if (news.problem->retryable() ||
             (!news.asked && live->ambiguous && std::min(live->tries, live->absent) < kTriesMax)) {
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
    live->acknowledged = live->ambiguous = true;
    live->missing = live->absent = 0;
    live->start_again = kNever;
    const auto& record = live->record;
    apply(*live, Reported{std::move(report), record.spec->run.make ? run_id_of(record.id) : ""});
    arm(*live);
  }
  for (const auto id : placed_) {
    auto& live = live_.at(id);
    if (live.record.life.executor != news.executor || there.contains(id)) continue;
    ++live.absent;
    if (!live.acknowledged || ++live.missing < kMissingMax) continue;
    // It acknowledged the attempt and knows nothing of it. Starting the same attempt is right whether it runs or not.
    live.missing = 0;
    live.acknowledged = false;
    log::warn("job_unknown_to_executor", {{"job", id.str()}, {"executor", news.executor}});
    plan_deed(live, Effect::start);
  }
}

void Dispatcher::begin(const schedule::Start& start) {
  auto* live = find(start.job);
  if (!live) return;
  const auto executor = rules_.executor_of(live->record);
  try {
    state_.start(start, now_);
  } catch (const Error& e) {  // planned again with what is there now
    log::warn("plan_rejected", {{"job", start.job.str()}, {"why", e.what()}});
    plan_due_ = true;
    return;
  }
  auto places = places_of(start.placement);
  for (const auto& place : places) pools_.uses(place.node);
  apply(*live, Released{});
  apply(*live, Placed{executor, std::move(places), start.trial});
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
  for (const auto& resize : made.resizes) grow(resize);
  waits_ = std::make_shared<const std::vector<schedule::Wait>>(std::move(made.waits));
  state_.note_promises(made);
  promised_ = std::move(made.promised);
  plan_due_ = false;  // its own starts are what it planned for
}

void Dispatcher::write() {
  if (const auto changed = pools_.take_changes(); !changed.empty()) book_.write_pools(changed);
  if (changes_.empty()) return;
  probe_.changes_per_write.Observe(static_cast<double>(changes_.size()));
  book_.write(changes_);
  for (const auto id : changed_) live_.at(id).change.reset();
  changes_.clear();
  changed_.clear();
}

void Dispatcher::act() {
  for (const auto& order : std::exchange(orders_, {})) hands_.scale(order);
  for (const auto& deed : std::exchange(deeds_, {})) {
    auto* live = find(deed.job);
    const bool newest = live && live->record.attempt() == deed.attempt;
    switch (deed.effect) {
      case Effect::start:
        if (newest && is_placed(live->record.life.phase)) hands_.start(live->record);
        break;
      case Effect::stop: {
        const auto grace = live ? Micros(live->record.spec->grace_us) : Micros(0);
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
  double idle = 0;
  for (const auto& entry : live_) {
    const auto id = entry.first;
    idle += entry.second.record.life.phase == Phase::running && entry.second.record.life.idle_since_us > 0;
    const auto* waiting = state_.pending(id);
    const auto* running = waiting ? nullptr : state_.running(id);
    const auto found = waiting ? index.find(waiting->queue) : running ? index.find(running->job.queue) : index.end();
    if (found != index.end())
      (waiting ? outlook->queues[found->second].pending : outlook->queues[found->second].running) += 1;
  }
  outlook->pools = pools_.views(state_, rules_);
  outlook->pending = state_.pending_count();
  outlook->running = state_.running_count();
  Sums cpu, gpu, memory;
  double up = 0;
  for (std::size_t i = 0; i < outlook->nodes.size(); ++i) {
    outlook->free.push_back(state_.free_of(static_cast<int>(i)));
    const auto& node = outlook->nodes[i];
    if (!node.up) continue;
    up += 1;
    cpu.add(node.capacity.cpu_millis, outlook->free[i].cpu_millis);
    gpu.add(node.capacity.gpu_millis, outlook->free[i].gpu_millis);
    memory.add(node.capacity.memory_bytes, outlook->free[i].memory_bytes);
  }
  for (const auto& queue : outlook->queues)
    parts_.metrics.gauge("falaj_jobs_queue_pending", "Jobs that wait in a queue.", {{"queue", queue.queue.name}})
        .Set(static_cast<double>(queue.pending));
  probe_.idle.Set(idle);
  probe_.pending.Set(static_cast<double>(outlook->pending));
  probe_.running.Set(static_cast<double>(outlook->running));
  probe_.nodes_up.Set(up);
  probe_.cpu_free_ratio.Set(cpu.all > 0 ? cpu.free / cpu.all : 0);
  probe_.gpu_free_ratio.Set(gpu.all > 0 ? gpu.free / gpu.all : 0);
  probe_.cpu_used_ratio.Set(cpu.used());
  probe_.gpu_used_ratio.Set(gpu.used());
  probe_.memory_used_ratio.Set(memory.used());
  probe_.cpu_fragmented_ratio.Set(cpu.fragmented());
  probe_.gpu_fragmented_ratio.Set(gpu.fragmented());
  Lock lock(mu_);
  outlook_ = std::move(outlook);
}

std::vector<News> Dispatcher::take_news() {
  Lock lock(mu_);
  const auto end = news_.begin() + static_cast<std::ptrdiff_t>(std::min(news_.size(), options_.news_per_step));
  std::vector<News> out(std::make_move_iterator(news_.begin()), std::make_move_iterator(end));
  news_.erase(news_.begin(), end);
  for (auto& entry : nodes_seen_) out.emplace_back(std::move(entry.second));
  for (auto& entry : seen_) out.emplace_back(std::move(entry.second));
  nodes_seen_.clear();
  seen_.clear();
  return out;
}

Micros Dispatcher::step() {
  auto news = take_news();
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
  look_at_pools();
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
  const auto pools = Pools::has_work(rules_) ? pools_due_ : kNever;
  return std::min({look_again_, pools, timers_.empty() ? kNever : timers_.begin()->first});
}

}  // namespace falaj::jobs
