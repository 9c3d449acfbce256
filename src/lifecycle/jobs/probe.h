// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::jobs {

// Every number of this directory.
struct Probe {
  explicit Probe(Metrics& metrics);
  Counter &submitted, &started, &succeeded, &failed, &cancelled, &preempted, &resized, &lost, &strays;
  Counter &cpu_seconds, &gpu_seconds, &lost_cpu_seconds, &energy_joules;
  Gauge &pending, &running, &nodes_up;
  Gauge &cpu_free_ratio, &gpu_free_ratio;
  Gauge &cpu_used_ratio, &gpu_used_ratio, &memory_used_ratio;  // held by jobs, of all
  Gauge &cpu_fragmented_ratio, &gpu_fragmented_ratio;
  Gauge& idle;
  Histogram &wait_seconds, &start_seconds, &step_seconds, &plan_seconds, &changes_per_write;
};

}  // namespace falaj::jobs
