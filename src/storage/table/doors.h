// SPDX-License-Identifier: Apache-2.0
// Private to storage/table: the only file system that DuckDB gets.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include <duckdb/common/file_system.hpp>

#include "foundation/base/mutex.h"
#include "storage/table/spill.h"
#include "storage/table/workspace.h"

namespace falaj::table {

// Where DuckDB is told to spill; nothing of that name is on any disk.
inline constexpr char kSpillDirectory[] = "spill";

// What stands behind the names that a workspace was given; shared by the workspace and its file system.
class DoorList {
 public:
  DoorList(sys::Files& scratch, std::uint64_t spill_bytes_max);
  using Door = std::variant<std::shared_ptr<const Source>, std::shared_ptr<Sink>, std::shared_ptr<SpillFile>>;

  void put(std::string name, Door door);
  void drop(const std::string& name);
  std::optional<Door> find(const std::string& name) const;
  Door open_spill(const std::string& name);  // made when it is not there
  std::vector<std::string> sources() const;

  // DuckDB passes on only the text of what a door throws: the error itself is kept for the workspace.
  template <class F>
  auto guarded(F&& f) {
    try {
      return f();
    } catch (...) {
      Lock lock(mu_);
      if (!thrown_) thrown_ = std::current_exception();
      throw;
    }
  }
  std::exception_ptr take_thrown();

 private:
  sys::Files& scratch_;
  const std::shared_ptr<SpillBudget> budget_;
  mutable Mutex mu_;
  std::map<std::string, Door> doors_ GUARDED_BY(mu_);
  std::exception_ptr thrown_ GUARDED_BY(mu_);
};

class DoorFileSystem final : public duckdb::FileSystem {
 public:
  explicit DoorFileSystem(std::shared_ptr<DoorList> doors) : doors_(std::move(doors)) {}

  duckdb::unique_ptr<duckdb::FileHandle> OpenFile(const std::string& path, duckdb::FileOpenFlags flags,
                                                  duckdb::optional_ptr<duckdb::FileOpener> opener) override;
  void Read(duckdb::FileHandle& handle, void* buffer, int64_t bytes, duckdb::idx_t location) override;
  int64_t Read(duckdb::FileHandle& handle, void* buffer, int64_t bytes) override;
  void Write(duckdb::FileHandle& handle, void* buffer, int64_t bytes, duckdb::idx_t location) override;
  int64_t Write(duckdb::FileHandle& handle, void* buffer, int64_t bytes) override;
  int64_t GetFileSize(duckdb::FileHandle& handle) override;
  duckdb::timestamp_t GetLastModifiedTime(duckdb::FileHandle&) override { return duckdb::timestamp_t(0); }
  std::string GetVersionTag(duckdb::FileHandle&) override { return "1"; }  // a name stands for the same bytes for ever
  duckdb::FileType GetFileType(duckdb::FileHandle&) override { return duckdb::FileType::FILE_TYPE_REGULAR; }
  void Truncate(duckdb::FileHandle& handle, int64_t size) override;
  bool Trim(duckdb::FileHandle&, duckdb::idx_t, duckdb::idx_t) override { return false; }
  void FileSync(duckdb::FileHandle&) override {}
  void Seek(duckdb::FileHandle& handle, duckdb::idx_t location) override;
  void Reset(duckdb::FileHandle& handle) override { Seek(handle, 0); }
  duckdb::idx_t SeekPosition(duckdb::FileHandle& handle) override;
  bool CanSeek() override { return true; }
  bool OnDiskFile(duckdb::FileHandle&) override { return true; }

  bool FileExists(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) override;
  bool IsPipe(const std::string&, duckdb::optional_ptr<duckdb::FileOpener>) override { return false; }
  void RemoveFile(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) override;
  bool TryRemoveFile(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) override;
  void MoveFile(const std::string&, const std::string&, duckdb::optional_ptr<duckdb::FileOpener>) override;
  bool DirectoryExists(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) override;
  void CreateDirectory(const std::string&, duckdb::optional_ptr<duckdb::FileOpener>) override {}
  void RemoveDirectory(const std::string&, duckdb::optional_ptr<duckdb::FileOpener>) override {}
  bool ListFiles(const std::string&, const std::function<void(const std::string&, bool)>&,
                 duckdb::FileOpener*) override {
    return true;
  }
  duckdb::vector<duckdb::OpenFileInfo> Glob(const std::string& pattern, duckdb::FileOpener*) override;
  bool CanHandleFile(const std::string&) override { return true; }
  std::string GetName() const override { return "doors"; }

 private:
  const std::shared_ptr<DoorList> doors_;
};

}  // namespace falaj::table
