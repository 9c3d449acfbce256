// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "foundation/base/error.h"
#include "foundation/net/codes.h"
#include "foundation/net/http.h"

namespace falaj::api {

using net::row_of;

// {"error":{"code","message","request_id","details":[{"field","problem"}]}}, or as the protocol of the path has it.
net::Response error_response(const Error& error, const net::Head& head);

}  // namespace falaj::api
