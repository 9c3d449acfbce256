// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the online store keeps of one entity for one view. docs/formats/online_record.md has the bytes.
//
// It has a base, made of the rows of a dataset version, and parts made of events that were pushed since. A part carries
// the number of its epoch: when the pushed events of an epoch have become rows of a version, the base that is made of
// that version replaces the part. So an event is counted once, whatever is written in which order, and however often.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"
#include "lifecycle/lookup/view.h"
#include "lifecycle/lookup/window.h"

namespace falaj::lookup {

// An event, and the columns of the view's newest row should it be that (in the view's layout).
struct Happened {
  Event event;
  Bytes row;
};

// Events of one origin.
class Part {
 public:
  explicit Part(const View& view) : view_(&view), tiles_(view.windows) {}

  // Counted in when it is known by then, else kept until it is.
  void add(Happened happened, std::int64_t now_us);
  // Whether the row of such an event would be kept.
  bool needs_row(const Event& event, std::int64_t now_us) const;
  void settle(std::int64_t now_us);  // counts in what is known by now, forgets what no window covers any more
  void merge(const Part& later);
  bool empty() const { return !newest_ && tiles_.empty() && waiting_.empty(); }
  std::optional<std::int64_t> newest_us() const;

  void encode(ByteWriter& out) const;
  static Part decode(const View& view, ByteReader& in);  // throws corrupt

 private:
  friend class Record;
  struct Newest {
    std::int64_t at_us = 0, available_us = 0;
    std::uint64_t row_number = 0;
    Bytes row;
  };
  void count_in(Happened happened);
  void offer(Newest newest);

  const View* view_;
  std::optional<Newest> newest_;
  Tiles tiles_;
  std::vector<Happened> waiting_;  // in no order: few
};

class Record {
 public:
  explicit Record(const View& view) : view_(&view), base_(view) {}
  static Record decode(const View& view, BytesView payload);  // throws corrupt
  Bytes encode() const;

  // The base becomes this one, made in the given pass over version(s) that hold all epochs up to `covered`. A second
  // time for the same pass changes nothing. Passes count up.
  void set_base(std::uint64_t pass, std::uint64_t covered, Part base, std::int64_t now_us);
  void add_to_base(std::uint64_t pass, std::uint64_t covered, const Part& more, std::int64_t now_us);
  std::uint64_t pass() const { return pass_; }

  // Pushed events of an epoch; they have the number `sequence` of their push, which counts up. What was applied before
  // is not applied again.
  void push(std::uint64_t epoch, std::uint64_t sequence, std::vector<Happened> events, std::int64_t now_us);

  bool empty() const;
  std::int64_t settled_us() const { return settled_us_; }  // reads as of earlier are not possible any more
  std::optional<std::int64_t> newest_us() const;

  // As of a moment not before settled_us(); throws conflict. What it points to is in itself and in the record.
  struct Answer {
    Found found;
    std::optional<online::RowView> columns;
    std::vector<Cell> windows;
    Bytes row;  // when parts had to be merged
  };
  void read(std::int64_t as_of_us, Answer& out) const;
  // The same from an encoded record, without making one of it, where that can be: false when it cannot.
  static bool read_in_place(const View& view, BytesView payload, std::int64_t as_of_us, Answer& out);

 private:
  struct Pushed {
    std::uint64_t epoch = 0;
    Part part;
  };
  void drop_covered(std::uint64_t covered);
  void settle(std::int64_t now_us);

  const View* view_;
  std::uint64_t pass_ = 0;
  std::uint64_t covered_ = 0;   // epochs that the base holds
  std::uint64_t sequence_ = 0;  // of the last push that was applied
  std::int64_t settled_us_ = INT64_MIN;
  Part base_;
  std::vector<Pushed> pushed_;  // by epoch
};

}  // namespace falaj::lookup
