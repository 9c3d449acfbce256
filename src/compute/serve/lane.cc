// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/lane.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace falaj::serve {
namespace {

thread_local const CrashNote::Name* doing_here = nullptr;

}  // namespace

AtWork::AtWork(CrashNote::Name* at, std::string_view digest) : at_(at) {
  if (!at_) return;
  std::memcpy(*at_, digest.data(), std::min(digest.size(), CrashNote::kDigest));
  doing_here = at_;
}

AtWork::~AtWork() {
  if (!at_) return;
  (*at_)[0] = 0;
  doing_here = nullptr;
}

void AtWork::leave_name(CrashNote& note) noexcept {
  if (doing_here) std::memcpy(note.crashed, *doing_here, CrashNote::kDigest);
}

Lane::~Lane() {
  *alive_ = false;
  for (auto& [slot, queue] : queues_)
    for (auto& request : queue->queue.drain()) request->refuse(Error(Code::unavailable, "the server is stopping"));
}

void Lane::post() {
  if (std::exchange(posted_, true)) return;
  loop_.post([this, alive = alive_] {
    if (*alive) run_ready();
  });
}

void Lane::push(const ServedVariant& variant, std::unique_ptr<infer::Request> request) {
  auto& queue = queues_[variant.slot];
  if (!queue) {
    queue.reset(new Queue{variant.slot,
                          variant.held,
                          variant.counts,
                          infer::BatchQueue(variant.rule, variant.held->model->rows_first()),
                          std::nullopt,
                          {}});
    tune(*queue, variant);
  }
  const bool was_empty = queue->queue.empty();
  if (const auto again = queue->queue.push(request, clock_.now())) {
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
  if (variant.target_p99 == queue.target_p99 && queue.tuner) return;
  queue.queue.set_rule(variant.rule);
  queue.target_p99 = variant.target_p99;
  queue.tuner.reset();
  if (variant.target_p99.count() > 0)
    queue.tuner.emplace(infer::LatencyTarget{.p99 = variant.target_p99}, queue.queue, clock_.now());
}

// One batch of each model, then the sockets are looked at again: a busy model does not keep the others waiting.
void Lane::run_ready() {
  posted_ = false;
  auto soonest = infer::kNever;
  bool more = false;
  for (std::size_t at = 0; at < waiting_.size();) {
    Queue& queue = *waiting_[at];
    const auto look_again = queue.queue.next(clock_.now(), batch_);
    if (batch_.empty()) {
      soonest = std::min(soonest, look_again);
    } else {
      infer::BatchDone done;
      {
        const AtWork at_work(running_, queue.held->sha256);
        done = infer::run_batch(*queue.held->model, batch_, clock_);
      }
      queue.queue.learn(done);
      if (queue.tuner) queue.tuner->ran(done, batch_, queue.queue, clock_.now());
      if (done.calls > 0) queue.counts->count_calls(done.calls, done.rows, done.took.count());
      queue.counts->late.fetch_add(done.late, std::memory_order_relaxed);
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
      used.push_back(variant.slot);
      if (const auto found = queues_.find(variant.slot); found != queues_.end()) tune(*found->second, variant);
    }
  std::sort(used.begin(), used.end());
  std::erase_if(queues_, [&](const auto& entry) {
    return entry.second->queue.empty() && !std::binary_search(used.begin(), used.end(), entry.first);
  });
}

}  // namespace falaj::serve
