// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/sys/files.h"
#include "storage/blob/backend.h"

namespace falaj::blob {

// A directory. "space/kind/abcdef" is the file space/kind/ab/cdef, so that no directory holds more than a 256th of a
// tenant's blobs. Thread-safe.
class DirectoryBackend final : public Backend {
 public:
  explicit DirectoryBackend(sys::Files& files) : files_(files) {}
  void put(const std::string& name, BytesView bytes, Durable durable, Existing existing) override;
  Bytes get(const std::string& name, std::uint64_t offset, std::uint64_t length) override;
  std::optional<BlobInfo> stat(const std::string& name) override;
  void remove(const std::string& name) override;
  std::vector<BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) override;
  void sync() override { files_.sync(); }

 private:
  sys::Files& files_;
};

}  // namespace falaj::blob
