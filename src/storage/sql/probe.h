// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::sql {

// Every number of this module.
struct Probe {
  explicit Probe(Metrics& m)
      : writes(m.counter("falaj_sql_writes_total", "Writes made durable.")),
        writes_failed(m.counter("falaj_sql_writes_failed_total", "Writes that ended with an error.")),
        writes_refused(m.counter("falaj_sql_writes_refused_total", "Writes refused because too many were waiting.")),
        writes_waiting(m.gauge("falaj_sql_writes_waiting", "Writes waiting for their turn.")),
        readers_in_use(m.gauge("falaj_sql_readers_in_use", "Read connections in use.")),
        reconnects(m.counter("falaj_sql_reconnects_total", "Connections made again after the first.")),
        writes_per_commit(
            m.histogram("falaj_sql_writes_per_commit", "Writes that shared one commit.", Metrics::count_buckets())),
        commit_seconds(
            m.histogram("falaj_sql_commit_seconds", "Time to make one commit durable.", Metrics::seconds_buckets())) {}

  Counter& writes;
  Counter& writes_failed;
  Counter& writes_refused;
  Gauge& writes_waiting;
  Gauge& readers_in_use;
  Counter& reconnects;
  Histogram& writes_per_commit;
  Histogram& commit_seconds;
};

}  // namespace falaj::sql
