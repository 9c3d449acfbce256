// SPDX-License-Identifier: Apache-2.0
#pragma once

// The files that tasks see. One mount namespace is prepared when the keeper starts: a small root with the host's
// programs read-only, a few files of /etc, and the harmless devices. Each attempt begins with a copy of it, which is
// cheap, and adds what is its own: /tmp, /dev/shm, /proc, and its directories at the paths they have on the host.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

// Whose files tasks make. As root of the machine, tasks run as an ordinary user, and what that user makes in the
// directories given to it is owned by us on disk (an id-mapped mount). As an ordinary user, as ourselves.
struct Identity {
  unsigned inside = 0;    // the number tasks see for themselves
  unsigned outside = 0;   // the number it is for the keeper
  sys::Descriptor map{};  // a user namespace that maps our files to theirs; none when they are the same
};

// Something of the host, to be shown at the same path.
struct Tree {
  std::string path;
  sys::Descriptor mount;  // detached
  bool directory = true;
};

class View {
 public:
  View(const std::string& host_name, unsigned user);  // throws unavailable

  // Opens what is at `path` of the host; a link on the way is refused. Throws invalid, unavailable.
  Tree open(const std::string& path, bool writable, const Identity& identity) const;
  // Where /data/x is to be shown, /data must be there to show it in; and /dev/x where a device is. Names of that level
  // are not secret.
  void make_room(const Tree& tree);

  int mounts() const { return mounts_.get(); }

 private:
  void fill(const std::string& host_name, unsigned user) const;

  sys::Descriptor files_;   // the root's file system, writable only here
  sys::Descriptor mounts_;  // the namespace
};

// Programs, libraries and what they were configured with; links among them are made again as links.
inline constexpr const char* kHostShown[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"};

// What the child that becomes an attempt takes for itself.
struct Entering {
  int mounts;                      // of the view
  const std::vector<Tree>& trees;  // those inside others after them
  int image = -1;                  // a mount to be its root instead of the view's; nobody can write to either
  std::int64_t scratch_bytes = 0;  // bounds /tmp and /dev/shm each; 0 = as the kernel does
};
// What failed, or null; errno says why. Requires: its own pid namespace.
const char* enter_view(const Entering& entering);

}  // namespace falaj::execute::local
