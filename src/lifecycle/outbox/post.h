// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "foundation/net/client.h"
#include "lifecycle/outbox/courier.h"

namespace falaj::outbox {

// A URL that a person may have us call. What may be behind it is decided when it is called: the outgoing rules look at
// the address it leads to then.
bool is_receiver_url(std::string_view url);
inline constexpr std::string_view kReceiverUrlRule = "https://host/path, without credentials, fragment or blanks";
inline constexpr std::size_t kReceiverUrlMax = 2'000;

// The headers that say who sent it: PREFIX-Delivery-Id, PREFIX-Timestamp (seconds since 1970) and, with a secret,
// PREFIX-Signature: "v1," and the base64 of HMAC-SHA256(secret, "<delivery id>.<timestamp>.<body>").
net::Headers signed_headers(std::string_view prefix, const std::string& delivery_id, std::int64_t unix_s,
                            const std::string& body, const std::string& secret);

// Sends a body of JSON there, once. `answer`, when given, gets the first kilobyte of what came back.
Attempt post(net::Client& client, const std::string& url, const net::Headers& headers, const std::string& body,
             std::string* answer = nullptr);

}  // namespace falaj::outbox
