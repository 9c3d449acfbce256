// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/sandbox.h"

#include <linux/sched.h>
#include <seccomp.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/execute/local/restrict.h"

namespace falaj::serve {
namespace {

// Refused with EPERM: a library that asks for one of these goes on without it, and a model that made it ask gets no
// further.
constexpr int kRefused[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(socket),
    SCMP_SYS(socketpair),
    SCMP_SYS(connect),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(kill),
    SCMP_SYS(tkill),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(setns),
    SCMP_SYS(unshare),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(sethostname),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(acct),
    SCMP_SYS(personality),
    SCMP_SYS(quotactl),
    SCMP_SYS(syslog),
    SCMP_SYS(iopl),
};

void must(int failed, const char* doing) {
  if (failed != 0) throw Error(Code::unavailable, fmt::format("{}: {}", doing, std::strerror(-failed)));
}

}  // namespace

bool confine_files(std::span<const std::string> readable) {
  namespace local = execute::local;
  if (const int failed = local::give_up_privileges())
    throw Error(Code::unavailable, fmt::format("giving up privileges: {}", std::strerror(failed)));
  if (local::landlock_version() == 0) return false;
  std::vector<const char*> paths;
  for (const auto& path : readable) paths.push_back(path.c_str());
  if (const int failed = local::confine_files(paths, {}, {}))
    throw Error(Code::unavailable, fmt::format("confining files: {}", std::strerror(failed)));
  return true;
}

void confine_calls() {
  const std::unique_ptr<void, void (*)(void*)> filter(seccomp_init(SCMP_ACT_ALLOW),
                                                      [](void* f) { seccomp_release(f); });
  if (!filter) throw Error(Code::unavailable, "making a filter of system calls failed");
  must(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1), "filtering the calls of all threads");
  for (const int call : kRefused)
    must(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0), "filtering a call");
  // Threads may be started, processes not. clone3 hides its flags from filters: without it libraries use clone.
  must(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), "filtering clone3");
  must(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)),
       "filtering clone");
  must(seccomp_load(filter.get()), "loading the filter of system calls");
}

}  // namespace falaj::serve
