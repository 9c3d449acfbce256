// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::flow {

// Every number of this directory.
struct Probe {
  explicit Probe(Metrics& metrics)
      : started(metrics.counter("falaj_flow_runs_started_total", "Runs of pipelines that were begun.")),
        succeeded(ended(metrics, "succeeded")),
        failed(ended(metrics, "failed")),
        cancelled(ended(metrics, "cancelled")),
        steps_done(steps(metrics, "succeeded")),
        steps_kept(steps(metrics, "kept")),
        steps_skipped(steps(metrics, "skipped")),
        steps_failed(steps(metrics, "failed")),
        live(metrics.gauge("falaj_flow_runs_live", "Runs of pipelines that have not ended.")),
        asking(metrics.gauge("falaj_flow_steps_asking", "Steps that wait for a person.")),
        pass_seconds(metrics.histogram("falaj_flow_pass_seconds", "One look at all runs that have not ended.",
                                       Metrics::seconds_buckets())) {}
  Counter &started, &succeeded, &failed, &cancelled;
  Counter &steps_done, &steps_kept, &steps_skipped, &steps_failed;
  Gauge &live, &asking;
  Histogram& pass_seconds;

 private:
  static Counter& ended(Metrics& metrics, const char* how) {
    return metrics.counter("falaj_flow_runs_ended_total", "Runs of pipelines that have ended, by how.", {{"how", how}});
  }
  static Counter& steps(Metrics& metrics, const char* how) {
    return metrics.counter("falaj_flow_steps_ended_total", "Steps of pipelines that have ended, by how.",
                           {{"how", how}});
  }
};

}  // namespace falaj::flow
