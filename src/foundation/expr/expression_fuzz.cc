// SPDX-License-Identifier: Apache-2.0
// Any text is refused as invalid with a message that can be shown, or compiles to an expression that gives, for any
// values, null or its type; and the same again when it is compiled again.
#include "foundation/expr/expression.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "foundation/base/text.h"

using namespace falaj;
using namespace falaj::expr;

namespace {

const Input kInputs[] = {{"b", Type::boolean}, {"i", Type::int64},      {"j", Type::int64},
                         {"x", Type::float64}, {"y", Type::float64},    {"s", Type::text},
                         {"t", Type::text},    {"at", Type::timestamp}, {"then", Type::timestamp}};
constexpr std::size_t kValueBytes = 9;

// The first bytes of the input are the values: one says whether it is null, eight are it.
Value value(const std::uint8_t* bytes, Type type) {
  std::int64_t whole = 0;
  double real = 0;
  std::memcpy(&whole, bytes + 1, sizeof whole);
  std::memcpy(&real, bytes + 1, sizeof real);
  if (bytes[0] % 4 == 0) return {};
  switch (type) {
    case Type::boolean:
      return Value::boolean(whole % 2 != 0);
    case Type::int64:
      return Value::int64(whole);
    case Type::float64:
      return Value::float64(real);
    case Type::text:
      return Value::text({reinterpret_cast<const char*>(bytes + 1), bytes[0] % std::size_t{9}});
    case Type::timestamp:
      return Value::timestamp(whole);
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kValueBytes * std::size(kInputs)) return 0;
  Value values[std::size(kInputs)];
  for (const auto& input : kInputs) {
    values[&input - kInputs] = value(data, input.type);
    data += kValueBytes;
    size -= kValueBytes;
  }
  try {
    const auto expression = Expression::compile({reinterpret_cast<const char*>(data), size}, kInputs);
    const Value out = expression.evaluate(values);
    if (!out.is_null() && !out.is(expression.type())) std::abort();
    const auto again = Expression::compile(expression.text(), kInputs);
    if (again.type() != expression.type() || again.evaluate(values) != out) std::abort();
    for (const auto used : expression.inputs_used())
      if (used >= std::size(kInputs)) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::invalid || !is_utf8(error.what())) std::abort();
  }
  return 0;
}
