// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/platform.h"
#include "api/route.h"

namespace falaj::api {

// Addresses that work by themselves, for clients that send no credential along: one method on one path, until a time,
// in the name of the credential that asked for it. It is worth no more than that credential still is when it is used.

// The whole address: `base` ("https://host:port"), the path percent-encoded, and the signature in the query.
// Requires: `credential` is Identity::credential of the caller, and not a job's.
std::string signed_link(const Platform& platform, std::string_view base, Method method, std::string_view path,
                        std::string_view credential, std::int64_t expires_us);
// The credential in whose name this very request was signed. Throws unauthenticated.
std::string credential_of_link(const Platform& platform, const net::Head& head);

}  // namespace falaj::api
