// SPDX-License-Identifier: Apache-2.0
// Files on a real file system. A new file lives under a random name in `.new/` and is renamed to its path when
// committed; a crash leaves it there, and the next process that is alone with the root removes it.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/files.h"
#include "foundation/sys/path.h"
#include "foundation/sys/random.h"

namespace falaj::sys {
namespace {

// `path` goes to the log only: messages may reach a client.
[[noreturn]] void fail(std::string_view doing, std::string_view path, int error) {
  const auto say = [&](Code code) {
    throw Error(code, fmt::format("{}: {}", doing, std::generic_category().message(error)));
  };
  switch (error) {
    case ENOENT:
      say(Code::not_found);
      break;
    case EEXIST:
    case EISDIR:
    case ENOTEMPTY:
      say(Code::exists);
      break;
    case ELOOP:
    case EXDEV:
    case ENOTDIR:
    case ENAMETOOLONG:
      say(Code::invalid);
      break;
    case ENOSPC:
    case EDQUOT:
      say(Code::exhausted);
      break;
    default:
      break;
  }
  log::warn("file_failed", {{"doing", doing}, {"path", path}, {"error", std::generic_category().message(error)}});
  say(Code::unavailable);
  std::abort();
}

[[noreturn]] void lost_writes(std::string_view doing) {
  // The kernel has dropped the dirty pages and forgets the error: trying again would report success.
  log::error("sync_failed", {{"doing", doing}, {"error", std::generic_category().message(errno)}});
  std::abort();
}

void flush(int fd) {
  if (::fsync(fd) != 0) lost_writes("fsync");
}

int open_beneath(int root, const std::string& path, std::uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  do {
    fd = ::syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how);
  } while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  return static_cast<int>(fd);
}

FileInfo info_of(std::string name, const struct stat& st) {
  return {std::move(name), static_cast<std::uint64_t>(st.st_size),
          std::int64_t{st.st_mtim.tv_sec} * 1'000'000 + st.st_mtim.tv_nsec / 1000, S_ISDIR(st.st_mode),
          (st.st_mode & (S_IRGRP | S_IROTH)) != 0};
}

bool file_or_directory(const struct stat& st) { return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode); }

struct CloseDirectory {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Takes its own descriptor: fdopendir moves the position of the one it is given.
Directory read_directory(int root, const std::string& path) {
  Descriptor fd(open_beneath(root, path, O_RDONLY | O_DIRECTORY));
  if (!fd) fail("listing a directory", path, errno);
  DIR* dir = ::fdopendir(fd.get());
  if (!dir) fail("listing a directory", path, errno);
  fd.release();
  return Directory(dir);
}

std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("reading a file", "", errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

class RealReadFile final : public ReadFile {
 public:
  RealReadFile(Descriptor fd, std::uint64_t size) : fd_(std::move(fd)), size_(size) {}

  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    return read_at(fd_.get(), offset, out);
  }
  std::uint64_t size() const override { return size_; }

 private:
  const Descriptor fd_;
  const std::uint64_t size_;
};

class RealScratchFile final : public ScratchFile {
 public:
  explicit RealScratchFile(Descriptor fd) : fd_(std::move(fd)) {}

  void write(std::uint64_t offset, BytesView bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("writing a scratch file", "", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    return read_at(fd_.get(), offset, out);
  }

 private:
  const Descriptor fd_;
};

class RealFiles final : public Files {
 public:
  enum class Mode { write, read };
  RealFiles(const std::string& root, Mode mode);

  std::unique_ptr<ReadFile> open(const std::string& path) override;
  std::unique_ptr<NewFile> create() override;
  std::unique_ptr<ScratchFile> scratch() override;
  void remove(const std::string& path) override;
  std::vector<FileInfo> list(const std::string& path) override;
  std::optional<FileInfo> stat(const std::string& path) override;
  void sync() override;
  void make_directories(const std::string& path) override;

 private:
  friend class RealNewFile;
  void must_write() const;
  Descriptor parent_of(const std::string& path, std::string& name);
  Descriptor made_directory(const std::string& path);
  void sweep_unnamed();

  RealRandom random_;
  Descriptor root_;
  Descriptor unnamed_;

  // Held over making a directory and syncing its parent, and over opening one: whoever finds a directory may rely on
  // its name being on disk.
  Mutex directories_;
};

class RealNewFile final : public NewFile {
 public:
  RealNewFile(RealFiles& files, Descriptor fd, std::string name)
      : files_(files), fd_(std::move(fd)), unnamed_(std::move(name)) {}
  ~RealNewFile() override {
    if (!unnamed_.empty()) ::unlinkat(files_.unnamed_.get(), unnamed_.c_str(), 0);
  }

  void write(BytesView bytes) override {
    CHECK(!unnamed_.empty(), "a committed file does not change");
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("writing a file", "", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void commit(const std::string& path, Durable durable, Existing existing) override {
    CHECK(!unnamed_.empty(), "a file is committed once");
    check_path(path);
    const auto [parent_path, name] = split_name(path);
    const Descriptor parent = files_.made_directory(parent_path);
    // Before a rename that replaces, always: after a crash there is the old file or the whole new one.
    if (durable == Durable::now || existing == Existing::replace) flush(fd_.get());
    const unsigned flags = existing == Existing::keep ? RENAME_NOREPLACE : 0;
    if (::renameat2(files_.unnamed_.get(), unnamed_.c_str(), parent.get(), name.c_str(), flags) == 0)
      unnamed_.clear();
    else if (errno == EEXIST && existing == Existing::keep)
      keep_existing(parent.get(), name, durable);
    else
      fail("naming a file", path, errno);
    if (durable == Durable::now) flush(parent.get());
  }

 private:
  // The file that is there may have been committed a moment ago by somebody who did not wait for the disk.
  static void keep_existing(int parent, const std::string& name, Durable durable) {
    const Descriptor there(open_beneath(parent, name, O_RDONLY | O_NONBLOCK));
    struct stat st {};
    if (!there || ::fstat(there.get(), &st) != 0) fail("naming a file", name, errno);
    if (!S_ISREG(st.st_mode)) fail("naming a file", name, EEXIST);
    if (durable == Durable::now) flush(there.get());
  }

  RealFiles& files_;
  Descriptor fd_;
  std::string unnamed_;  // its name in `.new`; empty once committed
};

RealFiles::RealFiles(const std::string& root, Mode mode) {
  if (mode == Mode::read) {
    root_ = Descriptor(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_) fail("opening a directory", root, errno);
    return;
  }
  for (std::size_t slash = root.find('/', 1); slash != std::string::npos; slash = root.find('/', slash + 1))
    ::mkdir(root.substr(0, slash).c_str(), 0700);  // what is wrong with a parent shows at the next line
  if (::mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) fail("making a data directory", root, errno);
  root_ = Descriptor(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_) fail("opening a data directory", root, errno);
  const std::string unnamed(kUnnamedDirectory);
  if (::mkdirat(root_.get(), unnamed.c_str(), 0700) != 0 && errno != EEXIST)
    fail("making a data directory", root, errno);
  unnamed_ = Descriptor(open_beneath(root_.get(), unnamed, O_RDONLY | O_DIRECTORY));
  if (!unnamed_) fail("opening a data directory", root, errno);
  if (::flock(unnamed_.get(), LOCK_EX | LOCK_NB) == 0) sweep_unnamed();
  if (::flock(unnamed_.get(), LOCK_SH) != 0) fail("locking a data directory", root, errno);
  sync();  // a process killed here before us may have left directories whose names are not on disk
}

void RealFiles::sweep_unnamed() {
  const auto dir = read_directory(unnamed_.get(), "");
  while (const dirent* entry = ::readdir(dir.get()))
    if (entry->d_name[0] != '.') ::unlinkat(unnamed_.get(), entry->d_name, 0);
}

std::unique_ptr<ReadFile> RealFiles::open(const std::string& path) {
  check_path(path);
  Descriptor fd(open_beneath(root_.get(), path, O_RDONLY | O_NONBLOCK));  // a FIFO would block
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) fail("opening a file", path, errno);
  if (!S_ISREG(st.st_mode)) throw Error(Code::invalid, "opening a file: not a file");
  return std::make_unique<RealReadFile>(std::move(fd), static_cast<std::uint64_t>(st.st_size));
}

void RealFiles::must_write() const {
  if (!unnamed_) throw Error(Code::denied, "this directory is only read");
}

std::unique_ptr<NewFile> RealFiles::create() {
  must_write();
  std::string name = fmt::format("{:016x}{:016x}", random_.next(), random_.next());
  Descriptor fd(::openat(unnamed_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) fail("making a file", name, errno);
  return std::make_unique<RealNewFile>(*this, std::move(fd), std::move(name));
}

std::unique_ptr<ScratchFile> RealFiles::scratch() {
  must_write();
  Descriptor fd(::openat(unnamed_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) fail("making a scratch file", "", errno);
  return std::make_unique<RealScratchFile>(std::move(fd));
}

Descriptor RealFiles::parent_of(const std::string& path, std::string& name) {
  check_path(path);
  auto [parent_path, last] = split_name(path);
  name = std::move(last);
  return Descriptor(open_beneath(root_.get(), parent_path, O_PATH | O_DIRECTORY));
}

void RealFiles::remove(const std::string& path) {
  must_write();
  std::string name;
  const Descriptor parent = parent_of(path, name);
  if (!parent) fail("removing a file", path, errno);
  if (::unlinkat(parent.get(), name.c_str(), 0) == 0) return;
  if (errno != EISDIR || ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) != 0)
    fail("removing a file", path, errno);
}

std::vector<FileInfo> RealFiles::list(const std::string& path) {
  if (!path.empty()) check_path(path);
  const auto dir = read_directory(root_.get(), path);
  std::vector<FileInfo> out;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    std::string name = entry->d_name;
    if (name == "." || name == ".." || (path.empty() && name == kUnnamedDirectory)) continue;
    struct stat st {};
    // Gone meanwhile, or a link or device somebody else put there: not one of our files.
    if (::fstatat(::dirfd(dir.get()), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && file_or_directory(st))
      out.push_back(info_of(std::move(name), st));
    errno = 0;
  }
  if (errno != 0) fail("listing a directory", path, errno);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

std::optional<FileInfo> RealFiles::stat(const std::string& path) {
  std::string name;
  const Descriptor parent = parent_of(path, name);
  struct stat st {};
  if (!parent || ::fstatat(parent.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail("looking at a file", path, errno);
  }
  if (!file_or_directory(st)) return std::nullopt;
  return info_of(std::move(name), st);
}

void RealFiles::sync() {
  if (::syncfs(root_.get()) != 0) lost_writes("syncfs");
}

void RealFiles::make_directories(const std::string& path) {
  must_write();
  check_path(path);
  made_directory(path);
}

// Opens a directory, after making it and those above it where missing.
Descriptor RealFiles::made_directory(const std::string& path) {
  Lock lock(directories_);
  Descriptor found(open_beneath(root_.get(), path, O_RDONLY | O_DIRECTORY));
  if (found) return found;
  if (errno != ENOENT) fail("making a directory", path, errno);
  Descriptor at(open_beneath(root_.get(), "", O_RDONLY | O_DIRECTORY));
  for (std::size_t from = 0; at && from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string element = path.substr(from, to - from);
    if (::mkdirat(at.get(), element.c_str(), 0700) == 0)
      flush(at.get());
    else if (errno != EEXIST)
      fail("making a directory", path, errno);
    at = Descriptor(open_beneath(at.get(), element, O_RDONLY | O_DIRECTORY));
    from = to + 1;
  }
  if (!at) fail("making a directory", path, errno);
  return at;
}

}  // namespace

std::unique_ptr<Files> open_files(const std::string& root) {
  return std::make_unique<RealFiles>(root, RealFiles::Mode::write);
}
std::unique_ptr<Files> read_files(const std::string& root) {
  return std::make_unique<RealFiles>(root, RealFiles::Mode::read);
}

}  // namespace falaj::sys
