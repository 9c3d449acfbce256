// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/fit.h"

#include <algorithm>
#include <bit>

#include "foundation/base/error.h"

namespace falaj::schedule {
namespace {

bool accepts(const Demand& demand, int device) { return (demand.devices >> device & 1) != 0; }

int whole_devices_of(const Demand& demand) { return demand.gpu_millis / kWholeDevice; }

// How many tasks the devices hold, at most `most`.
int devices_fit(const Free& free, const Demand& demand, int most) {
  int fit = 0;
  if (demand.gpu_millis < kWholeDevice) {
    for (int i = 0; i < kDevicesMax && fit < most; ++i) {
      if (accepts(demand, i)) fit += free.device[i] / demand.gpu_millis;
    }
  } else {
    int whole = 0;
    for (int i = 0; i < kDevicesMax; ++i) whole += accepts(demand, i) && free.device[i] == kWholeDevice ? 1 : 0;
    fit = whole / whole_devices_of(demand);
  }
  return std::min(fit, most);
}

void change(Free& free, const Demand& demand, int tasks) {
  free.cpu -= demand.cpu * tasks;
  free.memory -= demand.memory * tasks;
  free.disk -= demand.disk * tasks;
}

int taken_from_each(const Demand& demand) { return std::min(demand.gpu_millis, kWholeDevice); }

}  // namespace

int fits(const Free& free, const Demand& demand, int most) {
  std::int64_t fit = most;
  if (demand.cpu > 0) fit = std::min(fit, free.cpu / demand.cpu);
  if (demand.memory > 0) fit = std::min(fit, free.memory / demand.memory);
  if (demand.disk > 0) fit = std::min(fit, free.disk / demand.disk);
  if (fit <= 0) return 0;
  return demand.gpu_millis == 0 ? static_cast<int>(fit) : devices_fit(free, demand, static_cast<int>(fit));
}

std::vector<int> take(Free& free, const Demand& demand, int tasks) {
  change(free, demand, tasks);
  std::vector<int> devices;
  if (demand.gpu_millis == 0) return devices;
  const int each = taken_from_each(demand);
  const int wanted = tasks * std::max(1, whole_devices_of(demand));
  while (static_cast<int>(devices.size()) < wanted) {
    int best = -1;
    for (int i = 0; i < kDevicesMax; ++i) {
      if (accepts(demand, i) && free.device[i] >= each && (best < 0 || free.device[i] < free.device[best])) best = i;
    }
    CHECK(best >= 0, "devices that were counted are not there");
    free.device[best] = static_cast<std::int16_t>(free.device[best] - each);
    devices.push_back(best);
  }
  return devices;
}

bool take_exactly(Free& free, const Demand& demand, const Part& part) {
  Free left = free;
  change(left, demand, part.tasks);
  if (left.cpu < 0 || left.memory < 0 || left.disk < 0) return false;
  const int each = taken_from_each(demand);
  const int wanted = demand.gpu_millis == 0 ? 0 : part.tasks * std::max(1, whole_devices_of(demand));
  if (static_cast<int>(part.devices.size()) != wanted) return false;
  for (const int device : part.devices) {
    if (device < 0 || device >= kDevicesMax || !accepts(demand, device) || left.device[device] < each) return false;
    left.device[device] = static_cast<std::int16_t>(left.device[device] - each);
  }
  free = left;
  return true;
}

void give_back(Free& free, const Demand& demand, const Part& part) {
  change(free, demand, -part.tasks);
  for (const int device : part.devices) {
    free.device[device] = static_cast<std::int16_t>(free.device[device] + taken_from_each(demand));
  }
}

FreeTree::Most FreeTree::most_of(const Free& free) {
  int whole = 0;
  int share = 0;
  for (const int millis : free.device) {
    whole += millis == kWholeDevice ? 1 : 0;
    share = std::max(share, millis);
  }
  return {free.cpu, free.memory, free.disk, whole > 0 ? whole * kWholeDevice : share};
}

void FreeTree::resize(std::size_t nodes) {  // the tree doubles, so that adding nodes one by one stays cheap
  size_ = nodes;
  if (nodes <= width_) return leaves_.resize(nodes);
  const std::vector<Free> kept = std::move(leaves_);
  width_ = std::bit_ceil(std::max<std::size_t>(nodes, 1));
  leaves_.assign(nodes, Free{});
  most_.assign(2 * width_, Most{-1, -1, -1, -1});  // what is beyond the last node never holds anything
  for (std::size_t i = 0; i < nodes; ++i) set(i, i < kept.size() ? kept[i] : Free{});
}

void FreeTree::set(std::size_t node, const Free& free) {
  leaves_[node] = free;
  std::size_t at = width_ + node;
  most_[at] = most_of(free);
  while (at > 1) {
    at /= 2;
    const Most& a = most_[2 * at];
    const Most& b = most_[2 * at + 1];
    const Most most{std::max(a.cpu, b.cpu), std::max(a.memory, b.memory), std::max(a.disk, b.disk),
                    std::max(a.gpu, b.gpu)};
    if (most == most_[at]) return;  // nothing above it changes either
    most_[at] = most;
  }
}

std::size_t FreeTree::next(std::size_t from, std::int64_t cpu, std::int64_t memory, std::int64_t disk,
                           int gpu_millis) const {
  if (from >= size_) return size_;
  for (std::size_t at = width_ + from;;) {
    if (holds(most_[at], cpu, memory, disk, gpu_millis)) {
      if (at >= width_) return at - width_;
      at *= 2;  // its maxima may come from different leaves: none of them need hold it all
      continue;
    }
    while (at % 2 == 1) at /= 2;  // the last of its branch; above the root is 0
    if (at == 0) return size_;
    ++at;
  }
}

}  // namespace falaj::schedule
