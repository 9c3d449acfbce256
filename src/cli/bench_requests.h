// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests to an endpoint, made once and sent again and again: pure functions of what the endpoint says of itself.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/json.h"

namespace falaj::cli {

// An input or output of an endpoint, as GET /v2/models/NAME tells.
struct PortShape {
  std::string name, datatype;
  std::vector<std::int64_t> shape;  // -1 is free; the first is the rows

  std::size_t width() const;  // values of one row; free sizes are 1
};
std::vector<PortShape> ports_of(const json::value& metadata, std::string_view which);  // "inputs", "outputs"

// A row of named fields with values of the right types, the same for the same seed.
json::object made_row(std::span<const PortShape> inputs, std::uint64_t seed);

// The bytes of a tensor of the binary extension: what rows say under the port's name. A number that a row does not say
// is not a number, a text is empty. Throws invalid, naming row and field.
std::string tensor_bytes(const PortShape& port, std::span<const json::object> rows);

struct RequestForm {
  std::string host, model, token;  // model: the path element
  bool as_json = false;            // rows to .../predict; else tensors as bytes to .../infer
};
// A whole request of HTTP/1.1. Throws invalid when a row has a field that is no input, unless it is sent as JSON.
std::string request_of(const RequestForm& form, std::span<const PortShape> inputs, std::span<const json::object> rows);

}  // namespace falaj::cli
