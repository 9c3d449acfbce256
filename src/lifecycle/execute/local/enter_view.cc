// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include <fmt/format.h>

#include "lifecycle/execute/local/view.h"

namespace falaj::execute::local {
namespace {

constexpr const char* kNoRoom = "making room for its directories";

bool make_one(const std::string& path) { return ::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST; }

// Where a tree is to be shown, with all that is above it.
bool make_place(const std::string& path, bool directory) {
  for (auto at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    if (!make_one(path.substr(0, at))) return false;
  if (directory) return make_one(path);
  return static_cast<bool>(sys::Descriptor(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644)));
}

bool attach(int tree, const char* path) { return ::move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0; }

bool make_read_only(const char* path) {
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  return ::mount_setattr(AT_FDCWD, path, 0, &read_only, sizeof read_only) == 0;
}

const char* mount_own(std::int64_t scratch_bytes) {
  const std::string scratch =
      fmt::format("mode=1777{}", scratch_bytes > 0 ? fmt::format(",size={}", scratch_bytes) : "");
  for (const char* path : {"/tmp", "/dev/shm"})
    if (::mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, scratch.c_str()) != 0) return path;
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) return "/proc";
  return nullptr;
}

const char* show_trees(const std::vector<Tree>& trees) {
  std::set<std::string> tops;
  for (const Tree& tree : trees) {
    const std::string top = tree.path.substr(0, tree.path.find('/', 1));
    const bool host = std::any_of(std::begin(kHostShown), std::end(kHostShown),
                                  [&](const char* name) { return top.substr(1) == name; });
    if (!host && top != "/dev") {  // there it is already
      // The view's files are everybody's: what is above its directories is in a file system of the attempt's own.
      if (top != "/tmp" && tops.insert(top).second &&
          ::mount("tmpfs", top.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0)
        return kNoRoom;
      if (!make_place(tree.path, tree.directory)) return kNoRoom;
    }
    if (!attach(tree.mount.get(), tree.path.c_str())) return "showing its directories";
  }
  for (const auto& top : tops)
    if (!make_read_only(top.c_str())) return "closing its root";
  return nullptr;
}

// The image with a layer in memory above it, in which places for what is shown can be made; then the root.
const char* enter_image(int image) {
  if (::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=4m") != 0) return kNoRoom;
  for (const char* path : {"/tmp/image", "/tmp/above", "/tmp/work", "/tmp/root"})
    if (!make_one(path)) return kNoRoom;
  if (!attach(image, "/tmp/image")) return "showing its image";
  // Without the power over trusted attributes that only root of the machine has, overlays keep theirs as a user's.
  const std::string layers = "lowerdir=/tmp/image,upperdir=/tmp/above,workdir=/tmp/work";
  if (::mount("overlay", "/tmp/root", "overlay", MS_NOSUID | MS_NODEV, layers.c_str()) != 0 &&
      ::mount("overlay", "/tmp/root", "overlay", MS_NOSUID | MS_NODEV, (layers + ",userxattr").c_str()) != 0)
    return "laying a layer above its image";
  if (::chdir("/tmp/root") != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0) return "entering its image";
  return nullptr;
}

const char* fill_image(const Entering& entering, int devices, int processors, int hosts) {
  for (const char* path : {"/dev", "/proc", "/tmp", "/sys/devices/system"})
    if (!make_place(path, true)) return kNoRoom;
  if (!make_place("/etc/hosts", false)) return kNoRoom;
  if (!attach(devices, "/dev") || !attach(processors, "/sys/devices/system") || !attach(hosts, "/etc/hosts"))
    return "completing its image";
  if (const char* failed = mount_own(entering.scratch_bytes)) return failed;
  // Last, because nobody but root may mount a /proc without seeing one: what was the root goes.
  if (::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) return "leaving what was its root";
  for (const Tree& tree : entering.trees) {
    if (!tree.path.starts_with("/dev/") && !make_place(tree.path, tree.directory)) return kNoRoom;
    if (!attach(tree.mount.get(), tree.path.c_str())) return "showing its directories";
  }
  return make_read_only("/") ? nullptr : "closing its root";
}

}  // namespace

const char* enter_view(const Entering& entering) {
  if (::setns(entering.mounts, CLONE_NEWNS) != 0) return "entering what tasks see";
  if (::unshare(CLONE_NEWNS) != 0) return "taking a copy of what tasks see";
  if (entering.image < 0) {
    if (const char* failed = mount_own(entering.scratch_bytes)) return failed;
    return show_trees(entering.trees);
  }
  constexpr unsigned kClone = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
  const sys::Descriptor devices(::open_tree(AT_FDCWD, "/dev", kClone)),
      processors(::open_tree(AT_FDCWD, "/sys/devices/system", kClone)),
      hosts(::open_tree(AT_FDCWD, "/etc/hosts", kClone));
  if (!devices || !processors || !hosts) return "what goes into its image";
  if (const char* failed = enter_image(entering.image)) return failed;
  return fill_image(entering, devices.get(), processors.get(), hosts.get());
}

}  // namespace falaj::execute::local
