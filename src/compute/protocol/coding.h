// SPDX-License-Identifier: Apache-2.0
#pragma once

// Content codings of HTTP bodies: gzip, and deflate, which is zlib's wrapping. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace falaj::protocol {

enum class Coding { gzip, deflate };
std::string_view name(Coding coding);

// What a Content-Encoding says; nothing for "identity" and "". Throws invalid for any other.
std::optional<Coding> parse_coding(std::string_view content_encoding);
// The first of ours that an Accept-Encoding allows.
std::optional<Coding> accepted_coding(std::string_view accept_encoding);

// Throws invalid when `body` is not what it says or is more than `bytes_max` long when unpacked.
std::string unpacked(std::string_view body, Coding coding, std::uint64_t bytes_max);
std::string packed(std::string_view body, Coding coding);

}  // namespace falaj::protocol
