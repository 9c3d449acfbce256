// SPDX-License-Identifier: Apache-2.0
#include "storage/table/spill.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/aead.h"

namespace falaj::table {
namespace {

Bytes header_of(std::uint64_t offset) {
  ByteWriter header;
  header.text("falaj spill");
  header.u64(offset);  // a piece moved to another place does not open
  return header.bytes();
}

}  // namespace

SpillFile::SpillFile(sys::Files& files, std::shared_ptr<SpillBudget> budget)
    : file_(files.scratch()), budget_(std::move(budget)) {}

SpillFile::~SpillFile() { budget_->bytes -= end_; }

void SpillFile::write(std::uint64_t offset, BytesView plain) {
  const auto sealed = crypto::seal(budget_->key, header_of(offset), plain);
  Piece piece;
  {
    Lock lock(mu_);
    if (const auto old = pieces_.find(offset); old != pieces_.end()) {
      free_.emplace(old->second.sealed_bytes, old->second.at);
      pieces_.erase(old);
    }
    if (const auto room = free_.find(sealed.size()); room != free_.end()) {
      piece = {room->second, plain.size(), sealed.size()};
      free_.erase(room);
    } else {
      if ((budget_->bytes += sealed.size()) > budget_->bytes_max) {
        budget_->bytes -= sealed.size();
        throw Error(Code::exhausted,
                    fmt::format("the query needs more than the {} bytes it may spill to disk", budget_->bytes_max));
      }
      piece = {end_, plain.size(), sealed.size()};
      end_ += sealed.size();
    }
  }
  file_->write(piece.at, sealed);
  Lock lock(mu_);
  pieces_[offset] = piece;
}

void SpillFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  Piece piece;
  {
    Lock lock(mu_);
    const auto found = pieces_.find(offset);
    if (found == pieces_.end() || found->second.plain_bytes != out.size())
      throw Error(Code::corrupt, "a spilled piece is read otherwise than it was written");
    piece = found->second;
  }
  Bytes sealed(piece.sealed_bytes);
  if (file_->read(piece.at, sealed) != sealed.size()) throw Error(Code::corrupt, "a spilled piece is cut short");
  const auto plain = crypto::open(budget_->key, header_of(offset), sealed);
  std::copy(plain.begin(), plain.end(), out.begin());
}

std::uint64_t SpillFile::size() const {
  Lock lock(mu_);
  return pieces_.empty() ? 0 : pieces_.rbegin()->first + pieces_.rbegin()->second.plain_bytes;
}

void SpillFile::truncate(std::uint64_t size) {
  Lock lock(mu_);
  while (!pieces_.empty() && pieces_.rbegin()->first >= size) {
    free_.emplace(pieces_.rbegin()->second.sealed_bytes, pieces_.rbegin()->second.at);
    pieces_.erase(std::prev(pieces_.end()));
  }
}

}  // namespace falaj::table
