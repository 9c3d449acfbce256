// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compute/loader/images.h"
#include "compute/loader/packed.h"
#include "foundation/sys/clock.h"

namespace falaj::loader {

// The order in which an epoch sees rows: blocks of neighbours are dealt out at random, and rows are shuffled within a
// few blocks at a time, so that a disk reads long pieces and a model sees mixed ones. Each epoch counts its blocks from
// another row on, so that the short one, which comes last and of which rows may be left over, is another every time. It
// depends on nothing but these numbers: whoever knows them can go on at any step.
struct Order {
  std::size_t rows = 0;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool shuffled = true;

  static constexpr std::size_t kBlock = 512;  // rows
  std::size_t blocks = 64;                    // of a window; fewer when rows are long
  bool neighbours = false;                    // within blocks nothing is shuffled
  std::size_t window_rows() const { return kBlock * blocks; }
  std::size_t windows() const { return (rows + window_rows() - 1) / window_rows(); }
  std::size_t rows_of(std::size_t window) const { return std::min(window_rows(), rows - window * window_rows()); }
  // The row that is the first of the first block; after the last row comes row 0.
  std::size_t first_row() const;
  // All blocks: window after window those of each. Only the very last one may be short.
  std::vector<std::uint32_t> deal() const;
  // How the rows of a window, laid out block after block, are then seen: each place once.
  std::vector<std::uint32_t> mixed(std::size_t window) const;
  // The rows of a window, in the order they are seen. Each row is in exactly one window of an epoch.
  std::vector<std::uint32_t> window(std::size_t number) const;
};

struct BatchOptions {
  std::size_t batch = 1024;         // rows a step, of all ranks together
  std::size_t rank = 0, ranks = 1;  // each step's rows are shared out evenly
  std::uint64_t seed = 0;
  bool shuffled = true;
  std::optional<Image> augment = {};  // each image is seen a little changed, each time in another way
  bool neighbours = false;            // rows that lie side by side are seen so: blocks are mixed, rows are not
};

// How many steps an epoch has: rows that do not fill a step are left for another epoch, unless there is only one.
std::size_t steps_of(std::size_t rows, const BatchOptions& options);

// The batches of one epoch from a step on, made ready by a thread of their own while the last one is being used.
class Batches {
 public:
  // Requires: `rows` outlives it and has a row for every rank.
  Batches(const Packed& rows, const BatchOptions& options, std::uint64_t epoch, std::size_t from_step,
          const sys::Clock& clock);
  ~Batches();

  // The next one, or null when the epoch is over. Valid until the next call. Throws what reading threw.
  const RowBlock* next();
  sys::Micros waited() const;  // in next(), so far

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::loader
