// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/error.h"

namespace falaj::net {

// What each error code is on the wire. The one table; a test checks that it is complete.
struct CodeRow {
  Code code;
  int http;
  int grpc;
};
const CodeRow& row_of(Code code);

}  // namespace falaj::net
