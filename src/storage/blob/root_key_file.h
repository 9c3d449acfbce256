// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "foundation/crypto/key.h"
#include "foundation/sys/files.h"

namespace falaj::blob {

// The root key in a file that only its owner can read. A missing one is made, locked when there is a passphrase.
// Throws denied (a wrong passphrase), invalid (one is missing or needless), corrupt.
crypto::Key load_or_make_root_key(sys::Files& files, const std::string& name,
                                  std::optional<std::string_view> passphrase = std::nullopt);
// Writes another root key in its place: the last step of a rotation.
void replace_root_key(sys::Files& files, const std::string& name, const crypto::Key& root,
                      std::optional<std::string_view> passphrase = std::nullopt);

}  // namespace falaj::blob
