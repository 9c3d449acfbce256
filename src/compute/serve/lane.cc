// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/lane.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::serve {
namespace {

constexpr std::size_t kParkedMax = 4096;

}  // namespace

// A batch that is made elsewhere, with what it needs to come back whatever became of its queue.
struct Lane::Away {
  Away(std::uint32_t its_slot, std::shared_ptr<const Held> of, infer::Batch&& its_batch, const sys::Clock& clock)
      : slot(its_slot), held(std::move(of)), batch(std::move(its_batch)), run(*held->model, batch, clock) {}
  const std::uint32_t slot;
  const std::shared_ptr<const Held> held;
  infer::Batch batch;
  infer::BatchRun run;
};

Lane::~Lane() {
  *alive_ = false;
  end_parked(std::nullopt, Error(Code::unavailable, "the server is stopping"));
  for (auto& [slot, queue] : queues_)
    for (auto& request : queue->queue.drain()) request->refuse(Error(Code::unavailable, "the server is stopping"));
}

void Lane::park(infer::Micros until, Again again) {
  if (parked_.size() >= kParkedMax)
    throw Error(Code::exhausted, "too many requests wait for models that are being woken; try again in 1000 ms");
  parked_.emplace_back(until, std::move(again));
  loop_.after(std::max<std::int64_t>(0, (until - clock_.now()).count()), [this, alive = alive_, until] {
    if (*alive) end_parked(until, Error(Code::deadline, "the request waited for its model to be loaded"));
  });
}

void Lane::retry_parked() {
  for (auto& [until, again] : std::exchange(parked_, {})) again(std::nullopt);
}

void Lane::end_parked(std::optional<infer::Micros> due_until, const Error& why) {
  for (auto& [until, again] : std::exchange(parked_, {}))
    if (!due_until || until <= *due_until)
      again(why);
    else
      parked_.emplace_back(until, std::move(again));
}

void Lane::post() {
  if (std::exchange(posted_, true)) return;
  loop_.post([this, alive = alive_] {
    if (*alive) run_ready();
  });
}

void Lane::push(const ServedVariant& variant, std::unique_ptr<infer::Request> request, infer::Micros now) {
  auto& queue = queues_[variant.slot];
  if (queue && queue->held != variant.held && queue->queue.empty() && queue->away == 0) queue.reset();  // it slept
  if (!queue) {
    queue.reset(new Queue{variant.slot,
                          variant.held,
                          variant.counts,
                          infer::BatchQueue(variant.rule, variant.held->rows_first),
                          std::nullopt,
                          {},
                          0,
                          variant.instances_max});
    tune(*queue, variant);
  }
  const bool was_empty = queue->queue.empty();
  if (const auto again = queue->queue.push(request, now)) {
    queue->counts->refused.fetch_add(1, std::memory_order_relaxed);
    if (queue->tuner) queue->tuner->refused();
    request->refuse(Error(Code::exhausted, fmt::format("too many requests wait for this model; try again in {} ms",
                                                       again->count() / 1000 + 1)));
    return;
  }
  if (was_empty) waiting_.push_back(queue.get());
  post();
}

// What the endpoint says holds; where it names a latency the tuner decides from there on.
void Lane::tune(Queue& queue, const ServedVariant& variant) {
  queue.instances_max = variant.instances_max;
  if (variant.target_p99 == queue.target_p99 && queue.tuner) {  // which found these; the rest is the owner's to say
    const auto found = queue.queue.rule();
    auto rule = variant.rule;
    rule.rows_max = found.rows_max;
    rule.wait_max = found.wait_max;
    rule.stale_after = found.stale_after;
    return queue.queue.set_rule(rule);
  }
  queue.queue.set_rule(variant.rule);
  queue.target_p99 = variant.target_p99;
  queue.tuner.reset();
  if (variant.target_p99.count() == 0) return;
  infer::LatencyTarget target{.p99 = variant.target_p99};
  if (is_slow(queue, 1)) target.instances_most = static_cast<std::uint32_t>(slow_.threads_max());
  queue.tuner.emplace(target, queue.queue, clock_.now());
}

bool Lane::is_slow(const Queue& queue, std::uint32_t rows) const {
  return queue.queue.costs().us_of(rows).value_or(queue.held->call_us) >= static_cast<double>(slow_from_.count());
}

// A model whose calls are made elsewhere makes the next one when one came back, or at once where a thread is free.
bool Lane::may_run(const Queue& queue) const {
  if (queue.away == 0 || !is_slow(queue, std::min(queue.queue.rows(), queue.queue.rule().rows_max))) return true;
  auto most = queue.instances_max > 0 ? queue.instances_max : static_cast<std::uint32_t>(slow_.threads_max());
  if (queue.tuner) most = std::min(most, queue.tuner->setting().instances);
  return queue.away < most && slow_.has_room();
}

void Lane::ran(Queue& queue, const infer::BatchDone& done, const infer::Batch& batch) {
  queue.queue.learn(done);
  if (queue.tuner) queue.tuner->ran(done, batch, queue.queue, clock_.now());
  if (done.calls > 0) {
    queue.counts->count_calls(done.calls, done.rows, done.took.count());
    queue.counts->input.add(done.input.count(), done.answered);
    queue.counts->output.add(done.output.count(), done.answered);
  }
  queue.counts->late.fetch_add(done.late, std::memory_order_relaxed);
  queue.counts->last_us.store(clock_.wall().count(), std::memory_order_relaxed);
}

void Lane::run_here(Queue& queue) {
  infer::BatchDone done;
  {
    const AtWork at_work(running_, queue.held->sha256);
    done = infer::run_batch(*queue.held->model, batch_, clock_);
  }
  if (queue.tuner) queue.tuner->shares_thread(done, batch_, worked_since_last());
  ran(queue, done, batch_);
}

// Processor time: what the thread waited for requests made none of them wait.
infer::Micros Lane::worked_since_last() {
  const auto now = work_time_();
  return now - std::exchange(worked_, now);
}

void Lane::send_away(Queue& queue) {
  auto away = std::make_shared<Away>(queue.slot, queue.held, std::exchange(batch_, {}), clock_);
  away->run.refuse_late();
  ++queue.away;
  queue.counts->slow.fetch_add(1, std::memory_order_relaxed);
  slow_.push(queue.slot, queue.held->sha256, [this, away, alive = alive_, &loop = loop_] {
    away->run.call();
    loop.post([this, away, alive] {
      if (*alive)
        came_back(*away);
      else
        away->run.tell();
    });
  });
}

void Lane::came_back(Away& away) {
  auto& queue = *queues_.at(away.slot);
  ran(queue, away.run.tell(), away.batch);
  --queue.away;
  if (!queue.queue.empty())
    post();
  else if (queue.away == 0 && queue.forgotten)
    queues_.erase(away.slot);
}

// One batch of each model, then the sockets are looked at again: a busy model does not keep the others waiting.
void Lane::run_ready() {
  posted_ = false;
  auto soonest = infer::kNever;
  bool more = false;
  for (std::size_t at = 0; at < waiting_.size();) {
    Queue& queue = *waiting_[at];
    if (!may_run(queue)) {
      ++at;
      continue;
    }
    const auto look_again = queue.queue.next(clock_.now(), batch_);
    if (batch_.empty()) {
      soonest = std::min(soonest, look_again);
    } else {
      !batch_.requests.empty() && is_slow(queue, batch_.rows) ? send_away(queue) : run_here(queue);
      more |= !queue.queue.empty();
    }
    if (queue.queue.empty())
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    else
      ++at;
  }
  if (more) post();
  if (soonest == infer::kNever || soonest >= alarm_) return;
  alarm_ = soonest;
  const auto wait = std::max<std::int64_t>(0, (soonest - clock_.now()).count());
  loop_.after(wait, [this, alive = alive_] {
    if (!*alive) return;
    alarm_ = infer::kNever;
    post();
  });
}

void Lane::tidy(const Catalogue& now) {
  std::vector<std::uint32_t> used;
  for (const auto& endpoint : now.endpoints)
    for (const auto& variant : endpoint.variants) {
      if (!variant.held->model) continue;
      used.push_back(variant.slot);
      if (const auto found = queues_.find(variant.slot); found != queues_.end()) tune(*found->second, variant);
    }
  std::sort(used.begin(), used.end());
  std::erase_if(queues_, [&](const auto& entry) {
    auto& queue = *entry.second;
    queue.forgotten = !std::binary_search(used.begin(), used.end(), entry.first);
    return queue.forgotten && queue.queue.empty() && queue.away == 0;
  });
}

}  // namespace falaj::serve
