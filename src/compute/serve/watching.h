// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/infer/view.h"
#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "lifecycle/traffic/watched.h"

namespace falaj::serve {

struct Catalogue;
struct ServedEndpoint;
struct ServedVariant;

// One column that is watched: which values of a model's inputs and outputs it is.
struct WatchCell {
  std::string name;  // as traffic::Sketches calls it
  std::uint16_t place = 0;
  bool output = false;
  graph::Element element = graph::Element::float32;
  std::uint32_t value = 0;  // which of a row's
  bool mean = false;        // of all of a row's, as there are many
  bool hidden = false;      // only whether it was there
  friend bool operator==(const WatchCell&, const WatchCell&) = default;
};

// What the endpoint's log would drop is not among them, and what it would mask or hash is hidden.
std::vector<WatchCell> watch_cells(const ServedEndpoint& endpoint, const ServedVariant& variant);

// What one version of a variant is asked and answers, while somebody watches. Every row is counted. So many rows a
// second are looked at: when more come, each only with a chance of 1/2, 1/4 and so on, which depends on their number
// and never on what is in them. Any number of threads see; one takes.
class WatchStream {
 public:
  // `seed`: which rows are told whole; another one in every server, so that together they are no pattern.
  WatchStream(std::vector<WatchCell> cells, const traffic::Watching& how, std::uint64_t seed = 0);

  // `wanted`: which outputs there are; none is all.
  void see(std::span<const infer::TensorView> inputs, std::span<const infer::TensorView> outputs,
           std::span<const std::uint16_t> wanted, std::uint32_t rows, const sys::Clock& clock);

  // Of rows that were looked at with the same chance.
  struct Piece {
    std::uint32_t halvings = 0;
    std::uint64_t looked_at = 0;
    std::int64_t from_us = 0, until_us = 0;
    std::vector<double> numbers;  // of cells without text, row by row; not-a-number: missing
    std::vector<std::string> texts;
  };
  struct Taken {
    std::uint64_t rows = 0;  // since the last time
    std::vector<Piece> pieces;
  };
  Taken take();  // about once a second
  traffic::Sketches sketch(const Piece& piece) const;
  // Some of its rows whole, chosen by chance, as many as `how` says: inputs that are not hidden.
  stats::RowSample sample(const Piece& piece);  // the taker's

  const std::vector<WatchCell>& cells() const { return cells_; }
  const traffic::Watching& how() const { return how_; }
  std::uint32_t halvings() const { return halvings_.load(std::memory_order_relaxed); }

 private:
  const std::vector<WatchCell> cells_;
  const traffic::Watching how_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> rows_{0};
  std::atomic<std::uint32_t> halvings_{0};
  // The taker's own: rows told of, times in a row with few, rows that could be told whole.
  std::uint64_t told_ = 0, calm_ = 0, numbered_ = 0;

  Mutex mu_;  // guards what is below
  std::vector<Piece> pieces_ GUARDED_BY(mu_);
  std::int64_t looked_at_ GUARDED_BY(mu_) = 0;  // with the present chance, since the last time that was taken
};

// What a variant answered since somebody began to compare it with others, all in one sketch for each output.
class ComparedOutputs {
 public:
  explicit ComparedOutputs(std::vector<WatchCell> cells) : stream(std::move(cells), {10'000, 1'000'000}) {}
  std::string encoded();  // base64, of all so far. Thread-safe.

  WatchStream stream;

 private:
  Mutex mu_;  // guards what is below, and taking from the stream
  traffic::Sketches seen_ GUARDED_BY(mu_);
};
std::vector<WatchCell> compared_cells(const ServedEndpoint& endpoint, const ServedVariant& variant);

// Makes segments of what streams saw, and hands them on. One thread at a time.
class Watcher {
 public:
  using Sink = std::function<void(const json::object& segment)>;  // as the spool takes them
  Watcher(const sys::Clock& clock, Sink sink) : clock_(clock), sink_(std::move(sink)) {}
  void turn(const Catalogue& catalogue);

 private:
  struct Followed {
    std::shared_ptr<WatchStream> stream;
    std::string tenant, project, endpoint, variant;
    std::int64_t version = 0;
  };
  void hand_on(const Followed& of);

  const sys::Clock& clock_;
  const Sink sink_;
  std::vector<Followed> followed_;  // also those that no catalogue has any more, once
};

}  // namespace falaj::serve
