// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::jobs {

// Every number of this directory.
struct Probe {
  explicit Probe(Metrics& metrics);
  Counter &submitted, &started, &succeeded, &failed, &cancelled, &preempted, &lost, &strays;
  Counter &cpu_seconds, &gpu_seconds, &lost_cpu_seconds;
  Gauge &pending, &running, &nodes_up;
  Gauge &cpu_free_ratio, &gpu_free_ratio;
  Histogram &wait_seconds, &start_seconds, &step_seconds, &plan_seconds, &changes_per_write;
};

}  // namespace falaj::jobs
