// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/stored_checkpoints.h"

#include <filesystem>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/sys/files.h"
#include "lifecycle/jobs/job_files.h"

namespace falaj::jobs {
namespace {

constexpr std::size_t kPage = 1000;
constexpr std::string_view kRoot = "@job/";

std::string root_of(const Record& record) { return fmt::format("{}{}/checkpoint/", kRoot, record.id.str()); }

sql::Act act_of(const Where& where, std::string_view verb) {
  return {"system/jobs", std::string(verb), where.scope().str(), ""};
}

void remove_all(vault::Vault& vault, const Where& where, const std::string& root) {
  while (vault.remove_below(where, root, kPage, act_of(where, "checkpoint.delete")).names == kPage) {
  }
}

}  // namespace

StoredCheckpoints::StoredCheckpoints(vault::Vault& vault, Metrics& metrics)
    : vault_(vault),
      stored_(metrics.counter("falaj_jobs_checkpoints_stored_total", "Checkpoints of jobs put into the blob store.")),
      stored_bytes_(metrics.counter("falaj_jobs_checkpoint_new_bytes_total",
                                    "Bytes of them that the blob store did not have yet.")),
      restored_(metrics.counter("falaj_jobs_checkpoints_restored_total",
                                "Checkpoints of jobs brought back from the blob store.")) {}

Mutex& StoredCheckpoints::mutex_of(const Record& record) { return mus_[std::hash<JobId>{}(record.id) % mus_.size()]; }

std::string StoredCheckpoints::store(const Record& record, const std::string& directory, const std::string& known) {
  Lock lock(mutex_of(record));
  if (!std::filesystem::exists(directory)) return known;
  auto files = sys::open_files(directory);
  const auto paths = files_below(*files);
  std::string now;
  for (const auto& path : paths)
    if (const auto info = files->stat(path)) now += fmt::format("{} {} {}\n", path, info->bytes, info->modified_us);
  if (now.empty() || now == known) return known;
  const auto root = root_of(record);
  const auto batch = put_files(
      vault_, record.where, *files, paths, [&](const std::string& path) { return root + path; },
      act_of(record.where, "checkpoint.store"));
  const std::set<std::string> there(paths.begin(), paths.end());
  std::vector<std::string> gone;
  each_entry(vault_, record.where, root, [&](const vault::Entry& entry) {
    if (!there.contains(entry.name.substr(root.size()))) gone.push_back(entry.name);
  });
  for (const auto& name : gone) vault_.remove(record.where, name, act_of(record.where, "checkpoint.delete"));
  stored_.Increment();
  stored_bytes_.Increment(static_cast<double>(batch.new_bytes));
  return now;
}

void StoredCheckpoints::restore(const Record& record, const std::string& directory) {
  const auto root = root_of(record);
  auto files = sys::open_files(directory);
  if (!files->list("").empty()) return;
  std::size_t found = 0;
  each_entry(vault_, record.where, root, [&](const vault::Entry& entry) {
    take_file(vault_, record.where, entry, *files, entry.name.substr(root.size()));
    found += 1;
  });
  if (found == 0) return;
  restored_.Increment();
  log::info("checkpoint_restored", {{"job", record.id.str()}, {"files", std::to_string(found)}});
}

void StoredCheckpoints::drop(const Record& record) {
  Lock lock(mutex_of(record));  // after a copy that is being made
  remove_all(vault_, record.where, root_of(record));
}

std::size_t StoredCheckpoints::sweep(const Where& where, const std::function<bool(JobId)>& is_live,
                                     std::int64_t before_us) {
  std::set<std::string> roots;
  std::size_t gone = 0;
  each_entry(vault_, where, std::string(kRoot), [&](const vault::Entry& entry) {
    const auto id = entry.name.substr(kRoot.size(), entry.name.find('/', kRoot.size()) - kRoot.size());
    if (entry.created_us >= before_us || is_live(JobId::parse(id))) return;
    roots.insert(fmt::format("{}{}/", kRoot, id));
    gone += 1;
  });
  for (const auto& root : roots) remove_all(vault_, where, root);
  return gone;
}

}  // namespace falaj::jobs
