// SPDX-License-Identifier: Apache-2.0
// A file that somebody calls a backup. The first byte says how: 0, the bytes are the file; else they are the inside of
// one that is sealed as it should be, by somebody who knows the passphrase.

#include <algorithm>

#include "foundation/base/error.h"
#include "governance/backup/archive.h"
#include "governance/backup/backup.h"

namespace falaj {
namespace {

constexpr std::string_view kPassphrase = "correct horse battery";
constexpr crypto::PasswordCost kCheap{8192, 1};
constexpr std::size_t kCostAt = 15 + 16;

// The parts that the bytes spell: kind, length, that many bytes.
Bytes sealed(BytesView inside) {
  Bytes file;
  backup::ArchiveWriter writer(
      kPassphrase, [&](BytesView piece) { file.insert(file.end(), piece.begin(), piece.end()); }, kCheap);
  while (inside.size() >= 3) {
    const auto length =
        std::min(inside.size() - 3, static_cast<std::size_t>(inside[1]) << 8 | static_cast<std::size_t>(inside[2]));
    writer.add(static_cast<backup::Part>(inside[0]), inside.subspan(3, length));
    inside = inside.subspan(3 + length);
  }
  writer.finish();
  return file;
}

}  // namespace
}  // namespace falaj

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data + 1, size - 1));
  Bytes file = data[0] == 0 ? Bytes(rest.begin(), rest.end()) : sealed(rest);
  // Neither a gigabyte nor a minute for each input: the cost is what the file says.
  if (file.size() >= kCostAt + 12) std::fill_n(file.begin() + kCostAt + 2, 6, std::byte{0});
  if (file.size() >= kCostAt + 12) std::fill_n(file.begin() + kCostAt + 9, 3, std::byte{0});
  BytesView left = file;
  try {
    backup::inspect(kPassphrase, [&](std::span<std::byte> out) {
      const std::size_t n = std::min({out.size(), left.size(), std::size_t{1000}});
      std::copy_n(left.begin(), n, out.begin());
      left = left.subspan(n);
      return n;
    });
  } catch (const Error&) {
  }
  return 0;
}
