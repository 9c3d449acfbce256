// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "foundation/base/mutex.h"
#include "governance/vault/vault.h"
#include "storage/table/workspace.h"

namespace falaj::data {

// Objects of the vault, one after the other, as one file that the engine reads: decrypted on the way, on no disk. Keeps
// a few pages, as the engine reads many small things that lie close together. Thread-safe.
class VaultSource final : public table::Source {
 public:
  VaultSource(vault::Vault& vault, vault::Where where, std::vector<vault::Entry> entries);
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  static constexpr std::uint64_t kPageBytes = 1 << 20;
  static constexpr std::size_t kPagesMax = 8;
  using Page = std::shared_ptr<const Bytes>;

  void read_through(std::uint64_t offset, std::span<std::byte> out) const;
  Page page(std::uint64_t number) const;

  vault::Vault& vault_;
  const vault::Where where_;
  const std::vector<vault::Entry> entries_;
  std::vector<std::uint64_t> begins_;  // of each entry
  std::uint64_t size_ = 0;

  mutable Mutex mu_;
  mutable std::list<std::pair<std::uint64_t, Page>> pages_ GUARDED_BY(mu_);  // last used first
};

}  // namespace falaj::data
