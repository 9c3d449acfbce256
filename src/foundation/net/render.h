// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "foundation/net/http.h"

namespace falaj::net {

// What the connection decides about a response, apart from what the handler did.
struct Envelope {
  std::string_view request_id;
  std::string_view date;  // as the Date header has it
  bool close = false;
  bool chunked_allowed = true;  // not for HTTP/1.0
};

bool has_body(int status);  // 1xx, 204 and 304 never have one

// Appends status line and header fields, with the empty line.
void render_head(const Response& response, const Envelope& envelope, std::string& out);

// Compresses a JSON body that is worth it, when the client takes gzip.
void compress(const Head& head, Response& response);
bool accepts_gzip(std::string_view accept_encoding);

std::string http_date(std::int64_t unix_s);

}  // namespace falaj::net
