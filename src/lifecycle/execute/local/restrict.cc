// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/restrict.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {
namespace {

constexpr const char* kDenied[] = {
    // other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
    // namespaces and mounts
    "unshare", "setns", "mount", "umount2", "umount", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "sethostname", "setdomainname", "open_by_handle_at",
    // programs and memory inside the kernel
    "bpf", "userfaultfd", "perf_event_open", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "keyctl", "add_key", "request_key", "lookup_dcookie", "fanotify_init",
    // the machine
    "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "iopl", "ioperm", "vhangup", "nfsservctl"};
// Absent, as on older kernels: libraries then take another way.
constexpr const char* kAbsent[] = {"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"};
constexpr std::uint64_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                          CLONE_NEWPID | CLONE_NEWNET | 0x80 /* CLONE_NEWTIME */;
// Vsock and others reach the machine whatever the network namespace; packet sockets and the rest no job needs.
constexpr int kFamilies[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

using Context = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, void (*)(scmp_filter_ctx)>;

class Filter {
 public:
  Filter() : context_(::seccomp_init(SCMP_ACT_ALLOW), ::seccomp_release) {
    must(context_ ? 0 : -ENOMEM, "beginning");
    // A call through another interface of the processor (32 bits) would pass every rule.
    must(::seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "other interfaces");
    must(::seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2), "a tree");
    must(::seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_NNP, 0), "privileges");
  }

  void deny(const char* call, int error) {
    const int number = ::seccomp_syscall_resolve_name(call);
    if (number == __NR_SCMP_ERROR) return;  // newer than the library: does not exist on its kernels
    const int result = ::seccomp_rule_add(context_.get(), SCMP_ACT_ERRNO(static_cast<unsigned>(error)), number, 0);
    if (result != -EDOM) must(result, call);  // not on this processor
  }
  void deny_when(int call, int error, scmp_arg_cmp when) {
    must(::seccomp_rule_add_array(context_.get(), SCMP_ACT_ERRNO(static_cast<unsigned>(error)), call, 1, &when),
         "a rule");
  }
  Bytes program() {
    const sys::Descriptor file(::memfd_create("filter", MFD_CLOEXEC));
    must(::seccomp_export_bpf(context_.get(), file.get()), "compiling");
    struct stat info {};
    must(::fstat(file.get(), &info) == 0 ? 0 : -errno, "reading back");
    Bytes out(static_cast<std::size_t>(info.st_size));
    must(::pread(file.get(), out.data(), out.size(), 0) == info.st_size ? 0 : -EIO, "reading back");
    return out;
  }

 private:
  static void must(int result, const char* what) {
    if (result < 0)
      throw Error(Code::unavailable, fmt::format("making the filter of system calls: {}: {}", what, -result));
  }
  Context context_;
};

scmp_arg_cmp low_word_is(unsigned argument, std::uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, 0xffffffff, value};
}

// The kernel's interface, written out: the distribution's header is older than what kernels have.
struct LandlockRules {
  std::uint64_t files, network, scopes;
};
struct [[gnu::packed]] LandlockBeneath {
  std::uint64_t allowed;
  std::int32_t parent;
};
constexpr std::uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDirectory = 1 << 3,
                        kRefer = 1 << 13, kTruncate = 1 << 14, kDeviceControl = 1 << 15;
constexpr std::uint64_t kOnFiles = kExecute | kWriteFile | kReadFile | kTruncate | kDeviceControl;
constexpr std::uint64_t kScopes = 3;  // abstract sockets, signals

std::uint64_t rights_known(int version) {
  return version >= 5 ? (1 << 16) - 1 : version >= 3 ? (1 << 15) - 1 : version == 2 ? (1 << 14) - 1 : (1 << 13) - 1;
}

int allow_beneath(int rules, const char* path, std::uint64_t rights) {
  const sys::Descriptor place(::open(path, O_PATH | O_CLOEXEC));
  if (!place) return errno == ENOENT ? 0 : errno;
  struct stat info {};
  if (::fstat(place.get(), &info) != 0) return errno;
  if (!S_ISDIR(info.st_mode)) rights &= kOnFiles;
  const LandlockBeneath rule{rights, place.get()};
  return ::syscall(SYS_landlock_add_rule, rules, 1, &rule, 0) == 0 ? 0 : errno;
}

}  // namespace

CallFilter::CallFilter(Sockets sockets) {
  Filter filter;
  for (const char* call : kDenied) filter.deny(call, EPERM);
  for (const char* call : kAbsent) filter.deny(call, ENOSYS);
  for (std::uint64_t flag = 1; flag <= kNamespaceFlags; flag <<= 1)
    if (kNamespaceFlags & flag) filter.deny_when(SCMP_SYS(clone), EPERM, {0, SCMP_CMP_MASKED_EQ, flag, flag});
  for (const auto control : {TIOCSTI, TIOCLINUX}) filter.deny_when(SCMP_SYS(ioctl), EPERM, low_word_is(1, control));
  int allowed = 0;
  for (int family = 0; family < AF_MAX; ++family) {
    const bool usual = allowed < 4 && kFamilies[allowed] == family && ++allowed;
    if (!usual || (sockets == Sockets::local_only && family != AF_UNIX))
      filter.deny_when(SCMP_SYS(socket), EAFNOSUPPORT, low_word_is(0, static_cast<std::uint64_t>(family)));
  }
  program_ = filter.program();
}

int CallFilter::apply() const {
  sock_fprog program{static_cast<unsigned short>(program_.size() / sizeof(sock_filter)),
                     const_cast<sock_filter*>(reinterpret_cast<const sock_filter*>(program_.data()))};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

int landlock_version() {
  const auto version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1);
  return version < 0 ? 0 : static_cast<int>(version);
}

int confine_files(std::span<const char* const> readable, std::span<const char* const> writable,
                  std::span<const char* const> devices) {
  const int version = landlock_version();
  const std::uint64_t known = rights_known(version);
  const LandlockRules wanted{known, 0, kScopes};
  const std::size_t size = version >= 6 ? sizeof wanted : version >= 4 ? 16 : 8;
  const sys::Descriptor rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &wanted, size, 0)));
  if (!rules) return errno;
  const auto allow = [&](std::span<const char* const> paths, std::uint64_t rights) {
    for (const char* path : paths)
      if (const int error = allow_beneath(rules.get(), path, rights & known)) return error;
    return 0;
  };
  if (const int error = allow(readable, kExecute | kReadFile | kReadDirectory)) return error;
  if (const int error = allow(devices, kReadFile | kReadDirectory | kWriteFile | kDeviceControl)) return error;
  if (const int error = allow(writable, ~std::uint64_t{0})) return error;
  return ::syscall(SYS_landlock_restrict_self, rules.get(), 0) == 0 ? 0 : errno;
}

int give_up_privileges() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  // Ends at the first that this kernel does not know; without the capability to drop them it may not, and need not.
  for (unsigned long capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; ++capability) {
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0 ? 0 : errno;
}

}  // namespace falaj::execute::local
