// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/net/http.h"

namespace falaj::client {

struct Target {
  std::string url = "http://127.0.0.1:8470";
  std::string token;
  std::string ca_file;  // "" = the system's
  std::string session;  // of a login, instead of a token
};

using Query = std::vector<std::pair<std::string, std::string>>;

// Our own API, from outside. An answer that is an error is thrown as the Error that the server meant, with its faults.
// Calls that are safe to repeat are tried again, at most `tries_max` times in all, when the server is busy or away.
// Thread-safe.
class ApiClient {
 public:
  explicit ApiClient(Target target, int tries_max = 4);
  ~ApiClient();

  json::value get(const std::string& path, const Query& query = {});
  // `idempotency_key` "" makes one for this call, so that a repeated try has one effect.
  json::value post(const std::string& path, const json::value& body, const Query& query = {},
                   const std::string& idempotency_key = "");
  json::value del(const std::string& path, const Query& query = {});

  // Sends a body as it is produced; not tried again. `size`: when known.
  json::value upload(const std::string& path, const Query& query, net::BodySource source,
                     std::optional<std::uint64_t> size, net::Method method = net::Method::post);
  // Hands the body over as it arrives. `begin` is told its size when the server says it.
  void download(net::Method method, const std::string& path, const Query& query, const json::value* body,
                const std::function<void(std::optional<std::uint64_t>)>& begin,
                const std::function<void(BytesView)>& sink);

  const Target& target() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// One path element, percent-encoded.
std::string path_element(std::string_view text);

}  // namespace falaj::client
