// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/data.
#pragma once

#include "lifecycle/data/datasets.h"

namespace falaj::data {

// One at a time changes the files of a dataset.
class Datasets::Turn {
 public:
  Turn(Datasets& of, std::int64_t dataset) : of_(of), dataset_(dataset) {
    Lock lock(of_.mu_);
    while (!of_.busy_.insert(dataset_).second) lock.wait(of_.turns_);
  }
  ~Turn() {
    Lock lock(of_.mu_);
    of_.busy_.erase(dataset_);
    of_.turns_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Datasets& of_;
  const std::int64_t dataset_;
};

}  // namespace falaj::data
