// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/power.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "foundation/sys/testing.h"

namespace falaj::sys {
namespace {

// A machine with one package of processors.
class Machine {
 public:
  Machine() {
    std::filesystem::create_directories(power() + "/intel-rapl:0");
    std::ofstream(power() + "/intel-rapl:0/max_energy_range_uj") << 10'000'000 << '\n';
    says(0, 0);
  }
  void says(int microjoules, int busy_seconds) {
    std::ofstream(power() + "/intel-rapl:0/energy_uj") << microjoules << '\n';
    const auto ticks = ::sysconf(_SC_CLK_TCK);
    std::ofstream(stat()) << "cpu  " << busy_seconds * ticks << " 0 0 12345 0 0 0 0 0 0\n";
  }
  std::string power() { return directory_ / "power"; }
  std::string stat() { return directory_ / "stat"; }

 private:
  TempDir directory_;
};

TEST(EnergyRate, SharesWhatWasDrawnAmongWhoWorked) {
  Machine machine;
  EnergyRate rate(machine.power(), machine.stat());
  machine.says(6'000'000, 2);
  EXPECT_DOUBLE_EQ(rate.look(), 3);
  machine.says(7'000'000, 2);
  EXPECT_DOUBLE_EQ(rate.look(), 3) << "nobody worked since: kept, and what was drawn is told with the next look";
  machine.says(2'000'000, 4);
  EXPECT_DOUBLE_EQ(rate.look(), 3) << "the counter began again: 1 + 5 joules for 2 seconds";
}

TEST(EnergyRate, IsNothingWhereNobodyCounts) {
  TempDir empty;
  EnergyRate rate(empty.path(), empty / "none");
  EXPECT_EQ(rate.look(), 0);
  EXPECT_FALSE(PackageEnergy(empty.path()).joules());
}

}  // namespace
}  // namespace falaj::sys
