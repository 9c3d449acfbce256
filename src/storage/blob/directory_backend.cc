// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/directory_backend.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::blob {

namespace {

constexpr std::size_t kFanOut = 2;  // characters of the last element that name a directory
constexpr std::size_t kDepth = 3;   // directories above a file: space, kind, fan-out

std::string path_of(const std::string& name) {
  check_blob_name(name);
  std::string path = name;
  path.insert(path.rfind('/') + 1 + kFanOut, "/");
  return path;
}

// What the names of everything in `directory` begin with.
std::string names_begin(const std::string& directory, std::size_t depth) {
  return directory.empty() || depth == kDepth ? directory : directory + "/";
}

struct Walk {
  sys::Files& files;
  const std::string& after;
  const std::size_t limit;
  std::vector<BlobInfo> found = {};

  // Everything in `directory` comes at or before `after`.
  bool is_behind(const std::string& begin) const { return begin < after && after.compare(0, begin.size(), begin) != 0; }

  void into(const std::string& path, const std::string& begin, std::size_t depth) {
    if (is_behind(begin)) return;
    std::vector<sys::FileInfo> entries;
    try {
      entries = files.list(path);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;  // removed meanwhile, or nothing was ever put there
    }
    for (const auto& entry : entries) {
      if (found.size() >= limit) return;
      if (entry.directory != (depth < kDepth)) continue;  // not ours
      const std::string name = begin + entry.name;
      if (depth < kDepth) {
        into(path.empty() ? entry.name : path + "/" + entry.name, names_begin(name, depth + 1), depth + 1);
      } else if (name > after) {
        found.push_back({name, entry.bytes, entry.modified_us});
      }
    }
  }
};

}  // namespace

void DirectoryBackend::put(const std::string& name, BytesView bytes, Durable durable, Existing existing) {
  const std::string path = path_of(name);
  auto file = files_.create();
  file->write(bytes);
  file->commit(path, durable == Durable::now ? sys::NewFile::Durable::now : sys::NewFile::Durable::at_sync,
               existing == Existing::replace ? sys::NewFile::Existing::replace : sys::NewFile::Existing::keep);
}

Bytes DirectoryBackend::get(const std::string& name, std::uint64_t offset, std::uint64_t length) {
  const auto file = files_.open(path_of(name));
  const std::uint64_t size = file->size();
  offset = std::min(offset, size);
  Bytes out(std::min(length, size - offset));
  out.resize(file->read(offset, out));
  return out;
}

std::optional<BlobInfo> DirectoryBackend::stat(const std::string& name) {
  const auto info = files_.stat(path_of(name));
  if (!info || info->directory) return std::nullopt;
  return BlobInfo{name, info->bytes, info->modified_us};
}

void DirectoryBackend::remove(const std::string& name) {
  try {
    files_.remove(path_of(name));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
}

std::vector<BlobInfo> DirectoryBackend::list(const std::string& prefix, const std::string& after, std::size_t limit) {
  check_blob_prefix(prefix);
  Walk walk{files_, after, limit};
  const auto depth = static_cast<std::size_t>(std::count(prefix.begin(), prefix.end(), '/'));
  walk.into(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), prefix, depth);
  return std::move(walk.found);
}

}  // namespace falaj::blob
