// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/watched.h"

#include <cmath>

#include "foundation/base/error.h"
#include "foundation/stats/blocks.h"

namespace falaj::traffic {
namespace {

constexpr std::uint8_t kSketchesVersion = 1;
constexpr std::size_t kColumnNameMax = 512;

[[noreturn]] void refuse_sketch(const char* what) {
  throw Error(Code::corrupt, std::string("a sketch of columns is not what was written: ") + what);
}

}  // namespace

void ColumnSketch::add(double value) {
  holds = Holds::numbers;
  ++rows;
  std::isfinite(value) ? numbers.add(stats::coarse(value)) : void(++missing);
}

void ColumnSketch::add(std::string_view text) {
  holds = Holds::texts;
  ++rows;
  if (text.empty()) {
    ++missing;
    return;
  }
  texts.add(text);
  distinct.add(text);
}

void ColumnSketch::add_hidden(bool is_missing) {
  ++rows;
  missing += is_missing ? 1 : 0;
}

void ColumnSketch::merge(const ColumnSketch& other) {
  if (other.rows == 0) return;
  // A column whose type changed, or that is hidden from now on, starts anew: halves of both would be neither.
  if (rows > 0 && holds != other.holds) *this = {};
  holds = other.holds;
  rows += other.rows;
  missing += other.missing;
  numbers.merge(other.numbers);
  texts.merge(other.texts);
  distinct.merge(other.distinct);
}

void ColumnSketch::encode(ByteWriter& out) const {
  out.u8(static_cast<std::uint8_t>(holds));
  out.u64(rows);
  out.u64(missing);
  if (holds == Holds::numbers) numbers.encode(out);
  if (holds != Holds::texts) return;
  texts.encode(out);
  distinct.encode(out);
}

ColumnSketch ColumnSketch::decode(ByteReader& in) {
  ColumnSketch out;
  const auto holds = in.u8();
  if (holds > static_cast<std::uint8_t>(Holds::texts)) refuse_sketch("what it holds");
  out.holds = static_cast<Holds>(holds);
  out.rows = in.u64();
  out.missing = in.u64();
  if (out.missing > out.rows || out.rows > (std::uint64_t{1} << 60)) refuse_sketch("its rows");
  if (out.holds == Holds::numbers) out.numbers = stats::Quantiles::decode(in);
  if (out.holds == Holds::texts) {
    out.texts = stats::Frequent::decode(in);
    out.distinct = stats::Distinct::decode(in);
  }
  const auto held = out.holds == Holds::numbers ? out.numbers.count() : out.texts.total();
  if (out.holds != Holds::nothing && held != out.present()) refuse_sketch("its count");
  if (out.numbers.count() > 0 && !(std::isfinite(out.numbers.min()) && std::isfinite(out.numbers.max())))
    refuse_sketch("its range");
  return out;
}

Bytes encode_sketches(const Sketches& sketches) {
  ByteWriter out;
  out.u8(kSketchesVersion);
  out.u32(static_cast<std::uint32_t>(sketches.size()));
  for (const auto& [name, sketch] : sketches) {
    out.text(name);
    sketch.encode(out);
  }
  return out.take();
}

Sketches decode_sketches(BytesView bytes) {
  ByteReader in(bytes, kColumnNameMax);
  if (in.u8() != kSketchesVersion) refuse_sketch("its version");
  const auto count = in.u32();
  if (count > kWatchedColumnsMax) refuse_sketch("its columns");
  Sketches out;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto name = in.text();
    if (!out.emplace(std::move(name), ColumnSketch::decode(in)).second) refuse_sketch("a column twice");
  }
  in.expect_end();
  return out;
}

Bytes encode_rows(const stats::RowSample& rows) {
  ByteWriter out;
  rows.encode(out);
  return out.take();
}

stats::RowSample decode_rows(BytesView bytes) {
  if (bytes.empty()) return {};
  ByteReader in(bytes, kColumnNameMax);
  auto out = stats::RowSample::decode(in);
  in.expect_end();
  return out;
}

void merge_into(Sketches& into, const Sketches& other) {
  for (const auto& [name, sketch] : other)
    if (into.contains(name) || into.size() < kWatchedColumnsMax) into[name].merge(sketch);
}

}  // namespace falaj::traffic
