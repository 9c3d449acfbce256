// SPDX-License-Identifier: Apache-2.0
#include "storage/table/doors.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::table {
namespace {

class Handle final : public duckdb::FileHandle {
 public:
  Handle(duckdb::FileSystem& system, const std::string& path, duckdb::FileOpenFlags flags, DoorList::Door opened)
      : duckdb::FileHandle(system, path, flags), door(std::move(opened)) {}
  void Close() override {}

  const DoorList::Door door;
  std::uint64_t position = 0;  // of calls without a place; DuckDB makes those from one thread
};

Handle& own(duckdb::FileHandle& handle) { return static_cast<Handle&>(handle); }

template <class T>
const T* behind(duckdb::FileHandle& handle) {
  const auto* door = std::get_if<std::shared_ptr<T>>(&own(handle).door);
  return door ? door->get() : nullptr;
}

std::span<std::byte> span_of(void* buffer, std::uint64_t bytes) { return {static_cast<std::byte*>(buffer), bytes}; }

bool is_spill(const std::string& name) {
  return name.rfind(kSpillDirectory, 0) == 0 && name.size() > sizeof kSpillDirectory &&
         name[sizeof kSpillDirectory - 1] == '/';
}

[[noreturn]] void no_such_file(const std::string& name) {
  throw Error(Code::invalid, fmt::format("no file '{}' is given to this query", name));
}

}  // namespace

DoorList::DoorList(sys::Files& scratch, std::uint64_t spill_bytes_max)
    : scratch_(scratch), budget_(std::make_shared<SpillBudget>(spill_bytes_max)) {}

void DoorList::put(std::string name, Door door) {
  CHECK(!is_spill(name), "the spill directory is the engine's own");
  Lock lock(mu_);
  doors_.insert_or_assign(std::move(name), std::move(door));
}

void DoorList::drop(const std::string& name) {
  Lock lock(mu_);
  doors_.erase(name);
}

std::optional<DoorList::Door> DoorList::find(const std::string& name) const {
  Lock lock(mu_);
  const auto found = doors_.find(name);
  return found == doors_.end() ? std::nullopt : std::optional(found->second);
}

DoorList::Door DoorList::open_spill(const std::string& name) {
  Lock lock(mu_);
  auto& door = doors_[name];
  auto* file = std::get_if<std::shared_ptr<SpillFile>>(&door);
  if (!file || !*file) door = std::make_shared<SpillFile>(scratch_, budget_);
  return door;
}

std::vector<std::string> DoorList::sources() const {
  Lock lock(mu_);
  std::vector<std::string> out;
  for (const auto& [name, door] : doors_)
    if (std::holds_alternative<std::shared_ptr<const Source>>(door)) out.push_back(name);
  return out;
}

std::exception_ptr DoorList::take_thrown() {
  Lock lock(mu_);
  return std::exchange(thrown_, nullptr);
}

duckdb::unique_ptr<duckdb::FileHandle> DoorFileSystem::OpenFile(const std::string& path, duckdb::FileOpenFlags flags,
                                                                duckdb::optional_ptr<duckdb::FileOpener>) {
  return doors_->guarded([&]() -> duckdb::unique_ptr<duckdb::FileHandle> {
    if (is_spill(path)) return duckdb::make_uniq<Handle>(*this, path, flags, doors_->open_spill(path));
    const auto door = doors_->find(path);
    if (!door && flags.ReturnNullIfNotExists()) return nullptr;
    const bool is_sink = door && std::holds_alternative<std::shared_ptr<Sink>>(*door);
    if (!door || is_sink != flags.OpenForWriting()) no_such_file(path);
    return duckdb::make_uniq<Handle>(*this, path, flags, *door);
  });
}

void DoorFileSystem::Read(duckdb::FileHandle& handle, void* buffer, int64_t bytes, duckdb::idx_t location) {
  doors_->guarded([&] {
    const auto out = span_of(buffer, static_cast<std::uint64_t>(bytes));
    if (const auto* spill = behind<SpillFile>(handle)) return spill->read(location, out);
    const auto* source = behind<const Source>(handle);
    CHECK(source, "a sink is not read");
    if (location > source->size() || out.size() > source->size() - location)
      throw Error(Code::invalid, fmt::format("'{}' ends before what it says it holds", handle.path));
    source->read(location, out);
  });
}

int64_t DoorFileSystem::Read(duckdb::FileHandle& handle, void* buffer, int64_t bytes) {
  return doors_->guarded([&] {
    const auto* source = behind<const Source>(handle);
    CHECK(source, "only sources are read from their beginning");
    auto& position = own(handle).position;
    const auto n = std::min(static_cast<std::uint64_t>(bytes), source->size() - std::min(position, source->size()));
    if (n > 0) source->read(position, span_of(buffer, n));
    position += n;
    return static_cast<int64_t>(n);
  });
}

void DoorFileSystem::Write(duckdb::FileHandle& handle, void* buffer, int64_t bytes, duckdb::idx_t location) {
  doors_->guarded([&] {
    const auto* spill = std::get_if<std::shared_ptr<SpillFile>>(&own(handle).door);
    CHECK(spill, "only spill files are written at a place");
    (*spill)->write(location, span_of(buffer, static_cast<std::uint64_t>(bytes)));
  });
}

int64_t DoorFileSystem::Write(duckdb::FileHandle& handle, void* buffer, int64_t bytes) {
  return doors_->guarded([&] {
    const auto in = span_of(buffer, static_cast<std::uint64_t>(bytes));
    auto& h = own(handle);
    if (const auto* sink = std::get_if<std::shared_ptr<Sink>>(&h.door))
      (*sink)->write(in);
    else
      std::get<std::shared_ptr<SpillFile>>(h.door)->write(h.position, in);
    h.position += in.size();
    return bytes;
  });
}

int64_t DoorFileSystem::GetFileSize(duckdb::FileHandle& handle) {
  if (const auto* source = behind<const Source>(handle)) return static_cast<int64_t>(source->size());
  if (const auto* spill = behind<SpillFile>(handle)) return static_cast<int64_t>(spill->size());
  return static_cast<int64_t>(own(handle).position);
}

void DoorFileSystem::Truncate(duckdb::FileHandle& handle, int64_t size) {
  if (const auto* spill = std::get_if<std::shared_ptr<SpillFile>>(&own(handle).door))
    (*spill)->truncate(static_cast<std::uint64_t>(size));
}

void DoorFileSystem::Seek(duckdb::FileHandle& handle, duckdb::idx_t location) { own(handle).position = location; }
duckdb::idx_t DoorFileSystem::SeekPosition(duckdb::FileHandle& handle) { return own(handle).position; }

bool DoorFileSystem::FileExists(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) {
  const auto door = doors_->find(name);
  // A sink is new each time it is written: DuckDB would ask to remove what is there.
  return door && !std::holds_alternative<std::shared_ptr<Sink>>(*door);
}

void DoorFileSystem::RemoveFile(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener> opener) {
  TryRemoveFile(name, opener);
}
bool DoorFileSystem::TryRemoveFile(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) {
  if (!is_spill(name)) return false;
  doors_->drop(name);
  return true;
}
void DoorFileSystem::MoveFile(const std::string& from, const std::string&, duckdb::optional_ptr<duckdb::FileOpener>) {
  doors_->guarded([&] { no_such_file(from); });
}
bool DoorFileSystem::DirectoryExists(const std::string& name, duckdb::optional_ptr<duckdb::FileOpener>) {
  return name == kSpillDirectory;
}

duckdb::vector<duckdb::OpenFileInfo> DoorFileSystem::Glob(const std::string& pattern, duckdb::FileOpener*) {
  // Names are taken as they are: a '*' has no meaning, so that no query can ask what else is here.
  duckdb::vector<duckdb::OpenFileInfo> out;
  if (FileExists(pattern, nullptr)) out.emplace_back(pattern);
  return out;
}

}  // namespace falaj::table
