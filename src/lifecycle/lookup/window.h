// SPDX-License-Identifier: Apache-2.0
#pragma once

// Aggregates over the last hour, day or month, as of any moment: the one piece of code that training sets and the
// online store both compute them with, so that they cannot disagree.
//
// Time is cut into tiles of one size. As of T, a window of w covers the tiles that begin after T - w, up to T: it never
// holds what is older than w, and may leave out up to one tile at its old end. An event counts from when it is known,
// the later of when it happened and when it became available, until its tile leaves the window.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/stats/distinct.h"
#include "foundation/stats/moments.h"

namespace falaj::lookup {

enum class Aggregate { count, sum, mean, min, max, stddev, last, distinct_approx };
inline constexpr Aggregate kAggregates[] = {
    Aggregate::count, Aggregate::sum,    Aggregate::mean, Aggregate::min,
    Aggregate::max,   Aggregate::stddev, Aggregate::last, Aggregate::distinct_approx};
std::string_view name(Aggregate aggregate);
std::optional<Aggregate> parse_aggregate(std::string_view name);

// One number of an event, or its hash for distinct_approx; nothing when it is null or a filter leaves the event out.
using Cell = std::optional<double>;

struct Event {
  std::int64_t at_us = 0;         // when it happened
  std::int64_t available_us = 0;  // when it could be known
  std::uint64_t row = 0;          // breaks ties of `last`: of two at one time the later available, then the higher row
  std::vector<Cell> cells;        // one for each input of the windows

  std::int64_t known_us() const { return at_us > available_us ? at_us : available_us; }
};

struct WindowFeature {
  Aggregate aggregate = Aggregate::count;
  std::size_t input = 0;  // which cell
  std::int64_t window_us = 0;
};

// What the windows of a view are, checked: windows are whole numbers of tiles.
class Windows {
 public:
  Windows(std::int64_t tile_us, std::vector<WindowFeature> features);  // throws invalid

  std::int64_t tile_of(std::int64_t at_us) const;
  std::int64_t first_tile(std::int64_t as_of_us, std::int64_t window_us) const;  // that the window covers
  std::int64_t tile_us() const { return tile_us_; }
  std::int64_t longest_us() const { return longest_us_; }
  std::span<const WindowFeature> features() const { return features_; }
  // Features of the same input and aggregate share what is kept: which of those a feature reads.
  struct Kept {
    Aggregate aggregate;
    std::size_t input;
  };
  std::span<const Kept> kept() const { return kept_; }
  // How many bytes a tile takes, and where in it each of those begins; 0 when that is not always the same.
  std::size_t tile_bytes() const { return tile_bytes_; }
  std::size_t kept_at(std::size_t kept) const { return kept_at_[kept]; }
  // The features that read one of those, the shortest window first.
  std::span<const std::size_t> readers(std::size_t kept) const { return readers_[kept]; }

 private:
  std::int64_t tile_us_;
  std::vector<WindowFeature> features_;
  std::int64_t longest_us_ = 0;
  std::vector<Kept> kept_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<std::size_t> kept_at_;
  std::size_t tile_bytes_ = 0;
};

// What a tile keeps of one input for one aggregate. Merging tiles in their order gives what one tile would have kept.
class Accumulator {
 public:
  explicit Accumulator(Aggregate aggregate) : aggregate_(aggregate) {}
  void add(const Event& event, double value);
  void merge(const Accumulator& later);
  Cell result() const;  // nothing where there is no answer: no value, or a deviation of one

  void encode(ByteWriter& out) const;
  static Accumulator decode(Aggregate aggregate, ByteReader& in);  // throws corrupt

 private:
  Aggregate aggregate_;
  std::uint64_t count_ = 0;
  double value_ = 0;  // sum, least, greatest or last
  std::int64_t at_us_ = 0, available_us_ = 0;
  std::uint64_t row_ = 0;
  stats::Moments moments_;
  stats::Distinct distinct_;
};

// The tiles of one entity. Events come in any order; a read gives what is known of those that came.
class Tiles {
 public:
  explicit Tiles(const Windows& windows) : windows_(&windows) {}

  void add(const Event& event);
  // One cell for each feature. Requires: no event was added that was not known as of then.
  void read(std::int64_t as_of_us, std::span<Cell> out) const;
  void merge(const Tiles& other);      // as if its events had been added here
  void forget(std::int64_t as_of_us);  // tiles that no window will cover any more
  bool empty() const { return tiles_.empty(); }

  void encode(ByteWriter& out) const;
  static Tiles decode(const Windows& windows, ByteReader& in);  // throws corrupt
  // What decode() and read() say, straight from the bytes. False, and nothing done, when what is kept has no fixed size
  // (sketches): then decode. Throws corrupt.
  static bool read_encoded(const Windows& windows, ByteReader& in, std::int64_t as_of_us, std::span<Cell> out);

 private:
  struct Tile {
    std::int64_t number = 0;
    std::vector<Accumulator> kept;
  };
  Tile& tile(std::int64_t number);

  const Windows* windows_;
  std::vector<Tile> tiles_;  // by number; nearly always the last one is added to
};

}  // namespace falaj::lookup
