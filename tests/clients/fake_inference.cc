// SPDX-License-Identifier: Apache-2.0
// Both servers of the inference protocol before models whose every answer is known, for tests of clients. Says its
// ports on one line ("HTTP gRPC"), and ends when its input does. With the files of a certificate for
// the name falaj-serve and its key, over TLS and by that name.
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "compute/protocol/testing.h"

int main(int argc, char** argv) {
  std::optional<falaj::net::TlsFiles> tls;
  if (argc > 2) {
    tls.emplace();
    tls->certificate_file = argv[1];
    tls->key_file = argv[2];
  }
  falaj::protocol::TestServers servers(tls);
  falaj::net::ServerLimits limits;
  if (tls) limits.host_names = {"falaj-serve"};
  falaj::net::Server http("127.0.0.1", 0, tls, limits, servers.rest, servers.clock, servers.ids, servers.metrics);
  fmt::print("{} {}\n", http.port(), servers.grpc.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
