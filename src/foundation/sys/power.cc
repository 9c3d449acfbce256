// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/power.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace falaj::sys {
namespace {

constexpr double kBusyMin = 0.1;  // seconds: the kernel counts hundredths

std::optional<double> number_in(const std::string& file) {
  std::ifstream in(file);
  double out = 0;
  if (in >> out) return out;
  return std::nullopt;
}

}  // namespace

PackageEnergy::PackageEnergy(const std::string& directory) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const auto name = entry.path().filename().string();
    // intel-rapl:0, whatever the maker; intel-rapl:0:1 is a part of it.
    if (std::count(name.begin(), name.end(), ':') != 1) continue;
    const auto file = (entry.path() / "energy_uj").string();
    if (const auto now = number_in(file))
      packages_.push_back({file, *now, number_in((entry.path() / "max_energy_range_uj").string()).value_or(0)});
  }
}

std::optional<double> PackageEnergy::joules() {
  if (packages_.empty()) return std::nullopt;
  for (auto& package : packages_) {
    const auto now = number_in(package.file).value_or(package.last);
    joules_ += (now >= package.last ? now - package.last : now + package.most - package.last) / 1e6;
    package.last = now;
  }
  return joules_;
}

EnergyRate::EnergyRate(const std::string& power, std::string stat)
    : energy_(power), stat_(std::move(stat)), busy_(busy_seconds().value_or(0)) {}

double EnergyRate::look() {
  const auto joules = energy_.joules();
  const auto busy = joules ? busy_seconds() : std::nullopt;
  if (!busy || *busy - busy_ < kBusyMin) return rate_;
  rate_ = (*joules - joules_) / (*busy - busy_);
  joules_ = *joules;
  busy_ = *busy;
  return rate_;
}

std::optional<double> EnergyRate::busy_seconds() const {
  std::ifstream in(stat_);
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0;
  if (!(in >> cpu >> user >> nice >> system >> idle >> waiting >> interrupts >> soft)) return std::nullopt;
  return (user + nice + system + interrupts + soft) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace falaj::sys
