// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/batches.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "compute/loader/mix.h"
#include "foundation/base/error.h"
#include "foundation/base/mutex.h"

namespace falaj::loader {
namespace {

// Batches made ahead: many small ones, so that threads need not wake each other for each, and few large ones.
constexpr std::size_t kReadyMin = 4, kReadyMax = 16, kReadyBytes = 8 << 20;
// Two windows are in memory: one whose rows are dealt out, and the next.
constexpr std::size_t kWindowBytesMax = 16 << 20, kWindowBlocksMax = 64;

std::size_t blocks_of_window(const Layout& layout) {
  return std::clamp<std::size_t>(kWindowBytesMax / (Order::kBlock * layout.bytes()), 1, kWindowBlocksMax);
}

std::size_t batches_ahead(const Layout& layout, std::size_t rows) {
  return std::clamp<std::size_t>(kReadyBytes / (std::max<std::size_t>(rows, 1) * layout.bytes()), kReadyMin, kReadyMax);
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

std::size_t Order::first_row() const {
  constexpr std::uint64_t kNoWindow = ~std::uint64_t{0};
  return shuffled && rows > 0 ? Mix(seed, epoch, kNoWindow).below(rows) : 0;
}

std::vector<std::uint32_t> Order::mixed(std::size_t window) const {
  std::vector<std::uint32_t> out(rows_of(window));
  std::iota(out.begin(), out.end(), 0U);
  if (shuffled && !neighbours) Mix(seed, epoch, window + 1).shuffle(out);
  return out;
}

std::vector<std::uint32_t> Order::window(std::size_t number) const {
  const auto dealt = deal();
  const auto first = first_row();
  auto out = mixed(number);
  for (auto& row : out)
    row = static_cast<std::uint32_t>((first + dealt[number * blocks + row / kBlock] * kBlock + row % kBlock) % rows);
  return out;
}

std::size_t steps_of(std::size_t rows, const BatchOptions& options) {
  return std::max<std::size_t>(rows / options.batch, rows == 0 ? 0 : 1);
}

namespace {

// What a thread of its own makes ahead for the one that uses it, at most so many at a time. What was used goes back,
// for its memory.
template <class T>
class Ahead {
 public:
  // `make` puts one after the other, until put() says that nobody wants more.
  Ahead(std::size_t most, std::function<void(Ahead&)> make) : most_(most), make_(std::move(make)) {
    thread_ = std::thread([this] {
      std::exception_ptr thrown;
      try {
        make_(*this);
      } catch (...) {
        thrown = std::current_exception();
      }
      Lock lock(mu_);
      ended_ = true;
      failure_ = thrown;
      changed_.notify_all();
    });
  }
  ~Ahead() {
    {
      Lock lock(mu_);
      abandoned_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  T used() {
    Lock lock(mu_);
    if (used_.empty()) return {};
    auto out = std::move(used_.back());
    used_.pop_back();
    return out;
  }
  bool put(T made) {
    Lock lock(mu_);
    ready_.push_back(std::move(made));
    if (ready_.size() == 1) changed_.notify_all();  // whoever uses them waits for none but the first
    while (ready_.size() >= most_ && !abandoned_) lock.wait(changed_);
    return !abandoned_;
  }

  // Gives the last one back and takes the next; nothing when there are no more. Throws what making threw.
  std::optional<T> next(std::optional<T> last) {
    Lock lock(mu_);
    if (last) used_.push_back(std::move(*last));
    while (ready_.empty() && !ended_) lock.wait(changed_);
    if (ready_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return std::nullopt;
    }
    std::optional<T> out = std::move(ready_.front());
    ready_.pop_front();
    if (ready_.size() + 1 == most_) changed_.notify_all();  // there is room again
    return out;
  }

 private:
  const std::size_t most_;
  const std::function<void(Ahead&)> make_;

  Mutex mu_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  std::deque<T> ready_ GUARDED_BY(mu_);
  std::vector<T> used_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false, abandoned_ GUARDED_BY(mu_) = false;
  std::exception_ptr failure_ GUARDED_BY(mu_);
  std::thread thread_;
};

// A window in memory.
struct Window {
  std::size_t first = 0, end = 0;   // of the rows seen in this epoch
  std::vector<std::uint32_t> seen;  // places among its rows
  Bytes packed;
};

}  // namespace

// One thread reads windows, another deals out their rows: each has about as much to do.
struct Batches::Rep {
  const Packed& rows;
  const BatchOptions options;
  const Order order;
  const std::vector<std::uint32_t> dealt;
  const std::size_t first_row;
  const std::size_t first_step, steps, batch;
  const sys::Clock& clock;
  std::optional<RowBlock> current;  // the caller's
  sys::Micros waited{0};
  Ahead<Window> windows;
  Ahead<RowBlock> ready;  // goes first: it uses windows

  Rep(const Packed& packed, const BatchOptions& o, std::uint64_t epoch, std::size_t from_step, const sys::Clock& c)
      : rows(packed),
        options(o),
        order{packed.rows(), o.seed, epoch, o.shuffled, blocks_of_window(packed.layout()), o.neighbours},
        dealt(order.deal()),
        first_row(order.first_row()),
        first_step(from_step),
        steps(steps_of(packed.rows(), o)),
        batch(std::min(o.batch, packed.rows())),
        clock(c),
        windows(1, [this](Ahead<Window>& out) { read(out); }),
        ready(batches_ahead(packed.layout(), batch / o.ranks), [this](Ahead<RowBlock>& out) { deal(out); }) {}

  // Of the rows of a step, those of this rank.
  std::size_t first_of(std::size_t step) const { return step * batch + options.rank * batch / options.ranks; }

  void read(Ahead<Window>& out) {
    if (first_step >= steps) return;
    for (auto number = first_of(first_step) / order.window_rows(); number < order.windows(); ++number) {
      auto window = out.used();
      load(number, window);
      if (!out.put(std::move(window))) return;
    }
  }

  void load(std::size_t number, Window& window) {
    const auto n = order.rows_of(number), row_bytes = rows.layout().bytes();
    window.packed.resize(n * row_bytes);
    // In the order they lie on disk.
    std::vector<std::pair<std::uint32_t, std::size_t>> blocks;  // block, its first place
    for (std::size_t place = 0; place < n; place += Order::kBlock)
      blocks.emplace_back(dealt[number * order.blocks + place / Order::kBlock], place);
    std::sort(blocks.begin(), blocks.end());
    for (const auto& [block, place] : blocks) {
      const auto first = (first_row + block * Order::kBlock) % order.rows, size = std::min(Order::kBlock, n - place);
      const auto before_end = std::min(size, order.rows - first);
      auto* to = window.packed.data() + place * row_bytes;
      rows.read_packed(first, before_end, to);
      if (before_end < size) rows.read_packed(0, size - before_end, to + before_end * row_bytes);
    }
    window.first = number * order.window_rows();
    window.end = window.first + n;
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

  void deal(Ahead<RowBlock>& out) {
    std::optional<Window> window;
    for (auto step = first_step; step < steps; ++step) {
      const auto first = first_of(step), last = step * batch + (options.rank + 1) * batch / options.ranks;
      auto block = out.used();
      block.resize(rows.layout(), last - first);
      for (auto at = first; at < last; ++at) {
        while (!window || at >= window->end) {
          window = windows.next(std::move(window));
          CHECK(window, "there is a window for every row");
        }
        copy_row(*window, at, block, at - first);
      }
      if (!out.put(std::move(block))) return;
    }
  }
};

Batches::Batches(const Packed& rows, const BatchOptions& options, std::uint64_t epoch, std::size_t from_step,
                 const sys::Clock& clock)
    : rep_(std::make_unique<Rep>(rows, options, epoch, from_step, clock)) {}

Batches::~Batches() = default;

const RowBlock* Batches::next() {
  auto& rep = *rep_;
  const auto began = rep.clock.now();
  rep.current = rep.ready.next(std::move(rep.current));
  rep.waited += rep.clock.now() - began;
  return rep.current ? &*rep.current : nullptr;
}

sys::Micros Batches::waited() const { return rep_->waited; }

}  // namespace falaj::loader
