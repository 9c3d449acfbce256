// SPDX-License-Identifier: Apache-2.0
// A feature computed for every row of a table in memory, by a compiled expression and by the same thing written as a
// C++ lambda over the same values, in the same run. The lambda is what the compiler makes of it: the limit.
#include "foundation/expr/expression.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "foundation/base/json.h"

namespace falaj::expr {
namespace {

constexpr std::size_t kRows = 100'000, kColumns = 4;

// The best of nine rounds, each of the two in turn: the machine is shared.
template <class Ours, class Theirs>
void compare(const char* claim, double goal, Ours ours, Theirs theirs) {
  const auto rate = [](auto& run) {
    const auto began = std::chrono::steady_clock::now();
    run();
    return kRows / std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  double best_ours = 0, best_theirs = 0;
  for (int round = 0; round < 9; ++round) {
    best_ours = std::max(best_ours, rate(ours));
    best_theirs = std::max(best_theirs, rate(theirs));
  }
  const json::object line{{"claim", claim},
                          {"ours", std::int64_t(best_ours)},
                          {"unit", "rows/s"},
                          {"against", "C++ lambda"},
                          {"limit", std::int64_t(best_theirs)},
                          {"ratio", best_ours / best_theirs},
                          {"goal", goal}};
  std::puts(json::serialize(line).c_str());
}

// Every tenth value is null.
std::vector<Value> table() {
  std::mt19937_64 random(1);
  std::vector<Value> out;
  for (std::size_t n = 0; n < kRows; ++n) {
    const auto any = [&] { return random() % 10 == 0 ? Value() : Value::float64(double(random() % 20'000) / 10); };
    out.insert(out.end(), {any(), any(), any()});
    out.push_back(random() % 10 == 0 ? Value() : Value::timestamp(static_cast<std::int64_t>(random() % (1ULL << 50))));
  }
  return out;
}

template <class Lambda>
void measure(const char* claim, double goal, const char* text, Lambda lambda) {
  static const Input kInputs[] = {
      {"distance", Type::float64}, {"mean_3h", Type::float64}, {"mean_24h", Type::float64}, {"at", Type::timestamp}};
  const auto expression = Expression::compile(text, kInputs);
  const auto rows = table();
  const auto sum = [&](auto& f) {
    double out = 0;
    for (std::size_t n = 0; n < rows.size(); n += kColumns) {
      const Value v = f(std::span(rows).subspan(n, kColumns));
      if (!v.is_null()) out += v.as_float64();
    }
    return out;
  };
  const auto ours = [&](std::span<const Value> row) { return expression.evaluate(row); };
  const double wanted = sum(lambda);
  compare(
      claim, goal, [&] { CHECK(sum(ours) == wanted, "both compute the same"); },
      [&] { CHECK(sum(lambda) == wanted, "both compute the same"); });
}

void run() {
  measure("a conditional feature, one row after the other", 0.2,
          "case when distance > 1000 then mean_3h * 2 else coalesce(mean_24h, 0) end", [](std::span<const Value> row) {
            if (!row[0].is_null() && row[0].as_float64() > 1000)
              return row[1].is_null() ? Value() : Value::float64(row[1].as_float64() * 2);
            return row[2].is_null() ? Value::float64(0) : row[2];
          });
  measure("seven operations on numbers", 0.1, "(distance - mean_3h) * (mean_24h + 1.5) / (1 + abs(mean_3h)) + 3",
          [](std::span<const Value> row) {
            if (row[0].is_null() || row[1].is_null() || row[2].is_null()) return Value();
            const double d = row[0].as_float64(), a = row[1].as_float64(), b = row[2].as_float64();
            return Value::float64((d - a) * (b + 1.5) / (1 + std::fabs(a)) + 3);
          });
}

}  // namespace
}  // namespace falaj::expr

int main() {
  try {
    falaj::expr::run();
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "expression_bench: %s\n", error.what());
    return 2;
  }
}
