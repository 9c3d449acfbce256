// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::execute::local {
namespace {

constexpr int kEventsAtOnce = 64;

epoll_event event_of(int fd, std::uint32_t generation, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
  return event;
}

}  // namespace

Loop::Loop(const sys::Clock& clock) : clock_(clock), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw Error(Code::unavailable, "waiting for events: no epoll");
}

void Loop::watch(int fd, std::uint32_t events, Ready ready) {
  const auto [entry, added] = entries_.try_emplace(fd, Entry{++last_generation_, std::move(ready)});
  CHECK(added, "a descriptor is watched twice");
  auto event = event_of(fd, entry->second.generation, events);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    entries_.erase(entry);
    throw Error(Code::unavailable, "waiting for events: cannot watch one more");
  }
}

void Loop::change(int fd, std::uint32_t events) {
  auto event = event_of(fd, entries_.at(fd).generation, events);
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0, "a watched descriptor is gone");
}

void Loop::unwatch(int fd) {
  auto node = entries_.extract(fd);
  if (node.empty()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  retired_.push_back(std::move(node));
}

Loop::Timer Loop::after(sys::Micros delay, std::function<void()> call) {
  const Timer timer{clock_.now() + delay, ++last_timer_};
  timers_.emplace(timer, std::move(call));
  return timer;
}

void Loop::cancel(Timer timer) { timers_.erase(timer); }

int Loop::wait_ms() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - clock_.now();
  return static_cast<int>(std::clamp<std::int64_t>((left.count() + 999) / 1000, 0, 3'600'000));
}

template <class F>
void Loop::guarded(F call) {
  try {
    call();
  } catch (const Error& error) {
    log::warn("keeper_trouble", {{"error", error.what()}});
  }
}

void Loop::call_timers() {
  const auto now = clock_.now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto due = timers_.extract(timers_.begin());
    guarded(due.mapped());
  }
}

void Loop::run() {
  epoll_event events[kEventsAtOnce];
  while (!quit_) {
    const int count = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, wait_ms());
    CHECK(count >= 0 || errno == EINTR, "epoll_wait failed");
    for (int i = 0; i < count && !quit_; ++i) {
      const auto found = entries_.find(static_cast<int>(events[i].data.u64 & 0xffffffff));
      if (found == entries_.end() || found->second.generation != events[i].data.u64 >> 32) continue;
      guarded([&] { found->second.ready(events[i].events); });
    }
    retired_.clear();
    call_timers();
  }
}

}  // namespace falaj::execute::local
