// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/record.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::lookup {
namespace {

constexpr std::uint8_t kFormat = 1;
constexpr std::size_t kBlobMax = online::kPayloadMax;

void put_time(ByteWriter& out, std::int64_t us) { out.u64(static_cast<std::uint64_t>(us)); }
std::int64_t get_time(ByteReader& in) { return static_cast<std::int64_t>(in.u64()); }

void encode(ByteWriter& out, const Happened& h) {
  put_time(out, h.event.at_us);
  put_time(out, h.event.available_us);
  out.u64(h.event.row);
  out.blob(h.row);
  for (const auto& cell : h.event.cells) {
    out.u8(cell ? 1 : 0);
    if (cell) out.u64(std::bit_cast<std::uint64_t>(*cell));
  }
}

Happened decode_happened(ByteReader& in, std::size_t cells) {
  Happened h;
  h.event.at_us = get_time(in);
  h.event.available_us = get_time(in);
  h.event.row = in.u64();
  const auto row = in.blob();
  h.row.assign(row.begin(), row.end());
  h.event.cells.resize(cells);
  for (auto& cell : h.event.cells)
    if (in.u8() != 0) cell = std::bit_cast<double>(in.u64());
  return h;
}

std::size_t cells_of(const View& view) {
  std::size_t most = 0;
  for (const auto& feature : view.windows.features()) most = std::max(most, feature.input + 1);
  return most;
}

}  // namespace

void Part::offer(Newest newest) {
  if (newest_ && std::tie(newest.at_us, newest.available_us, newest.row_number) <
                     std::tie(newest_->at_us, newest_->available_us, newest_->row_number))
    return;
  newest_ = std::move(newest);
}

void Part::count_in(Happened h) {
  tiles_.add(h.event);
  offer({h.event.at_us, h.event.available_us, h.event.row, std::move(h.row)});
}

void Part::add(Happened happened, std::int64_t now_us) {
  if (happened.event.known_us() > now_us)
    waiting_.push_back(std::move(happened));
  else
    count_in(std::move(happened));
}

bool Part::needs_row(const Event& event, std::int64_t now_us) const {
  return !view_->rows.empty() && (!newest_ || event.known_us() > now_us ||
                                  std::tie(event.at_us, event.available_us, event.row) >=
                                      std::tie(newest_->at_us, newest_->available_us, newest_->row_number));
}

void Part::settle(std::int64_t now_us) {
  const auto known =
      std::partition(waiting_.begin(), waiting_.end(), [&](const Happened& h) { return h.event.known_us() > now_us; });
  for (auto h = known; h != waiting_.end(); ++h) count_in(std::move(*h));
  waiting_.erase(known, waiting_.end());
  tiles_.forget(now_us);
}

void Part::merge(const Part& later) {
  tiles_.merge(later.tiles_);
  if (later.newest_) offer(*later.newest_);
  waiting_.insert(waiting_.end(), later.waiting_.begin(), later.waiting_.end());
}

std::optional<std::int64_t> Part::newest_us() const {
  std::optional<std::int64_t> out;
  if (newest_) out = newest_->at_us;
  for (const auto& h : waiting_) out = std::max(out.value_or(h.event.at_us), h.event.at_us);
  return out;
}

void Part::encode(ByteWriter& out) const {
  out.u8(newest_ ? 1 : 0);
  if (newest_) {
    put_time(out, newest_->at_us);
    put_time(out, newest_->available_us);
    out.u64(newest_->row_number);
    out.blob(newest_->row);
  }
  if (!view_->windows.features().empty()) tiles_.encode(out);
  out.u32(static_cast<std::uint32_t>(waiting_.size()));
  for (const auto& h : waiting_) lookup::encode(out, h);
}

Part Part::decode(const View& view, ByteReader& in) {
  Part part(view);
  if (in.u8() != 0) {
    Newest newest;
    newest.at_us = get_time(in);
    newest.available_us = get_time(in);
    newest.row_number = in.u64();
    const auto row = in.blob();
    newest.row.assign(row.begin(), row.end());
    part.newest_ = std::move(newest);
  }
  if (!view.windows.features().empty()) part.tiles_ = Tiles::decode(view.windows, in);
  for (auto left = in.u32(); left > 0; --left) part.waiting_.push_back(decode_happened(in, cells_of(view)));
  return part;
}

Record Record::decode(const View& view, BytesView payload) {
  ByteReader in(payload, kBlobMax);
  if (const auto format = in.u8(); format != kFormat)
    throw Error(Code::corrupt, fmt::format("online record: format {} is unknown", format));
  Record record(view);
  record.pass_ = in.u64();
  record.covered_ = in.u64();
  record.sequence_ = in.u64();
  record.settled_us_ = get_time(in);
  record.base_ = Part::decode(view, in);
  for (auto left = in.u32(); left > 0; --left) {
    const auto epoch = in.u64();
    record.pushed_.push_back({epoch, Part::decode(view, in)});
  }
  in.expect_end();
  return record;
}

Bytes Record::encode() const {
  ByteWriter out;
  out.u8(kFormat);
  out.u64(pass_);
  out.u64(covered_);
  out.u64(sequence_);
  put_time(out, settled_us_);
  base_.encode(out);
  out.u32(static_cast<std::uint32_t>(pushed_.size()));
  for (const auto& pushed : pushed_) {
    out.u64(pushed.epoch);
    pushed.part.encode(out);
  }
  return out.take();
}

void Record::drop_covered(std::uint64_t covered) {
  covered_ = std::max(covered_, covered);
  std::erase_if(pushed_, [&](const Pushed& pushed) { return pushed.epoch <= covered_; });
}

void Record::settle(std::int64_t now_us) {
  settled_us_ = std::max(settled_us_, now_us);
  base_.settle(settled_us_);
  for (auto& pushed : pushed_) pushed.part.settle(settled_us_);
  std::erase_if(pushed_, [](const Pushed& pushed) { return pushed.part.empty(); });
}

void Record::set_base(std::uint64_t pass, std::uint64_t covered, Part base, std::int64_t now_us) {
  if (pass_ >= pass) return;
  pass_ = pass;
  base_ = std::move(base);
  drop_covered(covered);
  // A pass may go back in time, to show a past moment; it is then the base alone that says from when on to read.
  if (pushed_.empty()) settled_us_ = now_us;
  settle(now_us);
}

void Record::add_to_base(std::uint64_t pass, std::uint64_t covered, const Part& more, std::int64_t now_us) {
  if (pass_ >= pass) return;
  pass_ = pass;
  base_.merge(more);
  drop_covered(covered);
  settle(now_us);
}

void Record::push(std::uint64_t epoch, std::uint64_t sequence, std::vector<Happened> events, std::int64_t now_us) {
  if (sequence_ >= sequence) return;
  sequence_ = sequence;
  if (epoch > covered_) {
    auto at = std::find_if(pushed_.begin(), pushed_.end(), [&](const Pushed& p) { return p.epoch >= epoch; });
    if (at == pushed_.end() || at->epoch != epoch) at = pushed_.insert(at, {epoch, Part(*view_)});
    for (auto& h : events) at->part.add(std::move(h), now_us);
  }
  settle(now_us);
}

bool Record::empty() const { return base_.empty() && pushed_.empty(); }

std::optional<std::int64_t> Record::newest_us() const {
  auto out = base_.newest_us();
  for (const auto& pushed : pushed_)
    if (const auto us = pushed.part.newest_us()) out = std::max(out.value_or(*us), *us);
  return out;
}

namespace {

void need_present(std::int64_t as_of_us, std::int64_t settled_us) {
  if (as_of_us < settled_us)
    throw Error(Code::conflict,
                "as_of: lies before what was last written; the online store tells the present, training sets the past");
}

void show_newest(const View& view, std::int64_t at_us, BytesView row, std::int64_t as_of_us, Record::Answer& out) {
  out.found.event_us = at_us;
  out.found.row = view.ttl_us && at_us < as_of_us - *view.ttl_us ? Status::expired : Status::present;
  if (out.found.row == Status::present && !view.rows.empty()) out.columns = view.layout.view(row);
  out.found.columns = out.columns ? &*out.columns : nullptr;
}

}  // namespace

void Record::read(std::int64_t as_of_us, Answer& out) const {
  need_present(as_of_us, settled_us_);
  out.found = {};
  out.columns.reset();
  out.windows.resize(view_->windows.features().size());
  const auto is_due = [&](const Part& part) {
    return std::any_of(part.waiting_.begin(), part.waiting_.end(),
                       [&](const Happened& h) { return h.event.known_us() <= as_of_us; });
  };
  const auto answer = [&](const Part& part, BytesView row) {
    part.tiles_.read(as_of_us, out.windows);
    out.found.windows = out.windows;
    if (part.newest_) show_newest(*view_, part.newest_->at_us, row, as_of_us, out);
  };
  const auto row_of = [](const Part& part) { return part.newest_ ? BytesView(part.newest_->row) : BytesView(); };
  // Nearly always there is one part, and nothing that waits has become known.
  if (pushed_.empty() && !is_due(base_)) return answer(base_, row_of(base_));
  if (pushed_.size() == 1 && base_.empty() && !is_due(pushed_[0].part))
    return answer(pushed_[0].part, row_of(pushed_[0].part));
  Part all(*view_);
  all.merge(base_);
  for (const auto& pushed : pushed_) all.merge(pushed.part);
  all.settle(as_of_us);
  if (all.newest_) out.row = std::move(all.newest_->row);
  answer(all, out.row);
}

bool Record::read_in_place(const View& view, BytesView payload, std::int64_t as_of_us, Answer& out) {
  ByteReader in(payload, kBlobMax);
  if (in.u8() != kFormat) return false;
  in.raw(3 * 8);  // pass, covered, sequence
  const auto settled_us = get_time(in);
  std::optional<std::int64_t> at_us;
  BytesView row;
  if (in.u8() != 0) {
    at_us = get_time(in);
    in.raw(2 * 8);  // available, row number
    row = in.blob();
  }
  out.windows.resize(view.windows.features().size());
  if (!out.windows.empty() && !Tiles::read_encoded(view.windows, in, as_of_us, out.windows)) return false;
  if (in.u32() != 0 || in.u32() != 0) return false;  // something waits, or was pushed
  in.expect_end();
  need_present(as_of_us, settled_us);
  out.found = {};
  out.columns.reset();
  out.found.windows = out.windows;
  if (at_us) show_newest(view, *at_us, row, as_of_us, out);
  return true;
}

}  // namespace falaj::lookup
