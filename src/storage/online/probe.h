// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::online {

// Every number of this module.
struct Probe {
  explicit Probe(Metrics& m)
      : rows_stored(m.counter("falaj_online_rows_stored_total", "Rows put that were the newest of their entity.")),
        rows_late(m.counter("falaj_online_rows_late_total", "Rows put that were older than what was stored.")),
        writes_waiting(m.gauge("falaj_online_writes_waiting", "Writes waiting for a commit.")),
        writes_refused(m.counter("falaj_online_writes_refused_total", "Writes refused because too many were waiting.")),
        reconnects(m.counter("falaj_online_reconnects_total", "Connections to Redis made again after one broke.")),
        writes_per_commit(
            m.histogram("falaj_online_writes_per_commit", "Writes that shared one commit.", Metrics::count_buckets())),
        commit_seconds(m.histogram("falaj_online_commit_seconds", "Time to run and commit a group.",
                                   Metrics::seconds_buckets())) {}

  Counter& rows_stored;
  Counter& rows_late;
  Gauge& writes_waiting;
  Counter& writes_refused;
  Counter& reconnects;
  Histogram& writes_per_commit;
  Histogram& commit_seconds;
};

}  // namespace falaj::online
