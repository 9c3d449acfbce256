// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/cgroups.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr std::string_view kControllers[] = {"memory", "pids", "cpu", "cpuacct", "cpuset"};
constexpr std::string_view kNeeded[] = {"memory", "pids", "cpu"};
constexpr std::int64_t kPeriodUs = 100'000;

[[noreturn]] void lack(std::string what) { throw Error(Code::unavailable, "making groups of processes: " + what); }

void set_value(const std::string& directory, const char* file, const std::string& value) {
  if (const int error = write_small(fmt::format("{}/{}", directory, file), value))
    lack(fmt::format("setting {}: {}", file, std::generic_category().message(error)));
}

std::int64_t value_of(const std::string& directory, const char* file) {
  return parse_int(trim(read_small(fmt::format("{}/{}", directory, file)))).value_or(0);
}

// "oom_kill 3" in a file of such lines.
std::int64_t value_in(const std::string& directory, const char* file, std::string_view key) {
  const std::string text = read_small(fmt::format("{}/{}", directory, file));
  for (const auto line : split(text, '\n'))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return parse_int(trim(line.substr(key.size() + 1))).value_or(0);
  return 0;
}

void make_group(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    lack(fmt::format("no permission, or none there: {}", std::generic_category().message(errno)));
}

std::vector<pid_t> members_of(const std::string& directory) {
  std::vector<pid_t> out;
  const std::string text = read_small(directory + "/cgroup.procs");
  for (const auto line : split(text, '\n'))
    if (const auto pid = parse_int(line); pid && *pid > 1) out.push_back(static_cast<pid_t>(*pid));
  return out;
}

void kill_members(const std::string& directory) {
  for (const pid_t pid : members_of(directory)) ::kill(pid, SIGKILL);
}

std::vector<std::string> groups_in(const std::string& directory) {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(directory.c_str()), ::closedir);
  if (!listing) return out;
  while (const dirent* entry = ::readdir(listing.get()))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  return out;
}

// Whatever is in it was started by somebody who is dead, and died with them or dies now.
void clear_group(const std::string& directory) {
  for (const auto& name : groups_in(directory)) clear_group(fmt::format("{}/{}", directory, name));
  for (int round = 0; round < 200 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++round) {
    kill_members(directory);
    ::usleep(5'000);  // the kernel takes a moment to end them, and tells nobody when it has
  }
}

// "falaj-<keeper>.<pid>": of keepers of this name, whose lock we hold, and of those whose process is gone.
void clear_predecessors(const std::string& own, const std::string& name) {
  for (const auto& group : groups_in(own)) {
    const auto dot = group.rfind('.');
    if (!group.starts_with("falaj-") || dot == std::string::npos) continue;
    const bool gone = ::access(fmt::format("/proc/{}", group.substr(dot + 1)).c_str(), F_OK) != 0;
    if (gone || group.substr(0, dot) == name) clear_group(fmt::format("{}/{}", own, group));
  }
}

std::string own_path(std::string_view own_groups, std::string_view controller) {
  for (const auto line : split(own_groups, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const auto names = split(parts[1], ',');
    if (std::find(names.begin(), names.end(), controller) != names.end())
      return std::string(line.substr(parts[0].size() + parts[1].size() + 2));
  }
  return "";
}

// A mount may show only a part of the hierarchy: `root` is what its top is.
std::string beneath(const std::string& mounted_at, std::string_view root, const std::string& own) {
  if (root == "/") return own == "/" ? mounted_at : mounted_at + own;
  if (own == root) return mounted_at;
  return own.starts_with(std::string(root) + "/") ? mounted_at + own.substr(root.size()) : mounted_at;
}

std::string list_of(const std::vector<int>& cpus) {
  std::string out;
  for (const int cpu : cpus) out += (out.empty() ? "" : ",") + std::to_string(cpu);
  return out;
}

}  // namespace

Hierarchies find_hierarchies(std::string_view mountinfo, std::string_view own_groups) {
  Hierarchies found;
  for (const auto line : split(mountinfo, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const std::string at(before[4]);
    if (after[0] == "cgroup2") {
      found.v2 = beneath(at, before[3], own_path(own_groups, ""));
      found.v2_mount = at;
    } else if (after[0] == "cgroup") {
      for (const auto option : split(after[2], ','))
        if (std::find(std::begin(kControllers), std::end(kControllers), option) != std::end(kControllers))
          found.v1[std::string(option)] = beneath(at, before[3], own_path(own_groups, option));
    }
  }
  return found;
}

Group::Group(Cgroups& owner, std::map<std::string, std::string, std::less<>> directories, bool v2)
    : owner_(owner), directories_(std::move(directories)), v2_(v2) {
  std::set<std::string> opened;  // several controllers may share a directory
  for (const auto& [controller, directory] : directories_) {
    if (!opened.insert(directory).second) continue;
    // A thread that moves only itself need not wait until no process of the machine forks or ends, which takes 15 ms
    // and more. Who comes through the door has one thread. Version 2 has no such file for groups like ours.
    doors_.emplace_back(::open((directory + (v2_ ? "/cgroup.procs" : "/tasks")).c_str(), O_WRONLY | O_CLOEXEC));
    if (!doors_.back()) lack("opening its list of processes");
  }
}

Group::~Group() {
  doors_.clear();
  std::set<std::string> directories;
  for (const auto& [controller, directory] : directories_) directories.insert(directory);
  for (const auto& directory : directories) owner_.remove(directory);
}

std::vector<int> Group::doors() const {
  std::vector<int> out;
  for (const auto& door : doors_) out.push_back(door.get());
  return out;
}

GroupUse Group::use() const {
  GroupUse use;
  const auto& memory = directories_.at("memory");
  if (v2_) {
    use.cpu = Micros(value_in(memory, "cpu.stat", "usage_usec"));
    use.memory_peak_bytes = value_of(memory, "memory.peak");
    use.out_of_memory = value_in(memory, "memory.events", "oom_kill") > 0;
  } else {
    if (const auto cpu = directories_.find("cpuacct"); cpu != directories_.end())
      use.cpu = Micros(value_of(cpu->second, "cpuacct.usage") / 1000);
    use.memory_peak_bytes = value_of(memory, "memory.max_usage_in_bytes");
    use.out_of_memory = value_in(memory, "memory.oom_control", "oom_kill") > 0;
  }
  return use;
}

void Group::kill() const {
  const auto& directory = directories_.at("pids");
  if (!v2_ || write_small(directory + "/cgroup.kill", "1") != 0) kill_members(directory);
}

std::vector<pid_t> Group::members() const { return members_of(directories_.at("pids")); }

Cgroups::Cgroups(const std::string& name) {
  const auto found = find_hierarchies(read_small("/proc/self/mountinfo"), read_small("/proc/self/cgroup"));
  const auto given = found.v2.empty() ? std::string() : read_small(found.v2 + "/cgroup.controllers");
  const auto names = split(trim(given), ' ');
  const bool v2_has_all = std::all_of(std::begin(kNeeded), std::end(kNeeded), [&](std::string_view controller) {
    return std::find(names.begin(), names.end(), controller) != names.end();
  });
  if (v2_has_all) {
    take_v2(found, name);
  } else {
    for (const auto controller : kNeeded)
      if (!found.v1.count(controller)) lack(fmt::format("no controller for {}", controller));
    take_v1(found, name);
  }
  bound_all();
}

void Cgroups::take_v1(const Hierarchies& found, const std::string& name) {
  for (const auto& [controller, own] : found.v1) {
    clear_predecessors(own, name);
    const std::string top = fmt::format("{}/{}.{}", own, name, ::getpid());
    make_group(top);
    if (controller == "cpuset") {
      // A group without these takes nobody.
      set_value(top, "cpuset.cpus", std::string(trim(read_small(own + "/cpuset.cpus"))));
      set_value(top, "cpuset.mems", std::string(trim(read_small(own + "/cpuset.mems"))));
    }
    tops_[controller] = top;
  }
}

// Version 2 gives controllers only to groups below one that holds no process itself. In a group that was given to us,
// everybody in it moves aside; root in a group of others' (a login session) goes to the top of the hierarchy instead,
// where the rule does not hold.
void Cgroups::take_v2(const Hierarchies& found, const std::string& name) {
  v2_ = true;
  constexpr const char* kGive = "+memory +pids +cpu";
  std::string own = found.v2;
  int error = write_small(own + "/cgroup.subtree_control", kGive);
  if (error == EBUSY && ::geteuid() == 0 && own != found.v2_mount) {
    own = found.v2_mount;
    error = write_small(own + "/cgroup.subtree_control", kGive);
  }
  if (error == EBUSY) {
    const std::string aside = fmt::format("{}/server", own);
    make_group(aside);
    for (const pid_t pid : members_of(own)) write_small(aside + "/cgroup.procs", std::to_string(pid));
    error = write_small(own + "/cgroup.subtree_control", kGive);
  }
  if (error != 0) lack(fmt::format("giving controllers: {}", std::generic_category().message(error)));
  clear_predecessors(own, name);
  const std::string top = fmt::format("{}/{}.{}", own, name, ::getpid());
  make_group(top);
  set_value(top, "cgroup.subtree_control", kGive);
  for (const auto& directory : {own, top}) write_small(directory + "/cgroup.subtree_control", "+cpuset");  // pins
  const std::string controllers = read_small(top + "/cgroup.subtree_control");
  for (const auto controller : split(trim(controllers), ' ')) tops_[std::string(controller)] = top;
}

// Whatever jobs are allowed, they leave the machine enough to go on.
void Cgroups::bound_all() {
  const auto processes = parse_int(trim(read_small("/proc/sys/kernel/pid_max"))).value_or(32'768) * 3 / 4;
  write_small(tops_.at("pids") + "/pids.max", std::to_string(processes));
  const std::int64_t total = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  const std::int64_t left = std::min(total - total / 20, total - (std::int64_t{256} << 20));
  if (left > 0)
    write_small(tops_.at("memory") + (v2_ ? "/memory.max" : "/memory.limit_in_bytes"), std::to_string(left));
}

Cgroups::~Cgroups() {
  for (const auto& directory : left_) ::rmdir(directory.c_str());
  for (const auto& [controller, top] : tops_) ::rmdir(top.c_str());
}

// A process that has ended counts until it is waited for.
void Cgroups::remove(const std::string& directory) {
  if (::rmdir(directory.c_str()) != 0 && errno == EBUSY) left_.push_back(directory);
}

bool Cgroups::pins() const { return tops_.count("cpuset") > 0; }

std::unique_ptr<Group> Cgroups::make(const Limits& limits, const std::vector<int>& cpus) {
  std::erase_if(left_, [](const std::string& directory) { return ::rmdir(directory.c_str()) == 0 || errno != EBUSY; });
  std::map<std::string, std::string, std::less<>> directories;
  const std::string name = std::to_string(++made_);
  for (const auto& [controller, top] : tops_) {
    if (controller == "cpuset" && cpus.empty() && !v2_) continue;
    const std::string directory = fmt::format("{}/{}", top, name);
    make_group(directory);
    directories[controller] = directory;
  }
  auto group = std::make_unique<Group>(*this, std::move(directories), v2_);
  const auto& in = group->directories_;
  if (limits.processes > 0) set_value(in.at("pids"), "pids.max", std::to_string(limits.processes));
  if (limits.memory_bytes > 0) {
    const auto bytes = std::to_string(limits.memory_bytes);
    set_value(in.at("memory"), v2_ ? "memory.max" : "memory.limit_in_bytes", bytes);
    // Where there is swap, it is not a way around the limit. Kernels without swap have no such file.
    write_small(in.at("memory") + (v2_ ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes"), v2_ ? "0" : bytes);
    if (v2_) set_value(in.at("memory"), "memory.oom.group", "1");
  }
  if (limits.cpu_millis > 0) {
    const auto quota = std::to_string(std::max<std::int64_t>(limits.cpu_millis * kPeriodUs / 1000, 1000));
    if (v2_)
      set_value(in.at("cpu"), "cpu.max", fmt::format("{} {}", quota, kPeriodUs));
    else
      set_value(in.at("cpu"), "cpu.cfs_quota_us", quota);  // of a period of 100 ms
  }
  if (!cpus.empty() && in.count("cpuset")) {
    set_value(in.at("cpuset"), "cpuset.cpus", list_of(cpus));
    if (!v2_)
      set_value(in.at("cpuset"), "cpuset.mems", std::string(trim(read_small(tops_.at("cpuset") + "/cpuset.mems"))));
  }
  return group;
}

}  // namespace falaj::execute::local
