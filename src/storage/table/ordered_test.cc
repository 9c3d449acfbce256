// SPDX-License-Identifier: Apache-2.0
#include "storage/table/ordered.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/sys/testing.h"
#include "storage/table/testing.h"

namespace falaj::table {
namespace {

using Text = std::vector<std::vector<std::string>>;

class Ordered : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMemory = std::uint64_t{32} << 20;
  sys::TempDir dir_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(dir_.path());
  Workspace room_{{kMemory, std::uint64_t{8} << 30, 2}, *files_};

  // Rows in an order of chance, with texts of so many bytes.
  void fill(std::int64_t rows, std::int64_t bytes) {
    room_.run(
        fmt::format("CREATE OR REPLACE TABLE t AS SELECT (i * 7919) % {0} AS place, i % 10 AS late,"
                    " repeat(lpad(((i * 7919) % {0})::VARCHAR, 8, '0'), {1}) AS \"a note\", i % 3 = 0 AS third"
                    " FROM range({0}) r(i)",
                    rows, bytes / 8));
  }
};

TEST_F(Ordered, MoreThanFitsInMemory) {
  constexpr std::int64_t kRows = 50'003, kBytes = 1600;
  static_assert(kRows * kBytes > 2 * static_cast<std::int64_t>(kMemory));
  fill(kRows, kBytes);
  EXPECT_GT(pieces_to_sort(room_, "t"), 1);
  EXPECT_EQ(pieces_to_sort(room_, "t", 100), 1);
  put_in_order(room_, "t", "place", "out");
  EXPECT_EQ(rows(room_,
                 "SELECT count(*), bool_and(place = rowid), bool_and(starts_with(\"a note\", lpad(rowid::VARCHAR,"
                 " 8, '0'))), sum(length(\"a note\")) FROM out"),
            (Text{{std::to_string(kRows), "1", "1", std::to_string(kRows * kBytes)}}));
}

TEST_F(Ordered, EqualOnesInTheOrderInWhichTheyWere) {
  for (const std::int64_t bytes : {8, 2000}) {
    fill(10'011, bytes);
    EXPECT_EQ(pieces_to_sort(room_, "t") == 1, bytes == 8);
    put_in_order(room_, "t", "late, rowid", "out");
    EXPECT_EQ(rows(room_,
                   "SELECT count(*), count(*) FILTER (w) FROM (SELECT o.place = s.place AND o.late = s.late AS w"
                   " FROM (SELECT place, late FROM t ORDER BY late, rowid) s POSITIONAL JOIN out o)"),
              (Text{{"10011", "10011"}}))
        << bytes;
  }
}

TEST_F(Ordered, NothingAndWhatHasNoTexts) {
  room_.run("CREATE TABLE empty(k BIGINT, note VARCHAR)");
  put_in_order(room_, "empty", "k", "out");
  EXPECT_EQ(rows(room_, "SELECT count(*) FROM out"), (Text{{"0"}}));
  room_.run("CREATE TABLE numbers AS SELECT -i AS k FROM range(1000) r(i)");
  EXPECT_EQ(pieces_to_sort(room_, "numbers"), 1);
  put_in_order(room_, "numbers", "k", "out");
  EXPECT_EQ(rows(room_, "SELECT count(*), bool_and(k = rowid - 999) FROM out"), (Text{{"1000", "1"}}));
}

}  // namespace
}  // namespace falaj::table
