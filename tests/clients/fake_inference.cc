// SPDX-License-Identifier: Apache-2.0
// Both servers of the inference protocol before models whose every answer is known, for tests of clients. Says its
// ports on one line ("HTTP gRPC"), and ends when its input does.
#include <cstdio>

#include <fmt/format.h>

#include "compute/protocol/testing.h"

int main() {
  falaj::protocol::TestServers servers;
  fmt::print("{} {}\n", servers.http.port(), servers.grpc.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
