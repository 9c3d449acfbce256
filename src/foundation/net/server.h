// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/net/http.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"

namespace falaj::net {

struct TlsFiles {
  std::string certificate_file, key_file;  // PEM; read again when they change
  std::string client_ca_file;              // "" = client certificates are not asked for
};
void check_tls(const TlsFiles& files);  // throws invalid when they cannot be used

struct ServerLimits {
  std::size_t connections_max = 10'000;  // past it: accepted, answered 503, closed
  std::size_t requests_max = 1'000;      // in flight; past it 503 with Retry-After
  std::size_t head_bytes_max = 16 * 1024;
  std::size_t header_fields_max = 100;
  std::int64_t head_wait_us = 10'000'000;         // from the first byte of a head to its last
  std::int64_t idle_wait_us = 60'000'000;         // between requests
  std::int64_t body_bytes_per_second_min = 1024;  // averaged over body_wait_us; slower clients are cut off
  std::int64_t body_wait_us = 15'000'000;
  std::size_t io_threads = 2;
  std::size_t worker_threads = 32;  // and as many again for handlers that read a body longer than one piece
  // Names besides the default that clients may call us by, in Host and Origin. A page of another site whose name was
  // made to resolve to us (DNS rebinding) is answered 421. Default: the listen host; on a loopback or wildcard listener
  // also localhost and its addresses; on a wildcard one every address, as only names can be rebound.
  std::vector<std::string> host_names;
};

// An HTTP/1.1 server. Starts listening when made; `stop` drains: no new connections, what was accepted finishes
// (at most `drain_us`), then everything is closed and joined.
class Server {
 public:
  Server(const std::string& listen_host, std::uint16_t listen_port, std::optional<TlsFiles> tls, ServerLimits limits,
         Service& service, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics);
  // On a socket that listens already, given by whoever started this program: connections wait in it while one server
  // ends and the next begins. Takes the descriptor.
  Server(int listening, const std::string& listen_host, std::optional<TlsFiles> tls, ServerLimits limits,
         Service& service, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics);
  ~Server();
  std::uint16_t port() const;  // the real one when asked for 0
  void stop(std::int64_t drain_us);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::net
