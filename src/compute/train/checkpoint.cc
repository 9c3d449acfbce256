// SPDX-License-Identifier: Apache-2.0
#include "compute/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::train {
namespace {

// Magic, number of parts; name, bytes and content of each; the digest of all that.
constexpr std::string_view kMagic = "falaj checkpoint 1\n", kSuffix = ".checkpoint";
constexpr std::size_t kBytesMax = std::size_t{1} << 40, kPieceBytes = 1 << 20;

}  // namespace

Checkpoints::Checkpoints(sys::Files& files, std::string prefix, std::size_t keep)
    : files_(files), prefix_(std::move(prefix)), keep_(std::max<std::size_t>(keep, 1)) {}

std::string Checkpoints::name_of(std::uint64_t number) const {
  return fmt::format("{}{:012}{}", prefix_, number, kSuffix);
}

std::vector<std::uint64_t> Checkpoints::numbers() {
  std::vector<std::uint64_t> out;
  for (const auto& info : files_.list("")) {
    const std::string_view name = info.name;
    if (info.directory || !name.starts_with(prefix_) || !name.ends_with(kSuffix)) continue;
    const auto digits = name.substr(prefix_.size(), name.size() - prefix_.size() - kSuffix.size());
    std::uint64_t number = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && name_of(number) == name)
      out.push_back(number);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void Checkpoints::save(const Checkpoint& checkpoint) {
  try {
    write(checkpoint);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("a checkpoint could not be saved{}; the one before it is whole: {}",
                                      e.code() == Code::exhausted ? ", because the disk is full" : "", e.what()));
  }
}

void Checkpoints::write(const Checkpoint& checkpoint) {
  auto file = files_.create();
  crypto::Sha256 digest;
  const auto put = [&](BytesView bytes) {
    digest.update(bytes);
    for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes)
      file->write(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)));
  };
  put(as_bytes(kMagic));
  ByteWriter head;
  head.u64(checkpoint.number);
  head.u32(static_cast<std::uint32_t>(checkpoint.parts.size()));
  put(head.bytes());
  for (const auto& [name, bytes] : checkpoint.parts) {
    ByteWriter of_part;
    of_part.text(name);
    of_part.u64(bytes.size());
    put(of_part.bytes());
    put(bytes);
  }
  const auto end = digest.finish();
  file->write(end.view());
  file->commit(name_of(checkpoint.number), sys::NewFile::Durable::now, sys::NewFile::Existing::replace);
  const auto all = numbers();
  for (std::size_t i = 0; i + keep_ < all.size(); ++i) files_.remove(name_of(all[i]));
}

std::optional<Checkpoint> Checkpoints::load(std::uint64_t number) {
  try {
    const auto bytes = files_.read_all(name_of(number), kBytesMax);
    if (bytes.size() < kMagic.size() + sizeof(Digest)) throw Error(Code::corrupt, "it is too short");
    const auto body = BytesView(bytes).first(bytes.size() - sizeof(Digest));
    const auto digest = crypto::sha256(body);
    if (!std::equal(digest.bytes.begin(), digest.bytes.end(), bytes.end() - sizeof(Digest)))
      throw Error(Code::corrupt, "its digest is another");
    ByteReader in(body, kBytesMax);
    if (as_text(in.raw(kMagic.size())) != kMagic) throw Error(Code::corrupt, "no such format");
    Checkpoint out;
    out.number = in.u64();
    if (out.number != number) throw Error(Code::corrupt, "it is another's");
    for (auto parts = in.u32(); parts > 0; --parts) {
      auto name = in.text();
      const auto content = in.raw(in.u64());
      out.parts.emplace(std::move(name), Bytes(content.begin(), content.end()));
    }
    in.expect_end();
    return out;
  } catch (const Error& e) {
    if (e.code() != Code::not_found && e.code() != Code::corrupt) throw;
    fmt::print(stderr, "falaj-train: checkpoint {} is passed over: {}\n", number, e.what());
    return std::nullopt;
  }
}

std::optional<Checkpoint> Checkpoints::newest() {
  const auto all = numbers();
  for (auto number = all.rbegin(); number != all.rend(); ++number)
    if (auto found = load(*number)) return found;
  return std::nullopt;
}

}  // namespace falaj::train
