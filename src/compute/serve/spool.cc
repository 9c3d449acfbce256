// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/spool.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

constexpr std::string_view kSpoolDirectory = "spool";
constexpr std::size_t kSegmentFileMax = std::size_t{16} << 20;
constexpr std::size_t kLookMax = 64;  // files, for more of the same endpoint

std::string spool_path(const std::string& name) { return fmt::format("{}/{}", kSpoolDirectory, name); }

bool goes_with(const json::object& a, const json::object& b) {
  for (const auto* key : {"tenant", "project", "endpoint", "columns"})
    if (a.at(key) != b.at(key)) return false;
  return true;
}

}  // namespace

Spool::Spool(sys::Files& files, const sys::Clock& clock, sys::Random& random, std::uint64_t bytes_max)
    : files_(files),
      bytes_max_(bytes_max),
      prefix_(fmt::format("{:016x}-{:016x}", clock.wall().count(), random.next())) {
  files_.make_directories(std::string(kSpoolDirectory));
  Lock lock(mu_);
  for (const auto& file : files_.list(std::string(kSpoolDirectory))) {
    if (file.directory) continue;
    names_[file.name] = file.bytes;
    bytes_ += file.bytes;
  }
}

bool Spool::put(const json::value& segment) {
  const auto text = json::serialize(segment);
  std::string name;
  {
    Lock lock(mu_);
    if (bytes_ + text.size() > bytes_max_ || text.size() > kSegmentFileMax) return false;
    bytes_ += text.size();
    name = fmt::format("{}-{:08x}", prefix_, next_++);
  }
  bool written = false;
  try {
    files_.write_all(spool_path(name), as_bytes(text));
    written = true;
  } catch (const Error& e) {
    log::warn("log_segment_not_kept", {{"why", e.what()}});
  }
  Lock lock(mu_);
  if (written)
    names_[name] = text.size();
  else
    bytes_ -= text.size();
  return written;
}

std::optional<json::object> Spool::read(const std::string& name) {
  try {
    auto out = parse_json(as_text(files_.read_all(spool_path(name), kSegmentFileMax))).as_object();
    out["segment"] = name;
    return out;
  } catch (const std::exception& e) {  // not ours: it would be in the way for ever
    log::warn("log_segment_unreadable", {{"segment", name}, {"why", e.what()}});
    forget(name);
    return std::nullopt;
  }
}

std::vector<json::object> Spool::oldest(std::uint64_t bytes_max) {
  std::map<std::string, std::uint64_t> names;
  {
    Lock lock(mu_);
    names = names_;
  }
  std::vector<json::object> out;
  std::uint64_t bytes = 0;
  std::size_t looked = 0;
  for (const auto& [name, size] : names) {
    if (!out.empty() && (bytes + size > bytes_max || ++looked > kLookMax)) break;
    auto segment = read(name);
    if (!segment || (!out.empty() && !goes_with(out.front(), *segment))) continue;
    bytes += size;
    out.push_back(std::move(*segment));
  }
  return out;
}

void Spool::forget(const std::string& name) {
  try {
    files_.remove(spool_path(name));
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  Lock lock(mu_);
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  bytes_ -= found->second;
  names_.erase(found);
}

void Spool::remove(const json::object& segment) { forget(std::string(segment.at("segment").as_string())); }

std::uint64_t Spool::bytes() const {
  Lock lock(mu_);
  return bytes_;
}

}  // namespace falaj::serve
