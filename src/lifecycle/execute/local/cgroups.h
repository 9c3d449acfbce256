// SPDX-License-Identifier: Apache-2.0
#pragma once

// Groups of processes that the kernel bounds and measures together. Version 2 where its controllers are really given to
// us, version 1 otherwise; below the group this process is in, so that whoever bounds us bounds our tasks.

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

// Where the controllers are: a directory of each, the one that this process's group has there.
struct Hierarchies {
  std::map<std::string, std::string, std::less<>> v1;  // by controller
  std::string v2;                                      // "" when it is not mounted
  std::string v2_mount;                                // where all of it is
};
// From the text of /proc/self/mountinfo and /proc/self/cgroup. Pure.
Hierarchies find_hierarchies(std::string_view mountinfo, std::string_view own_groups);

// What one group's processes took, and whether the kernel killed some for its memory limit.
struct GroupUse {
  Micros cpu{0};
  std::int64_t memory_peak_bytes = 0;
  bool out_of_memory = false;
};

class Cgroups;
// The group of one task. Removed when dropped, or later when something is still in it.
class Group {
 public:
  Group(Cgroups& owner, std::map<std::string, std::string, std::less<>> directories, bool v2);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // A process of one thread that writes "0" to each of these is in the group; its children stay there.
  std::vector<int> doors() const;
  void close_doors() { doors_.clear(); }
  GroupUse use() const;
  void kill() const;  // everything in it
  std::vector<pid_t> members() const;

 private:
  friend class Cgroups;
  Cgroups& owner_;
  const std::map<std::string, std::string, std::less<>> directories_;  // by controller
  const bool v2_;
  std::vector<sys::Descriptor> doors_;
};

class Cgroups {
 public:
  // Takes `name` for itself, with this process's number, below this process's group; kills and removes what keepers of
  // that name, and those that are dead, left there.
  explicit Cgroups(const std::string& name);  // throws unavailable, saying what is lacking
  ~Cgroups();
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;

  std::unique_ptr<Group> make(const Limits& limits, const std::vector<int>& cpus);  // throws unavailable
  bool pins() const;                                                                // keeps a task on its cpus

 private:
  friend class Group;
  void remove(const std::string& directory);
  void take_v1(const Hierarchies& found, const std::string& name);
  void take_v2(const Hierarchies& found, const std::string& name);
  void bound_all();

  bool v2_ = false;
  std::map<std::string, std::string, std::less<>> tops_;  // by controller
  std::vector<std::string> left_;                         // groups that were not empty yet
  std::uint64_t made_ = 0;
};

}  // namespace falaj::execute::local
