// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/probe.h"

namespace falaj::jobs {
namespace {

Counter& ended(Metrics& metrics, const char* how) {
  return metrics.counter("falaj_jobs_ended_total", "Jobs that have ended, by how.", {{"how", how}});
}

Gauge& utilisation(Metrics& metrics, const char* resource) {
  return metrics.gauge("falaj_jobs_utilisation_ratio", "Part of what nodes that are up have that jobs hold.",
                       {{"resource", resource}});
}

Gauge& fragmentation(Metrics& metrics, const char* resource) {
  return metrics.gauge("falaj_jobs_fragmentation_ratio",
                       "Part of what is free that lies on nodes which are partly in use: room for small jobs only.",
                       {{"resource", resource}});
}

// Waits are minutes and hours, not milliseconds.
std::vector<double> wait_buckets() { return {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 14400, 86400}; }

}  // namespace

Probe::Probe(Metrics& metrics)
    : submitted(metrics.counter("falaj_jobs_submitted_total", "Jobs that were submitted.")),
      started(metrics.counter("falaj_jobs_started_total", "Attempts that began to run.")),
      succeeded(ended(metrics, "succeeded")),
      failed(ended(metrics, "failed")),
      cancelled(ended(metrics, "cancelled")),
      preempted(metrics.counter("falaj_jobs_preemptions_total", "Jobs that were stopped for another.")),
      resized(metrics.counter("falaj_jobs_resizes_total", "Elastic jobs that were stopped to go on with more tasks.")),
      lost(metrics.counter("falaj_jobs_lost_total", "Attempts that were lost with a node.")),
      strays(metrics.counter("falaj_jobs_strays_total", "Attempts that ran unknown to us and were stopped.")),
      cpu_seconds(metrics.counter("falaj_jobs_cpu_seconds_total", "Processor seconds that ended attempts held.")),
      gpu_seconds(metrics.counter("falaj_jobs_gpu_seconds_total", "GPU seconds that ended attempts held.")),
      lost_cpu_seconds(metrics.counter("falaj_jobs_lost_cpu_seconds_total",
                                       "Processor seconds of attempts that ended neither by themselves nor with a "
                                       "checkpoint.")),
      energy_joules(metrics.counter("falaj_jobs_energy_joules_total",
                                    "What ended attempts took of what the processors of this machine drew.")),
      pending(metrics.gauge("falaj_jobs_pending", "Jobs that wait.")),
      running(metrics.gauge("falaj_jobs_running", "Jobs that hold a place.")),
      nodes_up(metrics.gauge("falaj_jobs_nodes_up", "Nodes that take jobs.")),
      cpu_free_ratio(metrics.gauge("falaj_jobs_cpu_free_ratio", "Part of all processors that no job holds.")),
      gpu_free_ratio(metrics.gauge("falaj_jobs_gpu_free_ratio", "Part of all GPUs that no job holds.")),
      cpu_used_ratio(utilisation(metrics, "cpu")),
      gpu_used_ratio(utilisation(metrics, "gpu")),
      memory_used_ratio(utilisation(metrics, "memory")),
      cpu_fragmented_ratio(fragmentation(metrics, "cpu")),
      gpu_fragmented_ratio(fragmentation(metrics, "gpu")),
      idle(metrics.gauge("falaj_jobs_idle", "Jobs that hold processors and hardly use them.")),
      wait_seconds(metrics.histogram("falaj_jobs_wait_seconds", "From submission to the first start.", wait_buckets())),
      start_seconds(metrics.histogram("falaj_jobs_start_seconds", "From the decision to start until it runs.",
                                      Metrics::seconds_buckets())),
      step_seconds(
          metrics.histogram("falaj_jobs_step_seconds", "One step of the dispatcher.", Metrics::seconds_buckets())),
      plan_seconds(
          metrics.histogram("falaj_jobs_plan_seconds", "One pass of the scheduler.", Metrics::seconds_buckets())),
      changes_per_write(
          metrics.histogram("falaj_jobs_changes_per_write", "Jobs changed by one write.", Metrics::count_buckets())) {}

}  // namespace falaj::jobs
