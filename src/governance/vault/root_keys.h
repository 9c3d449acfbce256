// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/crypto/key.h"
#include "foundation/crypto/password.h"
#include "foundation/sys/files.h"

namespace falaj::vault {

// What keys are derived from the platform key for.
inline constexpr std::string_view kAuditSignatures = "audit signatures", kKeptAnswers = "kept answers",
                                  kWorkloadTokens = "workload tokens", kModelManifests = "model manifests",
                                  kWebhookSecrets = "webhook secrets", kErasures = "erasures",
                                  kOnlineFeatures = "online features", kJobSecrets = "job secrets",
                                  kWatched = "watched endpoints";

// The top of the key hierarchy: the root key (two of them while a rotation is under way) and one platform
// key, from which the keys of the program itself are derived (audit signatures, job tokens, kept answers).
// They live in one file that only its owner may read, as they are or locked by a passphrase. docs/formats/root_keys.md
class RootKeys {
 public:
  struct Root {
    std::uint32_t version = 1;
    crypto::Key key;
  };

  // Reads `name`, or makes it on the first start. With a passphrase the file is locked by it; a file that is locked and
  // no passphrase, or a wrong one, throws denied. A file that others may read throws denied too.
  static RootKeys open(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase,
                       crypto::PasswordCost cost = {});
  // From what `encode` gave; for restoring a backup.
  static RootKeys decode(BytesView plain);
  Bytes encode() const;

  std::size_t count() const { return roots_.size(); }
  const crypto::Key& nth_newest(std::size_t back) const { return roots_[roots_.size() - 1 - back].key; }
  crypto::Key platform_key(std::string_view purpose) const;

  // Changes count in the file after save.
  std::uint32_t add_root();                // the newest from now on; returns its version
  void keep_only(std::size_t nth_newest);  // forgets all others
  void save(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase,
            crypto::PasswordCost cost = {}) const;

 private:
  RootKeys(std::vector<Root> roots, crypto::Key platform) : roots_(std::move(roots)), platform_(std::move(platform)) {}
  std::vector<Root> roots_;
  crypto::Key platform_;
};

}  // namespace falaj::vault
