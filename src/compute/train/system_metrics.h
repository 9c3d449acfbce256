// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::train {

// What this process takes of the machine, under the names that MLflow's clients show apart from a model's metrics. GPUs
// are asked through the driver's own library where there is one.
class SystemMetrics {
 public:
  // Of so many processors and so much memory. `power`: where the kernel counts what processors take.
  SystemMetrics(const sys::Clock& clock, int processors, std::int64_t memory_bytes,
                const std::string& power = "/sys/class/powercap");
  ~SystemMetrics();

  // Since the last call, when that was long enough ago; else nothing.
  std::vector<std::pair<std::string, double>> sample();

 private:
  class Gpus;
  class Energy;

  const sys::Clock& clock_;
  const double processors_, memory_bytes_;
  std::unique_ptr<Gpus> gpus_;
  std::unique_ptr<Energy> energy_;
  sys::Micros at_;
  double processor_seconds_;
};

}  // namespace falaj::train
