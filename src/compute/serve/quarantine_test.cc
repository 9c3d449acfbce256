// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/quarantine.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace falaj::serve {
namespace {

const std::string kOne(64, '1'), kTwo(64, '2'), kThree(64, '3');

void say(CrashNote::Name& name, const std::string& digest) { std::copy(digest.begin(), digest.end(), name); }

traffic::Plan naming(const std::string& digest) {
  traffic::Plan plan;
  plan.endpoints.emplace_back().variants = {{"a", "m", 1, digest, 1, false, "", ""}};
  return plan;
}

TEST(Quarantine, TakesOutWhatCrashedAtOnceAndNobodyElse) {
  Quarantine quarantine;
  CrashNote note{};
  say(note.running[0], kOne);
  say(note.running[7], kTwo);
  say(note.loading, kThree);
  say(note.crashed, kTwo);
  quarantine.blame(note, "signal 11", sys::Micros{0});
  const auto told = quarantine.told();
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(told.at(kTwo), "the worker ended (signal 11) running this model");
}

TEST(Quarantine, TakesOutWhoWasAtWorkWhenItWasKilledTwiceInAWhile) {
  Quarantine quarantine;
  CrashNote note{};
  say(note.running[0], kOne);
  say(note.running[1], kOne);
  quarantine.blame(note, "signal 9", sys::Micros{0});
  EXPECT_TRUE(quarantine.told().empty());
  say(note.running[1], kTwo);
  quarantine.blame(note, "signal 9", Quarantine::kStrikeWindow - sys::Micros{1});
  EXPECT_EQ(quarantine.told().size(), 1u);
  EXPECT_TRUE(quarantine.told().contains(kOne));
}

TEST(Quarantine, ForgetsStrikesOfLongAgo) {
  Quarantine quarantine;
  CrashNote note{};
  say(note.running[0], kOne);
  say(note.loading, kTwo);
  for (int i = 0; i < 5; ++i) quarantine.blame(note, "signal 9", i * Quarantine::kStrikeWindow);
  EXPECT_TRUE(quarantine.told().empty());
}

TEST(Quarantine, EndsWhenNoEndpointNamesTheModelAnyMore) {
  Quarantine quarantine;
  CrashNote note{};
  say(note.crashed, kOne);
  quarantine.blame(note, "signal 11", sys::Micros{0});
  quarantine.forget_all_but(naming(kOne));
  EXPECT_EQ(quarantine.told().size(), 1u);
  auto stopped = naming(kOne);
  stopped.endpoints[0].stopped = true;
  quarantine.forget_all_but(stopped);
  EXPECT_TRUE(quarantine.told().empty());
}

// Uses up its thread's stack.
int dig(int depth) {
  volatile char hole[4096];
  hole[depth % 7] = 1;
  return depth < 0 ? 0 : dig(depth + 1) + hole[depth % 5];
}

TEST(CrashNotes, NameTheModelWhoseThreadRanOutOfStack) {
  void* at = ::mmap(nullptr, sizeof(CrashNote), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto& note = *static_cast<CrashNote*>(at);
  EXPECT_EXIT(
      {
        AtWork::leave_names_in(note);
        std::thread([&] {
          const AtWork at_work(&note.running[3], kTwo);
          dig(0);
        }).join();
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(std::string(note.crashed, CrashNote::kDigest), kTwo);
  ::munmap(at, sizeof(CrashNote));
}

}  // namespace
}  // namespace falaj::serve
