// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bodies of POST .../infer: JSON, or JSON and tensors behind it. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compute/protocol/tensors.h"

namespace falaj::protocol {

inline constexpr std::size_t kJsonBytesMax = std::size_t{32} << 20;  // its parser takes ten times that

// `json_bytes`: how long the JSON is, of the header Inference-Header-Content-Length; without it, all of the body is.
// Inputs that are binary refer to `body`. Model and version are not set. Throws invalid.
Asked decode_infer(std::string_view body, std::optional<std::uint64_t> json_bytes);

// The body is nothing but the data of the model's one input, of one row where it has rows.
Asked decode_raw(std::string_view body, const Description& model);

struct Encoded {
  std::string body;
  std::optional<std::size_t> json_bytes;  // set: tensors follow the JSON
};
// NaN and infinities, which JSON cannot say, become null; binary keeps them. Throws invalid for what only binary can
// say.
Encoded encode_answer(const Asked& asked, const Answer& answer);

// Appends to JSON.
void append_text(std::string& out, std::string_view text);          // quoted; requires: UTF-8
void append_values(std::string& out, const graph::Tensor& tensor);  // "[1,2]": flat

}  // namespace falaj::protocol
