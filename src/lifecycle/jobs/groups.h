// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lifecycle/schedule/model.h"

namespace falaj::jobs {

// At most so many of some jobs at once: members of an array, jobs of a project. Who waits is let in in the order of
// their ids, which is that of their submission.
class Groups {
 public:
  void set_limit(const std::string& group, std::int64_t limit) { groups_[group].limit = limit; }
  // All of them, or the first that has no room, where it then waits.
  const std::string* enter(schedule::JobId job, std::span<const std::string> groups) {
    for (const auto& name : groups) {
      auto& group = groups_[name];
      if (group.inside < group.limit) continue;
      group.waiting.insert(job);
      return &name;
    }
    for (const auto& name : groups) groups_[name].inside += 1;
    return nullptr;
  }
  void leave(std::span<const std::string> groups) {
    for (const auto& name : groups) groups_[name].inside -= 1;
  }
  // The next to try again to enter a group that has room; nothing when there is neither.
  std::optional<schedule::JobId> next(const std::string& name) {
    auto& group = groups_[name];
    if (group.waiting.empty() || group.inside >= group.limit) return std::nullopt;
    const auto job = *group.waiting.begin();
    group.waiting.erase(group.waiting.begin());
    return job;
  }
  void forget(schedule::JobId job, std::span<const std::string> groups) {
    for (const auto& name : groups) groups_[name].waiting.erase(job);
  }
  // Everybody who waits, after limits were raised.
  std::vector<schedule::JobId> all_waiting() {
    std::vector<schedule::JobId> out;
    for (auto& entry : groups_) {
      out.insert(out.end(), entry.second.waiting.begin(), entry.second.waiting.end());
      entry.second.waiting.clear();
    }
    return out;
  }
  void clear() { groups_.clear(); }

 private:
  struct Group {
    std::int64_t limit = 0, inside = 0;
    std::set<schedule::JobId> waiting;
  };
  std::map<std::string, Group> groups_;
};

}  // namespace falaj::jobs
