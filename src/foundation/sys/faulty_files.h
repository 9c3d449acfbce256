// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/files.h"

namespace falaj::sys {

enum class FileCall { open, create, remove, list, stat, sync, make_directories, read, write, commit };

// Fails chosen calls with unavailable, before they have any effect; everything else goes to `next`. For tests and
// drills. As thread-safe as `should_fail`.
class FaultyFiles final : public Files {
 public:
  // `path` is "" for create (also of scratch files), write, sync and what a scratch file reads.
  using ShouldFail = std::function<bool(FileCall call, const std::string& path)>;
  FaultyFiles(Files& next, ShouldFail should_fail) : next_(next), should_fail_(std::move(should_fail)) {}

  // The n-th call, counted from 1 over all kinds: loop n upwards until a run has fewer calls to see every failure.
  static ShouldFail nth(std::uint64_t n);

  std::unique_ptr<ReadFile> open(const std::string& path) override;
  std::unique_ptr<NewFile> create() override;
  std::unique_ptr<ScratchFile> scratch() override;
  void remove(const std::string& path) override;
  std::vector<FileInfo> list(const std::string& path) override;
  std::optional<FileInfo> stat(const std::string& path) override;
  void sync() override;
  void make_directories(const std::string& path) override;

  std::uint64_t failures() const { return failures_; }

 private:
  class FaultyReadFile;
  class FaultyNewFile;
  class FaultyScratchFile;
  void maybe_fail(FileCall call, const std::string& path);

  Files& next_;
  const ShouldFail should_fail_;
  std::atomic<std::uint64_t> failures_{0};
};

}  // namespace falaj::sys
