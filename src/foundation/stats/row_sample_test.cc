// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/row_sample.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::stats {
namespace {

const std::vector<RowSample::Column> kColumns = {{"x", false}, {"who", true}};

void add(RowSample& to, std::uint64_t seed, std::uint64_t from, std::uint64_t until) {
  for (auto i = from; i < until; ++i) {
    const double row[] = {static_cast<double>(i), text_code(i % 2 ? "ada" : "bob")};
    to.add(RowSample::key(seed, i), row);
  }
}

Bytes bytes_of(const RowSample& sample) {
  ByteWriter out;
  sample.encode(out);
  return out.take();
}

std::vector<double> first_column(const RowSample& sample) {
  std::vector<double> out;
  for (std::size_t i = 0; i < sample.count(); ++i) out.push_back(sample.rows().values[2 * i]);
  return out;
}

TEST(RowSample, HoldsAllWhileTheyAreFew) {
  RowSample sample(kColumns, 100);
  add(sample, 1, 0, 100);
  EXPECT_EQ(sample.count(), 100u);
  EXPECT_EQ(sample.seen(), 100u);
  EXPECT_EQ(sample.rows().values[2], 1);
  EXPECT_EQ(sample.rows().values[3], text_code("ada"));
}

TEST(RowSample, HoldsAboutSoManyOfMoreInTheirOrder) {
  RowSample sample(kColumns, 100);
  add(sample, 1, 0, 10'000);
  EXPECT_GE(sample.count(), 100u);
  EXPECT_LE(sample.count(), 125u);
  EXPECT_EQ(sample.seen(), 10'000u);
  const auto values = first_column(sample);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

// Whoever cut the stream up, and put the pieces together, has the same rows.
TEST(RowSample, MergedIsAsInOnePass) {
  RowSample whole(kColumns, 50), merged;
  add(whole, 7, 0, 3000);
  for (const auto& [from, until] : {std::pair{0, 10}, {10, 2000}, {2000, 3000}}) {
    RowSample piece(kColumns, 50);
    add(piece, 7, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(until));
    merged.merge(piece);
  }
  EXPECT_EQ(bytes_of(merged), bytes_of(whole));
  EXPECT_EQ(merged.count(), 50u);
}

// Each row has the same chance, also where a busy piece is put together with a quiet one.
TEST(RowSample, DoesNotPrefer) {
  double busy = 0, all = 0, sum = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    RowSample a(kColumns, 40), b(kColumns, 40);
    add(a, seed, 0, 50);
    add(b, seed + 1000, 50, 1000);
    a.merge(b);
    for (const double value : first_column(a)) {
      ++all;
      busy += value >= 50 ? 1 : 0;
      sum += value;
    }
  }
  ASSERT_GT(all, 200 * 30);
  EXPECT_NEAR(busy / all, 0.95, 5 * std::sqrt(0.95 * 0.05 / all));
  EXPECT_NEAR(sum / all, 499.5, 5 * 289 / std::sqrt(all));
}

TEST(RowSample, LongerBlocksMayHoldMore) {
  RowSample a(kColumns, 40), b(kColumns, 40);
  add(a, 1, 0, 400);
  add(b, 2, 0, 400);
  a.set_limit(200);
  a.merge(b);
  EXPECT_GT(a.count(), 60u) << "what both have below the lower of their bounds";
  EXPECT_LE(a.count(), 100u);
}

TEST(RowSample, OtherColumnsBeginAnew) {
  RowSample a(kColumns, 10), b({{"y", false}}, 10);
  add(a, 1, 0, 5);
  const double row[] = {3};
  b.add(1, row);
  a.merge(b);
  EXPECT_EQ(a.columns(), b.columns());
  EXPECT_EQ(a.count(), 1u);
  EXPECT_EQ(a.seen(), 1u);
}

TEST(RowSample, IsReadAsItWasWritten) {
  RowSample sample(kColumns, 20);
  add(sample, 3, 0, 500);
  const double missing[] = {NAN, 1e300};
  sample.add(0, missing);
  const auto bytes = bytes_of(sample);
  ByteReader in(bytes);
  auto read = RowSample::decode(in);
  in.expect_end();
  EXPECT_EQ(bytes_of(read), bytes);
  EXPECT_TRUE(std::isnan(read.rows().values.back())) << "more than a float holds is missing";
  for (std::size_t cut = 0; cut < bytes.size(); cut += 7) {
    ByteReader part(BytesView(bytes).first(cut));
    EXPECT_ERROR(RowSample::decode(part), Code::corrupt);
  }
}

TEST(RowSample, TextsHaveCodesOfTheirOwn) {
  std::set<double> codes;
  for (int i = 0; i < 500; ++i) codes.insert(text_code(std::to_string(i)));
  EXPECT_EQ(codes.size(), 500u);
  EXPECT_EQ(text_code("ada"), text_code("ada"));
  EXPECT_EQ(static_cast<double>(static_cast<float>(text_code("zed"))), text_code("zed"));
}

}  // namespace
}  // namespace falaj::stats
