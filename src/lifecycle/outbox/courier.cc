// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/outbox/courier.h"

#include <algorithm>

#include "foundation/base/log.h"

namespace falaj::outbox {
namespace {

constexpr std::size_t kTurnMax = 32;  // deliveries to one receiver before others have theirs
constexpr std::int64_t kIdleUs = 60'000'000;
constexpr std::int64_t kPauseUs = 1'000'000;  // when what is due is in other hands, or the database is away
constexpr std::string_view kStates[] = {"waiting", "done", "dead"};

}  // namespace

std::string_view name(State state) { return kStates[static_cast<std::size_t>(state)]; }
State parse_state(std::string_view text) {
  return text == "done" ? State::done : text == "dead" ? State::dead : State::waiting;
}

Verdict judge(const Attempt& attempt, std::int64_t tries, const Options& options, double jitter) {
  if (!attempt.failed && attempt.status >= 200 && attempt.status < 300) return {State::done, 0};
  const bool hopeless = attempt.failed && (*attempt.failed == Code::denied || *attempt.failed == Code::invalid);
  if (hopeless || tries >= options.tries_max) return {State::dead, 0};
  auto wait = options.first_wait_us;
  for (std::int64_t i = 1; i < tries && wait < options.wait_max_us; ++i) wait *= 2;
  wait = std::min(wait, options.wait_max_us);
  return {State::waiting, wait + static_cast<std::int64_t>(static_cast<double>(wait) * jitter / 2)};
}

Courier::Courier(Book& book, const sys::Clock& clock, sys::Random& random, Outcomes outcomes, Options options)
    : book_(book), clock_(clock), random_(random), outcomes_(outcomes), options_(options) {}

Courier::~Courier() { stop(); }

void Courier::start() {
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

void Courier::stop() {
  if (threads_.empty()) return;
  {
    Lock lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Courier::wake() {
  Lock lock(mu_);
  ++wakes_;
  changed_.notify_all();
}

bool Courier::stopping() {
  Lock lock(mu_);
  return stopping_;
}

void Courier::run() {
  std::uint64_t seen = 0;
  for (;;) {
    {
      Lock lock(mu_);
      if (stopping_) return;
      seen = wakes_;
    }
    std::int64_t wait_us = kPauseUs;
    try {
      if (const auto receiver = claim()) {
        deliver_for(*receiver);
        continue;
      }
      purge();
      wait_us = until_next_us();
    } catch (const Error& e) {
      log::warn("deliveries_paused", {{"reason", e.what()}});
    }
    Lock lock(mu_);
    if (!stopping_ && wakes_ == seen) lock.wait_for(changed_, std::chrono::microseconds(wait_us));
  }
}

std::int64_t Courier::until_next_us() {
  const auto due = book_.next_due_us();
  if (!due) return kIdleUs;
  return std::clamp(*due - clock_.wall().count(), kPauseUs, kIdleUs);
}

std::optional<std::string> Courier::claim() {
  const auto due = book_.receivers_due(clock_.wall().count());
  Lock lock(mu_);
  for (const auto& receiver : due)
    if (busy_.insert(receiver).second) return receiver;
  return std::nullopt;
}

void Courier::release(const std::string& receiver) {
  Lock lock(mu_);
  busy_.erase(receiver);
}

std::size_t Courier::deliver_due() {
  std::size_t tries = 0;
  while (const auto receiver = claim()) tries += deliver_for(*receiver);
  return tries;
}

std::size_t Courier::deliver_for(const std::string& receiver) {
  struct Release {
    Courier& of;
    const std::string& receiver;
    ~Release() { of.release(receiver); }
  } const release{*this, receiver};

  std::size_t tried = 0;
  for (const auto& item : book_.due(receiver, clock_.wall().count(), kTurnMax)) {
    if (stopping()) break;
    auto attempt = book_.send(receiver, item);
    const auto jitter = static_cast<double>(random_.below(1000)) / 1000;
    const auto verdict = judge(attempt, item.tries + 1, options_, jitter);
    if (verdict.state == State::dead)
      log::warn("delivery_dead", {{"delivery", item.id}, {"receiver", receiver}, {"reason", attempt.error}});
    book_.settle(receiver, item,
                 {verdict.state, item.tries + 1, clock_.wall().count() + verdict.wait_us, std::move(attempt)});
    (verdict.state == State::done   ? outcomes_.done
     : verdict.state == State::dead ? outcomes_.dead
                                    : outcomes_.failed)
        .Increment();
    ++tried;
  }
  return tried;
}

void Courier::purge() { book_.forget(clock_.wall().count() - options_.keep_us); }

}  // namespace falaj::outbox
