// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "foundation/net/client.h"

namespace falaj::net {

// The one address that a request to `host` may be sent to; throws denied, not_found, unavailable. Resolves once: a
// second answer, to the connection itself, could be another one.
sys::Address check_outgoing(const OutgoingRules& rules, sys::Resolver& resolver, bool https, const std::string& host);

}  // namespace falaj::net
