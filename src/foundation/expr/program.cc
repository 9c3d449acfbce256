// SPDX-License-Identifier: Apache-2.0
#include "foundation/expr/program.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "foundation/expr/dates.h"

namespace falaj::expr {

struct Raw {
  static std::int64_t i(const Value& v) { return v.integer_; }
  static double r(const Value& v) { return v.real_; }
  static std::string_view s(const Value& v) { return {v.data_, v.size_}; }
  static std::uint64_t type(const Value& v) { return v.type_; }
};

namespace {

constexpr auto i = Raw::i;
constexpr auto r = Raw::r;
constexpr auto s = Raw::s;

template <class F>
Value strict(const Value& a, F f) {
  return a.is_null() ? Value() : f();
}
template <class F>
Value strict(const Value& a, const Value& b, F f) {
  return a.is_null() || b.is_null() ? Value() : f();
}
template <class F>
Value real(const Value& a, F f) {
  return a.is_null() ? Value() : Value::float64(f(r(a)));
}
template <class F>
Value real(const Value& a, const Value& b, F f) {
  return a.is_null() || b.is_null() ? Value() : Value::float64(f(r(a), r(b)));
}
// f gives whether the result does not fit, as the compiler's builtins do.
template <class F>
Value whole(const Value& a, const Value& b, F f) {
  std::int64_t out = 0;
  return a.is_null() || b.is_null() || f(i(a), i(b), &out) ? Value() : Value::int64(out);
}
template <class Get, class F>
Value compare(const Value& a, const Value& b, Get get, F f) {
  return a.is_null() || b.is_null() ? Value() : Value::boolean(f(get(a), get(b)));
}
template <class F>
Value date(const Value& a, F f) {
  return a.is_null() ? Value() : Value::int64(f(Date(i(a))));
}

Value both(const Value& a, const Value& b) {
  if ((!a.is_null() && i(a) == 0) || (!b.is_null() && i(b) == 0)) return Value::boolean(false);
  return a.is_null() || b.is_null() ? Value() : Value::boolean(true);
}
Value either(const Value& a, const Value& b) {
  if ((!a.is_null() && i(a) != 0) || (!b.is_null() && i(b) != 0)) return Value::boolean(true);
  return a.is_null() || b.is_null() ? Value() : Value::boolean(false);
}

// Picks b where `better(b, a)`, or where there is no a.
template <class Get, class Better>
Value pick(const Value& a, const Value& b, Get get, Better better) {
  return a.is_null() || (!b.is_null() && better(get(b), get(a))) ? b : a;
}

template <class Get>
Value bucket(const Value& x, const Value* count, Get get) {
  if (x.is_null()) return {};
  const Value *first = count + 1, *last = first + i(*count);
  const auto above =
      std::upper_bound(first, last, x, [&](const Value& v, const Value& bound) { return get(v) < get(bound); });
  return Value::int64(above - first);
}

std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

constexpr std::less<> kLess;
constexpr std::less_equal<> kLessEqual;
constexpr std::greater<> kGreater;
constexpr std::greater_equal<> kGreaterEqual;
constexpr std::equal_to<> kEqual;
constexpr std::not_equal_to<> kNotEqual;

// One instruction that is no jump. `old` is what the register holds that the result goes to.
[[gnu::always_inline]] inline Value step(Opcode code, const Value& a, const Value& b, const Value& old) {
  using Whole = std::int64_t;
  switch (code) {
    case Opcode::move:
      return a;
    case Opcode::to_real:
      return strict(a, [&] { return Value::float64(static_cast<double>(i(a))); });
    case Opcode::add_i:
      return whole(a, b, [](Whole x, Whole y, Whole* out) { return __builtin_add_overflow(x, y, out); });
    case Opcode::sub_i:
      return whole(a, b, [](Whole x, Whole y, Whole* out) { return __builtin_sub_overflow(x, y, out); });
    case Opcode::mul_i:
      return whole(a, b, [](Whole x, Whole y, Whole* out) { return __builtin_mul_overflow(x, y, out); });
    case Opcode::mod_i:
      return whole(a, b, [](Whole x, Whole y, Whole* out) {
        *out = y == 0 || y == -1 ? 0 : x % y;  // the machine traps on the least number % -1
        return y == 0;
      });
    case Opcode::neg_i:
      return whole(a, a, [](Whole x, Whole, Whole* out) { return __builtin_sub_overflow(Whole{0}, x, out); });
    case Opcode::abs_i:
      return whole(a, a, [](Whole x, Whole, Whole* out) {
        *out = x;
        return x < 0 && __builtin_sub_overflow(Whole{0}, x, out);
      });
    case Opcode::seconds: {
      const Value us = whole(a, b, [](Whole x, Whole y, Whole* out) { return __builtin_sub_overflow(x, y, out); });
      return strict(us, [&] { return Value::float64(static_cast<double>(i(us)) / 1e6); });
    }
    case Opcode::add_r:
      return real(a, b, [](double x, double y) { return x + y; });
    case Opcode::sub_r:
      return real(a, b, [](double x, double y) { return x - y; });
    case Opcode::mul_r:
      return real(a, b, [](double x, double y) { return x * y; });
    case Opcode::div_r:
      return real(a, b, [](double x, double y) { return x / y; });
    case Opcode::mod_r:
      return real(a, b, [](double x, double y) { return std::fmod(x, y); });
    case Opcode::pow_r:
      return real(a, b, [](double x, double y) { return std::pow(x, y); });
    case Opcode::neg_r:
      return real(a, [](double x) { return -x; });
    case Opcode::abs_r:
      return real(a, [](double x) { return std::fabs(x); });
    case Opcode::floor_r:
      return real(a, [](double x) { return std::floor(x); });
    case Opcode::ceil_r:
      return real(a, [](double x) { return std::ceil(x); });
    case Opcode::round_r:
      return real(a, [](double x) { return std::round(x); });
    case Opcode::sqrt_r:
      return real(a, [](double x) { return std::sqrt(x); });
    case Opcode::ln_r:
      return real(a, [](double x) { return std::log(x); });
    case Opcode::log10_r:
      return real(a, [](double x) { return std::log10(x); });
    case Opcode::exp_r:
      return real(a, [](double x) { return std::exp(x); });
    case Opcode::eq_i:
      return compare(a, b, i, kEqual);
    case Opcode::eq_r:
      return compare(a, b, r, kEqual);
    case Opcode::eq_s:
      return compare(a, b, s, kEqual);
    case Opcode::ne_i:
      return compare(a, b, i, kNotEqual);
    case Opcode::ne_r:
      return compare(a, b, r, kNotEqual);
    case Opcode::ne_s:
      return compare(a, b, s, kNotEqual);
    case Opcode::lt_i:
      return compare(a, b, i, kLess);
    case Opcode::lt_r:
      return compare(a, b, r, kLess);
    case Opcode::le_i:
      return compare(a, b, i, kLessEqual);
    case Opcode::le_r:
      return compare(a, b, r, kLessEqual);
    case Opcode::gt_i:
      return compare(a, b, i, kGreater);
    case Opcode::gt_r:
      return compare(a, b, r, kGreater);
    case Opcode::ge_i:
      return compare(a, b, i, kGreaterEqual);
    case Opcode::ge_r:
      return compare(a, b, r, kGreaterEqual);
    case Opcode::both:
      return both(a, b);
    case Opcode::either:
      return either(a, b);
    case Opcode::negated:
      return strict(a, [&] { return Value::boolean(i(a) == 0); });
    case Opcode::is_null:
      return Value::boolean(a.is_null());
    case Opcode::in_i:
      return either(old, compare(a, b, i, kEqual));
    case Opcode::in_r:
      return either(old, compare(a, b, r, kEqual));
    case Opcode::in_s:
      return either(old, compare(a, b, s, kEqual));
    case Opcode::least_i:
      return pick(a, b, i, kLess);
    case Opcode::least_r:
      return pick(a, b, r, kLess);
    case Opcode::greatest_i:
      return pick(a, b, i, kGreater);
    case Opcode::greatest_r:
      return pick(a, b, r, kGreater);
    case Opcode::min_i:
      return strict(a, b, [&] { return pick(a, b, i, kLess); });
    case Opcode::min_r:
      return strict(a, b, [&] { return pick(a, b, r, kLess); });
    case Opcode::max_i:
      return strict(a, b, [&] { return pick(a, b, i, kGreater); });
    case Opcode::max_r:
      return strict(a, b, [&] { return pick(a, b, r, kGreater); });
    case Opcode::coalesce:
      return a.is_null() ? b : a;
    case Opcode::bucket_i:
      return bucket(a, &b, i);
    case Opcode::bucket_r:
      return bucket(a, &b, r);
    case Opcode::year:
      return date(a, [](Date d) { return d.year(); });
    case Opcode::month:
      return date(a, [](Date d) { return d.month(); });
    case Opcode::day:
      return date(a, [](Date d) { return d.day(); });
    case Opcode::day_of_week:
      return date(a, [](Date d) { return d.day_of_week(); });
    case Opcode::day_of_year:
      return date(a, [](Date d) { return d.day_of_year(); });
    case Opcode::hour:
      return strict(a, [&] { return Value::int64(floor_mod(i(a), kMicrosPerDay) / kMicrosPerHour); });
    case Opcode::minute:
      return strict(a, [&] { return Value::int64(floor_mod(i(a), kMicrosPerHour) / kMicrosPerMinute); });
    case Opcode::epoch:
      return strict(a, [&] { return Value::float64(static_cast<double>(i(a)) / 1e6); });
    case Opcode::length:
      return strict(a, [&] { return Value::int64(characters(s(a))); });
    case Opcode::jump:
    case Opcode::jump_unless:
      break;
  }
  return {};
}

}  // namespace

Value compute(Opcode code, const Value& a, const Value& b) { return step(code, a, b, Value()); }

Value Program::run(std::span<const Value> values) const noexcept {
  CHECK(values.size() == inputs, "there are as many values as inputs");
  for (const auto& use : used)
    CHECK(values[use.input].is_null() || values[use.input].is(use.type), "a value has the type of its input");

  // Not initialised: an instruction writes a register before another reads it, and most programs need three.
  alignas(Value) std::byte bytes[kRegistersMax * sizeof(Value)];
  auto* const registers = reinterpret_cast<Value*>(bytes);
  const Value* const places[] = {registers, constants.data(), values.data()};
  const auto at = [&](Ref ref) -> const Value& { return places[ref.place()][ref.index()]; };

  // Jumps only lead forward, so this ends.
  const Instruction* const first = code.data();
  const Instruction* const last = first + code.size();
  for (const Instruction* now = first; now != last;) {
    const Value& a = at(now->a);
    if (now->code <= Opcode::jump_unless) {
      const bool jumps = now->code == Opcode::jump || a.is_null() || i(a) == 0;
      now = jumps ? first + now->out : now + 1;
    } else {
      Value& out = registers[now->out];
      out = step(now->code, a, at(now->b), out);
      ++now;
    }
  }
  return at(result);
}

}  // namespace falaj::expr
