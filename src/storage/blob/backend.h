// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::blob {

struct BlobInfo {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t modified_us = 0;  // since 1970; S3 knows whole seconds only
};

enum class Durable { now, at_sync };
enum class Existing { replace, keep };

// Named bytes somewhere: a directory, a bucket. It knows nothing of encryption, tenants or zones. Thread-safe.
// A name has three elements, "space/kind/rest", of lower-case letters and digits, the last of at least four; any other
// throws invalid. Errors besides: not_found (get), unavailable, exhausted (full).
class Backend {
 public:
  static constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

  virtual ~Backend() = default;
  // With `now` the bytes and the name survive a power loss when it returns; with `at_sync` after the next sync, and a
  // power loss before that may leave the name with only some of its bytes. `keep`: bytes already there may stay.
  virtual void put(const std::string& name, BytesView bytes, Durable durable, Existing existing) = 0;
  // Fewer bytes than asked for only at the end.
  virtual Bytes get(const std::string& name, std::uint64_t offset = 0, std::uint64_t length = kToTheEnd) = 0;
  virtual std::optional<BlobInfo> stat(const std::string& name) = 0;
  virtual void remove(const std::string& name) = 0;  // also when there is none
  // Sorted names that begin with `prefix` ("", "space/" or "space/kind/") and come after `after`, at most `limit`.
  virtual std::vector<BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) = 0;
  virtual void sync() = 0;
};

void check_blob_name(std::string_view name);      // throws invalid
void check_blob_prefix(std::string_view prefix);  // throws invalid

}  // namespace falaj::blob
