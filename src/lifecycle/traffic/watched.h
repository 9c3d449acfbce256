// SPDX-License-Identifier: Apache-2.0
#pragma once

// What serving programs tell of the values that they saw: sketches that can be put together; rows only where a monitor
// asks for some of them.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/shape.h"
#include "foundation/stats/distinct.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/quantiles.h"
#include "foundation/stats/row_sample.h"

namespace falaj::traffic {

// How an endpoint is watched. More rows than so many are thinned by chance, whatever is in them.
struct Watching {
  std::int64_t rows_per_second = 1000;
  std::int64_t segment_rows = 1000;  // most rows told of at once: whoever counts windows need not cut them
  std::int64_t whole_rows = 0;       // of them, how many are told whole, chosen by chance
  friend bool operator==(const Watching&, const Watching&) = default;
};

// A column in a few kilobytes. Exact up to about a thousand rows.
struct ColumnSketch {
  static constexpr std::uint32_t kNumbers = 1'024, kTexts = 256;
  enum class Holds : std::uint8_t { nothing, numbers, texts };  // nothing: only how often it was missing

  Holds holds = Holds::nothing;
  std::uint64_t rows = 0, missing = 0;
  stats::Quantiles numbers{kNumbers};
  stats::Frequent texts{kTexts};
  stats::Distinct distinct;  // of texts

  void add(double value);           // not finite: it is missing
  void add(std::string_view text);  // empty: it is missing
  void add_hidden(bool is_missing);
  void merge(const ColumnSketch& other);
  std::uint64_t present() const { return rows - missing; }

  void encode(ByteWriter& out) const;
  static ColumnSketch decode(ByteReader& in);  // throws corrupt
  friend bool operator==(const ColumnSketch&, const ColumnSketch&) = default;
};

// By name: an input as the model calls it, an output with "out_" before it; with "[i]" behind where there are several
// values a row.
using Sketches = std::map<std::string, ColumnSketch>;
inline constexpr std::size_t kWatchedColumnsMax = 256;
inline constexpr std::string_view kOutputPrefix = "out_";

Bytes encode_sketches(const Sketches& sketches);
Sketches decode_sketches(BytesView bytes);  // throws corrupt
Bytes encode_rows(const stats::RowSample& rows);
stats::RowSample decode_rows(BytesView bytes);  // throws corrupt; of none, none
void merge_into(Sketches& into, const Sketches& other);

// About a second of what one version of a variant was asked and answered.
struct WatchedSegment {
  std::string variant;
  std::int64_t version = 0;
  std::int64_t halvings = 0;  // each row was looked at with a chance of 1/2^halvings
  std::int64_t rows = 0;      // all that were answered
  std::int64_t looked_at = 0;
  std::int64_t from_us = 0, until_us = 0;
  std::string sketches;    // base64
  std::string rows_whole;  // base64, stats::RowSample; "": nobody asked for them
};

}  // namespace falaj::traffic

template <>
struct falaj::Shape<falaj::traffic::Watching> {
  using T = traffic::Watching;
  static constexpr std::string_view name = "Watching";
  static Fields fields() {
    return {field("rowsPerSecond", &T::rows_per_second, "Most rows that are looked at.").range(1, 1'000'000),
            field("segmentRows", &T::segment_rows, "Most rows that are told of at once.").range(1, 1'000'000),
            field("wholeRows", &T::whole_rows, "Of them, so many are told whole, chosen by chance.").range(0, 5'000)};
  }
};
template <>
struct falaj::Shape<falaj::traffic::WatchedSegment> {
  using T = traffic::WatchedSegment;
  static constexpr std::string_view name = "WatchedSegment";
  static Fields fields() {
    return {
        field("variant", &T::variant, "Who answered.").required().length(1, 63),
        field("version", &T::version, "Of its model.").required().range(1, std::int64_t{1} << 53),
        field("halvings", &T::halvings, "A row was looked at with a chance of 1/2^halvings.").required().range(0, 40),
        field("rows", &T::rows, "All that were answered.").required().range(0, std::int64_t{1} << 53),
        field("looked_at", &T::looked_at, "Of them.").required().range(0, std::int64_t{1} << 53),
        field("from_us", &T::from_us, "The first, microseconds since 1970.").required(),
        field("until_us", &T::until_us, "The last.").required(),
        field("sketches", &T::sketches, "Of every column, base64.").required().length(1, 16 << 20),
        field("rows_whole", &T::rows_whole, "Some rows, base64; absent: nobody asked for them.").length(0, 4 << 20)};
  }
};
