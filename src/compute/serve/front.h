// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "compute/protocol/rest.h"
#include "compute/serve/host.h"
#include "foundation/base/metrics.h"
#include "foundation/net/http.h"

namespace falaj::serve {

// What the HTTP door answers: the protocol's requests, and /metrics for whoever has a token: of the models that it may
// ask, and of the process. Thread-safe.
class Front final : public net::Service {
 public:
  Front(Host& host, std::int64_t body_bytes_max, Metrics& metrics)
      : host_(host), metrics_(metrics), rest_(host, {static_cast<std::uint64_t>(body_bytes_max)}, metrics) {}
  net::Admission admit(const net::Head& head) override;
  void finished(const net::Head& head, int status, std::int64_t micros, std::uint64_t in, std::uint64_t out) override {
    rest_.finished(head, status, micros, in, out);
  }

 private:
  Host& host_;
  Metrics& metrics_;
  protocol::Rest rest_;
};

}  // namespace falaj::serve
