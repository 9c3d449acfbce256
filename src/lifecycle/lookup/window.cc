// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/window.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "foundation/base/error.h"

namespace falaj::lookup {
namespace {

constexpr std::string_view kNames[] = {"count", "sum", "mean", "min", "max", "stddev", "last", "distinct_approx"};
constexpr std::size_t kTilesMax = 1'000'000;  // of one entity, when read back

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void real(ByteWriter& out, double value) { out.u64(std::bit_cast<std::uint64_t>(value)); }
double real(ByteReader& in) { return std::bit_cast<double>(in.u64()); }

// Of an encoded accumulator; 0: it depends.
std::size_t encoded_bytes(Aggregate aggregate) {
  constexpr std::size_t kWord = 8;
  switch (aggregate) {
    case Aggregate::count:
      return kWord;
    case Aggregate::stddev:
      return 6 * kWord;
    case Aggregate::last:
      return 5 * kWord;
    case Aggregate::distinct_approx:
      return 0;
    default:
      return 2 * kWord;
  }
}

std::uint64_t word_at(const std::byte* at) {
  static_assert(std::endian::native == std::endian::little, "stored words are little-endian");
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

std::string_view name(Aggregate aggregate) { return kNames[static_cast<std::size_t>(aggregate)]; }

std::optional<Aggregate> parse_aggregate(std::string_view text) {
  for (const auto aggregate : kAggregates)
    if (name(aggregate) == text) return aggregate;
  return std::nullopt;
}

Windows::Windows(std::int64_t tile_us, std::vector<WindowFeature> features)
    : tile_us_(tile_us), features_(std::move(features)) {
  if (tile_us_ <= 0) throw Error(Code::invalid, "tile: must be longer than nothing");
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const auto& feature = features_[f];
    if (feature.window_us <= 0 || feature.window_us % tile_us_ != 0)
      throw Error(Code::invalid, "window: must be a whole number of tiles");
    longest_us_ = std::max(longest_us_, feature.window_us);
    const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.aggregate == feature.aggregate && kept.input == feature.input;
    });
    const auto at = static_cast<std::size_t>(same - kept_.begin());
    if (same == kept_.end()) {
      kept_.push_back({feature.aggregate, feature.input});
      readers_.emplace_back();
    }
    readers_[at].push_back(f);
  }
  tile_bytes_ = sizeof(std::int64_t);
  for (const auto& kept : kept_) {
    kept_at_.push_back(tile_bytes_);
    const auto bytes = encoded_bytes(kept.aggregate);
    tile_bytes_ = bytes == 0 || tile_bytes_ == 0 ? 0 : tile_bytes_ + bytes;
  }
  for (auto& readers : readers_)
    std::sort(readers.begin(), readers.end(),
              [&](std::size_t a, std::size_t b) { return features_[a].window_us < features_[b].window_us; });
}

std::int64_t Windows::tile_of(std::int64_t at_us) const { return floor_div(at_us, tile_us_); }

std::int64_t Windows::first_tile(std::int64_t as_of_us, std::int64_t window_us) const {
  return floor_div(as_of_us - window_us, tile_us_) + 1;
}

void Accumulator::add(const Event& event, double value) {
  const bool first = count_++ == 0;
  switch (aggregate_) {
    case Aggregate::count:
      break;
    case Aggregate::sum:
    case Aggregate::mean:
      value_ += value;
      break;
    case Aggregate::min:
      value_ = first ? value : std::min(value_, value);
      break;
    case Aggregate::max:
      value_ = first ? value : std::max(value_, value);
      break;
    case Aggregate::stddev:
      moments_.add(value);
      break;
    case Aggregate::last:
      if (!first && std::tie(event.at_us, event.available_us, event.row) < std::tie(at_us_, available_us_, row_)) break;
      value_ = value;
      at_us_ = event.at_us;
      available_us_ = event.available_us;
      row_ = event.row;
      break;
    case Aggregate::distinct_approx:
      distinct_.add(stats::hash64(std::as_bytes(std::span(&value, 1))));
      break;
  }
}

void Accumulator::merge(const Accumulator& other) {
  if (other.count_ == 0) return;
  const bool first = count_ == 0;
  count_ += other.count_;
  switch (aggregate_) {
    case Aggregate::count:
      break;
    case Aggregate::sum:
    case Aggregate::mean:
      value_ += other.value_;
      break;
    case Aggregate::min:
      value_ = first ? other.value_ : std::min(value_, other.value_);
      break;
    case Aggregate::max:
      value_ = first ? other.value_ : std::max(value_, other.value_);
      break;
    case Aggregate::stddev:
      moments_.merge(other.moments_);
      break;
    case Aggregate::last:
      if (!first && std::tie(other.at_us_, other.available_us_, other.row_) < std::tie(at_us_, available_us_, row_))
        break;
      value_ = other.value_;
      at_us_ = other.at_us_;
      available_us_ = other.available_us_;
      row_ = other.row_;
      break;
    case Aggregate::distinct_approx:
      distinct_.merge(other.distinct_);
      break;
  }
}

Cell Accumulator::result() const {
  switch (aggregate_) {
    case Aggregate::count:
      return static_cast<double>(count_);
    case Aggregate::distinct_approx:
      return std::round(distinct_.estimate());
    case Aggregate::mean:
      return count_ == 0 ? Cell() : value_ / static_cast<double>(count_);
    case Aggregate::stddev:
      return count_ < 2 ? Cell() : std::sqrt(moments_.variance());
    default:
      return count_ == 0 ? Cell() : Cell(value_);
  }
}

void Accumulator::encode(ByteWriter& out) const {
  out.u64(count_);
  switch (aggregate_) {
    case Aggregate::count:
      break;
    case Aggregate::stddev:
      moments_.encode(out);
      break;
    case Aggregate::distinct_approx:
      distinct_.encode(out);
      break;
    case Aggregate::last:
      out.u64(static_cast<std::uint64_t>(at_us_));
      out.u64(static_cast<std::uint64_t>(available_us_));
      out.u64(row_);
      real(out, value_);
      break;
    default:
      real(out, value_);
  }
}

Accumulator Accumulator::decode(Aggregate aggregate, ByteReader& in) {
  Accumulator a(aggregate);
  a.count_ = in.u64();
  switch (aggregate) {
    case Aggregate::count:
      break;
    case Aggregate::stddev:
      a.moments_ = stats::Moments::decode(in);
      break;
    case Aggregate::distinct_approx:
      a.distinct_ = stats::Distinct::decode(in);
      break;
    case Aggregate::last:
      a.at_us_ = static_cast<std::int64_t>(in.u64());
      a.available_us_ = static_cast<std::int64_t>(in.u64());
      a.row_ = in.u64();
      a.value_ = real(in);
      break;
    default:
      a.value_ = real(in);
  }
  return a;
}

namespace {

// One aggregate over encoded tiles, merged one by one: as Accumulator does it, without making one of each tile.
class Running {
 public:
  explicit Running(Aggregate aggregate) : aggregate_(aggregate), other_(aggregate) {}

  void merge(BytesView encoded) {
    const auto count = word_at(encoded.data());
    switch (aggregate_) {
      case Aggregate::count:
        count_ += count;
        return;
      case Aggregate::stddev:
      case Aggregate::last:
      case Aggregate::distinct_approx: {
        ByteReader in(encoded);
        other_.merge(Accumulator::decode(aggregate_, in));
        return;
      }
      default:
        break;
    }
    if (count == 0) return;
    const auto value = std::bit_cast<double>(word_at(encoded.data() + sizeof count));
    const bool first = count_ == 0;
    count_ += count;
    if (aggregate_ == Aggregate::min)
      value_ = first ? value : std::min(value_, value);
    else if (aggregate_ == Aggregate::max)
      value_ = first ? value : std::max(value_, value);
    else
      value_ += value;
  }

  Cell result() const {
    switch (aggregate_) {
      case Aggregate::count:
        return static_cast<double>(count_);
      case Aggregate::stddev:
      case Aggregate::last:
      case Aggregate::distinct_approx:
        return other_.result();
      case Aggregate::mean:
        return count_ == 0 ? Cell() : value_ / static_cast<double>(count_);
      default:
        return count_ == 0 ? Cell() : Cell(value_);
    }
  }

 private:
  const Aggregate aggregate_;
  std::uint64_t count_ = 0;
  double value_ = 0;
  Accumulator other_;  // of those that are more than a number
};

}  // namespace

bool Tiles::read_encoded(const Windows& windows, ByteReader& in, std::int64_t as_of_us, std::span<Cell> out) {
  const auto bytes = windows.tile_bytes();
  if (bytes == 0) return false;
  const auto size = in.u32();
  if (size > kTilesMax) throw Error(Code::corrupt, "tiles: more than there can be");
  const auto all = in.raw(size * bytes);
  const auto number = [&](std::size_t tile) { return static_cast<std::int64_t>(word_at(all.data() + tile * bytes)); };
  for (std::size_t tile = 1; tile < size; ++tile)
    if (number(tile - 1) >= number(tile)) throw Error(Code::corrupt, "tiles: not in their order");
  for (std::size_t kept = 0; kept < windows.kept().size(); ++kept) {
    const auto aggregate = windows.kept()[kept].aggregate;
    const auto kept_bytes = encoded_bytes(aggregate);
    Running running(aggregate);
    std::size_t left = size;
    for (const auto f : windows.readers(kept)) {
      const auto first = windows.first_tile(as_of_us, windows.features()[f].window_us);
      for (; left > 0 && number(left - 1) >= first; --left)
        running.merge(all.subspan((left - 1) * bytes + windows.kept_at(kept), kept_bytes));
      out[f] = running.result();
    }
  }
  return true;
}

Tiles::Tile& Tiles::tile(std::int64_t number) {
  auto at = tiles_.end();
  if (!tiles_.empty() && tiles_.back().number >= number)
    at = std::lower_bound(tiles_.begin(), tiles_.end(), number,
                          [](const Tile& tile, std::int64_t wanted) { return tile.number < wanted; });
  if (at != tiles_.end() && at->number == number) return *at;
  Tile made{number, {}};
  for (const auto& kept : windows_->kept()) made.kept.emplace_back(kept.aggregate);
  return *tiles_.insert(at, std::move(made));
}

void Tiles::add(const Event& event) {
  auto& into = tile(windows_->tile_of(event.at_us));
  const auto kept = windows_->kept();
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (const auto& cell = event.cells[kept[i].input]) into.kept[i].add(event, *cell);
}

void Tiles::read(std::int64_t as_of_us, std::span<Cell> out) const {
  const auto features = windows_->features();
  for (std::size_t kept = 0; kept < windows_->kept().size(); ++kept) {
    // From the newest tile backwards: a longer window goes on where a shorter one ended.
    Accumulator all(windows_->kept()[kept].aggregate);
    auto tile = tiles_.rbegin();
    for (const auto f : windows_->readers(kept)) {
      const auto first = windows_->first_tile(as_of_us, features[f].window_us);
      for (; tile != tiles_.rend() && tile->number >= first; ++tile) all.merge(tile->kept[kept]);
      out[f] = all.result();
    }
  }
}

void Tiles::merge(const Tiles& other) {
  for (const auto& from : other.tiles_) {
    auto& into = tile(from.number);
    for (std::size_t i = 0; i < from.kept.size(); ++i) into.kept[i].merge(from.kept[i]);
  }
}

void Tiles::forget(std::int64_t as_of_us) {
  const auto first = windows_->first_tile(as_of_us, windows_->longest_us());
  const auto keep = std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& tile) { return tile.number >= first; });
  tiles_.erase(tiles_.begin(), keep);
}

void Tiles::encode(ByteWriter& out) const {
  out.u32(static_cast<std::uint32_t>(tiles_.size()));
  for (const auto& tile : tiles_) {
    out.u64(static_cast<std::uint64_t>(tile.number));
    for (const auto& kept : tile.kept) kept.encode(out);
  }
}

Tiles Tiles::decode(const Windows& windows, ByteReader& in) {
  Tiles out(windows);
  const auto size = in.u32();
  if (size > kTilesMax) throw Error(Code::corrupt, "tiles: more than there can be");
  for (std::uint32_t i = 0; i < size; ++i) {
    Tile tile{static_cast<std::int64_t>(in.u64()), {}};
    if (!out.tiles_.empty() && out.tiles_.back().number >= tile.number)
      throw Error(Code::corrupt, "tiles: not in their order");
    for (const auto& kept : windows.kept()) tile.kept.push_back(Accumulator::decode(kept.aggregate, in));
    out.tiles_.push_back(std::move(tile));
  }
  return out;
}

}  // namespace falaj::lookup
