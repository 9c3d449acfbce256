// SPDX-License-Identifier: Apache-2.0
#pragma once

// What gRPC knows about a call, in our words. Private to the gRPC server.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "compute/protocol/grpc_library.h"
#include "foundation/net/http.h"
#include "foundation/net/server.h"

namespace falaj::protocol {

net::Peer peer_of(const std::string& peer, const grpc::AuthContext& auth);
std::string address_of(std::string_view peer);  // "ipv4:127.0.0.1:80" and "ipv6:%5B::1%5D:80": without the port
std::optional<std::int64_t> micros_left(gpr_timespec deadline);  // at least 1; none when there is no deadline

// Read again when the files change. Throws invalid when they cannot be used now.
std::shared_ptr<grpc::ServerCredentials> credentials_of(const std::optional<net::TlsFiles>& tls);

}  // namespace falaj::protocol
