// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {

// Names directories: 1 to 128 of [A-Za-z0-9._-], beginning with a letter or digit.
bool is_attempt_name(std::string_view text);

// Whether `path` is "/" or names each of its elements plainly: absolute, no "." or "..", no empty element, no NUL.
bool is_plain_path(std::string_view path);

// Whether `path` is `other` or holds it.
bool holds(std::string_view path, std::string_view other);

// Throws invalid with everything that could never run here. Nothing of the keeper's `directory` is ever shown. Pure:
// what exists on this machine is not looked at.
void check(const Order& order, std::string_view directory);

}  // namespace falaj::execute::local
