// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/process.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {

// An executor's connection to its keeper. Starts one when none answers, and again when it went away; meanwhile
// questions fail with unavailable. What it tells of ends is on disk before anybody hears of it. Thread-safe.
class KeeperLink {
 public:
  // `keeper` is the program and its first arguments. Throws unavailable when no keeper can be had.
  KeeperLink(std::string directory, std::vector<std::string> keeper, const sys::Clock& clock,
             sys::Processes& processes);
  ~KeeperLink();
  KeeperLink(const KeeperLink&) = delete;
  KeeperLink& operator=(const KeeperLink&) = delete;

  void ask(Question question);  // throws what the keeper answers; unavailable

  std::optional<Used> used(const std::string& attempt);  // so far, by one that runs with a group of its own

  // All reports, once there are others than `seen` says or after `at_most`.
  std::vector<Report> reports(std::uint64_t& seen, Micros at_most);
  std::optional<Report> report(std::string_view attempt);
  Abilities abilities();

 private:
  using Reports = std::map<std::string, Report, std::less<>>;
  // What the reader has heard and not published yet.
  struct Heard {
    std::vector<Statement> statements;
    bool ends = false;  // some of them tell of an end
  };

  sys::Descriptor connect();
  sys::Descriptor connect_or_start();
  void start_keeper();
  void introduce(sys::Descriptor socket);
  void read_all();
  bool read_some(Heard& heard);
  void publish(Heard heard, bool afresh);
  void lose();
  bool wait_before_trying_again();
  bool stopped();

  const std::string directory_;
  const std::vector<std::string> keeper_;
  const sys::Clock& clock_;
  sys::Processes& processes_;

  // Of the reader, and before there is one of the constructor.
  int reading_ = -1;
  Frames frames_;

  Mutex sending_;  // frames are not mixed, and nobody closes what another sends on; taken before mu_, never within
  Mutex mu_;       // guards what follows
  std::condition_variable changed_;
  sys::Descriptor socket_ GUARDED_BY(mu_);
  std::uint64_t last_id_ GUARDED_BY(mu_) = 0;
  std::map<std::uint64_t, std::optional<Statement>> asked_ GUARDED_BY(mu_);
  Reports reports_ GUARDED_BY(mu_);
  std::map<std::string, Used> used_ GUARDED_BY(mu_);  // told, and not yet taken by who asked
  std::uint64_t version_ GUARDED_BY(mu_) = 1;
  Abilities abilities_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;

  std::thread reader_;  // last: runs while the rest exists
};

}  // namespace falaj::execute::local
