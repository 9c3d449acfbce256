// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/batches.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "compute/loader/mix.h"
#include "foundation/base/error.h"
#include "foundation/base/mutex.h"

namespace falaj::loader {
namespace {

constexpr std::size_t kReady = 4;  // batches made ahead
constexpr std::size_t kWindowBytesMax = 32 << 20, kWindowBlocksMax = 64;

std::size_t blocks_of_window(const Layout& layout) {
  return std::clamp<std::size_t>(kWindowBytesMax / (Order::kBlock * layout.bytes()), 1, kWindowBlocksMax);
}

}  // namespace

std::vector<std::uint32_t> Order::deal() const {
  // The last block may be short; it must not stand between others, or windows would have other places.
  const auto whole = rows / kBlock;
  std::vector<std::uint32_t> dealt(whole);
  std::iota(dealt.begin(), dealt.end(), 0U);
  if (shuffled) Mix(seed, epoch, 0).shuffle(dealt);
  if (whole * kBlock < rows) dealt.push_back(static_cast<std::uint32_t>(whole));
  return dealt;
}

std::vector<std::uint32_t> Order::mixed(std::size_t window) const {
  std::vector<std::uint32_t> out(rows_of(window));
  std::iota(out.begin(), out.end(), 0U);
  if (shuffled && !neighbours) Mix(seed, epoch, window + 1).shuffle(out);
  return out;
}

std::vector<std::uint32_t> Order::window(std::size_t number) const {
  const auto dealt = deal();
  auto out = mixed(number);
  for (auto& row : out) row = static_cast<std::uint32_t>(dealt[number * blocks + row / kBlock] * kBlock + row % kBlock);
  return out;
}

std::size_t steps_of(std::size_t rows, const BatchOptions& options) {
  return std::max<std::size_t>(rows / options.batch, rows == 0 ? 0 : 1);
}

struct Batches::Rep {
  const Packed& rows;
  const BatchOptions options;
  const Order order;
  const std::vector<std::uint32_t> dealt;
  const std::size_t first_step, steps, batch;
  const sys::Clock& clock;

  Mutex mu;
  std::condition_variable changed;
  std::deque<RowBlock> ready GUARDED_BY(mu);
  std::vector<RowBlock> empty GUARDED_BY(mu);  // used up: their memory is taken again
  bool ended GUARDED_BY(mu) = false, abandoned GUARDED_BY(mu) = false;
  std::exception_ptr failure GUARDED_BY(mu);
  RowBlock current;  // the caller's
  sys::Micros waited{0};
  std::thread thread;

  Rep(const Packed& packed, const BatchOptions& o, std::uint64_t epoch, std::size_t from_step, const sys::Clock& c)
      : rows(packed),
        options(o),
        order{packed.rows(), o.seed, epoch, o.shuffled, blocks_of_window(packed.layout()), o.neighbours},
        dealt(order.deal()),
        first_step(from_step),
        steps(steps_of(packed.rows(), o)),
        batch(std::min(o.batch, packed.rows())),
        clock(c) {
    thread = std::thread([this] {
      std::exception_ptr thrown;
      try {
        produce();
      } catch (...) {
        thrown = std::current_exception();
      }
      Lock lock(mu);
      ended = true;
      failure = thrown;
      changed.notify_all();
    });
  }

  // A window in memory.
  struct Window {
    std::size_t number = SIZE_MAX, first = 0;  // first: of the rows seen in this epoch
    std::vector<std::uint32_t> seen;           // places among its rows
    Bytes packed;
  };

  void load(std::size_t number, Window& window) {
    const auto n = order.rows_of(number), row_bytes = rows.layout().bytes();
    window.packed.resize(n * row_bytes);
    // In the order they lie on disk.
    std::vector<std::pair<std::uint32_t, std::size_t>> blocks;  // block, its first place
    for (std::size_t place = 0; place < n; place += Order::kBlock)
      blocks.emplace_back(dealt[number * order.blocks + place / Order::kBlock], place);
    std::sort(blocks.begin(), blocks.end());
    for (const auto& [block, place] : blocks)
      rows.read_packed(block * Order::kBlock, std::min(Order::kBlock, n - place),
                       window.packed.data() + place * row_bytes);
    window.number = number;
    window.first = number * order.window_rows();
    window.seen = order.mixed(number);
  }

  // `at`: the row's place in the epoch, of all ranks.
  void copy_row(const Window& window, std::size_t at, RowBlock& out, std::size_t to) const {
    constexpr std::size_t kAhead = 8;
    const auto& layout = rows.layout();
    const auto row_bytes = layout.bytes();
    const auto i = at - window.first;
    const auto* row = window.packed.data() + window.seen[i] * row_bytes;
    if (i + kAhead < window.seen.size()) {  // they are far from each other: ask for the lines of one that comes soon
      const auto* soon = window.packed.data() + window.seen[i + kAhead] * row_bytes;
      for (std::size_t line = 0; line < std::min<std::size_t>(row_bytes, 512); line += 64)
        __builtin_prefetch(soon + line);
    }
    out.put(layout, to, row);
    if (!options.augment) return;
    const auto* pixels = reinterpret_cast<const std::uint8_t*>(row + row_bytes - layout.pixels);
    Change::drawn(options.seed, order.epoch, at)
        .apply(*options.augment, pixels, out.pixels.data() + to * layout.pixels);
  }

  void produce() {
    Window window;
    for (auto step = first_step; step < steps; ++step) {
      // Of the rows of this step those of this rank.
      const auto first = step * batch + options.rank * batch / options.ranks;
      const auto last = step * batch + (options.rank + 1) * batch / options.ranks;
      auto out = take_empty();
      out.resize(rows.layout(), last - first);
      for (auto at = first; at < last; ++at) {
        const auto number = at / order.window_rows();
        if (window.number != number) load(number, window);
        copy_row(window, at, out, at - first);
      }
      if (!put(std::move(out))) return;
    }
  }

  RowBlock take_empty() {
    Lock lock(mu);
    if (empty.empty()) return {};
    auto out = std::move(empty.back());
    empty.pop_back();
    return out;
  }

  bool put(RowBlock block) {
    Lock lock(mu);
    while (ready.size() >= kReady && !abandoned) lock.wait(changed);
    if (abandoned) return false;
    ready.push_back(std::move(block));
    changed.notify_all();
    return true;
  }
};

Batches::Batches(const Packed& rows, const BatchOptions& options, std::uint64_t epoch, std::size_t from_step,
                 const sys::Clock& clock)
    : rep_(std::make_unique<Rep>(rows, options, epoch, from_step, clock)) {}

Batches::~Batches() {
  {
    Lock lock(rep_->mu);
    rep_->abandoned = true;
    rep_->changed.notify_all();
  }
  rep_->thread.join();
}

const RowBlock* Batches::next() {
  auto& rep = *rep_;
  const auto began = rep.clock.now();
  Lock lock(rep.mu);
  if (rep.current.rows > 0) rep.empty.push_back(std::exchange(rep.current, {}));
  while (rep.ready.empty() && !rep.ended) lock.wait(rep.changed);
  rep.waited += rep.clock.now() - began;
  if (rep.ready.empty()) {
    if (rep.failure) std::rethrow_exception(rep.failure);
    return nullptr;
  }
  rep.current = std::move(rep.ready.front());
  rep.ready.pop_front();
  rep.changed.notify_all();
  return &rep.current;
}

sys::Micros Batches::waited() const { return rep_->waited; }

}  // namespace falaj::loader
