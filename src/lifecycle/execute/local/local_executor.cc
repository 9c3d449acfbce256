// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/local_executor.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/execute/local/keeper.h"
#include "lifecycle/execute/local/keeper_link.h"
#include "lifecycle/execute/local/launch_check.h"
#include "lifecycle/execute/local/task_log.h"

namespace falaj::execute {
namespace {

constexpr std::int64_t kLogPageBytesMax = 4 << 20;

std::int64_t cpus_here() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

std::int64_t disk_of(const std::string& directory) {
  struct statvfs info {};
  return ::statvfs(directory.c_str(), &info) == 0 ? static_cast<std::int64_t>(info.f_blocks * info.f_frsize) : 0;
}

std::vector<local::FoundGpu> gpus_of(const LocalSettings& settings) {
  if (settings.gpus.empty()) return settings.discovers_gpus ? local::find_gpus() : std::vector<local::FoundGpu>{};
  std::vector<local::FoundGpu> declared;
  for (const auto& gpu : settings.gpus) {
    const std::string node = "/dev/nvidia" + gpu.id;  // where the id is the driver's number
    declared.push_back({gpu, ::access(node.c_str(), F_OK) == 0 ? node : ""});
  }
  return declared;
}

void require_name(std::string_view attempt) {
  if (!local::is_attempt_name(attempt)) throw Error(Code::invalid, "an attempt's name is 1 to 128 plain characters");
}

}  // namespace

std::vector<std::string> default_keeper() {
  std::error_code none;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
  const auto beside = self.parent_path() / "falaj-keeper";
  if (!none && ::access(beside.c_str(), X_OK) == 0) return {beside.string()};
  // Any other program, such as a test, would be started once more and be anything but a keeper.
  const std::string name = self.filename().string();
  if (!name.starts_with("falaj") || name.ends_with("_test"))
    throw Error(Code::unavailable, fmt::format("no keeper to start jobs: {} is not there", beside.string()));
  return {"/proc/self/exe", "keeper"};
}

LocalExecutor::LocalExecutor(LocalSettings settings, const sys::Clock& clock, sys::Processes& processes)
    : settings_(std::move(settings)),
      gpus_(gpus_of(settings_)),
      link_(std::make_unique<local::KeeperLink>(
          settings_.directory, settings_.keeper.empty() ? default_keeper() : settings_.keeper, clock, processes)) {}

LocalExecutor::~LocalExecutor() = default;

std::vector<Node> LocalExecutor::nodes() {
  Node node;
  node.name = settings_.node;
  node.zone = settings_.zone;
  node.labels = settings_.labels;
  node.cpu_millis = settings_.cpu_millis > 0 ? settings_.cpu_millis : cpus_here() * 1000;
  node.memory_bytes =
      settings_.memory_bytes > 0 ? settings_.memory_bytes : ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  node.disk_bytes = settings_.disk_bytes > 0 ? settings_.disk_bytes : disk_of(settings_.directory);
  for (const auto& found : gpus_) node.gpus.push_back(found.gpu);
  node.isolation_max = std::min(link_->abilities().isolation_max, settings_.isolation_max);
  return {node};
}

void LocalExecutor::start(const Launch& launch) {
  local::Question question{.ask = local::Ask::start};
  question.order = {launch, {settings_.node, settings_.isolation_max, settings_.log_bytes_max, {}, settings_.hidden}};
  std::vector<std::string> used;
  for (const auto& task : launch.tasks) used.insert(used.end(), task.gpus.begin(), task.gpus.end());
  question.order.rules.devices = local::device_nodes(gpus_, used);
  local::check(question.order, settings_.directory);
  link_->ask(std::move(question));
}

void LocalExecutor::stop(std::string_view attempt, Micros grace) {
  require_name(attempt);
  link_->ask({.ask = local::Ask::stop, .attempt = std::string(attempt), .grace = std::max(grace, Micros(0))});
}

std::vector<Report> LocalExecutor::poll(std::uint64_t& seen, Micros at_most) { return link_->reports(seen, at_most); }

LogPage LocalExecutor::logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) {
  require_name(attempt);
  if (rank < 0 || offset < 0 || bytes_max < 1)
    throw Error(Code::invalid, "reading logs: rank, offset or size below what there is");
  const auto report = link_->report(attempt);  // before reading: what is written later comes with the next page
  const std::string directory = log_directory(attempt);
  if (!report && ::access(directory.c_str(), F_OK) != 0) throw Error(Code::not_found, "reading logs: no such attempt");
  bytes_max = std::min(bytes_max, kLogPageBytesMax);
  LogPage page = local::read_task_log(directory, rank, offset, bytes_max);
  const bool over = !report || report->phase == Phase::ended;
  page.ended = over && local::read_task_log(directory, rank, page.next_offset, 1).text.empty();
  return page;
}

void LocalExecutor::forget(std::string_view attempt) {
  require_name(attempt);
  link_->ask({.ask = local::Ask::forget, .attempt = std::string(attempt)});
}

void LocalExecutor::drop_logs(std::string_view attempt) {
  require_name(attempt);
  if (const auto report = link_->report(attempt); report && report->phase != Phase::ended)
    throw Error(Code::conflict, "dropping logs of an attempt: it has not ended");
  std::error_code none;
  std::filesystem::remove_all(log_directory(attempt), none);
}

std::optional<Used> LocalExecutor::used(std::string_view attempt) {
  require_name(attempt);
  if (!link_->abilities().groups) return std::nullopt;  // processes tell what they took when they end
  return link_->used(std::string(attempt));
}

local::Abilities LocalExecutor::abilities() { return link_->abilities(); }

std::string LocalExecutor::log_directory(std::string_view attempt) const {
  return fmt::format("{}/{}/{}", settings_.directory, local::kLogsName, attempt);
}

}  // namespace falaj::execute
