// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/watching.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "compute/protocol/tensors.h"
#include "compute/serve/catalogue.h"
#include "compute/serve/log_lines.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/stats/blocks.h"

namespace falaj::serve {
namespace {

using graph::Element;

constexpr std::uint32_t kValuesMax = 64;  // of a row, each a column of its own; beyond, their mean is one
constexpr std::size_t kComparedMax = 8;   // outputs; each takes some ten kilobytes in every report
constexpr std::uint64_t kCalmTurns = 10;
constexpr std::uint32_t kHalvingsMax = 40;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr double kNotAsked = -std::numeric_limits<double>::infinity();  // values themselves are finite or missing
const std::string kTextNotAsked(1, '\0');

// Values of a row; 0: it differs from request to request.
std::uint64_t row_width_of(const graph::Port& port, bool rows_first) {
  std::uint64_t out = 1;
  for (std::size_t i = rows_first ? 1 : 0; i < port.shape.size(); ++i) {
    const auto* size = std::get_if<std::int64_t>(&port.shape[i]);
    if (!size || *size < 1) return 0;
    out = std::min<std::uint64_t>(out * static_cast<std::uint64_t>(*size), std::uint64_t{1} << 32);
  }
  return out;
}

void add_cells_of(std::vector<WatchCell>& to, std::span<const graph::Port> ports, bool output, bool rows_first,
                  const traffic::Endpoint& endpoint) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto& port = ports[i];
    const auto hide = hide_of(endpoint, port.name);
    if (hide == Hide::drop || port.element == Element::float16 || port.element == Element::bfloat16 ||
        !is_utf8(port.name) || port.name.size() > 255)
      continue;
    const auto width = row_width_of(port, rows_first);
    const bool many = width == 0 || width > kValuesMax;
    if (many && port.element == Element::text) continue;
    auto name = (output ? std::string(traffic::kOutputPrefix) : "") + port.name;
    if (!output && port.name.starts_with(traffic::kOutputPrefix)) name = "in_" + port.name;
    for (std::uint32_t v = 0; v < (many ? 1 : width) && to.size() < traffic::kWatchedColumnsMax; ++v)
      to.push_back({many || width == 1 ? name : fmt::format("{}[{}]", name, v), static_cast<std::uint16_t>(i), output,
                    port.element, v, many, hide != Hide::nothing});
  }
}

// Whether the row with this number is looked at (splitmix64 of the number).
bool is_chosen(std::uint64_t number, std::uint32_t halvings) {
  if (halvings == 0) return true;
  std::uint64_t z = (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) >> (64 - halvings) == 0;
}

double number_at(const infer::TensorView& tensor, std::size_t at) {
  if (tensor.element == Element::boolean) return tensor.bytes[at] != std::byte{0} ? 1 : 0;
  double out = kMissing;
  protocol::with_type(tensor.element, [&](auto like) {
    std::memcpy(&like, tensor.bytes.data() + at * sizeof like, sizeof like);
    out = static_cast<double>(like);
  });
  return std::isfinite(out) ? out : kMissing;
}

// Pixels as shares of the brightest, as the model's reference has them.
double mean_of(const infer::TensorView& tensor, std::size_t first, std::size_t width) {
  double sum = 0;
  for (std::size_t i = 0; i < width; ++i) sum += number_at(tensor, first + i);
  return width == 0 ? kMissing : sum / static_cast<double>(width) / (tensor.element == Element::uint8 ? 255 : 1);
}

std::string text_at(const infer::TensorView& tensor, std::size_t at) {
  auto text = tensor.texts[at];
  if (text.size() > stats::Frequent::kTextMax) {
    text = text.substr(0, stats::Frequent::kTextMax);
    while (!text.empty() && (static_cast<unsigned char>(tensor.texts[at][text.size()]) & 0xc0) == 0x80)
      text.remove_suffix(1);  // not in the middle of a character
  }
  return is_utf8(text) ? std::string(text) : "(no text)";
}

std::size_t count_of_values(const infer::TensorView& tensor) {
  return tensor.element == Element::text ? tensor.texts.size() : tensor.bytes.size() / graph::bytes_of(tensor.element);
}

bool is_text(const WatchCell& cell) { return cell.element == Element::text && !cell.hidden; }

void append_watched(WatchStream::Piece& to, const WatchCell& cell, const infer::TensorView* tensor, std::size_t row,
                    std::size_t rows) {
  const auto width = tensor ? count_of_values(*tensor) / rows : 0;
  const bool there = cell.mean ? width > 0 : cell.value < width;
  const auto at = row * width + cell.value;
  if (is_text(cell)) {
    to.texts.push_back(there ? text_at(*tensor, at) : kTextNotAsked);
  } else if (!there) {
    to.numbers.push_back(kNotAsked);
  } else if (cell.element == Element::text) {
    to.numbers.push_back(tensor->texts[at].empty() ? kMissing : 0);
  } else {
    const double value = cell.mean ? mean_of(*tensor, row * width, width) : number_at(*tensor, at);
    to.numbers.push_back(cell.hidden && std::isfinite(value) ? 0 : value);
  }
}

}  // namespace

std::vector<WatchCell> watch_cells(const ServedEndpoint& endpoint, const ServedVariant& variant) {
  std::vector<WatchCell> out;
  const auto& held = *variant.held;
  // Outputs first: where there are too many columns, they are the last to be left out.
  add_cells_of(out, held.outputs, true, held.rows_first, endpoint.plan);
  add_cells_of(out, held.inputs, false, held.rows_first, endpoint.plan);
  return out;
}

WatchStream::WatchStream(std::vector<WatchCell> cells, const traffic::Watching& how, std::uint64_t seed)
    : cells_(std::move(cells)), how_(how), seed_(seed) {}

void WatchStream::see(std::span<const infer::TensorView> inputs, std::span<const infer::TensorView> outputs,
                      std::span<const std::uint16_t> wanted, std::uint32_t rows, const sys::Clock& clock) {
  const auto first = rows_.fetch_add(rows, std::memory_order_relaxed);
  const auto now = halvings_.load(std::memory_order_relaxed);
  auto halvings = now;
  while ((rows >> std::min(31u, halvings)) > how_.rows_per_second && halvings < kHalvingsMax) ++halvings;
  thread_local std::vector<std::uint32_t> chosen;
  chosen.clear();
  for (std::uint32_t row = 0; row < rows; ++row)
    if (is_chosen(first + row, halvings)) chosen.push_back(row);
  if (chosen.empty()) return;
  const auto output = [&](std::uint16_t place) -> const infer::TensorView* {
    if (wanted.empty()) return place < outputs.size() ? &outputs[place] : nullptr;
    const auto found = std::find(wanted.begin(), wanted.end(), place);
    return found == wanted.end() ? nullptr : &outputs[static_cast<std::size_t>(found - wanted.begin())];
  };
  const auto at = clock.wall().count();
  Lock lock(mu_);
  Piece* piece = nullptr;
  for (auto& one : pieces_)
    if (one.halvings == halvings) piece = &one;  // the last of them
  for (const auto row : chosen) {
    if (!piece || piece->looked_at >= static_cast<std::uint64_t>(how_.segment_rows)) {
      piece = &pieces_.emplace_back();
      piece->halvings = halvings;
      piece->from_us = at;
    }
    piece->until_us = at;
    ++piece->looked_at;
    for (const auto& cell : cells_)
      append_watched(*piece, cell, cell.output ? output(cell.place) : &inputs[cell.place], row, rows);
  }
  // By how many there were, so that what was in them does not decide; the next ones fare by the new chance.
  if (halvings != now || (looked_at_ += static_cast<std::int64_t>(chosen.size())) < how_.rows_per_second) return;
  looked_at_ = 0;
  if (halvings < kHalvingsMax) halvings_.store(halvings + 1, std::memory_order_relaxed);
}

WatchStream::Taken WatchStream::take() {
  Taken out;
  {
    Lock lock(mu_);
    out.pieces.swap(pieces_);
    looked_at_ = 0;
  }
  const auto rows = rows_.load(std::memory_order_relaxed);
  out.rows = rows - told_;
  told_ = rows;
  std::int64_t looked_at = 0;
  for (const auto& piece : out.pieces) looked_at += static_cast<std::int64_t>(piece.looked_at);
  const auto halvings = halvings_.load(std::memory_order_relaxed);
  calm_ = looked_at * 4 < how_.rows_per_second ? calm_ + 1 : 0;
  if (calm_ >= kCalmTurns && halvings > 0) {
    halvings_.store(halvings - 1, std::memory_order_relaxed);
    calm_ = 0;
  }
  return out;
}

traffic::Sketches WatchStream::sketch(const Piece& piece) const {
  std::vector<traffic::ColumnSketch> columns(cells_.size());
  auto number = piece.numbers.begin();
  auto text = piece.texts.begin();
  for (std::uint64_t row = 0; row < piece.looked_at; ++row)
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (is_text(cells_[c])) {
        if (*text != kTextNotAsked) columns[c].add(*text);
        ++text;
        continue;
      }
      const double value = *number++;
      if (value == kNotAsked) continue;
      cells_[c].hidden ? columns[c].add_hidden(std::isnan(value)) : columns[c].add(value);
    }
  traffic::Sketches out;
  for (std::size_t c = 0; c < cells_.size(); ++c)
    if (columns[c].rows > 0) out.emplace(cells_[c].name, std::move(columns[c]));
  return out;
}

stats::RowSample WatchStream::sample(const Piece& piece) {
  if (how_.whole_rows == 0) return {};
  struct Place {
    bool text;
    std::size_t at;  // among a row's numbers, or among its texts
  };
  std::vector<stats::RowSample::Column> columns;
  std::vector<Place> places;
  std::size_t numbers = 0, texts = 0;
  for (const auto& cell : cells_) {
    const Place place{is_text(cell), is_text(cell) ? texts++ : numbers++};
    if (cell.output || cell.hidden || columns.size() >= stats::RowSample::kWidthMax) continue;
    columns.push_back({cell.name, place.text});
    places.push_back(place);
  }
  if (columns.empty()) return {};
  stats::RowSample out(std::move(columns), static_cast<std::uint32_t>(how_.whole_rows));
  std::vector<double> row(places.size());
  for (std::size_t i = 0; i < piece.looked_at; ++i) {
    for (std::size_t c = 0; c < places.size(); ++c) {
      if (places[c].text) {
        const auto& text = piece.texts[i * texts + places[c].at];
        row[c] = text.empty() || text == kTextNotAsked ? kMissing : stats::text_code(text);
      } else {
        const double value = piece.numbers[i * numbers + places[c].at];
        row[c] = std::isfinite(value) ? stats::coarse(value) : kMissing;
      }
    }
    out.add(stats::RowSample::key(seed_, numbered_++), row);
  }
  return out;
}

std::vector<WatchCell> compared_cells(const ServedEndpoint& endpoint, const ServedVariant& variant) {
  auto out = watch_cells(endpoint, variant);
  std::erase_if(out, [](const WatchCell& cell) { return !cell.output; });
  if (out.size() > kComparedMax) out.resize(kComparedMax);
  return out;
}

std::string ComparedOutputs::encoded() {
  Lock lock(mu_);
  for (const auto& piece : stream.take().pieces) traffic::merge_into(seen_, stream.sketch(piece));
  return to_base64(traffic::encode_sketches(seen_));
}

void Watcher::turn(const Catalogue& catalogue) {
  for (const auto& endpoint : catalogue.endpoints)
    for (const auto& variant : endpoint.variants) {
      const auto same = [&](const Followed& f) { return f.stream == variant.watched; };
      if (!variant.watched || std::any_of(followed_.begin(), followed_.end(), same)) continue;
      const auto& plan = endpoint.plan;
      followed_.push_back(
          {variant.watched, plan.tenant, plan.project, plan.name, variant.plan.name, variant.plan.version});
    }
  for (const auto& of : followed_) hand_on(of);
  std::erase_if(followed_, [](const Followed& f) { return f.stream.use_count() == 1; });
}

void Watcher::hand_on(const Followed& of) {
  auto taken = of.stream->take();
  if (taken.rows == 0) return;
  if (taken.pieces.empty()) {  // none was chosen; that there were rows is worth telling
    auto& none = taken.pieces.emplace_back();
    none.halvings = of.stream->halvings();
    none.from_us = none.until_us = clock_.wall().count();
  }
  for (const auto& piece : taken.pieces) {
    traffic::WatchedSegment segment;
    segment.variant = of.variant;
    segment.version = of.version;
    segment.halvings = piece.halvings;
    segment.rows = static_cast<std::int64_t>(std::exchange(taken.rows, 0));  // all of them are told with the first
    segment.looked_at = static_cast<std::int64_t>(piece.looked_at);
    segment.from_us = piece.from_us;
    segment.until_us = piece.until_us;
    segment.sketches = to_base64(traffic::encode_sketches(of.stream->sketch(piece)));
    if (of.stream->how().whole_rows > 0) segment.rows_whole = to_base64(traffic::encode_rows(of.stream->sample(piece)));
    try {
      sink_({{"tenant", of.tenant},
             {"project", of.project},
             {"endpoint", of.endpoint},
             {"columns", json::array()},
             {"rows", segment.rows},
             {"watched", encode(segment)}});
    } catch (const Error& e) {
      log::warn("watched_segment_lost", {{"endpoint", of.endpoint}, {"why", e.what()}});
    }
  }
}

}  // namespace falaj::serve
