// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/sandbox.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/execute/local/init.h"

namespace falaj::execute::local {

Started start(const AttemptStart& attempt) {
  const auto fail = [](std::string_view doing) {
    throw Error(Code::unavailable,
                fmt::format("starting its processes: {}: {}", doing, std::generic_category().message(errno)));
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("a socket");
  sys::Descriptor ours(ends[0]);
  const sys::Descriptor theirs(ends[1]);
  int process = -1;
  clone_args args{};
  args.flags = CLONE_PIDFD | (attempt.view ? CLONE_NEWPID : 0);
  args.pidfd = reinterpret_cast<std::uintptr_t>(&process);
  args.exit_signal = SIGCHLD;
  // Signals sent before init listens must wait for it: the first process of a namespace loses those it has no handler
  // for.
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const auto pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) be_init(attempt, theirs.get());
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (pid < 0) fail("a process");
  return {static_cast<pid_t>(pid), sys::Descriptor(process), std::move(ours)};
}

}  // namespace falaj::execute::local
