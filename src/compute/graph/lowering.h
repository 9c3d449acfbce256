// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: the one definition of every transform, as operations on matrices of as many rows as the batch has.
// A Machine carries them out: Evaluator (evaluate.h) on numbers, Emitter (emit.h) by writing ONNX nodes. Machines know
// nothing of transforms; this knows nothing of where it runs.
//
// An operation takes matrices and rows: a row is one constant per column of the matrix. All real arithmetic is float64
// until the last cast. Comparisons with not-a-number are false on both machines; minima, maxima and clips are therefore
// written as comparisons, since libraries differ in what their own do with it.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "compute/graph/fitted.h"

namespace falaj::graph {

using Reals = std::vector<double>;
using Wholes = std::vector<std::int64_t>;

inline constexpr double kSecondUs = 1e6, kHourUs = 3600 * kSecondUs, kDayUs = 24 * kHourUs;

// floor(((x + offset) mod period) / unit); 1970-01-01 was a Thursday.
struct PartRule {
  double offset, period, unit;
};
inline PartRule rule_of(Part part) {
  if (part == Part::weekday) return {3 * kDayUs, 7 * kDayUs, kDayUs};
  return {0, kDayUs, kHourUs};
}
inline double period_us(Cycle::Period period) {
  if (period == Cycle::Period::day) return kDayUs;
  return period == Cycle::Period::week ? 7 * kDayUs : 365.2425 * kDayUs;
}

template <class Machine>
class Lowering {
 public:
  using Value = typename Machine::Value;

  Lowering(const Fitted& fitted, const Layout& layout, Machine& machine) : f_(fitted), l_(layout), m_(machine) {}

  // The matrix of values, and which of them are missing. Called first.
  void values() {
    if (l_.wide.empty()) return;
    std::vector<Value> columns;
    for (const std::size_t column : l_.wide) {
      const bool as_it_is = f_.columns[column].element() == Element::float64;
      columns.push_back(as_it_is ? m_.input(column) : m_.cast(m_.input(column), Element::float64));
    }
    wide_ = m_.concat(columns);
    values_ = l_.parts.empty() ? wide_ : m_.concat({wide_, parts()});
    // Not-a-number, infinite, or too large for a float: all of them differ from themselves by something.
    const Value narrow = m_.cast(values_, Element::float32);
    missing_ = m_.is_nan(m_.subtract(narrow, narrow));
  }
  const Value& all_values() const { return values_; }
  const Value& all_missing() const { return missing_; }

  // What numbers become, as float64. Requires: values() was called, and there are numbers.
  Value numbers() {
    Reals fill, low, high, mean, scale;
    std::vector<std::uint8_t> log;
    for (const auto& use : l_.numbers) {
      const auto& fit = f_.template fit<FittedNumber>(use.feature);
      fill.push_back(fit.fill), low.push_back(fit.low), high.push_back(fit.high);
      mean.push_back(fit.mean), scale.push_back(fit.scale);
      log.push_back(std::get<Number>(f_.features[use.feature].how).log);
    }
    const auto at = positions(l_.numbers);
    Value x = m_.choose(of_values(missing_, at), fill, of_values(values_, at));
    if (any(low, [](double v) { return v > -kInfinity; })) x = m_.choose(m_.less(x, low), low, x);
    if (any(high, [](double v) { return v < kInfinity; })) x = m_.choose(m_.greater(x, high), high, x);
    if (any(log, [](auto v) { return v != 0; })) {
      const Value bent = m_.multiply(m_.sign(x), m_.log(m_.add(m_.abs(x), Reals(log.size(), 1.0))));
      x = m_.select(log, bent, x);
    }
    if (any(mean, [](double v) { return v != 0; })) x = m_.subtract(x, mean);
    if (any(scale, [](double v) { return v != 1; })) x = m_.multiply(x, scale);
    return x;
  }

  struct Result {
    Value floats, ids;  // meaningless when there are none
  };
  Result run() {
    values();
    std::vector<Value> floats;
    if (!l_.numbers.empty()) {
      floats.push_back(m_.cast(numbers(), Element::float32));
      Wholes indicated;
      for (const auto& use : l_.numbers)
        if (std::get<Number>(f_.features[use.feature].how).indicator) indicated.push_back(as_whole(use.value));
      if (!indicated.empty()) floats.push_back(m_.cast(of_values(missing_, indicated), Element::float32));
    }
    if (!l_.cycles.empty()) floats.push_back(cycles());
    Result out{};
    if (!l_.feature_of_id.empty()) encoded(all_ids(), floats, out);
    if (!floats.empty()) out.floats = m_.concat(floats);
    return out;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  static std::int64_t as_whole(std::size_t v) { return static_cast<std::int64_t>(v); }
  static Wholes positions(const std::vector<Layout::Use>& uses) {
    Wholes out;
    for (const auto& use : uses) out.push_back(as_whole(use.value));
    return out;
  }
  // Some columns of a matrix of `width`; the matrix itself when it is all of them.
  Value picked(const Value& from, const Wholes& at, std::size_t width) {
    bool whole = at.size() == width;
    for (std::size_t k = 0; whole && k < width; ++k) whole = at[k] == as_whole(k);
    return whole ? from : m_.pick(from, at);
  }
  Value of_values(const Value& from, const Wholes& at) { return picked(from, at, l_.wide.size() + l_.parts.size()); }
  Value of_ids(const Value& from, const Wholes& at) { return picked(from, at, l_.feature_of_id.size()); }

  template <class Row, class Test>
  static bool any(const Row& row, Test test) {
    return std::any_of(row.begin(), row.end(), test);
  }

  // x mod period, of the sign of the period.
  Value place_in(const Value& x, const Reals& period) {
    return m_.subtract(x, m_.multiply(m_.floor(m_.divide(x, period)), period));
  }

  Value parts() {
    Wholes at;
    Reals offset, period, unit;
    for (const auto& use : l_.parts) {
      const PartRule rule = rule_of(use.part);
      at.push_back(as_whole(use.wide));
      offset.push_back(rule.offset), period.push_back(rule.period), unit.push_back(rule.unit);
    }
    return m_.floor(m_.divide(place_in(m_.add(m_.pick(wide_, at), offset), period), unit));
  }

  // Sine of every phase, then the cosine of every phase as the sine a quarter later, side by side per feature.
  Value cycles() {
    Wholes at;
    Reals period, turns, shift;
    for (const auto& use : l_.cycles) {
      for (const double quarter : {0.0, 0.25}) {
        at.push_back(as_whole(use.value));
        period.push_back(period_us(std::get<Cycle>(f_.features[use.feature].how).period));
        turns.push_back(2 * std::numbers::pi);
        shift.push_back(2 * std::numbers::pi * quarter);
      }
    }
    const Value phase = m_.divide(place_in(of_values(values_, at), period), period);
    const Value wave = m_.sin(m_.add(m_.multiply(phase, turns), shift));
    return m_.cast(m_.choose(of_values(missing_, at), Reals(at.size(), 0.0), wave), Element::float32);
  }

  // Every category's id, in the order of Layout::feature_of_id.
  Value all_ids() {
    std::vector<Value> ids;
    if (!l_.by_bucket.empty()) ids.push_back(bucket_ids());
    if (!l_.by_whole.empty()) whole_ids(ids);
    for (const auto& use : l_.by_column) {
      Value input = m_.input(use.value);
      if (f_.columns[use.value].element() == Element::boolean) input = m_.cast(input, Element::int64);
      ids.push_back(m_.look_up(input, use.feature, f_.template fit<FittedCategory>(use.feature)));
    }
    const Value own = m_.concat(ids);
    return l_.crosses.empty() ? own : m_.concat({own, crosses(own)});
  }

  // How many boundaries are not above the value; one lies below every number, so that only a missing one gets 0.
  Value bucket_ids() {
    Wholes at;
    Reals bounds;
    std::vector<std::size_t> owner;
    for (std::size_t k = 0; k < l_.by_bucket.size(); ++k) {
      const auto& fit = f_.template fit<FittedCategory>(l_.by_bucket[k].feature);
      at.insert(at.end(), fit.boundaries.size() + 1, as_whole(k));
      owner.insert(owner.end(), fit.boundaries.size() + 1, k);
      bounds.push_back(-kInfinity);
      bounds.insert(bounds.end(), fit.boundaries.begin(), fit.boundaries.end());
    }
    const auto from = positions(l_.by_bucket);
    const Reals nothing(from.size(), std::numeric_limits<double>::quiet_NaN());
    const Value x = m_.choose(of_values(missing_, from), nothing, of_values(values_, from));
    return m_.count(m_.at_least(m_.pick(x, at), bounds), owner, l_.by_bucket.size());
  }

  void whole_ids(std::vector<Value>& ids) {
    const auto at = positions(l_.by_whole);
    const Reals least(at.size(), -kWholeMost), most(at.size(), kWholeMost);
    Value x = of_values(values_, at);
    x = m_.choose(m_.less(x, least), least, x);
    x = m_.choose(m_.greater(x, most), most, x);
    x = m_.choose(of_values(missing_, at), Reals(at.size(), static_cast<double>(kMissingWhole)), x);
    const Value whole = m_.cast(x, Element::int64);
    for (std::size_t k = 0; k < l_.by_whole.size(); ++k) {
      const std::size_t feature = l_.by_whole[k].feature;
      ids.push_back(m_.look_up(m_.pick(whole, {as_whole(k)}), feature, f_.template fit<FittedCategory>(feature)));
    }
  }

  Value crosses(const Value& own) {
    Wholes left, right, left_times, right_times, modulus, buckets;
    for (const std::size_t feature : l_.crosses) {
      const auto& cross = std::get<Cross>(f_.features[feature].how);
      const auto& fit = f_.template fit<FittedCross>(feature);
      left.push_back(as_whole(l_.id_of.at(cross.left))), right.push_back(as_whole(l_.id_of.at(cross.right)));
      left_times.push_back(fit.left_times), right_times.push_back(fit.right_times);
      modulus.push_back(fit.modulus), buckets.push_back(fit.buckets);
    }
    const Value pair =
        m_.add(m_.multiply(m_.pick(own, left), left_times), m_.multiply(m_.pick(own, right), right_times));
    return m_.add(m_.modulo(m_.modulo(pair, modulus), buckets), Wholes(left.size(), 1));
  }

  void encoded(const Value& all, std::vector<Value>& floats, Result& out) {
    Wholes codes, embedded, owner, slot;
    for (std::size_t id = 0; id < l_.feature_of_id.size(); ++id) {
      const std::size_t feature = l_.feature_of_id[id];
      const auto encode = encoding_of(f_, feature);
      if (encode.how == Encode::code) codes.push_back(as_whole(id));
      if (encode.how == Encode::embedding) embedded.push_back(as_whole(id));
      if (encode.how != Encode::one_hot) continue;
      for (std::size_t k = encode.other ? 0 : 1; k < encode.cardinality; ++k)
        owner.push_back(as_whole(id)), slot.push_back(as_whole(k));
    }
    if (!codes.empty()) floats.push_back(m_.cast(of_ids(all, codes), Element::float32));
    if (!owner.empty()) floats.push_back(m_.cast(m_.equal(of_ids(all, owner), slot), Element::float32));
    if (!embedded.empty()) out.ids = of_ids(all, embedded);
  }

  const Fitted& f_;
  const Layout& l_;
  Machine& m_;
  Value wide_, values_, missing_;
};

}  // namespace falaj::graph
