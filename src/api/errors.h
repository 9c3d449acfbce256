// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "foundation/base/error.h"
#include "foundation/net/http.h"

namespace falaj::api {

// What each error code is on the wire. The one table; a test checks that it is complete.
struct CodeRow {
  Code code;
  int http;
  int grpc;
};
const CodeRow& row_of(Code code);

// {"error":{"code","message","request_id","details":[{"field","problem"}]}}, or as the protocol of the path has it.
net::Response error_response(const Error& error, const net::Head& head);

}  // namespace falaj::api
