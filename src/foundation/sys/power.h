// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace falaj::sys {

// What the processors of this machine have drawn, as Linux counts it (powercap), whatever their maker.
class PackageEnergy {
 public:
  explicit PackageEnergy(const std::string& directory = "/sys/class/powercap");

  // Since this began; nothing where nobody counts, as in most virtual machines.
  std::optional<double> joules();

 private:
  // Counts microjoules up to a most, then from 0 again.
  struct Package {
    std::string file;
    double last, most;
  };
  std::vector<Package> packages_;
  double joules_ = 0;
};

// What a second of a processor costs in joules: all that the machine drew, shared among those who used it. Whoever is
// charged by it also pays for what it draws while nobody works.
class EnergyRate {
 public:
  explicit EnergyRate(const std::string& power = "/sys/class/powercap", std::string stat = "/proc/stat");

  // Between this look and the last at which processors had worked for a while; 0 where nobody counts.
  double look();

 private:
  std::optional<double> busy_seconds() const;  // of all processors since the machine began

  PackageEnergy energy_;
  const std::string stat_;
  double joules_ = 0, busy_ = 0, rate_ = 0;
};

}  // namespace falaj::sys
