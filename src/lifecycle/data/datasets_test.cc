// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/datasets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "lifecycle/data/dataset_kind.h"
#include "lifecycle/data/testing.h"
#include "storage/table/testing.h"

namespace falaj::data {
namespace {

using Rows = std::vector<std::string>;

constexpr auto kDelays = R"({columns: [{name: id, type: int64, nullable: false}, {name: at, type: timestamp},
  {name: delay, type: float64}, {name: origin, type: text}], key: [id], time: at})";

class DatasetsTest : public ::testing::TestWithParam<const char*> {
 protected:
  DataFixture f_{GetParam()};
  Datasets& data() { return *f_.datasets; }
  std::string parquet(const std::string& select) {
    table::Workspace room({}, *f_.scratch);
    const auto sink = std::make_shared<table::MemorySink>();
    room.put("out", sink);
    room.run("COPY (" + select + ") TO 'out' (FORMAT parquet)");
    const auto bytes = sink->take();
    return std::string(as_text(bytes));
  }
  std::string message(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      std::string out = e.what();
      for (const auto& fault : e.faults()) out += "; " + fault.where + ": " + fault.what;
      return out;
    }
    return "no error";
  }
};

TEST_P(DatasetsTest, TakesCsvJsonLinesAndParquet) {
  f_.declare("delays", kDelays);
  const auto one = f_.ingest("delays", "id,at,delay,origin\n1,2001-01-01 00:05:00,3.5,SEA\n2,2001-01-02 10:00:00,,\n");
  EXPECT_EQ(one.number, 1);
  EXPECT_EQ(one.rows, 2);
  EXPECT_EQ(f_.rows(one), (Rows{"1|978307500000000|3.5|SEA", "2|978429600000000|null|null"}));

  const auto two = f_.ingest("delays",
                             R"({"id": 3, "at": "2001-01-03T00:00:00Z", "delay": -1, "origin": "a\"b"})"
                             "\n"
                             R"({"id": 4})"
                             "\n",
                             Format::jsonl);
  EXPECT_EQ(two.number, 2);
  EXPECT_EQ(two.parent, 1);
  EXPECT_EQ(two.rows, 4);
  EXPECT_EQ(f_.rows(two, "SELECT id, origin FROM v"), (Rows{"1|SEA", "2|null", "3|a\"b", "4|null"}));

  const auto three =
      f_.ingest("delays", parquet("SELECT 9::TINYINT AS id, DATE '2001-02-03' AS at, 2 AS delay, 'LAX' AS origin"),
                Format::parquet, Mode::overwrite);
  EXPECT_EQ(three.number, 3);
  EXPECT_EQ(three.parent, std::nullopt);
  EXPECT_EQ(f_.rows(three), (Rows{"9|981158400000000|2|LAX"}));
  EXPECT_EQ(f_.rows(data().version(DataFixture::kFlights, "delays", 1)).size(), 2U);

  f_.restart();
  EXPECT_EQ(data().version(DataFixture::kFlights, "delays", std::nullopt).id, three.id);
  EXPECT_EQ(f_.rows(data().version(DataFixture::kFlights, "delays", 2)).size(), 4U);
  EXPECT_ERROR(data().version(DataFixture::kCargo, "delays", 1), Code::not_found);
}

TEST_P(DatasetsTest, FinishingTwiceMakesOneVersion) {
  f_.declare("delays", kDelays);
  const auto upload = f_.upload("delays", "id\n1\n");
  const auto first = data().finish(DataFixture::kFlights, "delays", upload, {}, DataFixture::act());
  const auto again = data().finish(DataFixture::kFlights, "delays", upload, {}, DataFixture::act());
  EXPECT_EQ(again.number, first.number);
  EXPECT_EQ(data().versions(DataFixture::kFlights, "delays", INT64_MAX, 10).size(), 1U);
  EXPECT_TRUE(f_.base.vault->list(DataFixture::kFlights, "@upload/", "", 10).empty());
  EXPECT_ERROR(data().put_part(DataFixture::kFlights, "delays", upload, 2, blob::source_of({}), DataFixture::act()),
               Code::conflict);
  EXPECT_ERROR(data().parts(DataFixture::kCargo, "delays", upload), Code::not_found);
}

TEST_P(DatasetsTest, SaysWhatDoesNotFitAndChangesNothing) {
  f_.declare("delays", kDelays);
  const auto said = [&](std::string_view csv) { return message([&] { f_.ingest("delays", csv); }); };
  EXPECT_THAT(said("id,extra,more\n1,2,3\n"),
              ::testing::AllOf(::testing::HasSubstr("extra"), ::testing::HasSubstr("more")));
  EXPECT_THAT(said("at\n2001-01-01\n"), ::testing::HasSubstr("id: must not be missing"));
  EXPECT_THAT(said("id,delay\n1,2\n2,much\n"),
              ::testing::AllOf(::testing::HasSubstr("much"), ::testing::HasSubstr("delay")));
  EXPECT_THAT(said("id,delay\n1,2\n,3\n"), ::testing::HasSubstr("row 2: 'id' is missing"));
  EXPECT_THAT(said("id\n1\n2\n1\n"), ::testing::HasSubstr("row 3: its key (id) is there before"));
  EXPECT_THAT(said(""), ::testing::HasSubstr("empty"));
  EXPECT_ERROR(data().version(DataFixture::kFlights, "delays", std::nullopt), Code::not_found);
  f_.ingest("delays", "id\n7\n");
  EXPECT_THAT(said("id\n6\n7\n"), ::testing::HasSubstr("row 2: its key (id) is in version 1 already"));
  EXPECT_TRUE(f_.base.vault->list(DataFixture::kFlights, "@data/", "", 10).size() == 1);
}

TEST_P(DatasetsTest, ColumnsMayBeAddedAndOtherwiseNeedAMajor) {
  f_.declare("d", "{columns: [{name: a, type: int64}]}");
  f_.ingest("d", "a\n1\n");
  f_.declare("d", "{columns: [{name: a, type: int64}, {name: b, type: text}]}");
  const auto both = f_.ingest("d", "a,b\n2,x\n");
  EXPECT_EQ(f_.rows(both), (Rows{"1|null", "2|x"}));
  EXPECT_ERROR(f_.declare("d", "{columns: [{name: b, type: text}]}"), Code::invalid);
  EXPECT_ERROR(f_.declare("d", "{columns: [{name: a, type: text}, {name: b, type: text}]}"), Code::invalid);
  EXPECT_ERROR(
      f_.declare("d",
                 "{columns: [{name: a, type: int64}, {name: b, type: text}, {name: c, type: text, nullable: false}]}"),
      Code::invalid);
  f_.declare("d", "{columns: [{name: b, type: text}], major: 2}");
  EXPECT_ERROR(f_.ingest("d", "b\ny\n"), Code::invalid);
  EXPECT_EQ(f_.rows(f_.ingest("d", "b\ny\n", Format::csv, Mode::overwrite)), Rows{"y"});
}

TEST_P(DatasetsTest, CutsFilesByTime) {
  f_.declare("delays",
             R"({columns: [{name: at, type: timestamp}, {name: n, type: int64}], time: at, partition: month})");
  const auto v = f_.ingest("delays", "at,n\n2001-02-01,3\n2001-01-31 23:59:59,2\n,9\n2001-01-01,1\n");
  const auto files = data().files(v);
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].partition, "");
  EXPECT_EQ(files[1].partition, "2001-01");
  EXPECT_EQ(files[1].rows, 2);
  EXPECT_EQ(files[1].first_us, 978307200000000);
  EXPECT_EQ(files[1].last_us, 980985599000000);
  EXPECT_EQ(f_.rows(v, "SELECT n FROM v"), (Rows{"1", "2", "3", "9"}));
}

// Names that the making of a version uses itself must not be taken for a column's.
TEST_P(DatasetsTest, ColumnsMayHaveAnyName) {
  f_.declare("d", "{columns: [{name: part, type: text}, {name: staged, type: int64}, {name: rowid, type: int64}]}");
  const auto v = f_.ingest("d", "part,staged,rowid\ntrain,1,7\ntest,2,8\ntrain,3,9\n");
  EXPECT_EQ(data().files(v).size(), 1U);
  EXPECT_EQ(f_.rows(v, "SELECT staged FROM v"), (Rows{"1", "2", "3"}));
}

TEST_P(DatasetsTest, KnowsItsColumns) {
  f_.declare("d", "{columns: [{name: x, type: float64}, {name: c, type: text}, {name: t, type: timestamp}]}");
  std::string csv = "x,c,t\n";
  for (int i = 0; i < 1000; ++i)
    csv += fmt::format("{},{},2001-01-01\n", i % 10 == 0 ? "" : std::to_string(i), i % 3 == 0 ? "a" : "b");
  const auto stats = f_.ingest("d", csv).stats;
  ASSERT_EQ(stats.size(), 3U);
  EXPECT_EQ(stats[0].nulls, 100);
  EXPECT_EQ(stats[0].min, "1.0");
  EXPECT_EQ(stats[0].max, "999.0");
  EXPECT_NEAR(*stats[0].mean, 500, 1);
  EXPECT_NEAR(static_cast<double>(stats[0].distinct), 900, 50);
  ASSERT_EQ(stats[0].quantiles.size(), 7U);
  EXPECT_NEAR(stats[0].quantiles[3], 500, 15);
  EXPECT_EQ(stats[1].top, (Rows{"b", "a"}));
  EXPECT_EQ(stats[1].top_counts, (std::vector<std::int64_t>{666, 334}));
  EXPECT_EQ(stats[2].distinct, 1);
}

TEST_P(DatasetsTest, TellsVersionsApart) {
  f_.declare("delays", kDelays);
  const auto one = f_.ingest("delays", "id,delay\n1,1\n2,2\n3,3\n");
  const auto two = f_.ingest("delays", "id,delay\n2,2\n3,9\n4,4\n5,5\n", Format::csv, Mode::overwrite);
  const auto diff = data().diff(DataFixture::kFlights, one, two);
  EXPECT_EQ(diff.added, 2);
  EXPECT_EQ(diff.removed, 1);
  EXPECT_EQ(diff.changed, 1);
  f_.declare("bag", "{columns: [{name: a, type: int64}]}");
  const auto x = f_.ingest("bag", "a\n1\n1\n2\n");
  const auto y = f_.ingest("bag", "a\n1\n3\n", Format::csv, Mode::overwrite);
  const auto other = data().diff(DataFixture::kFlights, x, y);
  EXPECT_EQ(other.added, 1);
  EXPECT_EQ(other.removed, 2);
  EXPECT_EQ(other.changed, std::nullopt);
}

TEST_P(DatasetsTest, RemovedVersionsTakeTheirOwnFilesAlong) {
  f_.declare("delays", kDelays);
  f_.ingest("delays", "id\n1\n");
  const auto two = f_.ingest("delays", "id\n2\n");
  EXPECT_EQ(data().remove(DataFixture::kFlights, "delays", 1, DataFixture::act()), 0U);
  EXPECT_EQ(f_.rows(two, "SELECT id FROM v"), (Rows{"1", "2"}));
  EXPECT_ERROR(f_.undeclare("delays"), Code::conflict);
  EXPECT_GT(data().remove(DataFixture::kFlights, "delays", std::nullopt, DataFixture::act()), 0U);
  EXPECT_TRUE(f_.base.vault->list(DataFixture::kFlights, "@data/", "", 10).empty());
  f_.undeclare("delays");
  f_.declare("delays", kDelays);
  EXPECT_EQ(f_.ingest("delays", "id\n1\n").number, 3);
}

TEST_P(DatasetsTest, GuessesColumns) {
  const auto upload = f_.upload("new", "id,at,delay,origin\n1,2001-01-01 00:05:00,3.5,SEA\n");
  EXPECT_EQ(data().infer(DataFixture::kFlights, "new", upload, Format::csv),
            (table::Schema{{"id", table::Type::int64, true},
                           {"at", table::Type::timestamp, true},
                           {"delay", table::Type::float64, true},
                           {"origin", table::Type::text, true}}));
  EXPECT_ERROR(data().finish(DataFixture::kFlights, "new", upload, {}, DataFixture::act()), Code::not_found);
}

TEST_P(DatasetsTest, UploadsThatNobodyFinishesGo) {
  f_.upload("new", "a\n1\n");
  EXPECT_EQ(data().sweep(DataFixture::act()), 0U);
  f_.base.clock.advance(std::chrono::hours(24 * 8));
  EXPECT_EQ(data().sweep(DataFixture::act()), 1U);
  EXPECT_TRUE(f_.base.vault->list(DataFixture::kFlights, "@upload/", "", 10).empty());
}

INSTANTIATE_TEST_SUITE_P(Engines, DatasetsTest, ::testing::Values("sqlite", "postgresql"));

}  // namespace
}  // namespace falaj::data
