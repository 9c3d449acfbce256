// SPDX-License-Identifier: Apache-2.0
// Archives that anybody may have made.
#include <algorithm>
#include <cstring>

#include "foundation/base/error.h"
#include "lifecycle/execute/local/tar_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  using namespace falaj::execute::local;
  std::size_t at = 0;
  TarReader archive([&](std::span<std::byte> out) {
    const auto now = std::min(out.size(), size - at);
    if (now > 0) std::memcpy(out.data(), data + at, now);
    at += now;
    return now;
  });
  try {
    while (const auto entry = archive.next()) {
      std::int64_t bytes = 0;
      archive.read([&](BytesView part) { bytes += static_cast<std::int64_t>(part.size()); });
      CHECK(bytes == entry->bytes, "an entry is as long as it says");
    }
  } catch (const Error&) {
  }
  return 0;
}
