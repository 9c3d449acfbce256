// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/faulty_files.h"

#include "foundation/base/error.h"

namespace falaj::sys {

class FaultyFiles::FaultyReadFile final : public ReadFile {
 public:
  FaultyReadFile(FaultyFiles& files, std::unique_ptr<ReadFile> next, std::string path)
      : files_(files), next_(std::move(next)), path_(std::move(path)) {}
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    files_.maybe_fail(FileCall::read, path_);
    return next_->read(offset, out);
  }
  std::uint64_t size() const override { return next_->size(); }

 private:
  FaultyFiles& files_;
  const std::unique_ptr<ReadFile> next_;
  const std::string path_;
};

class FaultyFiles::FaultyNewFile final : public NewFile {
 public:
  FaultyNewFile(FaultyFiles& files, std::unique_ptr<NewFile> next) : files_(files), next_(std::move(next)) {}
  void write(BytesView bytes) override {
    files_.maybe_fail(FileCall::write, "");
    next_->write(bytes);
  }
  void commit(const std::string& path, Durable durable, Existing existing) override {
    files_.maybe_fail(FileCall::commit, path);
    next_->commit(path, durable, existing);
  }

 private:
  FaultyFiles& files_;
  const std::unique_ptr<NewFile> next_;
};

class FaultyFiles::FaultyScratchFile final : public ScratchFile {
 public:
  FaultyScratchFile(FaultyFiles& files, std::unique_ptr<ScratchFile> next) : files_(files), next_(std::move(next)) {}
  void write(std::uint64_t offset, BytesView bytes) override {
    files_.maybe_fail(FileCall::write, "");
    next_->write(offset, bytes);
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    files_.maybe_fail(FileCall::read, "");
    return next_->read(offset, out);
  }

 private:
  FaultyFiles& files_;
  const std::unique_ptr<ScratchFile> next_;
};

FaultyFiles::ShouldFail FaultyFiles::nth(std::uint64_t n) {
  return [n, calls = std::make_shared<std::atomic<std::uint64_t>>(0)](FileCall, const std::string&) {
    return ++*calls == n;
  };
}

void FaultyFiles::maybe_fail(FileCall call, const std::string& path) {
  if (!should_fail_(call, path)) return;
  ++failures_;
  throw Error(Code::unavailable, "file system: fault injected");
}

std::unique_ptr<ReadFile> FaultyFiles::open(const std::string& path) {
  maybe_fail(FileCall::open, path);
  return std::make_unique<FaultyReadFile>(*this, next_.open(path), path);
}
std::unique_ptr<NewFile> FaultyFiles::create() {
  maybe_fail(FileCall::create, "");
  return std::make_unique<FaultyNewFile>(*this, next_.create());
}
std::unique_ptr<ScratchFile> FaultyFiles::scratch() {
  maybe_fail(FileCall::create, "");
  return std::make_unique<FaultyScratchFile>(*this, next_.scratch());
}
void FaultyFiles::remove(const std::string& path) {
  maybe_fail(FileCall::remove, path);
  next_.remove(path);
}
std::vector<FileInfo> FaultyFiles::list(const std::string& path) {
  maybe_fail(FileCall::list, path);
  return next_.list(path);
}
std::optional<FileInfo> FaultyFiles::stat(const std::string& path) {
  maybe_fail(FileCall::stat, path);
  return next_.stat(path);
}
void FaultyFiles::sync() {
  maybe_fail(FileCall::sync, "");
  next_.sync();
}
void FaultyFiles::make_directories(const std::string& path) {
  maybe_fail(FileCall::make_directories, path);
  next_.make_directories(path);
}

}  // namespace falaj::sys
