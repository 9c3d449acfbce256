// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/credentials.h"

namespace falaj::iam {

void CredentialTable::put(CredentialRow row, std::int64_t used_us) {
  auto& p = part(row.id);
  const auto id = row.id;
  auto entry = std::make_shared<Entry>(std::move(row), used_us);
  Lock lock(p.mu);
  p.entries[id] = std::move(entry);
}

void CredentialTable::erase(const TokenId& id) {
  auto& p = part(id);
  Lock lock(p.mu);
  p.entries.erase(id);
}

void CredentialTable::erase_if(const std::function<bool(const CredentialRow&)>& gone) {
  for (auto& p : parts_) {
    Lock lock(p.mu);
    std::erase_if(p.entries, [&](const auto& item) { return gone(item.second->row); });
  }
}

std::shared_ptr<CredentialTable::Entry> CredentialTable::find(const TokenId& id) const {
  const auto& p = part(id);
  Lock lock(p.mu);
  const auto found = p.entries.find(id);
  return found == p.entries.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<CredentialTable::Entry>> CredentialTable::all() const {
  std::vector<std::shared_ptr<Entry>> out;
  for (const auto& p : parts_) {
    Lock lock(p.mu);
    for (const auto& [id, entry] : p.entries) out.push_back(entry);
  }
  return out;
}

}  // namespace falaj::iam
