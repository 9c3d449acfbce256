// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/erasure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "lifecycle/data/testing.h"
#include "storage/sql/testing.h"
#include "storage/table/testing.h"

namespace falaj::data {
namespace {

constexpr std::string_view kPeople =
    "{columns: [{name: person, type: text}, {name: at, type: timestamp}, {name: note, type: text}], time: at,"
    " partition: month, personal: {subjectKey: person, purpose: test, basis: consent}}";
constexpr std::string_view kJanuary =
    "person,at,note\nada,2001-01-01,canary-ada-1\nbob,2001-01-02,canary-bob-1\ncyd,2001-01-03,canary-cyd-1\n";
constexpr std::string_view kFebruary = "person,at,note\nada,2001-02-01,canary-ada-2\ndan,2001-02-02,canary-dan-2\n";

// What a store of served rows would be told.
class Served final : public RowHolder {
 public:
  void erase_subject(const Where&, const std::string& dataset, const std::string& column, const std::string& subject,
                     const sql::Act&) override {
    said.push_back(fmt::format("{}.{} {}", dataset, column, subject));
  }
  void replaced(const Where&, const std::string& dataset, std::int64_t version, const sql::Act&) override {
    said.push_back(fmt::format("{}@{}", dataset, version));
  }
  std::vector<std::string> said;
};

class ErasureTest : public ::testing::TestWithParam<const char*> {
 protected:
  ErasureTest() : f(GetParam()) { start(); }

  void start() {
    erasures = std::make_unique<Erasures>(
        Erasures::Parts{*f.base.database, *f.resources, *f.datasets, f.base.clock, f.base.random}, key,
        [this](sql::Reader&, const Where&, const std::vector<std::string>& names) {
          asked = names;
          return Descendants{};
        });
  }
  void restart() {
    erasures.reset();
    f.restart();
    start();
  }
  Erasure erase(const std::string& subject) {
    const auto begun = erasures->begin(kWhere, subject, DataFixture::act());
    return erasures->finish(kWhere, begun.id, DataFixture::act());
  }
  // A version of `into` with every row and column of another.
  Version derive(const std::string& from, const std::string& into, const std::string& select,
                 std::vector<std::string> columns) {
    const auto version = f.datasets->version(kWhere, from, std::nullopt);
    const auto room = f.datasets->room();
    f.datasets->open(*room, kWhere, version, "v");
    return f.datasets->store(kWhere, into, *room, select,
                             {Format::parquet,
                              Mode::overwrite,
                              "derived",
                              "",
                              {{version.dataset, version.row, version.number, std::move(columns)}}},
                             DataFixture::act());
  }
  Version newest(const std::string& name) { return f.datasets->version(kWhere, name, std::nullopt); }

  // Every object that can still be opened, named or not, as text; and what SQL has.
  std::string everything() {
    std::string out;
    for (const auto& zone : {vault::VaultFixture::kUae, vault::VaultFixture::kEu}) {
      auto& store = f.base.vault->store(zone);
      try {
        for (const auto& object : store.list(kWhere.tenant, std::nullopt, 100'000)) {
          const auto room = f.datasets->room();
          const auto bytes = store.get({kWhere.tenant, zone, nullptr}, object.address)->read_all();
          out += as_text(bytes);
          if (as_text(bytes).starts_with("PAR1")) out += table::parquet_text(*room, bytes);
        }
      } catch (const Error& e) {
        if (e.code() != Code::not_found) throw;  // no keys there yet
      }
    }
    f.base.database->read([&](sql::Reader& r) {
      for (const auto& text : r.all("SELECT stats || warnings || source FROM data_version", {}, text_of)) out += text;
      for (const auto& text : r.all("SELECT result FROM data_check", {}, text_of)) out += text;
      for (const auto& text : r.all("SELECT report FROM data_erasure", {}, text_of)) out += text;
    });
    return out;
  }
  static std::string text_of(const sql::Row& row) { return std::string(row.text(0)); }

  static inline const Where kWhere = DataFixture::kFlights;
  DataFixture f;
  const crypto::Key key = crypto::Key::random();
  std::unique_ptr<Erasures> erasures;
  std::vector<std::string> asked;
};
INSTANTIATE_TEST_SUITE_P(Engines, ErasureTest, ::testing::Values("sqlite", "postgresql"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(ErasureTest, TakesOnePersonOutOfEveryVersion) {
  f.declare("people", std::string(kPeople));
  const auto first = f.ingest("people", kJanuary);
  const auto second = f.ingest("people", kFebruary);
  const auto march = f.ingest("people", "person,at,note\ndan,2001-03-01,canary-dan-3\n");
  ASSERT_NE(everything().find("canary-ada-1"), std::string::npos);

  const auto done = erase("ada");
  EXPECT_EQ(done.state, "done");
  ASSERT_EQ(done.report.datasets.size(), 1U);
  EXPECT_EQ(done.report.datasets[0].rows, 2);
  EXPECT_EQ(done.report.datasets[0].held, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(done.report.datasets[0].version, 4);

  const auto left = newest("people");
  EXPECT_EQ(left.number, 4);
  EXPECT_EQ(left.rows, 4);
  EXPECT_EQ(f.rows(left, "SELECT person, note FROM v"),
            (std::vector<std::string>{"bob|canary-bob-1", "cyd|canary-cyd-1", "dan|canary-dan-2", "dan|canary-dan-3"}));
  const auto found = everything();
  EXPECT_EQ(found.find("ada"), std::string::npos);
  EXPECT_NE(found.find("canary-bob-1"), std::string::npos);
  // Files without the person are the same ones.
  const auto files = f.datasets->files(left);
  ASSERT_EQ(files.size(), 3U);
  const auto before = f.base.database->read(
      [&](sql::Reader& r) { return r.all("SELECT name FROM data_file ORDER BY id", {}, text_of); });
  EXPECT_NE(std::find(before.begin(), before.end(), files[2].name), before.end());
  EXPECT_EQ(files[2].rows, march.rows - second.rows);
  // A version that is erased says so, and where to look.
  const auto gone = f.datasets->version(kWhere, "people", first.number);
  ASSERT_TRUE(gone.erased);
  EXPECT_EQ(gone.erased->replaced_by, 4);
  const auto room = f.datasets->room();
  EXPECT_ERROR(f.datasets->open(*room, kWhere, gone, "v"), Code::not_found);
}

TEST_P(ErasureTest, FindsNothingTheSecondTime) {
  f.declare("people", std::string(kPeople));
  f.ingest("people", kJanuary);
  const auto first = erase("ada");
  const auto second = erase("ada");
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(first.subject, second.subject);
  EXPECT_EQ(second.state, "done");
  EXPECT_TRUE(second.report.datasets.empty());
  EXPECT_EQ(newest("people").number, 2);
  EXPECT_EQ(erasures->list(kWhere, INT64_MAX, 10).size(), 2U);
  EXPECT_ERROR(erasures->begin(kWhere, "", DataFixture::act()), Code::invalid);
  EXPECT_ERROR(erasures->finish(kWhere, "none", DataFixture::act()), Code::not_found);
}

TEST_P(ErasureTest, FollowsWhatWasMadeOfRows) {
  f.declare("people", std::string(kPeople));
  f.declare("wide", "{columns: [{name: person, type: text}, {name: note, type: text}]}");
  f.declare("counts", "{columns: [{name: n, type: int64}]}");
  f.declare("other", "{columns: [{name: person, type: text}]}");
  f.ingest("people", kJanuary);
  derive("people", "wide", "SELECT person, note FROM v", {"person", "note"});
  derive("wide", "counts", "SELECT count(*) AS n FROM v", {});
  f.ingest("other", "person\nada\n");  // of nobody: it does not say that it is about people
  Served served;
  erasures->add(served);

  const auto plan = erasures->plan(kWhere, "ada");
  ASSERT_EQ(plan.datasets.size(), 2U);
  EXPECT_EQ(plan.datasets[0].dataset, "people");
  EXPECT_EQ(plan.datasets[1].dataset, "wide");
  EXPECT_EQ(plan.versions, (std::vector<std::string>{"counts@1"}));
  EXPECT_EQ(newest("wide").number, 1);

  const auto done = erase("ada");
  EXPECT_EQ(f.rows(newest("wide")), (std::vector<std::string>{"bob|canary-bob-1", "cyd|canary-cyd-1"}));
  EXPECT_EQ(newest("wide").inputs.size(), 1U);
  EXPECT_EQ(done.report.versions, (std::vector<std::string>{"counts@1"}));
  EXPECT_EQ(asked.size(), 3U);
  EXPECT_EQ(served.said, (std::vector<std::string>{"people.person ada", "wide.person ada", "people@2", "wide@2"}));
  EXPECT_EQ(f.rows(newest("other")), (std::vector<std::string>{"ada"}));
}

TEST_P(ErasureTest, KnowsLaterWhoWasInVersionsThatAreErased) {
  f.declare("people", std::string(kPeople));
  f.declare("counts", "{columns: [{name: n, type: int64}]}");
  f.ingest("people", kJanuary);
  derive("people", "counts", "SELECT count(*) AS n FROM v", {});  // with bob and cyd in it
  f.ingest("people", "person,at,note\nada,2001-05-01,x\ncyd,2001-05-01,y\n", Format::csv, Mode::overwrite);
  derive("people", "counts", "SELECT count(*) AS n FROM v", {});  // with cyd

  EXPECT_EQ(erase("ada").report.versions, (std::vector<std::string>{"counts@1", "counts@2"}));
  const auto bob = erase("bob");
  ASSERT_EQ(bob.report.datasets.size(), 1U);
  EXPECT_EQ(bob.report.datasets[0].held, (std::vector<std::int64_t>{1}));
  EXPECT_FALSE(bob.report.datasets[0].version);
  EXPECT_EQ(bob.report.versions, (std::vector<std::string>{"counts@1"}));
  const auto cyd = erase("cyd");
  EXPECT_EQ(cyd.report.datasets[0].held, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(cyd.report.versions, (std::vector<std::string>{"counts@1", "counts@2"}));
  EXPECT_EQ(newest("people").rows, 0);
  EXPECT_EQ(everything().find("cyd"), std::string::npos);
}

TEST_P(ErasureTest, LeavesNothingOfUploadsNorOfRefusedRows) {
  f.declare("people", std::string(kPeople));
  f.apply(
      "{apiVersion: falaj/v1, kind: Expectation, metadata: {tenant: acme, project: flights, name: few}, spec: {dataset:"
      " people, rules: [{check: set, column: note, values: [fine]}]}}");
  f.ingest("people", "person,at,note\nbob,2001-01-01,fine\n");
  EXPECT_ERROR(f.ingest("people", kJanuary), Code::invalid);
  const auto upload = f.upload("people", kJanuary);
  // Finished, but killed before its parts were taken away.
  f.base.vault->put(kWhere, std::nullopt, fmt::format("@upload/{}/000007", f.base.database->read([&](sql::Reader& r) {
                      return *r.first("SELECT id FROM data_ingest WHERE version IS NOT NULL", {}, text_of);
                    })),
                    blob::source_of(as_bytes("canary-ada-part")), DataFixture::act());
  // Written, but killed before it was part of a version.
  f.base.vault->put(kWhere, std::nullopt, fmt::format("@data/{}/0123/000000", newest("people").row),
                    blob::source_of(as_bytes("canary-ada-file")), DataFixture::act());
  f.datasets->put_part(kWhere, "people", upload, 0, blob::source_of(as_bytes("changed")), DataFixture::act());
  ASSERT_NE(everything().find("canary-ada-1"), std::string::npos);
  erase("ada");
  EXPECT_EQ(everything().find("canary-ada"), std::string::npos);
  EXPECT_ERROR(f.datasets->parts(kWhere, "people", upload), Code::not_found);
}

TEST_P(ErasureTest, RefusesToMakeSomethingOfAVersionThatIsErased) {
  f.declare("people", std::string(kPeople));
  f.declare("wide", "{columns: [{name: person, type: text}]}");
  const auto version = f.ingest("people", kJanuary);
  const auto room = f.datasets->room();
  f.datasets->open(*room, kWhere, version, "v");
  room->run("CREATE TEMP TABLE read AS SELECT person FROM v");
  erase("ada");
  EXPECT_ERROR(f.datasets->store(kWhere, "wide", *room, "SELECT * FROM read",
                                 {Format::parquet, Mode::overwrite, "", "", {{"people", version.row, 1, {"person"}}}},
                                 DataFixture::act()),
               Code::conflict);
  erase("ada");
  EXPECT_EQ(everything().find("ada"), std::string::npos);
}

TEST_P(ErasureTest, GoesOnAfterAFaultAnywhere) {
  f.declare("people", std::string(kPeople));
  f.declare("wide", "{columns: [{name: person, type: text}, {name: note, type: text}]}");
  f.ingest("people", kJanuary);
  f.ingest("people", kFebruary);
  derive("people", "wide", "SELECT person, note FROM v", {"person", "note"});
  std::string id = erasures->begin(kWhere, "ada", DataFixture::act()).id;
  // Every call of the store fails once, in turn; after each the process dies and begins anew. Under sanitizers every
  // fourth.
  const int step = repeats(4) == 4 ? 1 : 4;
  std::atomic<int> calls{0};
  int faults = 0;
  for (int at = 0;; at += step) {
    calls = 0;
    f.base.should_fail = [&, at](blob::BackendCall, const std::string&) { return calls++ == at; };
    restart();
    bool failed = false;
    try {
      erasures->finish(kWhere, id, DataFixture::act());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::unavailable) << e.what();
      failed = true;
    }
    faults += failed ? 1 : 0;
    if (!failed && calls <= at) break;
    ASSERT_LT(at, 500);
  }
  f.base.should_fail = nullptr;
  EXPECT_GT(faults, 5);
  const auto done = erasures->get(kWhere, id);
  EXPECT_EQ(done.state, "done");
  ASSERT_EQ(done.report.datasets.size(), 2U);
  EXPECT_EQ(done.report.datasets[0].held, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(done.report.datasets[0].rows, 2);
  EXPECT_EQ(newest("people").rows, 3);
  EXPECT_EQ(newest("wide").rows, 3);
  EXPECT_EQ(everything().find("ada"), std::string::npos);
  EXPECT_EQ(f.base.vault->scrub().damaged, (std::vector<std::string>{}));
}

TEST_P(ErasureTest, ResumesWhatWasBegun) {
  f.declare("people", std::string(kPeople));
  f.ingest("people", kJanuary);
  const auto begun = erasures->begin(kWhere, "ada", DataFixture::act());
  EXPECT_EQ(erasures->begin(kWhere, "ada", DataFixture::act()).id, begun.id);
  restart();
  EXPECT_EQ(erasures->resume([] { return true; }), 1U);
  EXPECT_EQ(erasures->get(kWhere, begun.id).state, "done");
  EXPECT_EQ(erasures->resume([] { return true; }), 0U);
  EXPECT_EQ(newest("people").rows, 2);
}

TEST_P(ErasureTest, WaitsForABackup) {
  f.declare("people", std::string(kPeople));
  f.ingest("people", kJanuary);
  const auto begun = erasures->begin(kWhere, "ada", DataFixture::act());
  {
    const vault::Vault::Hold hold(*f.base.vault);
    EXPECT_ERROR(erasures->finish(kWhere, begun.id, DataFixture::act()), Code::conflict);
  }
  EXPECT_EQ(newest("people").rows, 2);
  EXPECT_EQ(erasures->finish(kWhere, begun.id, DataFixture::act()).state, "done");
  EXPECT_EQ(everything().find("ada"), std::string::npos);
}

TEST_P(ErasureTest, TakesRowsOutThatAreTooOld) {
  f.declare("people",
            "{columns: [{name: person, type: text}, {name: at, type: timestamp}, {name: note, type: text}], time: at,"
            " partition: month, personal: {subjectKey: person, purpose: test, basis: consent, retention: 221d}}");
  f.ingest("people", kJanuary);
  f.ingest("people", kFebruary);
  const std::int64_t day = 86'400'000'000, second_of_march = 983'491'200'000'000;
  EXPECT_EQ(retention_edge(second_of_march + 5, 30 * day), second_of_march - 30 * day);
  // It is 2001-09-09: rows of before 2001-01-31 go.
  const auto go_on = [] { return true; };
  const auto due = erasures->retain(iam::Scope(), true, DataFixture::act(), go_on);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].report.datasets[0].rows, 3);
  EXPECT_EQ(newest("people").number, 2);
  EXPECT_EQ(erasures->retain(iam::Scope(), false, DataFixture::act(), go_on).size(), 1U);
  EXPECT_EQ(f.rows(newest("people"), "SELECT note FROM v"), (std::vector<std::string>{"canary-ada-2", "canary-dan-2"}));
  EXPECT_EQ(everything().find("canary-bob"), std::string::npos);
  EXPECT_TRUE(erasures->retain(iam::Scope(), false, DataFixture::act(), go_on).empty());
}

}  // namespace
}  // namespace falaj::data
