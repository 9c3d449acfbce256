// SPDX-License-Identifier: Apache-2.0
#pragma once

// How predictions are written down: columns by the models' inputs and outputs, a line of JSON for each row. Pure.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compute/infer/view.h"
#include "compute/serve/catalogue.h"
#include "foundation/base/id.h"

namespace falaj::serve {

inline constexpr std::size_t kLogLineMax = std::size_t{1} << 20;  // a longer row is not written

struct LogColumn {
  std::string name, type;  // as datasets name types
  friend bool operator==(const LogColumn&, const LogColumn&) = default;
};

enum class Hide : std::uint8_t { nothing, mask, drop, hash };
// How an input or output is hidden where values are kept: as its log says; without a word, what is about people is not
// kept.
Hide hide_of(const traffic::Endpoint& endpoint, const std::string& name);

// The columns of an endpoint's log: of every variant, so that each line has all of them.
struct LogLayout {
  struct Cell {
    std::string name;         // of the input or output
    std::string key;          // with quotes and colon, as a line has it
    std::uint16_t place = 0;  // among the model's
    bool output = false;
    bool list = false;  // several values for a row: written as a text that is JSON
    graph::Element element = graph::Element::float32;
    Hide hide = Hide::nothing;
  };
  struct OfVariant {
    std::vector<Cell> cells;
    std::string nulls;  // what only other variants have
  };
  std::vector<LogColumn> columns;
  std::vector<OfVariant> variants;  // as the endpoint's
  std::string key_header;           // whose value is the column "key"; "": there is none
  Hide hide_key = Hide::nothing;
  std::string problem;  // why nothing is written: what should be hidden must not be missed by a slip of the pen
};

// Requires: the endpoint logs. `inputs` and `outputs` of its variants' models are looked at, nothing else of them.
LogLayout layout_of(const ServedEndpoint& endpoint);

// A prediction on its way into the log. Its values are copied into one piece: the request does not wait for more.
struct Kept {
  std::shared_ptr<const Catalogue> from;  // holds the two below
  const ServedEndpoint* endpoint = nullptr;
  const ServedVariant* variant = nullptr;
  IdBits id;
  std::int64_t at_us = 0, took_us = 0;
  std::uint32_t rows = 1;
  std::string key;
  std::vector<std::int64_t> feature_times{};  // by row and view; none: the request brought all values itself
  std::vector<std::uint16_t> wanted;          // of the outputs; none is all
  std::string packed;                         // inputs, then outputs

  void pack(std::span<const infer::TensorView> inputs, std::span<const infer::TensorView> outputs);
};

// Appends a line for each row, with what is to be hidden hidden. Returns how many rows were too long.
std::size_t append_lines(std::string& to, const Kept& kept);

}  // namespace falaj::serve
