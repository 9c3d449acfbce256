// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a prediction is called, and what is kept of it.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "foundation/base/id.h"
#include "foundation/base/shape.h"

namespace falaj::traffic {

inline constexpr std::string_view kHidings[] = {"mask", "drop", "hash"};

// What an endpoint writes down of what it answers.
struct Logging {
  double share = 1;                            // of the requests
  std::map<std::string, std::string> columns;  // by name of an input or output: how it is hidden
  std::int64_t keep_us = 2'592'000'000'000;
};

// The name of a prediction says who made it and when, so that what became of it can be counted without looking for it.
struct PredictionName {
  IdBits id;
  std::string variant;
  std::int64_t version = 0;   // of the model
  std::int64_t revision = 0;  // of the endpoint
  std::int64_t row = 0;       // of the request

  std::int64_t at_us() const { return static_cast<std::int64_t>(id.high >> 16) * 1000; }
};
// "ID:VARIANT:VERSION:REVISION", and ":ROW" for rows of a request after its first.
std::string format_prediction(const PredictionName& name);
PredictionName parse_prediction(std::string_view text);  // throws invalid

// Where it falls in [0, 1): whether it is in the share that is kept can be told from its name.
inline double place_of(IdBits id) { return static_cast<double>(id.low >> 11) * 0x1.0p-53; }

}  // namespace falaj::traffic

template <>
struct falaj::Shape<falaj::traffic::Logging> {
  using T = traffic::Logging;
  static constexpr std::string_view name = "PredictionLog";
  static Fields fields() {
    return {
        field("share", &T::share, "Of the requests that are written down; 1 is all of them.").range(0, 1),
        field("columns", &T::columns,
              "Inputs and outputs that are hidden before anything is written: mask (only that it was there), drop (not "
              "even that) or hash (equal values stay equal).")
            .one_of(traffic::kHidings)
            .length(0, 1000),
        field("keep", &T::keep_us, "How long rows are kept.").duration().range(3'600'000'000, 315'360'000'000'000)};
  }
};
