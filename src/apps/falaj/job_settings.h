// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::app {

// A GPU that the machine does not tell of by itself.
struct GpuSettings {
  std::string id, type;
  std::int64_t memory_bytes = 0;
};

// Where jobs run, and how far they are kept apart.
struct JobSettings {
  std::string node = "local", zone;
  std::map<std::string, std::string> labels;
  double cpus = 0;
  std::int64_t memory_bytes = 0, disk_bytes = 0;
  std::vector<GpuSettings> gpus;
  std::string isolation_min = "isolated";
  std::vector<std::string> images;
  std::int64_t log_bytes = std::int64_t{64} << 20;
  std::int64_t starters = 4;
};

}  // namespace falaj::app

namespace falaj {

namespace settings_words {
inline constexpr std::string_view kIsolationLevels[] = {"none", "restricted", "contained", "isolated"};
}  // namespace settings_words

template <>
struct Shape<app::GpuSettings> {
  using T = app::GpuSettings;
  static constexpr std::string_view name = "GpuSettings";
  static Fields fields() {
    return {field("id", &T::id, "What CUDA_VISIBLE_DEVICES shows.").required().length(1, 128),
            field("type", &T::type, "Such as a100, or a slice's profile.").length(0, 64),
            field("memory_bytes", &T::memory_bytes, "Its memory.").bytes().range(0, std::int64_t{1} << 50)};
  }
};
template <>
struct Shape<app::JobSettings> {
  using T = app::JobSettings;
  static constexpr std::string_view name = "JobSettings";
  static Fields fields() {
    return {
        field("node", &T::node, "What this machine is called among the nodes.").length(1, 63),
        field("zone", &T::zone, "The zone it is in; jobs of projects in other zones do not run on it. Empty = any.")
            .length(0, 63),
        field("labels", &T::labels, "By which jobs choose it.").length(0, 64),
        field("cpus", &T::cpus, "Processors for jobs; 0 = all.").range(0, 100'000),
        field("memory_bytes", &T::memory_bytes, "Memory for jobs; 0 = all.").bytes().range(0, std::int64_t{1} << 50),
        field("disk_bytes", &T::disk_bytes, "Disk for jobs; 0 = what is free.").bytes().range(0, std::int64_t{1} << 60),
        field("gpus", &T::gpus, "GPUs for jobs; found by themselves where the driver tells.").length(0, 16),
        field("isolation_min", &T::isolation_min, "A job runs only when it can be kept apart at least so far.")
            .one_of(settings_words::kIsolationLevels),
        field("images", &T::images, "Directories that hold images which jobs may name.").length(0, 100),
        field("log_bytes", &T::log_bytes, "Kept of what each task writes; older output is dropped.")
            .bytes()
            .range(64 << 10, std::int64_t{1} << 40),
        field("starters", &T::starters, "Threads that prepare and start jobs.").range(1, 64)};
  }
};

}  // namespace falaj
