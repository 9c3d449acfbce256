// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/vault_source.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::data {

VaultSource::VaultSource(vault::Vault& vault, vault::Where where, std::vector<vault::Entry> entries)
    : vault_(vault), where_(std::move(where)), entries_(std::move(entries)) {
  for (const auto& entry : entries_) {
    begins_.push_back(size_);
    size_ += entry.bytes;
  }
}

void VaultSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  // Columns are read in long pieces, each once: they do not go through the pages.
  if (out.size() >= kPageBytes) return read_through(offset, out);
  while (!out.empty()) {
    const auto held = page(offset / kPageBytes);
    const auto from = offset % kPageBytes;
    const auto n = std::min<std::uint64_t>(out.size(), held->size() - from);
    std::copy_n(held->begin() + static_cast<std::ptrdiff_t>(from), n, out.begin());
    out = out.subspan(n);
    offset += n;
  }
}

VaultSource::Page VaultSource::page(std::uint64_t number) const {
  {
    Lock lock(mu_);
    for (auto it = pages_.begin(); it != pages_.end(); ++it)
      if (it->first == number) {
        pages_.splice(pages_.begin(), pages_, it);
        return it->second;
      }
  }
  auto bytes = std::make_shared<Bytes>(std::min(kPageBytes, size_ - number * kPageBytes));
  read_through(number * kPageBytes, *bytes);
  Lock lock(mu_);
  pages_.emplace_front(number, bytes);
  if (pages_.size() > kPagesMax) pages_.pop_back();
  return bytes;
}

void VaultSource::read_through(std::uint64_t offset, std::span<std::byte> out) const {
  auto at = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
  for (; !out.empty(); ++at) {
    CHECK(at < entries_.size(), "reads end within the source");
    const auto from = offset - begins_[at];
    const auto wanted = std::min<std::uint64_t>(out.size(), entries_[at].bytes - from);
    if (wanted == 0) continue;
    const auto reader = vault_.open(where_, entries_[at], from, wanted);
    std::uint64_t done = 0;
    for (auto piece = reader->next(); !piece.empty(); piece = reader->next()) {
      if (piece.size() > wanted - done) throw Error(Code::corrupt, "an object is longer than its entry says");
      std::copy(piece.begin(), piece.end(), out.begin() + static_cast<std::ptrdiff_t>(done));
      done += piece.size();
    }
    if (done != wanted) throw Error(Code::corrupt, "an object is shorter than its entry says");
    out = out.subspan(wanted);
    offset += wanted;
  }
}

}  // namespace falaj::data
