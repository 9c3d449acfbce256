// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/memory_backend.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::blob {

void MemoryBackend::put(const std::string& name, BytesView bytes, Durable, Existing existing) {
  check_blob_name(name);
  Blob blob{{bytes.begin(), bytes.end()}, clock_.wall().count()};
  Lock lock(mu_);
  if (existing == Existing::replace) {
    blobs_.insert_or_assign(name, std::move(blob));
  } else {
    blobs_.try_emplace(name, std::move(blob));
  }
}

Bytes MemoryBackend::get(const std::string& name, std::uint64_t offset, std::uint64_t length) {
  check_blob_name(name);
  Lock lock(mu_);
  const auto it = blobs_.find(name);
  if (it == blobs_.end()) throw Error(Code::not_found, "no such blob");
  const BytesView all = it->second.bytes;
  const auto part = all.subspan(std::min<std::uint64_t>(offset, all.size()));
  const auto wanted = part.first(std::min<std::uint64_t>(length, part.size()));
  return {wanted.begin(), wanted.end()};
}

std::optional<BlobInfo> MemoryBackend::stat(const std::string& name) {
  check_blob_name(name);
  Lock lock(mu_);
  const auto it = blobs_.find(name);
  if (it == blobs_.end()) return std::nullopt;
  return BlobInfo{name, it->second.bytes.size(), it->second.modified_us};
}

void MemoryBackend::remove(const std::string& name) {
  check_blob_name(name);
  Lock lock(mu_);
  blobs_.erase(name);
}

std::vector<BlobInfo> MemoryBackend::list(const std::string& prefix, const std::string& after, std::size_t limit) {
  check_blob_prefix(prefix);
  Lock lock(mu_);
  std::vector<BlobInfo> found;
  auto it = after < prefix ? blobs_.lower_bound(prefix) : blobs_.upper_bound(after);
  for (; it != blobs_.end() && found.size() < limit && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    found.push_back({it->first, it->second.bytes.size(), it->second.modified_us});
  }
  return found;
}

void FaultyBackend::maybe_fail(BackendCall call, const std::string& name) {
  if (should_fail_(call, name)) throw Error(Code::unavailable, "the backend does not answer");
}
void FaultyBackend::put(const std::string& name, BytesView bytes, Durable durable, Existing existing) {
  maybe_fail(BackendCall::put, name);
  next_.put(name, bytes, durable, existing);
}
Bytes FaultyBackend::get(const std::string& name, std::uint64_t offset, std::uint64_t length) {
  maybe_fail(BackendCall::get, name);
  return next_.get(name, offset, length);
}
std::optional<BlobInfo> FaultyBackend::stat(const std::string& name) {
  maybe_fail(BackendCall::stat, name);
  return next_.stat(name);
}
void FaultyBackend::remove(const std::string& name) {
  maybe_fail(BackendCall::remove, name);
  next_.remove(name);
}
std::vector<BlobInfo> FaultyBackend::list(const std::string& prefix, const std::string& after, std::size_t limit) {
  maybe_fail(BackendCall::list, prefix);
  return next_.list(prefix, after, limit);
}
void FaultyBackend::sync() {
  maybe_fail(BackendCall::sync, "");
  next_.sync();
}

}  // namespace falaj::blob
