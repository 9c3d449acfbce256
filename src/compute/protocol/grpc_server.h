// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "compute/protocol/inference.h"
#include "foundation/base/metrics.h"
#include "foundation/net/server.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"

namespace falaj::protocol {

struct GrpcLimits {
  bool share_port = false;  // with a program of the same user that holds it for us
  std::size_t threads = 1;
  std::size_t first_loop = 0;  // number of the first thread's net::Loop, past those of other servers
  std::size_t message_bytes_max = std::size_t{64} << 20;  // also when unpacked
  std::size_t calls_max = 1'000;                          // under way; past it RESOURCE_EXHAUSTED
  std::size_t memory_bytes_max = std::size_t{1} << 30;    // that connections may take together
};

// The Open Inference Protocol over gRPC, and grpc.health.v1. Serves when made. Each thread is a net::Loop: it takes all
// that has come before it runs what was posted. `stop` drains: no new calls, those under way finish (cancelled after
// `drain_us`), then everything is joined.
class GrpcServer {
 public:
  // Throws unavailable when it cannot listen, invalid when the TLS files cannot be used.
  GrpcServer(const std::string& host, std::uint16_t port, const std::optional<net::TlsFiles>& tls, GrpcLimits limits,
             Inference& inference, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics);
  ~GrpcServer();
  std::uint16_t port() const;  // the real one when asked for 0
  void stop(std::int64_t drain_us);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::protocol
