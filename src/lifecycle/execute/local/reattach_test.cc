// SPDX-License-Identifier: Apache-2.0
// Programs that die while jobs run: the one that started them, and the keeper.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/keeper.h"
#include "lifecycle/execute/local/socket_address.h"
#include "lifecycle/execute/local/testing.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {
namespace {

constexpr int kMany = 200;

Launch waiting(const std::string& work, const std::string& attempt) {
  Launch launch;
  launch.attempt = attempt;
  launch.command = {"/bin/sh", "-c",
                    "exec 9> lock; flock 9; echo began; while [ ! -e go ]; do sleep 0.1; done; exit 3"};
  launch.environment = {{"PATH", "/usr/bin:/bin"}};
  launch.work_directory = work + "/" + attempt;
  launch.tasks = {Task{}};
  return launch;
}

template <class F>
std::vector<Report> await_all(Executor& executor, F wanted) {
  const sys::RealClock clock;
  const auto until = clock.now() + std::chrono::seconds(120);
  for (std::uint64_t seen = 0; clock.now() < until;) {
    auto reports = executor.poll(seen, std::chrono::milliseconds(100));
    if (wanted(reports)) return reports;
  }
  throw Error(Code::deadline, "waited two minutes");
}

std::size_t count(const std::vector<Report>& reports, Phase phase) {
  return static_cast<std::size_t>(
      std::count_if(reports.begin(), reports.end(), [&](const Report& report) { return report.phase == phase; }));
}

// Run by the test below, as a program of its own that is killed.
TEST(Owner, DISABLED_StartsManyAndWaitsToBeKilled) {
  const std::string directory = std::getenv("FALAJ_OWNER_DIRECTORY");
  sys::RealClock clock;
  sys::RealProcesses processes;
  LocalSettings settings;
  settings.directory = directory + "/keeper";
  settings.keeper = built_keeper();
  LocalExecutor executor(settings, clock, processes);
  for (int i = 0; i < kMany; ++i) executor.start(waiting(directory, "job" + std::to_string(i) + ".1"));
  await_all(executor, [](const auto& reports) { return count(reports, Phase::running) == kMany; });
  std::ofstream(directory + "/ready").put('\n');
  ::pause();
}

TEST(Reattach, ToEveryTaskOfAProgramThatWasKilled) {
  const sys::TempDir directory;
  sys::RealClock clock;
  sys::RealProcesses processes;
  sys::Command owner;
  owner.argv = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=Owner.*"};
  owner.environment = {"FALAJ_OWNER_DIRECTORY=" + directory.path()};
  owner.stdout_file = owner.stderr_file = directory / "owner.log";
  const auto program = processes.start(owner);
  for (const auto until = clock.now() + std::chrono::seconds(120); clock.now() < until;) {
    if (std::filesystem::exists(directory / "ready") || program->wait(std::chrono::milliseconds(20))) break;
  }
  ASSERT_TRUE(std::filesystem::exists(directory / "ready")) << "see owner.log";
  program->signal(SIGKILL);
  ASSERT_TRUE(program->wait(std::chrono::seconds(10)));

  LocalSettings settings;
  settings.directory = directory / "keeper";
  settings.keeper = built_keeper();
  LocalExecutor executor(settings, clock, processes);
  std::uint64_t seen = 0;
  EXPECT_EQ(count(executor.poll(seen, sys::Micros(0)), Phase::running), static_cast<std::size_t>(kMany));
  for (int i = 0; i < kMany; ++i) std::ofstream(directory / ("job" + std::to_string(i) + ".1/go")).put('\n');
  const auto reports = await_all(executor, [](const auto& all) { return count(all, Phase::ended) == kMany; });
  for (const auto& report : reports) {
    EXPECT_EQ(report.ending->exit_code, 3) << report.attempt;
    EXPECT_EQ(executor.logs(report.attempt, 0, 0, 100).text, "began\n");
    executor.forget(report.attempt);
  }
  ::kill(executor.abilities().keeper_pid, SIGTERM);
}

TEST(Reattach, AKeeperThatDiesTakesItsTasksAlongAndSaysSoOnce) {
  TestNode node;
  for (int i = 0; i < 5; ++i) node.executor().start(waiting(node.directory(), "job" + std::to_string(i) + ".1"));
  for (int i = 0; i < 5; ++i)
    await_all(node.executor(), [&](const auto&) {
      return node.executor().logs("job" + std::to_string(i) + ".1", 0, 0, 100).text == "began\n";
    });
  node.kill_keeper();
  const auto lost = await_all(node.executor(), [](const auto& all) { return count(all, Phase::ended) == 5; });
  for (const auto& report : lost) {
    EXPECT_EQ(name_of(report.ending->reason), "node_lost");
    const sys::Descriptor lock(::open((node / (report.attempt + "/lock")).c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_EQ(::flock(lock.get(), LOCK_EX), 0);  // until the task that held it is dead
  }
  node.executor().start(waiting(node.directory(), "job0.1"));  // it was started, and has ended
  for (const auto& report : lost) node.executor().forget(report.attempt);
  node.reopen();
  std::uint64_t seen = 0;
  EXPECT_EQ(node.executor().poll(seen, sys::Micros(0)).size(), 0U);
  node.executor().start(waiting(node.directory(), "next.1"));
  await_all(node.executor(), [](const auto& all) { return count(all, Phase::running) == 1; });
}

// Somebody who asks and does not stay for the answer.
TEST(Reattach, WhatWasAskedForIsStartedWhoeverListens) {
  TestNode node;
  for (int i = 0; i < 20; ++i) {
    const sys::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address(node.settings().directory, kSocketName);
    ASSERT_EQ(::connect(socket.get(), address.get(), address.size()), 0);
    Question question{.ask = Ask::start, .id = 1};
    question.order.launch = waiting(node.directory(), "left" + std::to_string(i) + ".1");
    question.order.rules.node = "local";
    const Bytes bytes = encode(question);
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    const Bytes nonsense(64, std::byte{0xee});
    ::send(socket.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  }
  await_all(node.executor(), [](const auto& all) { return count(all, Phase::running) == 20; });
}

TEST(Reattach, OneKeeperPerDirectory) {
  TestNode node;
  const int keeper = node.executor().abilities().keeper_pid;
  sys::RealClock clock;
  sys::RealProcesses processes;
  sys::Command another;
  another.argv = built_keeper();
  another.argv.insert(another.argv.end(), {"--dir", node.settings().directory});
  EXPECT_EQ(processes.start(another)->wait(std::chrono::seconds(10)), sys::Exit{});
  LocalExecutor second(node.settings(), clock, processes);
  EXPECT_EQ(second.abilities().keeper_pid, keeper);
  second.start(waiting(node.directory(), "shared.1"));
  await_all(node.executor(), [](const auto& all) { return count(all, Phase::running) == 1; });
}

TEST(Reattach, AKeeperThatCannotStartIsUnavailable) {
  const sys::TempDir directory;
  sys::RealClock clock;
  sys::RealProcesses processes;
  LocalSettings settings;
  settings.directory = directory / "keeper";
  settings.keeper = {"/bin/false"};
  EXPECT_ERROR(LocalExecutor(settings, clock, processes), Code::unavailable);
  std::ofstream(directory / "keeper").put('\n');  // a file is in the way
  settings.keeper = built_keeper();
  EXPECT_ERROR(LocalExecutor(settings, clock, processes), Code::unavailable);
}

}  // namespace
}  // namespace falaj::execute::local
