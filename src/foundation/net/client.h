// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "foundation/net/http.h"
#include "foundation/sys/net.h"

namespace falaj::net {

struct ClientRequest {
  Method method = Method::get;
  std::string url;
  Headers headers;
  std::variant<std::string, StreamBody> body;
  // Takes the body piece by piece instead of ClientResponse::body; may throw, which ends the exchange.
  // Only bodies of 2xx answers go there: the text of an error is wanted whole.
  std::function<void(BytesView)> sink;
  std::function<void(const Headers&)> before_sink;  // told the answer's headers before the first piece; may throw too
  std::uint64_t response_bytes_max = 16 << 20;      // one byte past: exhausted
};

struct ClientResponse {
  int status = 0;
  Headers headers;
  std::string body;
};

struct ClientOptions {
  std::int64_t connect_wait_us = 10'000'000;
  std::int64_t total_wait_us = 0;            // 0: as long as bytes flow
  std::int64_t bytes_per_second_min = 1024;  // averaged over slow_wait_us; slower servers are given up
  std::int64_t slow_wait_us = 30'000'000;
  bool tls_1_2 = false;                      // for other people's servers; ours speak 1.3
  std::string ca_file;                       // "" = the system's
  std::optional<Digest> pinned_certificate;  // trust exactly this one (SHA-256 of its DER form), whoever signed it
  std::string certificate_file, key_file;    // ours, PEM; "" = none
  std::size_t idle_connections_max = 32;
  std::string unix_socket;  // connect there, whatever host a URL names; "" = to that host
};

// Where a target that a user configured (webhook, OIDC issuer, S3 endpoint) may be. Everything else is denied: a server
// that fetches any address on request can be made to read its own network.
struct OutgoingRules {
  std::vector<std::string> hosts;  // globs: "*.example.org"; none = nothing allowed
  bool plain_http = false;         // else https only
  bool local_addresses = false;    // else only addresses routed on the public internet
};

// A blocking HTTP/1.1 client over connections that are kept for the next request. Thread-safe. Never follows redirects,
// takes no proxy or credentials from the environment.
// Errors: invalid (the URL), unavailable (no connection, or broken), deadline, denied (rules; TLS not trusted),
// exhausted (answer too long). An answer of any status is not an error.
class Client {
 public:
  explicit Client(ClientOptions options);  // for targets the operator configured
  // For targets that users configure: the name is resolved once and the very address that was checked is connected to.
  Client(ClientOptions options, OutgoingRules rules, sys::Resolver& resolver);
  ~Client();
  ClientResponse send(const ClientRequest& request);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::net
