// SPDX-License-Identifier: Apache-2.0
// Private to compute/loader.
#pragma once

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::loader {

// Runs what reads the rows. What the engine says of a damaged file is told as what it is to the person who gave it.
template <class F>
auto readable(F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    const bool of_rows = e.faults().empty() && (e.code() == Code::invalid || e.code() == Code::corrupt);
    if (!of_rows) throw;
    throw Error(e.code(), fmt::format("data: the rows cannot be read: {}", e.what()));
  }
}

}  // namespace falaj::loader
