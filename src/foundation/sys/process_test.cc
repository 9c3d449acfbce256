// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/sim_process.h"
#include "foundation/sys/testing.h"

namespace falaj::sys {
namespace {

constexpr Micros kLong = std::chrono::seconds(30);

std::string read_text(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Gone, or a zombie whose parent (not us) has yet to look: both have ended.
bool has_ended(int pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto state = stat.rfind(") ");
  return state == std::string::npos || stat.at(state + 2) == 'Z' || stat.at(state + 2) == 'X';
}

class RealProcessesTest : public testing::Test {
 protected:
  Command shell(const std::string& script) const {
    return {.argv = {"sh", "-c", script},
            .environment = {"PATH=/usr/bin:/bin"},
            .directory = {},
            .stdout_file = dir_ / "out",
            .stderr_file = dir_ / "err"};
  }
  std::string output() const { return read_text(dir_ / "out"); }
  // Waits for a line the child writes; the pipe replaces polling.
  static std::string read_line(int fd) {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  // A named pipe the child may write to and we read from.
  Descriptor make_pipe(const std::string& name) const {
    EXPECT_EQ(::mkfifo((dir_ / name).c_str(), 0600), 0);
    return Descriptor(::open((dir_ / name).c_str(), O_RDWR | O_CLOEXEC));
  }

  TempDir dir_;
  RealProcesses processes_;
};

TEST_F(RealProcessesTest, TellsExitStatusAndSignal) {
  EXPECT_EQ(processes_.start(shell("exit 0"))->wait(kLong), (Exit{0, 0}));
  EXPECT_EQ(processes_.start(shell("exit 7"))->wait(kLong), (Exit{7, 0}));
  EXPECT_EQ(processes_.start(shell("kill -TERM $$"))->wait(kLong), (Exit{0, SIGTERM}));
  const auto child = processes_.start(shell("exit 3"));
  EXPECT_EQ(child->wait(Micros::max()), (Exit{3, 0}));
  EXPECT_EQ(child->wait(Micros(0)), (Exit{3, 0}));  // it stays known
  child->signal(SIGKILL);                           // harmless now
}

TEST_F(RealProcessesTest, GivesItsOutputToADescriptorOfOurs) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  auto command = shell("echo said; echo wrong >&2");
  command.stdout_descriptor = command.stderr_descriptor = in.get();
  EXPECT_EQ(processes_.start(command)->wait(kLong), (Exit{0, 0}));
  in = Descriptor();  // ours was not taken: the pipe ends only now
  std::string text(100, '\0');
  const auto n = ::read(out.get(), text.data(), text.size());
  EXPECT_EQ(text.substr(0, static_cast<std::size_t>(n)), "said\nwrong\n");
}

TEST_F(RealProcessesTest, TellsWhatAChildTook) {
  const auto child = processes_.start(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"));
  EXPECT_EQ(child->usage().memory_peak_bytes, 0U);
  EXPECT_EQ(child->wait(kLong), (Exit{0, 0}));
  EXPECT_GT(child->usage().cpu, Micros(0));
  EXPECT_GT(child->usage().memory_peak_bytes, 100'000U);
}

TEST_F(RealProcessesTest, WaitsNoLongerThanAsked) {
  const auto child = processes_.start(shell("exec sleep 1000"));
  EXPECT_EQ(child->wait(Micros(0)), std::nullopt);
  EXPECT_EQ(child->wait(Micros(1500)), std::nullopt);
  child->signal(SIGTERM);
  EXPECT_EQ(child->wait(kLong), (Exit{0, SIGTERM}));
}

TEST_F(RealProcessesTest, SignalsTheWholeGroup) {
  const auto pipe = make_pipe("pipe");
  const auto child = processes_.start(shell("sleep 1000 & echo $! > " + dir_ / "pipe" + "; wait"));
  const int grandchild = std::stoi(read_line(pipe.get()));
  EXPECT_EQ(::getpgid(grandchild), child->pid());
  const Descriptor watch(static_cast<int>(::syscall(SYS_pidfd_open, grandchild, 0)));
  child->signal(SIGKILL);
  EXPECT_EQ(child->wait(kLong), (Exit{0, SIGKILL}));
  pollfd ended{watch.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 30'000), 1);
}

TEST_F(RealProcessesTest, KillsWhatIsDropped) {
  auto child = processes_.start(shell("trap '' TERM; exec sleep 1000"));
  const int pid = child->pid();
  EXPECT_FALSE(has_ended(pid));
  child.reset();
  EXPECT_EQ(::kill(pid, 0), -1);  // reaped: not even a zombie
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(RealProcessesTest, InheritsNoEnvironmentAndNoDescriptor) {
  const Descriptor ours(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  Descriptor high(::fcntl(ours.get(), F_DUPFD, 500));
  ASSERT_TRUE(high);
  auto command = shell("");
  command.argv = {"/usr/bin/env"};
  command.environment = {"ONLY=this", "AND=that one"};
  EXPECT_EQ(processes_.start(command)->wait(kLong), (Exit{0, 0}));
  EXPECT_EQ(output(), "ONLY=this\nAND=that one\n");
  std::filesystem::remove(dir_ / "out");
  command.argv = {"ls", "/proc/self/fd"};
  EXPECT_EQ(processes_.start(command)->wait(kLong), (Exit{0, 0}));
  EXPECT_EQ(output(), "0\n1\n2\n3\n");  // 3 is the directory that ls reads
}

TEST_F(RealProcessesTest, HasDefaultSignalsAndEmptyInput) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const auto child = processes_.start(shell("cat; grep -E 'Sig(Ign|Blk)' /proc/self/status; kill -PIPE $$"));
  EXPECT_EQ(child->wait(kLong), (Exit{0, SIGPIPE}));
  EXPECT_EQ(output(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  ::signal(SIGPIPE, before);
}

TEST_F(RealProcessesTest, AppendsItsOutputAndRunsWhereTold) {
  std::ofstream(dir_ / "out") << "before\n";
  auto command = shell("pwd; echo wrong >&2");
  command.directory = dir_.path();
  EXPECT_EQ(processes_.start(command)->wait(kLong), (Exit{0, 0}));
  EXPECT_EQ(output(), "before\n" + dir_.path() + "\n");
  EXPECT_EQ(read_text(dir_ / "err"), "wrong\n");
}

TEST_F(RealProcessesTest, PassesArgumentsAsTheyAre) {
  auto command = shell("");
  command.argv = {"printf", "%s|", "a b", "$HOME", "`id`", "*", "", "'\""};
  EXPECT_EQ(processes_.start(command)->wait(kLong), (Exit{0, 0}));
  EXPECT_EQ(output(), "a b|$HOME|`id`|*||'\"|");
}

TEST_F(RealProcessesTest, SaysWhyItDidNotStart) {
  const auto start = [&](std::vector<std::string> argv, const std::string& directory = "") {
    auto command = shell("");
    command.argv = std::move(argv);
    command.directory = directory;
    return processes_.start(command);
  };
  std::ofstream(dir_ / "not-a-program") << "text";
  EXPECT_ERROR(start({"no-such-program"}), Code::not_found);
  EXPECT_ERROR(start({"/no/such/program"}), Code::not_found);
  EXPECT_ERROR(start({dir_ / "not-a-program"}), Code::not_found);
  EXPECT_ERROR(start({"sh"}, "/no/such/directory"), Code::not_found);
  EXPECT_ERROR(start({}), Code::invalid);
  EXPECT_ERROR(start({""}), Code::invalid);
  EXPECT_ERROR(start({"sh", std::string("a\0b", 3)}), Code::invalid);
  auto command = shell("true");
  command.stdout_file = "/no/such/file";
  EXPECT_ERROR(processes_.start(command), Code::not_found);
}

TEST_F(RealProcessesTest, AChildOutlivesTheThreadThatAskedForIt) {
  std::unique_ptr<Child> child;
  std::thread([&] { child = processes_.start(shell("exec sleep 1000")); }).join();
  EXPECT_EQ(child->wait(Micros(20'000)), std::nullopt);  // death by the parent's thread would come at once
}

TEST_F(RealProcessesTest, AChildTiedToItsParentEndsWithIt) {
  std::unique_ptr<Child> tied, free;
  {
    RealProcesses brief;
    tied = brief.start(shell("exec sleep 1000"));
    auto command = shell("exec sleep 1000");
    command.dies_with_parent = false;
    free = brief.start(command);
  }
  EXPECT_EQ(tied->wait(kLong), (Exit{0, SIGKILL}));
  EXPECT_EQ(free->wait(Micros(0)), std::nullopt);
}

TEST_F(RealProcessesTest, StartsFromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i)
        EXPECT_EQ(processes_.start(shell("exit " + std::to_string(t * 10 + i)))->wait(kLong), (Exit{t * 10 + i, 0}));
    });
  for (auto& thread : threads) thread.join();
}

TEST(SimProcesses, FollowsItsScriptOnTheSimulatedClock) {
  SimClock clock;
  SimProcesses processes(clock, [](const Command& command) -> SimProcesses::Run {
    if (command.argv[0] == "missing") throw Error(Code::not_found, "no such program");
    return {
        .takes = Micros(1000), .exit = {.status = 4, .signal = 0}, .ignores_terminate = command.argv[0] == "stubborn"};
  });
  EXPECT_ERROR(
      processes.start({.argv = {"missing"}, .environment = {}, .directory = {}, .stdout_file = {}, .stderr_file = {}}),
      Code::not_found);
  const auto begin = [&](const char* name) {
    return processes.start({.argv = {name}, .environment = {}, .directory = {}, .stdout_file = {}, .stderr_file = {}});
  };
  const auto a = begin("a");
  EXPECT_EQ(a->wait(Micros(400)), std::nullopt);
  EXPECT_EQ(clock.now(), Micros(400));
  EXPECT_EQ(a->wait(Micros::max()), (Exit{4, 0}));
  EXPECT_EQ(clock.now(), Micros(1000));
  const auto b = begin("b");
  b->signal(SIGTERM);
  EXPECT_EQ(b->wait(Micros(0)), (Exit{0, SIGTERM}));
  const auto c = begin("stubborn");
  c->signal(SIGTERM);
  EXPECT_EQ(c->wait(Micros(0)), std::nullopt);
  c->signal(SIGKILL);
  EXPECT_EQ(c->wait(Micros(0)), (Exit{0, SIGKILL}));
  EXPECT_EQ(processes.started().size(), 3U);
}

}  // namespace
}  // namespace falaj::sys
