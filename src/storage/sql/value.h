// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "foundation/base/bytes.h"

namespace falaj::sql {

// What a column holds. Types in schema text: BIGINT, DOUBLE PRECISION, TEXT, BYTEA; both engines take these names.
using Null = std::monostate;
using Value = std::variant<Null, std::int64_t, double, std::string, Bytes>;

// A parameter: borrows text and bytes for the time of one call.
using Param = std::variant<Null, std::int64_t, double, std::string_view, BytesView>;

}  // namespace falaj::sql
