// SPDX-License-Identifier: Apache-2.0
#include "governance/backup/archive.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::backup {
namespace {

constexpr std::string_view kMagic = "falaj backup 1\n";
constexpr std::size_t kSaltBytes = 16;
constexpr std::size_t kHeadBytes = kMagic.size() + kSaltBytes + 8 + 4;
constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kMemoryBytesMax = std::size_t{1} << 30;  // what a hostile file may make the key derivation take
constexpr std::uint32_t kPassesMax = 64;

}  // namespace

ArchiveWriter::ArchiveWriter(std::string_view passphrase, Sink sink, crypto::PasswordCost cost)
    : sink_(std::move(sink)) {
  if (passphrase.size() < kPassphraseBytesMin)
    throw Error(Code::invalid,
                fmt::format("passphrase: must have {} bytes or more, not {}", kPassphraseBytesMin, passphrase.size()));
  const auto random = crypto::Key::random();
  const auto salt = random.view().first(kSaltBytes);
  ByteWriter head;
  head.raw(as_bytes(kMagic));
  head.raw(salt);
  head.u64(cost.memory_bytes);
  head.u32(cost.passes);
  sealer_ = std::make_unique<crypto::Sealer>(crypto::key_from_passphrase(passphrase, salt, cost), head.bytes());
  sink_(head.bytes());
}

ArchiveWriter::~ArchiveWriter() = default;

void ArchiveWriter::add(Part part, BytesView bytes) {
  CHECK(bytes.size() <= kPartBytesMax, "a part of a backup is too large");
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(part));
  out.blob(bytes);
  waiting_.insert(waiting_.end(), out.bytes().begin(), out.bytes().end());
  if (waiting_.size() >= kPieceBytes) flush();
}

void ArchiveWriter::flush() {
  const Bytes sealed = sealer_->update(waiting_);
  waiting_.clear();
  if (!sealed.empty()) sink_(sealed);
}

void ArchiveWriter::finish() {
  flush();
  sink_(sealer_->finish());
}

ArchiveReader::ArchiveReader(std::string_view passphrase, Source source) : source_(std::move(source)) {
  Bytes head(kHeadBytes);
  for (std::size_t got = 0; got < head.size();) {
    const std::size_t n = source_(std::span(head).subspan(got));
    if (n == 0) throw Error(Code::corrupt, "backup: the file ends inside of its head");
    got += n;
  }
  ByteReader in(head);
  if (as_text(in.raw(kMagic.size())) != kMagic)
    throw Error(Code::corrupt, "backup: this is no backup of Falaj, or its first bytes were altered");
  const auto salt = in.raw(kSaltBytes);
  const std::uint64_t memory = in.u64();
  const std::uint32_t passes = in.u32();
  if (memory < 8192 || memory > kMemoryBytesMax || passes == 0 || passes > kPassesMax)
    throw Error(Code::corrupt, "backup: the head was altered");
  opener_ = std::make_unique<crypto::Opener>(crypto::key_from_passphrase(passphrase, salt, {memory, passes}), head);
}

ArchiveReader::~ArchiveReader() = default;

bool ArchiveReader::more() {
  if (finished_) return false;
  plain_.erase(plain_.begin(), plain_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  piece_.resize(kPieceBytes);
  const std::size_t n = source_(piece_);
  Bytes opened;
  try {
    opened = n == 0 ? opener_->finish() : opener_->update(BytesView(piece_).first(n));
  } catch (const Error& e) {
    if (!opened_any_)
      throw Error(Code::denied,
                  "backup: the passphrase is not the one it was made with, or its first bytes were altered");
    throw Error(Code::corrupt, fmt::format("backup: {}", e.what()));
  }
  finished_ = n == 0;
  opened_any_ = opened_any_ || !opened.empty();
  plain_.insert(plain_.end(), opened.begin(), opened.end());
  return true;
}

std::optional<ArchiveReader::Item> ArchiveReader::next() {
  const auto need = [this](std::size_t bytes) {
    while (plain_.size() - at_ < bytes)
      if (!more()) return false;
    return true;
  };
  if (!need(1 + 4)) {
    if (at_ != plain_.size()) throw Error(Code::corrupt, "backup: ends inside of a part");
    return std::nullopt;
  }
  ByteReader in(BytesView(plain_).subspan(at_));
  const auto part = static_cast<Part>(in.u8());
  const std::size_t bytes = in.u32();
  if (bytes > kPartBytesMax) throw Error(Code::corrupt, "backup: a part is too large");
  if (!need(1 + 4 + bytes)) throw Error(Code::corrupt, "backup: ends inside of a part");
  const auto body = BytesView(plain_).subspan(at_ + 5, bytes);
  Item item{part, {body.begin(), body.end()}};
  at_ += 5 + bytes;
  return item;
}

}  // namespace falaj::backup
