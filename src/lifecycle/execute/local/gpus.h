// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

struct FoundGpu {
  Gpu gpu;
  std::string device;  // its node; "" when it is only declared
};

// What NVIDIA's driver tells, through its library when that is installed. Nothing otherwise.
std::vector<FoundGpu> find_gpus();

// The nodes a process needs for these, as far as they exist.
std::vector<std::string> device_nodes(const std::vector<FoundGpu>& all, const std::vector<std::string>& used);

// "NVIDIA A100-SXM4-40GB" is "a100".
std::string gpu_type(std::string_view product);

}  // namespace falaj::execute::local
