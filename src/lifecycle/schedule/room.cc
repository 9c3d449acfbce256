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
    : book_(book), now_(now), free_(book.free), first_with_room_(book.ask_kinds.size(), 0) {
  for (const JobId id : book.trials) {
    const RunningEntry& trial = book.running.at(id);
    give_back(trial.ask, trial.running.placement);
  }
}

void Room::give_back(int ask, const Placement& placement) {
  for (const Part& part : placement) {
    if (!book_.nodes[part.node].up) continue;
    Free free = free_[static_cast<std::size_t>(part.node)];
    schedule::give_back(free, book_.demand(ask, part.node), part);
    free_.set(static_cast<std::size_t>(part.node), free);
  }
  std::ranges::fill(first_with_room_, 0);
}

Free Room::free_at(int node, Micros moment) const {
  Free free = free_[static_cast<std::size_t>(node)];
  const auto back = [&](int ask, const Placement& placement) {
    for (const Part& part : placement) {
      if (part.node == node) schedule::give_back(free, book_.demand(ask, node), part);
    }
  };
  for (const RunningEntry* entry : book_.on_node[node]) {
    if (entry->running.trial) continue;
    const auto leaves = leaves_.find(entry->running.job.id);
    const Micros ends = leaves == leaves_.end() ? entry->ends_by : std::min(entry->ends_by, leaves->second);
    if (ends <= moment) back(entry->ask, entry->running.placement);
  }
  if (const auto given = given_on_.find(node); given != given_on_.end()) {
    for (const int i : given->second) {
      if (given_[i].end <= moment) back(given_[i].ask, given_[i].placement);
    }
  }
  if (const auto promised = promised_on_.find(node); promised != promised_on_.end()) {
    for (const int i : promised->second) {
      const Promise& promise = promises_[i];
      if (promise.start > moment || promise.end <= moment) continue;
      for (const Part& part : promise.placement) {
        if (part.node == node) take_exactly(free, book_.demand(promise.ask, node), part);
      }
    }
  }
  return free;
}

// What is free falls only where a promise begins, so those moments are all that need looking at.
int Room::room(int ask, int node, int most, Micros until) const {
  const Demand& demand = book_.demand(ask, node);
  int fit = fits(free_[static_cast<std::size_t>(node)], demand, most);
  if (fit == 0) return 0;
  const auto promised = promised_on_.find(node);
  if (promised == promised_on_.end()) return fit;
  for (const int i : promised->second) {
    const Micros begins = std::max(promises_[i].start, now_);
    if (begins < until && fit > 0) fit = fits(free_at(node, begins), demand, fit);
  }
  return fit;
}

int Room::room_at(int ask, int node, int most, Micros start, Micros end) const {
  const Demand& demand = book_.demand(ask, node);
  int fit = fits(free_at(node, start), demand, most);
  const auto promised = promised_on_.find(node);
  if (promised == promised_on_.end()) return fit;
  for (const int i : promised->second) {
    const Micros begins = promises_[i].start;
    if (begins > start && begins < end && fit > 0) fit = fits(free_at(node, begins), demand, fit);
  }
  return fit;
}

std::optional<Placement> Room::gather(int ask, int tasks_min, int tasks_max, Layout layout,
                                      std::optional<Micros> until) {
  const Amounts& task = book_.ask_kinds[ask].task;
  std::vector<std::pair<int, int>> rooms;  // node, tasks
  int total = 0;
  int whole = 0;
  std::size_t& first = first_with_room_[ask];
  bool seen = false;
  for (std::size_t at = first;; ++at) {
    at = free_.next(at, task.cpu_millis, task.memory_bytes, task.disk_bytes, static_cast<int>(task.gpu_millis));
    if (at >= free_.size()) break;
    const int node = static_cast<int>(at);
    if (!book_.eligible(ask, node)) continue;
    if (!seen) first = at, seen = true;
    const int fit = until ? room(ask, node, tasks_max, *until) : fits(free_[at], book_.demand(ask, node), tasks_max);
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
    Free copy = free_[static_cast<std::size_t>(rooms[i].first)];
    placement.push_back({rooms[i].first, tasks[i], schedule::take(copy, book_.demand(ask, rooms[i].first), tasks[i])});
  }
  return placement;
}

std::optional<Placement> Room::place(int ask, int tasks_min, int tasks_max, Layout layout, Micros until) {
  return gather(ask, tasks_min, tasks_max, layout, until);
}

std::optional<Placement> Room::place_despite_promises(int ask, int tasks_min, int tasks_max, Layout layout) {
  return gather(ask, tasks_min, tasks_max, layout, std::nullopt);
}

std::optional<Found> Room::earliest(int ask, int tasks, Micros from, Micros duration) const {
  // How many would fit on each node if nothing was promised: never fewer later than earlier.
  std::unordered_map<int, Free> freed;
  std::int64_t total = 0;
  for (std::size_t node = 0; node < free_.size(); ++node) {
    if (book_.eligible(ask, static_cast<int>(node))) {
      total += fits(free_[node], book_.demand(ask, static_cast<int>(node)), tasks);
    }
  }
  const auto release = [&](int released_ask, const Placement& placement) {
    for (const Part& part : placement) {
      if (!book_.nodes[part.node].up) continue;
      Free& free = freed.try_emplace(part.node, free_[static_cast<std::size_t>(part.node)]).first->second;
      const bool counts = book_.eligible(ask, part.node);
      const Demand& demand = book_.demand(ask, part.node);
      if (counts) total -= fits(free, demand, tasks);
      schedule::give_back(free, book_.demand(released_ask, part.node), part);
      if (counts) total += fits(free, demand, tasks);
    }
  };
  const auto attempt = [&](Micros start) -> std::optional<Placement> {
    Placement placement;
    int wanted = tasks;
    for (std::size_t node = 0; node < free_.size() && wanted > 0; ++node) {
      const int at = static_cast<int>(node);
      if (!book_.nodes[node].up || !book_.eligible(ask, at)) continue;
      const bool plain = !promised_on_.contains(at) && !freed.contains(at);
      const int fit = plain ? fits(free_[node], book_.demand(ask, at), wanted) : room_at(ask, at, wanted, start, moment_after(start, duration));
      if (fit == 0) continue;
      Free copy = plain ? free_[node] : free_at(at, start);
      placement.push_back({at, fit, schedule::take(copy, book_.demand(ask, at), fit)});
      wanted -= fit;
    }
    if (wanted > 0) return std::nullopt;
    return placement;
  };

  std::vector<std::pair<Micros, int>> given;  // in order of end
  for (std::size_t i = 0; i < given_.size(); ++i) given.emplace_back(given_[i].end, static_cast<int>(i));
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
    for (; ends != book_.ends.end() && ends->first <= moment; ++ends) {
      const RunningEntry& entry = book_.running.at(ends->second);
      release(entry.ask, entry.running.placement);
    }
    for (; next_given != given.end() && next_given->first <= moment; ++next_given) {
      release(given_[next_given->second].ask, given_[next_given->second].placement);
    }
    if (total >= tasks) {
      ++tried;
      if (auto placement = attempt(moment)) return Found{moment, std::move(*placement)};
    }
    Micros next = kNever;
    if (ends != book_.ends.end()) next = std::min(next, ends->first);
    if (next_given != given.end()) next = std::min(next, next_given->first);
    while (next_promised != promised.end() && *next_promised <= moment) ++next_promised;
    if (next_promised != promised.end()) next = std::min(next, *next_promised);
    if (next == kNever) return std::nullopt;
    moment = std::max(next, moment);
  }
  return std::nullopt;
}

bool Room::fits_exactly(int ask, const Placement& placement, Micros until) const {
  for (const Part& part : placement) {
    if (!book_.nodes[part.node].up) return false;
    const Demand& demand = book_.demand(ask, part.node);
    Free free = free_[static_cast<std::size_t>(part.node)];
    if (!take_exactly(free, demand, part)) return false;
    const auto promised = promised_on_.find(part.node);
    if (promised == promised_on_.end()) continue;
    for (const int i : promised->second) {
      const Micros begins = std::max(promises_[i].start, now_);
      if (begins >= until) continue;
      Free later = free_at(part.node, begins);
      if (!take_exactly(later, demand, part)) return false;
    }
  }
  return true;
}

void Room::take(int ask, const Placement& placement, Micros until) {
  for (const Part& part : placement) {
    Free free = free_[static_cast<std::size_t>(part.node)];
    take_exactly(free, book_.demand(ask, part.node), part);
    free_.set(static_cast<std::size_t>(part.node), free);
    given_on_[part.node].push_back(static_cast<int>(given_.size()));
  }
  given_.push_back({until, ask, placement});
}

void Room::promise(Promise promise) {
  for (const Part& part : promise.placement) promised_on_[part.node].push_back(static_cast<int>(promises_.size()));
  promises_.push_back(std::move(promise));
}

void Room::withdraw(JobId job) {
  if (std::erase_if(promises_, [&](const Promise& promise) { return promise.job == job; }) == 0) return;
  promised_on_.clear();
  for (std::size_t i = 0; i < promises_.size(); ++i) {
    for (const Part& part : promises_[i].placement) promised_on_[part.node].push_back(static_cast<int>(i));
  }
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
