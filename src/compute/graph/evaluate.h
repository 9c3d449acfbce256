// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: the machine of lowering.h that works on numbers, a few hundred rows at a time, column by column.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "compute/graph/fitted.h"
#include "compute/graph/lowering.h"

namespace falaj::graph {

// What look_up needs of each feature, made once.
struct Table {
  boost::unordered_flat_map<std::string_view, std::int64_t> texts;  // views of the Fitted it was made from
  boost::unordered_flat_map<std::int64_t, std::int64_t> whole;
};
std::vector<Table> tables_of(const Fitted& fitted);

// Space for one column of a block, used again as soon as nobody needs it: what is worked on stays in the cache.
class Slabs {
 public:
  static constexpr std::size_t kRowsMax = 256;

  struct Slab {
    std::byte* bytes = nullptr;
    std::uint32_t uses = 0;
    Slabs* home = nullptr;
  };
  class Ref {
   public:
    Ref() = default;
    explicit Ref(Slab* slab) : slab_(slab) { ++slab_->uses; }
    Ref(const Ref& other) : slab_(other.slab_) {
      if (slab_) ++slab_->uses;
    }
    Ref(Ref&& other) noexcept : slab_(std::exchange(other.slab_, nullptr)) {}
    Ref& operator=(Ref other) noexcept {
      std::swap(slab_, other.slab_);
      return *this;
    }
    ~Ref() {
      if (slab_ && --slab_->uses == 0) slab_->home->free_.push_back(slab_);
    }

   private:
    Slab* slab_ = nullptr;
  };

  explicit Slabs(std::size_t rows) : each_((std::min(rows, kRowsMax) * sizeof(double) + 63) / 64 * 64) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  Slab* take() {
    if (free_.empty()) make_more();
    Slab* slab = free_.back();
    free_.pop_back();
    return slab;
  }

 private:
  static constexpr std::size_t kAtOnce = 64;
  void make_more();

  std::size_t each_;  // bytes
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::deque<Slab> all_;
  std::vector<Slab*> free_;
};

class Evaluator {
 public:
  struct ColumnOf {
    const void* data = nullptr;
    Slabs::Ref slab;  // nobody's when the data is the batch's own
  };
  struct Value {
    Element element = Element::float64;
    std::vector<ColumnOf> columns;

    template <class T>
    const T* at(std::size_t column) const {
      return static_cast<const T*>(columns[column].data);
    }
  };

  // Works on `rows` rows from `first`. Requires: at most Slabs::kRowsMax.
  Evaluator(const Batch& batch, const std::vector<Column>& columns, const std::vector<Table>& tables, Slabs& slabs,
            std::size_t first, std::size_t rows)
      : batch_(batch), columns_(columns), tables_(tables), slabs_(slabs), first_(first), rows_(rows) {}

  Value input(std::size_t column);
  Value cast(const Value& x, Element to);
  Value concat(const std::vector<Value>& matrices);
  Value pick(const Value& x, const Wholes& columns);

  Value add(const Value& x, const Reals& row);
  Value add(const Value& x, const Wholes& row);
  Value add(const Value& x, const Value& y);
  Value subtract(const Value& x, const Reals& row);
  Value subtract(const Value& x, const Value& y);
  Value multiply(const Value& x, const Reals& row);
  Value multiply(const Value& x, const Wholes& row);
  Value multiply(const Value& x, const Value& y);
  Value divide(const Value& x, const Reals& row);
  Value modulo(const Value& x, const Wholes& row);
  Value floor(const Value& x);
  Value log(const Value& x);
  Value abs(const Value& x);
  Value sign(const Value& x);
  Value sin(const Value& x);
  Value is_nan(const Value& x);
  Value less(const Value& x, const Reals& row);
  Value greater(const Value& x, const Reals& row);
  Value at_least(const Value& x, const Reals& row);
  Value equal(const Value& x, const Wholes& row);
  Value choose(const Value& when, const Reals& row, const Value& x);
  Value select(const std::vector<std::uint8_t>& when, const Value& x, const Value& y);
  Value count(const Value& x, const std::vector<std::size_t>& owner, std::size_t owners);
  Value look_up(const Value& x, std::size_t feature, const FittedCategory& category);

 private:
  template <class To>
  To* grow(Value& out);
  template <class From, class To, class F>
  Value each(const Value& x, F f);
  template <class From, class To, class Row, class F>
  Value each_with(const Value& x, const Row& row, F f);
  template <class T, class F>
  Value each_pair(const Value& x, const Value& y, F f);
  template <class To>
  Value cast_to(const Value& x);

  const Batch& batch_;
  const std::vector<Column>& columns_;
  const std::vector<Table>& tables_;
  Slabs& slabs_;
  std::size_t first_, rows_;
};

// Throws invalid unless the batch is of these columns.
void check_batch(const Batch& batch, const std::vector<Column>& columns);

}  // namespace falaj::graph
