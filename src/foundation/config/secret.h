// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::config {

// Settings never hold a secret, only where it is: "file:PATH" or "env:NAME".
bool is_secret_reference(std::string_view text);

// Throws not_found, or what `read_file` throws.
std::string resolve_secret(std::string_view reference, const std::vector<std::string>& environment,
                           const std::function<std::string(const std::string& path)>& read_file);

}  // namespace falaj::config
