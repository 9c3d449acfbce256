// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "storage/blob/backend.h"

namespace falaj::blob {

// In memory, for tests and for `--ephemeral` runs. Thread-safe.
class MemoryBackend final : public Backend {
 public:
  explicit MemoryBackend(const sys::Clock& clock) : clock_(clock) {}
  void put(const std::string& name, BytesView bytes, Durable durable, Existing existing) override;
  Bytes get(const std::string& name, std::uint64_t offset, std::uint64_t length) override;
  std::optional<BlobInfo> stat(const std::string& name) override;
  void remove(const std::string& name) override;
  std::vector<BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) override;
  void sync() override {}

 private:
  struct Blob {
    Bytes bytes;
    std::int64_t modified_us = 0;
  };
  const sys::Clock& clock_;
  Mutex mu_;
  std::map<std::string, Blob> blobs_ GUARDED_BY(mu_);
};

enum class BackendCall { put, get, stat, remove, list, sync };

// Fails chosen calls with unavailable, before they have any effect; everything else goes to `next`. For tests and
// drills. As thread-safe as `should_fail`.
class FaultyBackend final : public Backend {
 public:
  using ShouldFail = std::function<bool(BackendCall call, const std::string& name)>;
  FaultyBackend(Backend& next, ShouldFail should_fail) : next_(next), should_fail_(std::move(should_fail)) {}
  void put(const std::string& name, BytesView bytes, Durable durable, Existing existing) override;
  Bytes get(const std::string& name, std::uint64_t offset, std::uint64_t length) override;
  std::optional<BlobInfo> stat(const std::string& name) override;
  void remove(const std::string& name) override;
  std::vector<BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) override;
  void sync() override;

 private:
  void maybe_fail(BackendCall call, const std::string& name);
  Backend& next_;
  const ShouldFail should_fail_;
};

}  // namespace falaj::blob
