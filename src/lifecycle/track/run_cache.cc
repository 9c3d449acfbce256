// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/run_cache.h"

namespace falaj::track {

namespace {

std::size_t bytes_of(const Run& run) {
  constexpr std::size_t kString = 48;  // a string's own bytes and what allocating costs, roughly
  std::size_t all = sizeof(Run) + run.info.run_id.size() + run.info.name.size() + run.info.user.size();
  for (const auto* pairs : {&run.params, &run.tags})
    for (const auto& pair : *pairs) all += 2 * kString + pair.key.size() + pair.value.size();
  for (const auto& metric : run.metrics) all += sizeof(Metric) + metric.key.size();
  for (const auto& input : run.datasets)
    all += sizeof(DatasetInput) + input.dataset.schema.size() + input.dataset.profile.size() +
           input.dataset.source.size() + input.tags.size() * 2 * kString;
  return all + (run.model_inputs.size() + run.model_outputs.size()) * 2 * kString;
}

}  // namespace

std::uint64_t RunCache::seen() const {
  Lock lock(mu_);
  return forgotten_;
}

RunCache::Kept RunCache::find(std::int64_t experiment, std::int64_t place) const {
  Lock lock(mu_);
  const auto found = runs_.find({experiment, place});
  return found == runs_.end() ? nullptr : found->second.run;
}

void RunCache::put(std::int64_t experiment, std::int64_t place, Kept run, std::uint64_t seen) {
  const auto bytes = bytes_of(*run);
  if (bytes > kRunBytesMax) return;
  Lock lock(mu_);
  if (forgotten_ != seen) return;
  if (bytes_ + bytes > kBytesMax) {
    runs_.clear();
    bytes_ = 0;
  }
  if (runs_.emplace(std::pair(experiment, place), Entry{std::move(run), bytes}).second) bytes_ += bytes;
}

void RunCache::forget(std::int64_t experiment, std::int64_t place) {
  Lock lock(mu_);
  ++forgotten_;
  const auto found = runs_.find({experiment, place});
  if (found == runs_.end()) return;
  bytes_ -= found->second.bytes;
  runs_.erase(found);
}

void RunCache::forget_all() {
  Lock lock(mu_);
  ++forgotten_;
  runs_.clear();
  bytes_ = 0;
}

}  // namespace falaj::track
