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

// The top of the key hierarchy: root keys (the newest wraps; older ones only unwrap what was not yet rewrapped) and one
// platform key, from which the keys of the program itself are derived (audit signatures, job tokens, kept answers).
// They live in one file that only its owner may read, as they are or locked by a passphrase. docs/formats/root_keys.md
class RootKeys {
 public:
  struct Root {
    std::uint32_t version = 1;
    crypto::Key key;
  };

  // Reads `name`, or makes it on the first start. With a passphrase the file is locked by it; a file that is locked and
  // no passphrase, or a wrong one, throws denied. A file that others may read throws denied too.
  static RootKeys open(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase, crypto::PasswordCost cost = {});
  // From what `encode` gave; for restoring a backup.
  static RootKeys decode(BytesView plain);
  Bytes encode() const;

  const Root& newest() const { return roots_.back(); }
  const crypto::Key& of_version(std::uint32_t version) const;  // throws corrupt when it is not there
  crypto::Key platform_key(std::string_view purpose) const;

  // Adds a root key and makes it the newest; `drop_old` forgets all others. Durable in the file after save.
  std::uint32_t add_root();
  void drop_old();
  void save(sys::Files& files, const std::string& name, std::optional<std::string_view> passphrase, crypto::PasswordCost cost = {}) const;

 private:
  RootKeys(std::vector<Root> roots, crypto::Key platform) : roots_(std::move(roots)), platform_(std::move(platform)) {}
  std::vector<Root> roots_;
  crypto::Key platform_;
};

}  // namespace falaj::vault
