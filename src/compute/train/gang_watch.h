// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"

namespace falaj::train {

// Notices within seconds that another process of a gang is dead, stopped, or cannot be reached: each sends each other
// a few bytes ten times per `silence`. Datagrams, because nothing here may ever wait for somebody.
class GangWatch {
 public:
  // Listens on an address of this machine, a number, at a port from the kernel. Throws unavailable.
  explicit GangWatch(const std::string& address);
  ~GangWatch();

  std::string place() const { return place_; }  // "address port": what the others are to be told

  struct Settings {
    std::size_t rank = 0;
    std::vector<std::string> places;  // of all ranks, in order
    std::string word;                 // who does not know it is not heard
    sys::Micros silence{0};
    std::function<void(std::size_t rank, const std::string& why)> lost;  // on the watch's thread, once
  };
  void start(Settings settings, const sys::Clock& clock);
  void stop();  // nobody expects anything of the others any more

 private:
  void run(const sys::Clock& clock);
  void hear(std::vector<sys::Micros>& heard, sys::Micros now);

  std::string place_;
  sys::Descriptor socket_, stop_;
  Settings settings_;
  std::thread thread_;
};

// The address by which this machine reaches another, as a number. Throws unavailable.
std::string address_towards(const std::string& host, int port);
std::string numeric_address(const std::string& host);  // its first. Throws unavailable

}  // namespace falaj::train
