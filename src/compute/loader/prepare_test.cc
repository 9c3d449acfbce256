// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/prepare.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "foundation/sys/testing.h"

namespace falaj::loader {
namespace {

class PrepareTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& sql) {
    table::Workspace room({}, *scratch_);
    const auto made = sys::open_files(directory_ / "rows");
    const auto file = made->create();
    room.put("out", table::sink_to([&](BytesView bytes) { file->write(bytes); }));
    room.run(fmt::format("COPY ({}) TO 'out' (FORMAT parquet, ROW_GROUP_SIZE 2048)", sql));
    file->commit(name, sys::NewFile::Durable::at_sync, sys::NewFile::Existing::replace);
  }

  sys::TempDir directory_;
  const std::unique_ptr<sys::Files> scratch_ = sys::open_files(directory_ / "scratch");
  recipe::Training training_;
};

// Groups of many rows that lie in several files: sorted by the group alone, their order would be chance.
TEST_F(PrepareTest, RowsOfARankingHaveOneOrder) {
  constexpr int kRows = 60'000, kGroups = 20;
  for (const auto* name : {"a", "b"})
    write(fmt::format("{}.parquet", name),
          fmt::format("SELECT '{0}' || lpad(CAST(i AS VARCHAR), 6, '0') AS place, i % {1} AS query, i * 7919 % 5 AS "
                      "late, random() AS x FROM range({2}) t(i)",
                      name, kGroups, kRows));
  training_.label = "late";
  training_.objective = "ranking";
  training_.group = "query";
  training_.exclude = {"place"};
  training_.split = {"group", "query", "", 0.2, 0.2};
  table::Workspace room({std::uint64_t{1} << 30, std::uint64_t{1} << 30, 4}, *scratch_);
  open_rows(room, directory_ / "rows");
  Rows rows(room, training_);
  const auto places = rows.values(Part::train, "place"), queries = rows.values(Part::train, "query");
  ASSERT_EQ(places.size(), rows.problem().rows[0]);
  for (std::size_t i = 1; i < places.size(); ++i) {
    const bool same_group = queries[i] == queries[i - 1];
    ASSERT_TRUE(!same_group || places[i - 1] < places[i]) << i;
  }
  EXPECT_EQ(std::set<std::string>(places.begin(), places.end()).size(), places.size());
  // What is packed lies as it is read.
  auto features = features_of(training_, rows.problem(), graph::For::trees);
  const auto transform = rows.fit(features, {});
  const auto parts = rows.pack(transform, *scratch_, {});
  RowBlock block;
  parts.train->read(0, parts.train->rows(), block);
  std::size_t at = 0, same = 0;
  rows.each_batch(Part::train, [&](const Rows::Raw& batch) {
    const auto x = std::get<std::span<const double>>(batch.columns.at(0));
    for (const double value : x) same += static_cast<float>(value) == block.numbers[at++];
    return true;
  });
  EXPECT_EQ(same, places.size());
}

// Whoever wants it to end can say so while rows are read.
TEST_F(PrepareTest, ReadingCanBeStopped) {
  write("a.parquet", "SELECT i AS x, i % 2 = 0 AS late FROM range(50000) t(i)");
  training_.label = "late";
  table::Workspace room({}, *scratch_);
  open_rows(room, directory_ / "rows");
  struct Enough {};
  int left = 1'000'000;
  Rows rows(room, training_, [&left] {
    if (left-- == 0) throw Enough{};
  });
  left = 2;
  EXPECT_THROW(rows.fit(features_of(training_, rows.problem(), graph::For::trees), {}), Enough);
  left = 1'000'000;
  const auto transform = rows.fit(features_of(training_, rows.problem(), graph::For::trees), {});
  left = 2;
  EXPECT_THROW(rows.pack(transform, *scratch_, {}), Enough);
}

}  // namespace
}  // namespace falaj::loader
