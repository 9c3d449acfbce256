// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"
#include "foundation/crypto/password.h"

namespace falaj::crypto {

// The root key as a file holds it: in clear, for a machine that must start alone, or locked by a passphrase.
Bytes encode_root_key(const Key& root);
Bytes lock_root_key(const Key& root, std::string_view passphrase, PasswordCost cost = {});
// Throws invalid (a passphrase is needed and missing, or given and not needed), denied (a wrong one), corrupt.
Key open_root_key(BytesView file, std::optional<std::string_view> passphrase);

}  // namespace falaj::crypto
