// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/launch_check.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kArgumentBytesMax = (128 << 10) - 1;  // the kernel's MAX_ARG_STRLEN
constexpr std::size_t kArgumentsBytesMax = 1 << 20;  // of command and environment together: half of what exec takes
constexpr std::size_t kPathBytesMax = 4000;
constexpr std::size_t kTasksMax = 1024;
constexpr std::size_t kMountsMax = 64;
constexpr Micros kGraceMax = std::chrono::hours(24);
// What every task has of its own.
constexpr std::array<std::string_view, 4> kOwn = {"proc", "dev", "sys", "etc"};

bool holds_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

class Checked {
 public:
  Checked(const Order& order, std::string_view directory)
      : launch_(order.launch), rules_(order.rules), directory_(directory) {}

  std::vector<Fault> faults() {
    names();
    arguments();
    places();
    tasks();
    numbers();
    return std::move(faults_);
  }

 private:
  void require(bool holds, std::string where, std::string what) {
    if (!holds) faults_.push_back({std::move(where), std::move(what)});
  }

  void names() {
    require(is_attempt_name(launch_.attempt), "attempt",
            "must be 1 to 128 of letters, digits, '.', '_', '-', beginning with a letter or digit");
  }

  void argument(const std::string& text, const std::string& where) {
    bytes_ += text.size() + 1 + sizeof(char*);
    require(!holds_nul(text), where, "holds a NUL byte");
    require(text.size() <= kArgumentBytesMax, where, fmt::format("longer than {} bytes", kArgumentBytesMax));
  }

  void arguments() {
    require(!launch_.command.empty() && !launch_.command[0].empty(), "command", "names no program");
    for (std::size_t i = 0; i < launch_.command.size(); ++i)
      argument(launch_.command[i], fmt::format("command[{}]", i));
    for (const auto& [key, value] : launch_.environment) {
      const bool plain = !key.empty() && !holds_nul(key) && key.find('=') == std::string::npos;
      require(plain, "environment", "a name that is empty or holds '=' or a NUL byte");
      if (plain) argument(key + "=" + value, "environment." + key);
    }
    require(bytes_ <= kArgumentsBytesMax, "environment",
            fmt::format("longer than {} bytes together with the command", kArgumentsBytesMax));
  }

  void place(const std::string& path, const std::string& where, bool required) {
    if (path.empty() && !required) return;
    if (!is_plain_path(path) || path.size() > kPathBytesMax) {
      require(false, where, "must be an absolute path without '.', '..' or empty elements");
      return;
    }
    require(path != "/" && path != "/tmp", where, "a task has its own");
    const auto top = split(std::string_view(path).substr(1), '/')[0];
    require(std::find(kOwn.begin(), kOwn.end(), top) == kOwn.end(), where, fmt::format("a task has its own /{}", top));
    refuse_hidden(path, where);
  }

  void refuse_hidden(const std::string& path, const std::string& where) {
    for (const auto& hidden : rules_.hidden) require(!local::holds(path, hidden), where, "holds files of the server");
    require(!local::holds(path, directory_) && !local::holds(directory_, path), where, "holds files of the keeper");
  }

  void places() {
    place(launch_.work_directory, "work_directory", true);
    place(launch_.checkpoint_directory, "checkpoint_directory", false);
    require(launch_.image.empty() || is_plain_path(launch_.image), "image", "must be an absolute path");
    if (!launch_.image.empty()) refuse_hidden(launch_.image, "image");
    for (const auto& device : rules_.devices)
      require(is_plain_path(device) && device.starts_with("/dev/"), "devices", "not a device: " + device);
    require(launch_.mounts.size() <= kMountsMax, "mounts", fmt::format("more than {}", kMountsMax));
    for (std::size_t i = 0; i < launch_.mounts.size(); ++i)
      place(launch_.mounts[i].path, fmt::format("mounts[{}].path", i), true);
  }

  void tasks() {
    const auto count = launch_.tasks.size();
    require(count >= 1 && count <= kTasksMax, "tasks", fmt::format("must be 1 to {}", kTasksMax));
    std::set<int> ranks;
    for (std::size_t i = 0; i < count; ++i) {
      const Task& task = launch_.tasks[i];
      const auto where = fmt::format("tasks[{}]", i);
      const bool in_range = task.rank >= 0 && static_cast<std::size_t>(task.rank) < count;
      require(in_range && ranks.insert(task.rank).second, where, "ranks must be 0 to the number of tasks, each once");
      require(task.node.empty() || task.node == rules_.node, where, "placed on another node");
      const auto cpu_exists = [](int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; };
      require(std::all_of(task.cpus.begin(), task.cpus.end(), cpu_exists), where, "no such cpu");
      for (const auto& gpu : task.gpus)
        require(!gpu.empty() && !holds_nul(gpu) && gpu.find(',') == std::string::npos, where, "no such gpu");
    }
  }

  void numbers() {
    const Limits& limits = launch_.limits;
    require(limits.cpu_millis >= 0 && limits.memory_bytes >= 0 && limits.disk_bytes >= 0 && limits.processes >= 0,
            "limits", "below 0");
    require(launch_.time_limit >= Micros(0), "time_limit", "below 0");
    require(launch_.grace >= Micros(0) && launch_.grace <= kGraceMax, "grace", "must be 0 to 24 hours");
  }

  const Launch& launch_;
  const Rules& rules_;
  const std::string_view directory_;
  std::size_t bytes_ = 0;
  std::vector<Fault> faults_;
};

}  // namespace

bool is_attempt_name(std::string_view text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= 128 && alphanumeric(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_plain_path(std::string_view path) {
  if (path == "/") return true;
  if (path.empty() || path[0] != '/' || holds_nul(path)) return false;
  const auto elements = split(path.substr(1), '/');
  return std::none_of(elements.begin(), elements.end(), [](std::string_view element) {
    return element.empty() || element == "." || element == ".." || element.size() > 255;
  });
}

bool holds(std::string_view path, std::string_view other) {
  return path == "/" || other == path || (other.starts_with(path) && other[path.size()] == '/');
}

void check(const Order& order, std::string_view directory) {
  refuse_if_any("starting an attempt", Checked(order, directory).faults());
}

}  // namespace falaj::execute::local
