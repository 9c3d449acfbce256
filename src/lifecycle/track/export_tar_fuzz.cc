// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/track/export_tar.h"

namespace {

using namespace falaj;
using namespace falaj::track;

constexpr std::size_t kFileBytesMax = 1 << 20;

struct File {
  TarMember member;
  std::string text;
  friend bool operator==(const File&, const File&) = default;
};

std::vector<File> files_of(BytesView tar) {
  std::vector<File> out;
  TarReader reader(blob::source_of(tar));
  while (auto member = reader.next()) {
    auto text = reader.read_all(*member, kFileBytesMax);
    CHECK(text.size() == member->bytes, "a file of another size than its header says");
    out.push_back({std::move(*member), std::move(text)});
  }
  return out;
}

// Refused with invalid, or files that are the same when written and read again.
void read(BytesView tar) {
  std::vector<File> files;
  try {
    files = files_of(tar);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid, "refused with another code");
    return;
  }
  Bytes again;
  const auto add = [&](BytesView piece) { again.insert(again.end(), piece.begin(), piece.end()); };
  std::uint64_t bytes = kTarEndBytes;
  for (const auto& file : files) {
    add(tar_header(file.member, 0));
    add(as_bytes(file.text));
    add(Bytes(tar_padding(file.member.bytes)));
    bytes += tar_bytes(file.member);
  }
  add(Bytes(kTarEndBytes));
  CHECK(again.size() == bytes, "another size than was foretold");
  CHECK(files_of(again) == files, "files changed");
}

// The sum that lets a header past the first gate.
void repair(std::span<std::byte> header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i)
    sum += i >= 148 && i < 156 ? std::uint64_t{' '} : std::to_integer<std::uint64_t>(header[i]);
  const auto text = fmt::format("{:06o}", sum) + std::string("\0 ", 2);
  std::memcpy(header.data() + 148, text.data(), 8);
}

}  // namespace

// The input as it is, and with right sums in whatever looks like a header, and an end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  read(input);
  Bytes tar(input.begin(), input.end());
  tar.resize((tar.size() + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes + kTarEndBytes);
  for (std::size_t at = 0; at + kTarBlockBytes <= tar.size(); at += kTarBlockBytes) {
    const auto block = std::span(tar).subspan(at, kTarBlockBytes);
    if (as_text(block).substr(257, 5) == "ustar") repair(block);
  }
  read(tar);
  return 0;
}
