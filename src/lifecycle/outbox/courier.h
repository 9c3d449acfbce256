// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"

namespace falaj::outbox {

enum class State { waiting, done, dead };
std::string_view name(State state);
State parse_state(std::string_view text);  // as it was stored

struct Options {
  std::size_t threads = 2;
  std::int64_t tries_max = 8;
  std::int64_t first_wait_us = 10'000'000;  // doubles with each try
  std::int64_t wait_max_us = std::int64_t{3600} * 1'000'000;
  std::int64_t keep_us = std::int64_t{30} * 24 * 3600 * 1'000'000;  // what is done or dead can be looked at so long
};

// How a try went: the status of the answer, or what kept it from coming.
struct Attempt {
  int status = 0;
  std::optional<Code> failed{};
  std::string error{};  // in words; "" = it was taken
};
struct Verdict {
  State state = State::waiting;
  std::int64_t wait_us = 0;  // until the next try
};
// Pure. `tries`: this one included. `jitter`: 0 to 1, spreads those that failed together over half as long again.
// What the outgoing rules or the URL's grammar refuse is dead at once: trying again changes nothing.
Verdict judge(const Attempt& attempt, std::int64_t tries, const Options& options, double jitter);

struct Due {
  std::int64_t row = 0, tries = 0;
  std::string id;  // the receiver sees it too: the same for every try
  std::string body;
};
struct Settled {
  State state = State::waiting;
  std::int64_t tries = 0, due_us = 0;
  Attempt attempt;
};

// What waits to be sent, by receiver, as its owner keeps it, and how one is sent. Thread-safe.
class Book {
 public:
  virtual ~Book() = default;
  virtual std::vector<std::string> receivers_due(std::int64_t now_us) = 0;
  virtual std::vector<Due> due(const std::string& receiver, std::int64_t now_us, std::size_t limit) = 0;
  virtual std::optional<std::int64_t> next_due_us() = 0;
  // Once, now. Throws nothing but what the database does: what the receiver did is the Attempt.
  virtual Attempt send(const std::string& receiver, const Due& item) = 0;
  virtual void settle(const std::string& receiver, const Due& item, const Settled& how) = 0;  // durable on return
  virtual void forget(std::int64_t before_us) = 0;  // what ended and was made before
};

// Sends what a Book holds, at least once, to each receiver one at a time: a slow one holds up only itself. Thread-safe.
class Courier {
 public:
  struct Outcomes {
    Counter &done, &failed, &dead;
  };
  // All of them outlive this.
  Courier(Book& book, const sys::Clock& clock, sys::Random& random, Outcomes outcomes, Options options);
  ~Courier();
  void start();
  void stop();  // returns when nothing is under way; idempotent
  void wake();  // something new is due

  // Sends on the caller's thread all that is due and nobody else is sending; how many tries that were.
  std::size_t deliver_due();
  // Forgets what ended long ago.
  void purge();

 private:
  void run();
  std::optional<std::string> claim();  // a receiver for whom something is due, now ours
  std::size_t deliver_for(const std::string& receiver);
  void release(const std::string& receiver);
  bool stopping();
  std::int64_t until_next_us();

  Book& book_;
  const sys::Clock& clock_;
  sys::Random& random_;
  const Outcomes outcomes_;
  const Options options_;

  Mutex mu_;
  std::condition_variable changed_;
  std::set<std::string> busy_ GUARDED_BY(mu_);  // receivers somebody is sending to
  std::uint64_t wakes_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace falaj::outbox
