// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::sys {

struct FileInfo {
  std::string name;  // one path element
  std::uint64_t bytes = 0;
  std::int64_t modified_us = 0;  // since 1970
  bool directory = false;
  bool others_may_read = false;  // anybody but its owner
};

// A file open for reading at any position. Thread-safe.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  // Fills `out` from `offset`; fewer bytes only at the end of the file. Throws unavailable on an I/O error.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  virtual std::uint64_t size() const = 0;
};

// A file being written from its beginning. It has no name until commit: a file dropped before that never was.
class NewFile {
 public:
  virtual ~NewFile() = default;
  virtual void write(BytesView bytes) = 0;
  // Gives it `path`, making directories as needed. With `now` the bytes and the name are on disk when it returns (also
  // those of a file that was kept); with `at_sync` after the next Files::sync, and a power loss before that may leave
  // the name with only some of its bytes. `replace`: a power loss leaves the old file or the whole new one. `keep`: a
  // file that is there stays as it is. Requires: called once, nothing written after.
  enum class Durable { now, at_sync };
  enum class Existing { replace, keep };
  virtual void commit(const std::string& path, Durable durable, Existing existing) = 0;
};

// A file without a name, written and read at any position, gone when dropped. Thread-safe for places that do not
// overlap. Errors: exhausted (the disk is full), unavailable (I/O).
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  virtual void write(std::uint64_t offset, BytesView bytes) = 0;
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> out) const = 0;  // fewer only at the end
};

// A directory tree and nothing outside it: every path is relative, resolved beneath the root without following links
// (openat2), made of elements that are not empty, "." or ".." and have at most 255 bytes; ".new" in the root is taken.
// Thread-safe. Errors: not_found, exists (a directory is in the way, or is not empty), invalid (a bad path), exhausted
// (the disk is full), unavailable (I/O). A failed fsync aborts the process: what the disk
// holds is unknown then, and going on would acknowledge lost writes.
class Files {
 public:
  virtual ~Files() = default;
  virtual std::unique_ptr<ReadFile> open(const std::string& path) = 0;
  virtual std::unique_ptr<NewFile> create() = 0;
  virtual std::unique_ptr<ScratchFile> scratch() = 0;
  virtual void remove(const std::string& path) = 0;                   // a file, or an empty directory; lasts after sync
  virtual std::vector<FileInfo> list(const std::string& path) = 0;    // "" is the root; sorted by name
  virtual std::optional<FileInfo> stat(const std::string& path) = 0;  // links and devices are not there
  virtual void sync() = 0;  // everything committed so far is on disk when it returns
  virtual void make_directories(const std::string& path) = 0;

  // Whole small files, on top of the above.
  Bytes read_all(const std::string& path, std::size_t bytes_max);  // exhausted when longer
  void write_all(const std::string& path, BytesView bytes);        // durable, replaces
};

// The real one. `root` and what is above it are made (mode 0700) when missing; files are 0600.
std::unique_ptr<Files> open_files(const std::string& root);
// Of somebody else's, perhaps on a disk that cannot be written: what writes is denied. Throws not_found.
std::unique_ptr<Files> read_files(const std::string& root);

}  // namespace falaj::sys
