// SPDX-License-Identifier: Apache-2.0
#include "storage/online/row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "foundation/base/testing.h"

namespace falaj::online {
namespace {

const std::vector<Type> kAll = {Type::text,  Type::boolean, Type::int32, Type::float64,   Type::bytes,
                                Type::int64, Type::float32, Type::date,  Type::timestamp, Type::text};

Bytes full_row(const RowLayout& layout) {
  RowWriter w(layout);
  w.set_text(0, "first");
  w.set_bool(1, true);
  w.set_int(2, -7);
  w.set_real(3, 0.1);
  w.set_bytes(4, to_bytes(std::string("\0\1", 2)));
  w.set_int(5, std::numeric_limits<std::int64_t>::min());
  w.set_real(6, 0.5);
  w.set_int(7, 19'000);
  w.set_int(8, 1'700'000'000'000'000);
  w.set_text(9, "last");
  return w.finish();
}

TEST(Row, GivesBackEveryType) {
  const RowLayout layout(3, kAll);
  const Bytes bytes = full_row(layout);
  const auto row = layout.view(bytes);
  ASSERT_TRUE(row);
  for (std::size_t i = 0; i < kAll.size(); ++i) EXPECT_FALSE(row->is_null(i)) << i;
  EXPECT_EQ(row->text(0), "first");
  EXPECT_TRUE(row->boolean(1));
  EXPECT_EQ(row->integer(2), -7);
  EXPECT_EQ(row->real(3), 0.1);
  EXPECT_EQ(row->text(4), std::string_view("\0\1", 2));
  EXPECT_EQ(row->integer(5), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(row->real(6), 0.5);
  EXPECT_EQ(row->integer(7), 19'000);
  EXPECT_EQ(row->integer(8), 1'700'000'000'000'000);
  EXPECT_EQ(row->text(9), "last");
}

// A file made by version 1 of the format must be read for ever; docs/formats/online_row.md describes it.
TEST(Row, StillReadsTheFirstFormat) {
  std::ifstream file(FALAJ_TESTDATA "/row_v1.hex");
  std::string hex;
  file >> hex;
  EXPECT_EQ(hex, to_hex(full_row(RowLayout(3, kAll))));
}

TEST(Row, WhatIsNotSetIsNullAndReadsAsNothing) {
  const RowLayout layout(1, kAll);
  RowWriter w(layout);
  const Bytes empty = w.finish();
  w.set_text(9, "only");
  const Bytes one = w.finish();
  EXPECT_EQ(w.finish(), empty);  // a row begins anew after each
  const auto nothing = *layout.view(empty), something = *layout.view(one);
  for (std::size_t i = 0; i < kAll.size(); ++i) {
    EXPECT_TRUE(nothing.is_null(i)) << i;
    EXPECT_EQ(something.is_null(i), i != 9) << i;
  }
  EXPECT_EQ(something.text(0), "");
  EXPECT_EQ(something.text(4), "");
  EXPECT_EQ(something.text(9), "only");
  EXPECT_EQ(something.integer(5), 0);
}

TEST(Row, IsNeverReadByAnotherVersionOrOtherTypes) {
  const Bytes bytes = full_row(RowLayout(3, kAll));
  EXPECT_FALSE(RowLayout(4, kAll).view(bytes));
  auto types = kAll;
  std::swap(types[2], types[6]);  // of the same width: nothing but the fingerprint tells
  EXPECT_FALSE(RowLayout(3, types).view(bytes));
  types = kAll;
  types.pop_back();
  EXPECT_FALSE(RowLayout(3, types).view(bytes));
}

TEST(Row, RefusesWhatDoesNotFit) {
  const RowLayout layout(1, {Type::int32, Type::date});
  RowWriter w(layout);
  EXPECT_ERROR(w.set_int(0, std::int64_t{1} << 31), Code::invalid);
  w.set_int(0, (std::int64_t{1} << 31) - 1);
  EXPECT_EQ(layout.view(w.finish())->integer(0), (std::int64_t{1} << 31) - 1);
  EXPECT_NO_THROW(RowLayout(1, std::vector<Type>(RowLayout::kColumnsMax, Type::boolean)));
  EXPECT_ERROR(RowLayout(1, std::vector<Type>(RowLayout::kColumnsMax + 1, Type::boolean)), Code::invalid);
}

TEST(Row, DamageIsFoundAndNothingOutsideIsRead) {
  const RowLayout layout(3, kAll);
  const Bytes bytes = full_row(layout);
  std::mt19937_64 random(4);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    try {
      if (const auto row = layout.view(cut)) EXPECT_ERROR(row->text(9), Code::corrupt);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt);
    }
  }
  for (int round = 0; round < 5'000; ++round) {
    Bytes changed = bytes;
    changed[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
    try {
      const auto row = layout.view(changed);
      if (!row) continue;
      for (const std::size_t text : {0, 4, 9}) {
        const auto got = row->bytes(text);
        EXPECT_TRUE(got.data() >= changed.data() && got.data() + got.size() <= changed.data() + changed.size());
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt);
    }
  }
}

TEST(Expiry, IsByTheTimeOfTheEvent) {
  EXPECT_FALSE(is_expired(100, 110, 10));
  EXPECT_TRUE(is_expired(100, 111, 10));
  EXPECT_FALSE(is_expired(100, 1'000'000, 0));  // no time to live: never
  EXPECT_FALSE(is_expired(200, 100, 10));       // an event of the future
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(is_expired(kMin, kMax, kMax));
  EXPECT_FALSE(is_expired(kMax, kMin, 1));
}

}  // namespace
}  // namespace falaj::online
