// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/room.h"

#include <algorithm>
#include <set>

namespace falaj::schedule {
namespace {

// How many nodes that could hold a whole job are compared before the one it leaves fullest is taken.
constexpr int kCompared = 8;
// How many moments are tried before a promise is given up as not worth finding.
constexpr int kMomentsMax = 4096;

// Smaller is fuller: devices first, they are scarcer than processors.
std::pair<std::int64_t, std::int64_t> emptiness(const Free& free) {
  std::int64_t devices = 0;
  for (const int millis : free.device) devices += millis;
  return {devices, free.cpu};
}

}  // namespace

Room::Room(const Book& book, Micros now)
    : book_(book),
      now_(now),
      free_(book.free),
      promised_on_(book.free.size()),
      given_on_(book.free.size()),
      first_with_room_(book.ask_kinds.size(), 0) {
  for (const auto& [id, trial] : book.trials) give_back(trial->ask, trial->running.placement);
}

Room::~Room() { restore(0); }

void Room::set(int node, const Free& free) {
  changes_.emplace_back(node, free_[static_cast<std::size_t>(node)]);
  free_.set(static_cast<std::size_t>(node), free);
}

void Room::restore(std::size_t changes) {
  for (; changes_.size() > changes; changes_.pop_back()) {
    free_.set(static_cast<std::size_t>(changes_.back().first), changes_.back().second);
  }
}

void Room::go_back(Mark mark) {
  restore(mark.changes);
  for (; given_.size() > mark.given; given_.pop_back()) {
    const Placement& placement = given_.back().placement;
    for (auto part = placement.rbegin(); part != placement.rend(); ++part) given_on_.pop(part->node);
  }
  std::ranges::fill(first_with_room_, 0);
}

void Room::give_back(int ask, const Placement& placement) {
  for (const Part& part : placement) {
    if (!book_.nodes[part.node].up) continue;
    Free free = free_[static_cast<std::size_t>(part.node)];
    schedule::give_back(free, book_.demand(ask, part.node), part);
    set(part.node, free);
  }
  std::ranges::fill(first_with_room_, 0);
}

Free Room::free_at(int node, Micros moment) const {
  Free free = free_[static_cast<std::size_t>(node)];
  const auto back = [&](int ask, const Part& part) { schedule::give_back(free, book_.demand(ask, node), part); };
  for (const Occupant& occupant : book_.on_node[node]) {
    const Running& running = occupant.entry->running;
    if (running.trial) continue;
    Micros ends = ends_by(*occupant.entry);
    if (!leaves_.empty()) {
      if (const auto leaves = leaves_.find(running.job.id); leaves != leaves_.end())
        ends = std::min(ends, leaves->second);
    }
    if (ends <= moment) back(occupant.entry->ask, running.placement[occupant.part]);
  }
  given_on_.each(node, [&](const ByNode::On& on) {
    const Given& one = given_[on.index];
    if (ends_by(one) <= moment) back(one.ask, one.placement[on.part]);
  });
  promised_on_.each(node, [&](const ByNode::On& on) {
    const Promise& promise = promises_[on.index];
    if (promise.start > moment || promise.end <= moment) return;
    take_exactly(free, book_.demand(promise.ask, node), promise.placement[on.part]);
  });
  return free;
}

// What is free on a node all the time from `start` to `end`, device by device. It falls only where a promise begins, so
// those moments are all that need looking at.
Free Room::lasting(int node, Micros start, Micros end) const {
  Free least = start <= now_ ? free_[static_cast<std::size_t>(node)] : free_at(node, start);
  promised_on_.each(node, [&](const ByNode::On& on) {
    const Promise& promise = promises_[on.index];
    const Micros begins = std::max(promise.start, start);
    if (begins >= end || promise.end <= begins) return;
    const Free then = free_at(node, begins);
    least.cpu = std::min(least.cpu, then.cpu);
    least.memory = std::min(least.memory, then.memory);
    least.disk = std::min(least.disk, then.disk);
    for (int d = 0; d < kDevicesMax; ++d) least.device[d] = std::min(least.device[d], then.device[d]);
  });
  return least;
}

std::size_t Room::next(std::size_t from, int ask) const {
  const Amounts& task = book_.ask_kinds[ask].task;
  return free_.next(from, task.cpu_millis, task.memory_bytes, task.disk_bytes, static_cast<int>(task.gpu_millis));
}

std::optional<Placement> Room::gather(int ask, int tasks_min, int tasks_max, Layout layout,
                                      std::optional<Micros> until) {
  std::vector<std::pair<int, int>> rooms;  // node, tasks
  int total = 0;
  int whole = 0;
  std::size_t& first = first_with_room_[ask];
  bool seen = false;
  for (std::size_t at = first;; ++at) {
    at = next(at, ask);
    if (at >= free_.size()) break;
    const int node = static_cast<int>(at);
    if (!book_.eligible(ask, node)) continue;
    if (!seen) first = at, seen = true;
    const int fit = fits(until ? lasting(node, now_, *until) : free_[at], book_.demand(ask, node), tasks_max);
    if (fit == 0) continue;
    rooms.emplace_back(node, fit);
    total += fit;
    whole += fit >= tasks_max ? 1 : 0;
    const bool enough = layout == Layout::pack ? whole >= kCompared || (whole == 0 && total >= tasks_max)
                                               : static_cast<int>(rooms.size()) >= tasks_max;
    if (enough) break;
  }
  if (!seen) first = free_.size();
  if (total < tasks_min) return std::nullopt;

  Placement placement;
  int wanted = std::min(total, tasks_max);
  if (layout == Layout::pack && whole > 0) {
    const auto fuller = [&](const auto& a, const auto& b) {
      const bool a_whole = a.second >= wanted, b_whole = b.second >= wanted;
      if (a_whole != b_whole) return a_whole;
      return emptiness(free_[static_cast<std::size_t>(a.first)]) < emptiness(free_[static_cast<std::size_t>(b.first)]);
    };
    rooms = {*std::ranges::min_element(rooms, fuller)};
  }
  std::vector<int> tasks(rooms.size(), 0);
  if (layout == Layout::pack) {
    for (std::size_t i = 0; i < rooms.size() && wanted > 0; ++i) {
      tasks[i] = std::min(rooms[i].second, wanted);
      wanted -= tasks[i];
    }
  } else {
    for (std::size_t i = 0; wanted > 0; i = (i + 1) % rooms.size()) {
      if (tasks[i] < rooms[i].second) ++tasks[i], --wanted;
    }
  }
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (tasks[i] == 0) continue;
    const int node = rooms[i].first;
    Free room = until ? lasting(node, now_, *until) : free_[static_cast<std::size_t>(node)];
    placement.push_back({node, tasks[i], schedule::take(room, book_.demand(ask, node), tasks[i])});
  }
  return placement;
}

std::optional<Placement> Room::place(int ask, int tasks_min, int tasks_max, Layout layout, Micros until) {
  return gather(ask, tasks_min, tasks_max, layout, until);
}

std::optional<Placement> Room::place_despite_promises(int ask, int tasks_min, int tasks_max, Layout layout) {
  return gather(ask, tasks_min, tasks_max, layout, std::nullopt);
}

// At one moment: nodes are looked at in order until enough have room for the whole time. `freed` is what is free then
// if nothing was promised, where that is known.
std::optional<Placement> Room::place_at(int ask, int tasks, Micros start, Micros duration, const Freed* freed) const {
  const bool now = start <= now_;
  Placement placement;
  for (std::size_t node = 0; tasks > 0; ++node) {
    if (now || freed != nullptr) {
      const std::size_t free_now = next(node, ask);
      node = freed == nullptr ? free_now : std::min(free_now, freed->next(node));
    }
    if (node >= free_.size()) return std::nullopt;
    const int at = static_cast<int>(node);
    if (!book_.nodes[node].up || !book_.eligible(ask, at)) continue;
    const Demand& demand = book_.demand(ask, at);
    const Free* then = nullptr;
    if (freed != nullptr) {
      then = freed->has(node) ? &freed->free[node] : &free_[node];
      if (fits(*then, demand, 1) == 0) continue;
    }
    const bool exact = then != nullptr && !promised_on_.has(at);
    Free room = exact ? *then : lasting(at, start, moment_after(start, duration));
    const int fit = fits(room, demand, tasks);
    if (fit == 0) continue;
    placement.push_back({at, fit, schedule::take(room, demand, fit)});
    tasks -= fit;
  }
  return placement;
}

std::optional<Found> Room::earliest(int ask, int tasks, Micros from, Micros duration) const {
  if (auto placement = place_at(ask, tasks, from, duration, nullptr)) return Found{from, std::move(*placement)};
  // How many would fit on each node if nothing was promised: never fewer later than earlier, so that moments at which
  // even those are too few need no closer look.
  Freed& freed = book_.freed;
  freed.clear(free_.size());
  std::int64_t total = 0;
  for (std::size_t node = next(0, ask); node < free_.size(); node = next(node + 1, ask)) {
    if (book_.eligible(ask, static_cast<int>(node)))
      total += fits(free_[node], book_.demand(ask, static_cast<int>(node)), tasks);
  }
  const auto release = [&](int released_ask, const Placement& placement) {
    for (const Part& part : placement) {
      if (!book_.nodes[part.node].up) continue;
      const std::size_t node = static_cast<std::size_t>(part.node);
      if (!freed.has(node)) freed.add(node, free_[node]);
      const bool counts = book_.eligible(ask, part.node);
      const Demand& demand = book_.demand(ask, part.node);
      if (counts) total -= fits(freed.free[node], demand, tasks);
      schedule::give_back(freed.free[node], book_.demand(released_ask, part.node), part);
      if (counts) total += fits(freed.free[node], demand, tasks);
    }
  };

  std::vector<std::pair<Micros, int>> given;  // in order of end
  for (std::size_t i = 0; i < given_.size(); ++i) given.emplace_back(ends_by(given_[i]), static_cast<int>(i));
  std::ranges::sort(given);
  std::set<Micros> promised;  // a promise that ends frees what it held
  for (const Promise& promise : promises_) {
    if (promise.end > from) promised.insert(promise.end);
  }
  auto ends = book_.ends.begin();
  auto next_given = given.begin();
  auto next_promised = promised.begin();
  Micros moment = from;
  for (int tried = 0; tried < kMomentsMax;) {
    for (; ends != book_.ends.end() && ends->first.first <= moment; ++ends) {
      if (ends_by(*ends->second) != kNever) release(ends->second->ask, ends->second->running.placement);
    }
    for (; next_given != given.end() && next_given->first <= moment; ++next_given) {
      release(given_[next_given->second].ask, given_[next_given->second].placement);
    }
    if (total >= tasks && moment > from) {
      ++tried;
      if (auto placement = place_at(ask, tasks, moment, duration, &freed)) return Found{moment, std::move(*placement)};
    }
    Micros next = kNever;
    if (ends != book_.ends.end()) next = std::min(next, ends->first.first);
    if (next_given != given.end()) next = std::min(next, next_given->first);
    while (next_promised != promised.end() && *next_promised <= moment) ++next_promised;
    if (next_promised != promised.end()) next = std::min(next, *next_promised);
    if (next == kNever) return std::nullopt;
    moment = std::max(next, moment);
  }
  return std::nullopt;
}

bool Room::fits_exactly(int ask, const Placement& placement, Micros until) const {
  return std::ranges::all_of(placement, [&](const Part& part) {
    Free room = lasting(part.node, now_, until);
    return book_.nodes[part.node].up && take_exactly(room, book_.demand(ask, part.node), part);
  });
}

void Room::take(int ask, const Placement& placement, Micros until, bool guess) {
  for (std::size_t i = 0; i < placement.size(); ++i) {
    const Part& part = placement[i];
    Free free = free_[static_cast<std::size_t>(part.node)];
    take_exactly(free, book_.demand(ask, part.node), part);
    set(part.node, free);
    given_on_.push(part.node, {given_.size(), i});
  }
  given_.push_back({until, guess, ask, placement});
}

void Room::note_promise(std::size_t index) {
  const Placement& placement = promises_[index].placement;
  for (std::size_t i = 0; i < placement.size(); ++i) promised_on_.push(placement[i].node, {index, i});
}

void Room::promise(Promise promise) {
  promises_.push_back(std::move(promise));
  note_promise(promises_.size() - 1);
}

void Room::withdraw(JobId job) {
  if (std::erase_if(promises_, [&](const Promise& promise) { return promise.job == job; }) == 0) return;
  promised_on_.clear();
  for (std::size_t i = 0; i < promises_.size(); ++i) note_promise(i);
}

const Promise* Room::promise_of(JobId job) const {
  const auto found = std::ranges::find(promises_, job, &Promise::job);
  return found == promises_.end() ? nullptr : &*found;
}

const Promise* Room::in_the_way(int ask) const {
  for (const Promise& promise : promises_) {
    for (const Part& part : promise.placement) {
      if (book_.eligible(ask, part.node) &&
          fits(free_[static_cast<std::size_t>(part.node)], book_.demand(ask, part.node), 1) > 0) {
        return &promise;
      }
    }
  }
  return nullptr;
}

}  // namespace falaj::schedule
