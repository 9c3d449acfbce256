// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/view.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/local/made_namespace.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom"};
constexpr const char* kSettings[] = {"ld.so.cache", "ld.so.conf", "nsswitch.conf", "services",
                                     "protocols",   "mime.types", "localtime",     "timezone",
                                     "os-release",  "gai.conf",   "magic"};
constexpr const char* kSettingTrees[] = {"alternatives", "ld.so.conf.d", "ssl/certs", "fonts", "OpenCL", "vulkan"};

[[noreturn]] void fail_view(std::string_view doing) {
  throw Error(Code::unavailable,
              fmt::format("preparing what tasks see: {}: {}", doing, std::generic_category().message(errno)));
}

int set_flags(int mount, std::uint64_t flags, int map = -1) {
  mount_attr wanted{};
  wanted.attr_set = flags;
  if (map >= 0) {
    wanted.attr_set |= MOUNT_ATTR_IDMAP;
    wanted.userns_fd = static_cast<std::uint64_t>(map);
  }
  return ::mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &wanted, sizeof wanted);
}

int clone_tree(int directory, const char* path, unsigned flags = 0) {
  return ::open_tree(directory, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | flags);
}

sys::Descriptor new_memory_files() {
  const sys::Descriptor maker(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!maker) fail_view("a file system in memory");
  for (const auto& [key, value] : {std::pair{"mode", "0755"}, std::pair{"size", "8m"}})
    if (::fsconfig(maker.get(), FSCONFIG_SET_STRING, key, value, 0) != 0) fail_view("its settings");
  if (::fsconfig(maker.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) fail_view("making it");
  sys::Descriptor made(::fsmount(maker.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!made) fail_view("mounting it");
  return made;
}

bool show(const std::string& host, const std::string& here, std::uint64_t flags) {
  const sys::Descriptor tree(clone_tree(AT_FDCWD, host.c_str()));
  return tree && set_flags(tree.get(), flags) == 0 &&
         ::move_mount(tree.get(), "", AT_FDCWD, here.c_str(), MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

bool is_shown(const char* name) {
  struct stat info {};
  return ::lstat(fmt::format("/{}", name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// In a child with its own mounts: puts everything below /tmp, makes that the root and lets go of the host's.
const char* assemble(int files) {
  if (::unshare(CLONE_NEWNS) != 0) return "its own mounts";
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "keeping them private";
  const sys::Descriptor root(::open_tree(files, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
  if (!root || ::move_mount(root.get(), "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) != 0) return "the new root";
  constexpr std::uint64_t kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  for (const char* name : kHostShown)
    if (is_shown(name) && !show(fmt::format("/{}", name), fmt::format("/tmp/{}", name), kReadOnly)) return name;
  for (const char* name : kSettingTrees) {
    const std::string host = fmt::format("/etc/{}", name);
    if (::access(host.c_str(), F_OK) == 0 && !show(host, "/tmp" + host, kReadOnly)) return name;
  }
  for (const char* name : kDevices)
    if (!show(fmt::format("/dev/{}", name), fmt::format("/tmp/dev/{}", name), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC))
      return name;
  // Processors and memory as libraries look for them. And the host's /proc: kernels let nobody who is not root mount
  // one without having one; an attempt's own covers it.
  if (!show("/sys/devices/system", "/tmp/sys/devices/system", kReadOnly)) return "/sys/devices/system";
  if (!show("/proc", "/tmp/proc", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NODEV)) return "/proc";
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  if (::mount_setattr(AT_FDCWD, "/tmp", 0, &read_only, sizeof read_only) != 0) return "its being read-only";
  if (::chdir("/tmp") != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0) return "becoming the root";
  if (::umount2(".", MNT_DETACH) != 0) return "letting go of the host's files";
  return nullptr;
}

}  // namespace

View::View(const std::string& host_name, unsigned user) : files_(new_memory_files()) {
  fill(host_name, user);
  mounts_ = made_namespace("mnt", [this] { return assemble(files_.get()); });
}

void View::fill(const std::string& host_name, unsigned user) const {
  const int root = files_.get();
  const auto directory = [&](const std::string& name, mode_t mode = 0755) {
    if (::mkdirat(root, name.c_str(), mode) != 0 && errno != EEXIST) fail_view(name);
  };
  const auto file = [&](const std::string& name, std::string_view text) {
    const sys::Descriptor made(::openat(root, name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!made || ::write(made.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail_view(name);
  };
  const auto link = [&](const char* target, const std::string& name) {
    if (::symlinkat(target, root, name.c_str()) != 0) fail_view(name);
  };
  for (const char* name : kHostShown) {
    std::error_code none;
    const auto target = std::filesystem::read_symlink(fmt::format("/{}", name), none);
    if (!none)
      link(target.c_str(), name);
    else if (is_shown(name))
      directory(name);
  }
  for (const char* name :
       {"dev", "dev/shm", "proc", "sys", "sys/devices", "sys/devices/system", "tmp", "etc", "etc/ssl"})
    directory(name);
  for (const char* name : kDevices) file(fmt::format("dev/{}", name), "");
  link("/proc/self/fd", "dev/fd");
  for (int i = 0; i < 3; ++i)
    link(fmt::format("/proc/self/fd/{}", i).c_str(), fmt::format("dev/std{}", i == 0 ? "in" : i == 1 ? "out" : "err"));
  for (const char* name : kSettings)
    if (const auto text = read_small(fmt::format("/etc/{}", name)); !text.empty())
      file(fmt::format("etc/{}", name), text);
  for (const char* name : kSettingTrees)
    if (::access(fmt::format("/etc/{}", name).c_str(), F_OK) == 0) directory(fmt::format("etc/{}", name));
  file("etc/ssl/openssl.cnf", read_small("/etc/ssl/openssl.cnf"));
  file("etc/passwd", fmt::format("root:x:0:0::/:/usr/sbin/nologin\njob:x:{0}:{0}::/tmp:/bin/sh\n", user));
  file("etc/group", fmt::format("root:x:0:\njob:x:{}:\n", user));
  file("etc/hosts", fmt::format("127.0.0.1 localhost {0}\n::1 localhost\n", host_name));
  file("etc/hostname", host_name + "\n");
  file("etc/resolv.conf", read_small("/etc/resolv.conf"));
}

void View::make_room(const Tree& tree) {
  if (tree.path.starts_with("/dev/")) {
    const sys::Descriptor place(::openat(files_.get(), tree.path.c_str() + 1, O_RDONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!place) fail_view(tree.path);
    return;
  }
  const std::string top(split(std::string_view(tree.path).substr(1), '/')[0]);
  if (::mkdirat(files_.get(), top.c_str(), 0755) != 0 && errno != EEXIST) fail_view(top);
}

Tree View::open(const std::string& path, bool writable, const Identity& identity) const {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const sys::Descriptor place(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
  if (!place)
    throw Error(
        Code::invalid,
        fmt::format("{}: {}", errno == ELOOP ? "is reached through a symbolic link" : "cannot be opened", path));
  struct stat info {};
  if (::fstat(place.get(), &info) != 0) fail_view("looking at a directory");
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))
    throw Error(Code::invalid, fmt::format("neither a directory nor a file: {}", path));
  Tree tree{path, sys::Descriptor(clone_tree(place.get(), "", AT_EMPTY_PATH)), S_ISDIR(info.st_mode)};
  if (!tree.mount) fail_view(path);
  const std::uint64_t flags =
      (writable ? 0 : MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NOSUID | (S_ISCHR(info.st_mode) ? 0 : MOUNT_ATTR_NODEV);
  const int map = identity.map ? identity.map.get() : -1;
  if (set_flags(tree.mount.get(), flags, map) == 0) return tree;
  // A file system that cannot map owners shows them as they are: what tasks write to becomes theirs.
  if (map < 0 || set_flags(tree.mount.get(), flags) != 0) fail_view(path);
  if (writable && ::fchownat(place.get(), "", identity.outside, identity.outside, AT_EMPTY_PATH) != 0) fail_view(path);
  return tree;
}

}  // namespace falaj::execute::local
