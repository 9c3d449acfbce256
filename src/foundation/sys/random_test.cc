// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/random.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace falaj::sys {
namespace {

TEST(RealClock, MonotonicTimeDoesNotGoBackAndWallTimeIsOfThisCentury) {
  const RealClock clock;
  const Micros a = clock.now(), b = clock.now();
  EXPECT_LE(a, b);
  EXPECT_GT(clock.wall(), std::chrono::hours(24 * 365 * 50));
}

TEST(Random, BelowIsUniform) {
  SimRandom random(3);
  std::vector<int> counts(10);
  for (int i = 0; i < 100'000; ++i) ++counts[random.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_EQ(random.below(1), 0U);
  // Of the numbers below 3 * 2^62 a third is below 2^62; taking remainders without care would make that one half.
  int low = 0;
  for (int i = 0; i < 30'000; ++i) low += random.below(3ULL << 62) < (1ULL << 62);
  EXPECT_NEAR(low, 10'000, 500);
}

TEST(Random, SimulatedRepeatsBySeedAndRealDoesNot) {
  SimRandom a(5), b(5), c(6);
  const auto first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
  RealRandom real;
  EXPECT_NE(real.next(), real.next());
  std::vector<std::byte> many(100'003);
  real.fill(many);
  EXPECT_NEAR(static_cast<double>(std::count(many.begin(), many.end(), std::byte{0})), 100'003 / 256.0, 120);
  real.fill({});
}

TEST(Ids, IncreaseWhenTheClockStandsOrGoesBack) {
  class Backwards final : public Clock {
   public:
    Micros now() const override { return Micros(0); }
    Micros wall() const override { return Micros(at_ -= 700); }

   private:
    mutable std::int64_t at_ = 1'700'000'000'000'000;
  } backwards;
  SimRandom random(1);
  SimClock still;
  for (const Clock* clock : {static_cast<const Clock*>(&still), static_cast<const Clock*>(&backwards)}) {
    Ids ids(*clock, random);
    IdBits last{};
    for (int i = 0; i < 100'000; ++i) {
      const IdBits id = ids.next();
      ASSERT_GT(id, last);
      last = id;
    }
  }
}

TEST(Ids, HoldTheTimeAndCarryIntoIt) {
  class Ones final : public Random {
    void fill(std::span<std::byte> out) override { std::fill(out.begin(), out.end(), std::byte{0xFF}); }
  } ones;
  SimClock clock(std::chrono::milliseconds(1234567));
  Ids ids(clock, ones);
  const auto first = ids.next<RequestTag>(),
             second = ids.next<RequestTag>();  // the first is the largest of its millisecond
  EXPECT_EQ(first.unix_ms(), 1234567);
  EXPECT_EQ(second.unix_ms(), 1234568);
  EXPECT_LT(first, second);
}

// Words kept for ids to come must not be a parent's and its child's at once.
TEST(Ids, OfAParentAndItsChildDiffer) {
  const SimClock still;
  RealRandom random;
  Ids ids(still, random);
  ids.next();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  const IdBits mine = ids.next();
  if (child == 0) ::_exit(::write(pipe[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
  IdBits theirs{};
  EXPECT_EQ(::read(pipe[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_NE(mine, theirs);
}

TEST(Ids, AskForRandomBytesOnceForMany) {
  class Counted final : public Random {
   public:
    void fill(std::span<std::byte> out) override {
      ++asked;
      SimRandom(asked).fill(out);
    }
    std::uint64_t asked = 0;
  } random;
  const SimClock still;
  Ids ids(still, random);
  for (int i = 0; i < 1000; ++i) ids.next();
  EXPECT_LE(random.asked, 1000U / 16);
}

TEST(Ids, AreDistinctOverThreads) {
  const RealClock clock;
  RealRandom random;
  Ids ids(clock, random);
  std::vector<std::vector<IdBits>> made(4);
  std::vector<std::thread> threads;
  for (auto& mine : made)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) mine.push_back(ids.next());
    });
  for (auto& thread : threads) thread.join();
  std::vector<IdBits> all;
  for (const auto& mine : made) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace falaj::sys
