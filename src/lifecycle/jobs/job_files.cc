// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/job_files.h"

#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::jobs {
namespace {

constexpr std::size_t kFilesMax = 100'000, kDepthMax = 32, kEntriesAtOnce = 1000;

void list_files(sys::Files& files, const std::string& below, std::size_t depth, std::vector<std::string>& out) {
  if (depth > kDepthMax) throw Error(Code::exhausted, fmt::format("directories nested more than {} deep", kDepthMax));
  for (const auto& info : files.list(below)) {
    const auto path = below.empty() ? info.name : fmt::format("{}/{}", below, info.name);
    if (info.directory)
      list_files(files, path, depth + 1, out);
    else
      out.push_back(path);
    if (out.size() > kFilesMax) throw Error(Code::exhausted, fmt::format("more than {} files", kFilesMax));
  }
}

}  // namespace

std::vector<std::string> files_below(sys::Files& files) {
  std::vector<std::string> out;
  list_files(files, "", 0, out);
  return out;
}

vault::Batch put_files(vault::Vault& vault, const Where& where, sys::Files& files,
                       const std::vector<std::string>& paths,
                       const std::function<std::string(const std::string& path)>& name_of, const sql::Act& act) {
  std::size_t at = 0;
  const auto next = [&]() -> std::optional<vault::NewFile> {
    while (at < paths.size()) {
      const auto& path = paths[at++];
      if (!files.stat(path)) continue;
      std::shared_ptr<sys::ReadFile> file = files.open(path);
      auto offset = std::make_shared<std::uint64_t>(0);
      return vault::NewFile{name_of(path), file->size(), [file, offset](std::span<std::byte> out) {
                              const auto read = file->read(*offset, out);
                              *offset += read;
                              return read;
                            }};
    }
    return std::nullopt;
  };
  return vault.put_many(where, std::nullopt, next, act);
}

void take_file(vault::Vault& vault, const vault::Where& where, const vault::Entry& entry, sys::Files& files,
               const std::string& path) {
  auto reader = vault.open(where, entry, 0, entry.bytes);
  auto file = files.create();
  for (auto piece = reader->next(); !piece.empty(); piece = reader->next()) file->write(piece);
  file->commit(path, sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
}

void each_entry(const vault::Vault& vault, const vault::Where& where, const std::string& root,
                const std::function<void(const vault::Entry&)>& each) {
  for (std::string after;;) {
    const auto page = vault.list(where, root, after, kEntriesAtOnce);
    for (const auto& entry : page) each(entry);
    if (page.size() < kEntriesAtOnce) return;
    after = page.back().name;
  }
}

}  // namespace falaj::jobs
