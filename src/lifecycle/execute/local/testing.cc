// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/testing.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "foundation/base/error.h"
#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {
namespace {

// A keeper has one thread, but the thread sanitizer gives it a second one, and a copy of the keeper, which is how
// attempts begin, waits for ever where that one held a lock of the sanitizer's. So its tests take the keeper of the
// release build.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#else
constexpr bool kThreadSanitizer = false;
#endif

void end_process(int pid, int signal) {
  const sys::Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;
  ::kill(pid, signal);
  pollfd gone{process.get(), POLLIN, 0};
  ::poll(&gone, 1, 10'000);
}

}  // namespace

std::vector<std::string> built_keeper() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto build = self.parent_path().parent_path();
  const auto program = (kThreadSanitizer ? build.parent_path() / "release" : build) / "bin" / "falaj-keeper";
  CHECK(std::filesystem::exists(program), "the keeper's program is not built");
  return {program.string()};
}

TestNode::TestNode(LocalSettings settings) : settings_(std::move(settings)) {
  settings_.directory = directory_ / "keeper";
  if (settings_.keeper.empty()) settings_.keeper = built_keeper();
  reopen();
}

TestNode::~TestNode() {
  const int keeper = executor_->abilities().keeper_pid;
  executor_.reset();
  end_process(keeper, SIGTERM);
}

void TestNode::reopen() {
  executor_.reset();
  executor_ = std::make_unique<LocalExecutor>(settings_, clock_, processes_);
}

void TestNode::kill_keeper() { end_process(executor_->abilities().keeper_pid, SIGKILL); }

}  // namespace falaj::execute::local
