// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "compute/recipe/recipe.h"
#include "compute/train/gang.h"
#include "foundation/sys/clock.h"

namespace falaj::train {

// Where a training finds and leaves things: the contract of every job (docs/guide/jobs.md).
struct Places {
  std::string rows;         // directory of Parquet files
  std::string outputs;      // becomes the run's files
  std::string checkpoints;  // the next attempt finds it as it is left
  std::string scratch;      // goes with the attempt
  std::string metrics;      // file to which metrics are appended; "" = none
  std::string runtime;      // ONNX Runtime's library
  std::string run_id;
  std::string against{};  // an ONNX file: a model that the new one is compared with on the test rows; "" = none
};

struct Options {
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  int threads = 1;
  std::function<bool()> must_stop;  // looked at after every step: what was learned is then saved
  std::function<void()> look = {};  // called now and then by whatever else takes long; throws Stopped to end it
  std::optional<GangPlace> gang;    // of several tasks; only rank 0 saves, tells and leaves something
};

// From rows to <outputs>/model: a checked ONNX model, its description, and a report. Nothing is there unless all of it
// is good. Throws Stopped (model.h) after must_stop() was obeyed, and Error, invalid, for whatever the person who wrote
// the recipe can mend.
void train(const recipe::Training& training, const Places& places, const Options& options, const sys::Clock& clock);

}  // namespace falaj::train
