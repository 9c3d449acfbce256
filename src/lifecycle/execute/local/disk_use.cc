// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/disk_use.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {
namespace {

class Counting {
 public:
  Counting(const std::string& directory, std::int64_t enough)
      : root_(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), enough_(enough) {
    struct stat info {};
    if (root_ && ::fstat(root_.get(), &info) == 0) device_ = info.st_dev;
  }

  void files() {
    if (!root_) return;
    std::vector<std::string> ahead = {"."};
    while (!ahead.empty() && bytes_ <= enough_) {
      const std::string path = std::move(ahead.back());
      ahead.pop_back();
      open_how how{};
      how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
      how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
      const int fd = static_cast<int>(::syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof how));
      if (fd < 0 && errno == ENAMETOOLONG) bytes_ = enough_ + 1;
      if (fd < 0) continue;
      entries(fd, [&](const char* name, const struct stat& info) {
        if (S_ISDIR(info.st_mode)) ahead.push_back(fmt::format("{}/{}", path, name));
        count(info);
      });
    }
  }

  // By /proc/PID/fd and the like, whose entries lead to the file itself.
  void held_by(pid_t process) {
    for (const char* what : {"fd", "map_files"}) {
      const int fd = ::open(fmt::format("/proc/{}/{}", process, what).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (fd < 0) continue;
      const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(fd), ::closedir);
      while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
        struct stat info {};
        if (::fstatat(fd, entry->d_name, &info, 0) == 0 && info.st_nlink == 0 && S_ISREG(info.st_mode) &&
            info.st_dev == device_ && seen_.insert(info.st_ino).second)
          bytes_ += info.st_blocks * 512;
      }
    }
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  template <class F>
  void entries(int fd, F each) {
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(fd), ::closedir);
    if (!listing) return;
    while (const dirent* entry = ::readdir(listing.get())) {
      const std::string_view name = entry->d_name;
      struct stat info {};
      if (name == "." || name == ".." || ::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      each(entry->d_name, info);
    }
  }
  void count(const struct stat& info) {
    if (info.st_nlink > 1 && !S_ISDIR(info.st_mode) && !seen_.insert(info.st_ino).second) return;
    bytes_ += info.st_blocks * 512;
  }

  const sys::Descriptor root_;
  const std::int64_t enough_;
  dev_t device_ = 0;
  std::set<ino_t> seen_;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::int64_t disk_use(const std::string& directory, const std::vector<pid_t>& processes, std::int64_t enough) {
  Counting counting(directory, enough);
  counting.files();
  for (const pid_t process : processes) counting.held_by(process);
  return counting.bytes();
}

}  // namespace falaj::execute::local
