// SPDX-License-Identifier: Apache-2.0
#pragma once

// What names and values may look like. Private to this directory and to lifecycle/models.

#include <string>
#include <string_view>

#include "foundation/sys/random.h"

namespace falaj::track {

std::size_t characters(std::string_view utf8);
std::string_view shortened(std::string_view utf8, std::size_t characters_max);

// A key of a param, metric or tag: letters, digits, "_-./: ", a path without empty, "." or ".." elements. Throws
// invalid with `where` as the field.
void check_key(std::string_view where, std::string_view key);
// Throws invalid when it has more characters.
void check_length(std::string_view where, std::string_view value, std::size_t characters_max);

std::string random_run_id(sys::Random& random);  // 32 hexadecimal digits
std::string random_name(sys::Random& random);    // "patient-well-417"

}  // namespace falaj::track
