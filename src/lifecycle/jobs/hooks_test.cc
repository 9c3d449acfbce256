// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/hooks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::jobs {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class Hooks : public testing::Test {
 protected:
  void hook(const std::string& name, const std::string& text) {
    fs::create_directories(dir / "hooks");
    const auto path = dir / ("hooks/" + name);
    std::ofstream(path) << "#!/bin/sh\n" << text;
    fs::permissions(path, fs::perms::owner_all);
  }
  void run(const PoolOrder& order) {
    run_hook(dir / "hooks", order, [] { return false; });
  }
  std::string said(const std::string& file) {
    std::ifstream in(dir / ("hooks/" + file));
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static PoolOrder more(const std::string& program, std::int64_t nodes) {
    return {"cloud", true, nodes, {}, "hooks", program, seconds(30)};
  }
  sys::TempDir dir;
};

TEST_F(Hooks, ProgramsAreToldThePoolAndWhatIsWanted) {
  hook("up", "echo \"$FALAJ_POOL: $@\" >asked\necho made two\n");
  run(more("up", 2));
  EXPECT_EQ(said("asked"), "cloud: cloud 2\n");
  EXPECT_EQ(said("cloud.log"), "made two\n");
  hook("down", "echo \"$@\" >asked\n");
  run({"cloud", false, 2, {"c1", "c2"}, "hooks", "down", seconds(30)});
  EXPECT_EQ(said("asked"), "cloud c1 c2\n");
}

TEST_F(Hooks, WhatGoesWrongIsSaid) {
  hook("up", "echo no money >&2\nexit 3\n");
  try {
    run(more("up", 1));
    FAIL() << "it failed";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "up ended with 3: no money");
  }
  EXPECT_ERROR(run(more("absent", 1)), Code::not_found);
  hook("slow", "sleep 1000\n");
  auto slow = more("slow", 1);
  slow.time_limit = std::chrono::milliseconds(100);
  EXPECT_ERROR(run(slow), Code::deadline);
}

TEST_F(Hooks, SlurmsOwnPowerSavingIsAskedByName) {
  const PoolOrder order{"cloud", true, 2, {"n1", "n2"}, "slurm", "", seconds(30)};
  EXPECT_EQ(hook_command(dir / "hooks", order),
            (std::vector<std::string>{"scontrol", "update", "NodeName=n1,n2", "State=POWER_UP"}));
}

}  // namespace
}  // namespace falaj::jobs
