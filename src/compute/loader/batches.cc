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
constexpr std::size_t kWindowBytesMax = 64 << 20, kWindowBlocksMax = 64;

std::size_t blocks_of_window(const Layout& layout) {
  return std::clamp<std::size_t>(kWindowBytesMax / (Order::kBlock * layout.bytes()), 1, kWindowBlocksMax);
}

}  // namespace

std::vector<std::uint32_t> Order::window(std::size_t number) const {
  std::vector<std::uint32_t> out;
  if (!shuffled) {
    out.resize(std::min(window_rows(), rows - number * window_rows()));
    std::iota(out.begin(), out.end(), static_cast<std::uint32_t>(number * window_rows()));
    return out;
  }
  // The last block may be short; it must not stand between others, or windows would have other places.
  const auto whole = rows / kBlock;
  std::vector<std::uint32_t> dealt(whole);
  std::iota(dealt.begin(), dealt.end(), 0U);
  Mix(seed, epoch, 0).shuffle(dealt);
  if (whole * kBlock < rows) dealt.push_back(static_cast<std::uint32_t>(whole));
  const auto begin = number * blocks, end = std::min(begin + blocks, dealt.size());
  for (auto b = begin; b < end; ++b) {
    const auto first = std::size_t{dealt[b]} * kBlock, last = std::min(first + kBlock, rows);
    for (auto row = first; row < last; ++row) out.push_back(static_cast<std::uint32_t>(row));
  }
  Mix(seed, epoch, number + 1).shuffle(out);
  return out;
}

std::size_t steps_of(std::size_t rows, const BatchOptions& options) {
  return std::max<std::size_t>(rows / options.batch, rows == 0 ? 0 : 1);
}

struct Batches::Rep {
  const Packed& rows;
  const BatchOptions options;
  const Order order;
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
        order{packed.rows(), o.seed, epoch, o.shuffled, blocks_of_window(packed.layout())},
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

  // A window in memory, in the order it is seen.
  struct Window {
    std::size_t number = 0, first = 0;  // of the rows seen in this epoch
    std::vector<std::uint32_t> seen;    // places in `block`
    RowBlock block;
  };

  void load(std::size_t number, Window& window) const {
    const auto seen = order.window(number);
    // Blocks in the order they lie on disk: what is read is a few long pieces.
    auto sorted = seen;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::pair<std::uint32_t, std::size_t>> runs;  // first row, place of it in `block`
    window.block.resize(rows.layout(), 0);
    RowBlock piece;
    for (std::size_t i = 0; i < sorted.size();) {
      std::size_t j = i + 1;
      while (j < sorted.size() && sorted[j] == sorted[j - 1] + 1) ++j;
      rows.read(sorted[i], j - i, piece);
      runs.emplace_back(sorted[i], i);
      const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(window.block.numbers, piece.numbers);
      append(window.block.ids, piece.ids);
      append(window.block.pixels, piece.pixels);
      append(window.block.labels, piece.labels);
      append(window.block.weights, piece.weights);
      append(window.block.groups, piece.groups);
      i = j;
    }
    window.number = number;
    window.first = number * order.window_rows();
    window.seen.resize(seen.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const auto run = std::prev(std::upper_bound(runs.begin(), runs.end(), std::pair(seen[i], SIZE_MAX)));
      window.seen[i] = static_cast<std::uint32_t>(run->second + (seen[i] - run->first));
    }
  }

  // `at`: the row's place in the epoch, of all ranks.
  void copy_row(const Window& window, std::size_t at, RowBlock& out, std::size_t to) const {
    const std::size_t from = window.seen[at - window.first];
    const auto& layout = rows.layout();
    const auto& block = window.block;
    copy_bytes(out.numbers.data() + to * layout.numbers, block.numbers.data() + from * layout.numbers,
               layout.numbers * sizeof(float));
    copy_bytes(out.ids.data() + to * layout.ids, block.ids.data() + from * layout.ids,
               layout.ids * sizeof(std::int32_t));
    const auto* pixels = block.pixels.data() + from * layout.pixels;
    auto* pixels_to = out.pixels.data() + to * layout.pixels;
    if (options.augment)
      Change::drawn(options.seed, order.epoch, at).apply(*options.augment, pixels, pixels_to);
    else
      copy_bytes(pixels_to, pixels, layout.pixels);
    out.labels[to] = block.labels[from];
    out.weights[to] = block.weights[from];
    out.groups[to] = block.groups[from];
  }

  void produce() {
    Window window;
    window.number = SIZE_MAX;
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
