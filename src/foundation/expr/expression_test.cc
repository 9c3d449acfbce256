// SPDX-License-Identifier: Apache-2.0
#include "foundation/expr/expression.h"

#include <gtest/gtest.h>
namespace falaj::expr { namespace {
TEST(Expression, First) {
  const Input in[] = {{"x", Type::float64}};
  const Value v[] = {Value::float64(3)};
  EXPECT_EQ(Expression::compile("case when x > 1 then x * 2 else coalesce(x, 0) end", in).evaluate(v), Value::float64(6));
}
}}
