// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/crypto/token.h"
#include "governance/iam/policy.h"

namespace falaj::iam {

using crypto::Credential;
using crypto::CredentialKind;
using crypto::format_credential;
using crypto::kTokenChars;
using crypto::parse_credential;
using crypto::Secret;
using crypto::TokenId;

// A token or a session as it is kept: never its secret.
struct CredentialRow {
  CredentialKind kind = CredentialKind::token;
  TokenId id;
  Digest secret_hash;
  Principal principal;  // without groups: those are looked up when it is used
  std::vector<Restriction> restrictions;
  std::int64_t created_us = 0, expires_us = 0;
};

// The live ones, by id. Thread-safe; asked by every API call, so it is cut into parts with a lock each.
class CredentialTable {
 public:
  struct Entry {
    const CredentialRow row;
    std::atomic<std::int64_t> used_us;   // the latest use
    std::atomic<std::int64_t> saved_us;  // the latest use that is in the database
    Entry(CredentialRow r, std::int64_t used) : row(std::move(r)), used_us(used), saved_us(used) {}
  };

  void put(CredentialRow row, std::int64_t used_us);
  void erase(const TokenId& id);
  void erase_if(const std::function<bool(const CredentialRow&)>& gone);
  std::shared_ptr<Entry> find(const TokenId& id) const;  // null when there is none
  std::vector<std::shared_ptr<Entry>> all() const;

 private:
  struct Part {
    mutable Mutex mu;  // guards everything below
    std::unordered_map<TokenId, std::shared_ptr<Entry>> entries GUARDED_BY(mu);
  };
  static constexpr std::size_t kParts = 16;
  const Part& part(const TokenId& id) const { return parts_[id.bits.low % kParts]; }
  Part& part(const TokenId& id) { return parts_[id.bits.low % kParts]; }
  std::array<Part, kParts> parts_;
};

}  // namespace falaj::iam
