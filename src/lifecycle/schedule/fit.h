// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many tasks of one kind fit on a node, and which node of many is the next that has room.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lifecycle/schedule/model.h"

namespace falaj::schedule {

inline constexpr int kDevicesMax = 16;
inline constexpr int kWholeDevice = 1000;

// What is free on a node: amounts, and millis of each device.
struct Free {
  std::int64_t cpu = 0;
  std::int64_t memory = 0;
  std::int64_t disk = 0;
  std::array<std::int16_t, kDevicesMax> device{};

  friend bool operator==(const Free&, const Free&) = default;
};

// One task's demand on a node of one kind: `devices` has a bit for each device of a type it accepts.
struct Demand {
  std::int64_t cpu = 0;
  std::int64_t memory = 0;
  std::int64_t disk = 0;
  int gpu_millis = 0;
  std::uint16_t devices = 0;
};

// How many tasks fit, at most `most`. Requires: most >= 0.
int fits(const Free& free, const Demand& demand, int most);
// Takes room for `tasks` more; returns the devices used, in order of tasks. Requires: they fit. A share of a device
// goes to the fullest device that holds it; whole devices are taken from the front.
std::vector<int> take(Free& free, const Demand& demand, int tasks);
// Takes exactly this: `part.devices` as they stand. False, and nothing is taken, when something of it is not free.
bool take_exactly(Free& free, const Demand& demand, const Part& part);
void give_back(Free& free, const Demand& demand, const Part& part);

// The largest of everything free below each branch of a tree over the nodes, so that the next node with room is found
// in logarithmic time. A value: copying it is copying two arrays.
class FreeTree {
 public:
  void resize(std::size_t nodes);  // new leaves are empty
  std::size_t size() const { return size_; }
  const Free& operator[](std::size_t node) const { return leaves_[node]; }
  void set(std::size_t node, const Free& free);
  // The first node at or after `from` where one such task may fit by amounts and devices (of any type); size() if none.
  std::size_t next(std::size_t from, std::int64_t cpu, std::int64_t memory, std::int64_t disk, int gpu_millis) const;

 private:
  struct Most {
    std::int64_t cpu = 0, memory = 0, disk = 0;
    std::int32_t gpu = 0;  // whole devices times 1000, or the largest share when none is whole
    friend bool operator==(const Most&, const Most&) = default;
  };
  static Most most_of(const Free& free);
  static bool holds(const Most& most, std::int64_t cpu, std::int64_t memory, std::int64_t disk, int gpu_millis) {
    return most.cpu >= cpu && most.memory >= memory && most.disk >= disk && most.gpu >= gpu_millis;
  }

  std::size_t size_ = 0;
  std::size_t width_ = 0;   // leaves rounded up to a power of two
  std::vector<Most> most_;  // [1] is the root, [width_ + i] node i
  std::vector<Free> leaves_;
};

}  // namespace falaj::schedule
