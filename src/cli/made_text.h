// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <span>
#include <string>

namespace falaj::cli {

// A text that is made while it is read. `more` appends a piece, and returns false when there is none. What it throws,
// reading throws.
std::unique_ptr<std::istream> made_text(std::function<bool(std::string&)> more);

// Bytes as SQL reads them in a text: \x41\x42.
void append_escaped(std::string& text, std::span<const std::uint8_t> bytes);

}  // namespace falaj::cli
