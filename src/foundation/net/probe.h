// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::net {

// Every number of the server.
struct Probe {
  explicit Probe(Metrics& m)
      : accepted(m.counter("falaj_net_accepted_total", "Connections accepted.")),
        connections(m.gauge("falaj_net_connections", "Connections open now.")),
        requests(m.gauge("falaj_net_requests", "Requests being answered now.")),
        queued(m.gauge("falaj_net_worker_queue", "Requests waiting for a worker thread.")),
        bytes_in(m.counter("falaj_net_received_bytes_total", "Bytes of bodies received.")),
        bytes_out(m.counter("falaj_net_sent_bytes_total", "Bytes of responses sent.")),
        refused_connections(refused(m, "connections")),
        refused_requests(refused(m, "requests")),
        refused_malformed(refused(m, "malformed")),
        refused_host(refused(m, "host")),
        refused_too_large(refused(m, "too_large")),
        refused_too_slow(refused(m, "too_slow")),
        refused_tls(refused(m, "tls")) {}

  Counter& accepted;
  Gauge &connections, &requests, &queued;
  Counter &bytes_in, &bytes_out;
  Counter &refused_connections, &refused_requests, &refused_malformed, &refused_host, &refused_too_large,
      &refused_too_slow, &refused_tls;

 private:
  static Counter& refused(Metrics& m, const char* reason) {
    return m.counter("falaj_net_refused_total", "Connections and requests refused.", {{"reason", reason}});
  }
};

}  // namespace falaj::net
