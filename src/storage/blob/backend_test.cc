// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/testing.h"
#include "foundation/sys/files.h"
#include "foundation/sys/sim_files.h"
#include "storage/blob/backend_contract.h"
#include "storage/blob/directory_backend.h"
#include "storage/blob/memory_backend.h"

namespace falaj::blob {
namespace {

BackendUnderTest memory() {
  auto clock = std::make_shared<sys::SimClock>();
  return {clock, std::make_unique<MemoryBackend>(*clock)};
}

BackendUnderTest directory() {
  struct World {
    sys::TempDir dir;
    std::unique_ptr<sys::Files> files = sys::open_files(dir / "blobs");
  };
  auto world = std::make_shared<World>();
  return {world, std::make_unique<DirectoryBackend>(*world->files)};
}

BackendUnderTest simulated_directory() {
  struct World {
    sys::SimClock clock;
    sys::SimFiles files{clock, 1};
  };
  auto world = std::make_shared<World>();
  return {world, std::make_unique<DirectoryBackend>(world->files)};
}

BackendUnderTest faulty_but_not_now() {
  struct World {
    sys::SimClock clock;
    MemoryBackend memory{clock};
  };
  auto world = std::make_shared<World>();
  return {world, std::make_unique<FaultyBackend>(world->memory, [](BackendCall, const std::string&) { return false; })};
}

INSTANTIATE_TEST_SUITE_P(All, BackendContract,
                         testing::Values(MakeBackend{"Memory", memory}, MakeBackend{"Directory", directory},
                                         MakeBackend{"SimulatedDirectory", simulated_directory},
                                         MakeBackend{"Faulty", faulty_but_not_now}),
                         [](const auto& info) { return info.param.name; });

TEST(DirectoryBackend, SpreadsFilesOverDirectories) {
  const sys::SimClock clock;
  sys::SimFiles files(clock, 1);
  DirectoryBackend backend(files);
  backend.put("s/c/abcdef", as_bytes("x"), Durable::now, Existing::keep);
  EXPECT_EQ(as_text(files.read_all("s/c/ab/cdef", 10)), "x");
  files.write_all("s/c/stray", as_bytes("not ours"));
  EXPECT_EQ(backend.list("", "", 10).size(), 1U);
}

TEST(FaultyBackend, FailsTheCallsItIsToldTo) {
  const sys::SimClock clock;
  MemoryBackend memory(clock);
  FaultyBackend faulty(memory, [](BackendCall call, const std::string&) { return call == BackendCall::put; });
  EXPECT_ERROR(faulty.put("s/c/abcd", {}, Durable::now, Existing::keep), Code::unavailable);
  EXPECT_FALSE(faulty.stat("s/c/abcd"));
}

}  // namespace
}  // namespace falaj::blob
