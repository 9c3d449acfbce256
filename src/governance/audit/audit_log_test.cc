// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/audit_log.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "governance/audit/proof.h"
#include "governance/audit/testing.h"
#include "governance/audit/verify.h"

namespace falaj::audit {
namespace {

using testing::ElementsAre;

constexpr sql::Migration kThings[] = {{1, "things", "CREATE TABLE thing(id BIGINT PRIMARY KEY)"}};

sql::Act act_of(std::string actor, std::string verb, std::string resource) {
  return {std::move(actor), std::move(verb), std::move(resource), "r1"};
}
void add(AuditedScratch& s, const sql::Act& act) {
  s.db().write(act, [](sql::Writer&) {});
}
std::vector<std::int64_t> sequences(const Page& page) {
  std::vector<std::int64_t> out;
  for (const auto& r : page.records) out.push_back(r.sequence);
  return out;
}

class AuditLogOn : public testing::TestWithParam<std::string> {
 protected:
  AuditedScratch s{GetParam(), kThings};
};

TEST_P(AuditLogOn, KeepsWhatAWriteDidInTheSameTransaction) {
  const auto before = crypto::sha256("before"), after = crypto::sha256("after");
  s.clock().advance(std::chrono::seconds(5));
  s.db().write(act_of("user/ada", "thing.put", "/t/acme/things/1"), [&](sql::Writer& w) {
    w.execute("INSERT INTO thing(id) VALUES (1)", {});
    w.record({"/t/acme/things/1", before, after});
    w.record({"/t/acme/things/2", {}, after});
    w.record({"/t/acme/things/3", before, {}});
  });
  const auto page = s.log().log({}, {}, 10);
  ASSERT_EQ(page.records.size(), 1u);
  EXPECT_FALSE(page.older);
  const auto& r = page.records[0];
  EXPECT_EQ(r.sequence, 0);
  EXPECT_EQ(r.unix_us, 1'000'000'005'000'000);
  EXPECT_EQ(r.actor + " " + r.verb + " " + r.resource + " " + r.request_id + " " + r.outcome,
            "user/ada thing.put /t/acme/things/1 r1 ok");
  ASSERT_EQ(r.effects.size(), 3u);
  EXPECT_EQ(r.effects[0].before, before);
  EXPECT_EQ(r.effects[0].after, after);
  EXPECT_FALSE(r.effects[1].before);
  EXPECT_FALSE(r.effects[2].after);
}

TEST_P(AuditLogOn, HasNoRecordOfAWriteThatFailedAndNoGap) {
  add(s, act_of("a", "v", "/1"));
  EXPECT_ERROR(s.db().write(act_of("a", "v", "/2"), [](sql::Writer&) { throw Error(Code::invalid, "no"); }),
               Code::invalid);
  add(s, act_of("a", "v", "/3"));
  const auto page = s.log().log({}, {}, 10);
  EXPECT_THAT(sequences(page), ElementsAre(1, 0));
  EXPECT_EQ(page.records[0].resource, "/3");
  EXPECT_TRUE(verify(s.db(), s.log().public_key()).intact);
}

TEST_P(AuditLogOn, StaysGaplessUnderManyThreadsOfWhichSomeFail) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const auto act = act_of(fmt::format("user/{}", t), "thing.put", fmt::format("/{}/{}", t, i));
        if (i % 4 == 3)
          EXPECT_ERROR(s.db().write(act,
                                    [](sql::Writer& w) {
                                      w.execute("INSERT INTO thing(id) VALUES (-1)", {});
                                      throw Error(Code::conflict, "no");
                                    }),
                       Code::conflict);
        else
          s.db().write(act, [&](sql::Writer& w) {
            w.execute("INSERT INTO thing(id) VALUES (?)", {std::int64_t{t * 1000 + i}});
          });
      }
    });
  for (auto& t : threads) t.join();
  const auto verdict = verify(s.db(), s.log().public_key());
  EXPECT_TRUE(verdict.intact) << verdict.why;
  EXPECT_EQ(verdict.records, 16 * 30);
  EXPECT_EQ(s.log().head().head.size, 16 * 30);
}

TEST_P(AuditLogOn, GoesOnWhereItStoppedWhenOpenedAgain) {
  for (int i = 0; i < 3; ++i) add(s, act_of("a", "v", "/x"));
  const auto before = s.log().head();
  s.reopen();
  EXPECT_EQ(s.log().head().head, before.head);
  add(s, act_of("a", "v", "/x"));
  EXPECT_EQ(s.log().head().head.size, 4);
  EXPECT_TRUE(verify(s.db(), s.log().public_key(), {before, {}}).intact);
}

TEST_P(AuditLogOn, RefusesToStartOnAHeadItDidNotSign) {
  add(s, act_of("a", "v", "/x"));
  const auto other = make_test_signer(2);
  EXPECT_ERROR(AuditLog(s.db(), s.clock(), other), Code::corrupt);
  s.place().tamper("DELETE FROM audit_tip");
  EXPECT_ERROR(s.reopen(), Code::corrupt);
}

TEST_P(AuditLogOn, RefusesToStartWhenTheNewestRecordIsGone) {
  add(s, act_of("a", "v", "/x"));
  add(s, act_of("a", "v", "/x"));
  s.place().tamper("DELETE FROM audit_record WHERE sequence = 1");
  EXPECT_ERROR(s.reopen(), Code::corrupt);
}

TEST_P(AuditLogOn, RemembersRefusedCalls) {
  s.log().record_denied(act_of("user/eve", "model.delete", "/t/acme/m"), {{"rule", "no grant"}});
  const auto page = s.log().log({.outcome = "denied"}, {}, 10);
  ASSERT_EQ(page.records.size(), 1u);
  EXPECT_EQ(page.records[0].details, R"({"rule":"no grant"})");
  EXPECT_EQ(page.records[0].actor, "user/eve");
}

TEST_P(AuditLogOn, FindsRecordsByWhatTheyAre) {
  add(s, act_of("user/ada", "model.create", "/t/acme/m/1"));
  s.clock().advance(std::chrono::seconds(10));
  add(s, act_of("user/bob", "model.promote", "/t/acme/m/1"));
  s.clock().advance(std::chrono::seconds(10));
  add(s, act_of("user/ada", "run.create", "/t/acme/r/1"));
  add(s, act_of("user/ada", "run.create", "/t/other/r/1"));
  add(s, act_of("user/ada", "run.create", "/t/ünï/1"));
  const auto found = [&](const Filter& f) { return sequences(s.log().log(f, {}, 100)); };
  EXPECT_THAT(found({}), ElementsAre(4, 3, 2, 1, 0));
  EXPECT_THAT(found({.actor = "user/bob"}), ElementsAre(1));
  EXPECT_THAT(found({.verb = "model.*"}), ElementsAre(1, 0));
  EXPECT_THAT(found({.resource_prefix = "/t/acme/"}), ElementsAre(2, 1, 0));
  EXPECT_THAT(found({.resource_prefix = "/t/ü"}), ElementsAre(4));
  EXPECT_THAT(found({.actor = "user/ada", .resource_prefix = "/t/acme/"}), ElementsAre(2, 0));
  EXPECT_THAT(found({.outcome = "denied"}), ElementsAre());
  const std::int64_t start = 1'000'000'000'000'000;
  EXPECT_THAT(found({.from_us = start + 10'000'000}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(found({.from_us = start + 1, .until_us = start + 20'000'000}), ElementsAre(1));
}

TEST_P(AuditLogOn, GivesPagesWithoutLossOrRepetition) {
  for (int i = 0; i < 25; ++i) add(s, act_of(i % 2 ? "odd" : "even", "v", "/x"));
  for (const char* actor : {"", "odd"}) {
    std::vector<std::int64_t> all;
    std::optional<std::int64_t> older;
    do {
      const auto page = s.log().log({.actor = actor}, older, 4);
      EXPECT_LE(page.records.size(), 4u);
      for (const auto n : sequences(page)) all.push_back(n);
      older = page.older;
    } while (older);
    ASSERT_EQ(all.size(), *actor ? 12u : 25u);
    EXPECT_TRUE(std::is_sorted(all.rbegin(), all.rend()));
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  }
}

// A wall clock that an administrator sets back.
class JumpingClock final : public sys::Clock {
 public:
  sys::Micros now() const override { return wall_; }
  sys::Micros wall() const override { return wall_; }
  sys::Micros wall_{1000};
};

TEST_P(AuditLogOn, NeverLetsTimeGoBack) {
  JumpingClock clock;
  const auto place = sql::make_scratch(GetParam());
  Metrics metrics;
  const auto signer = make_test_signer();
  std::unique_ptr<AuditLog> log;
  const auto db = place->open(metrics);
  db->migrate(migrations());
  log = std::make_unique<AuditLog>(*db, clock, signer);
  db->set_ledger(*log);
  db->write(act_of("a", "v", "/1"), [](sql::Writer&) {});
  db->write(act_of("a", "v", "/2"), [&](sql::Writer&) { clock.wall_ = sys::Micros(10); });
  const auto page = log->log({}, {}, 10);
  EXPECT_EQ(page.records[0].unix_us, 1000);
  db->stop();
}

TEST_P(AuditLogOn, ProvesEveryRecordToSomebodyWithoutTheDatabase) {
  constexpr int kRecords = 700;
  std::vector<std::thread> threads;
  for (int t = 0; t < 20; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRecords / 20; ++i) add(s, act_of("a", "v", fmt::format("/{}/{}", t, i)));
    });
  for (auto& t : threads) t.join();
  for (const std::int64_t n : {0, 1, 255, 256, 511, 512, 600, kRecords - 1}) {
    const auto proof = s.log().prove(n);
    const auto proved = check_proof(parse_json(canonical(proof)));
    EXPECT_EQ(proved.record.sequence, n);
    EXPECT_EQ(proved.head.head.size, kRecords);
    EXPECT_EQ(proved.key, s.log().public_key());
    for (const char* part : {"record", "head"}) {
      auto changed = proof;
      changed[part].as_object()["unix_us"] = 7;
      EXPECT_ERROR(check_proof(changed), Code::corrupt);
    }
    auto longer = proof;
    longer["path"].as_array().push_back(longer["path"].as_array()[0]);
    EXPECT_ERROR(check_proof(longer), Code::corrupt);
    auto moved = proof;
    moved["record"].as_object()["sequence"] = (n + 1) % kRecords;
    EXPECT_ERROR(check_proof(moved), Code::corrupt);
  }
  EXPECT_ERROR(s.log().prove(kRecords), Code::not_found);
  EXPECT_ERROR(s.log().prove(-1), Code::not_found);
}

TEST_P(AuditLogOn, ProvesThatItBeginsWithAnEarlierState) {
  std::vector<Head> heads;
  for (int i = 0; i < 270; ++i) {
    add(s, act_of("a", "v", fmt::format("/{}", i)));
    heads.push_back(s.log().head().head);
  }
  for (const std::int64_t first : {1, 2, 255, 256, 257, 270}) {
    const auto& earlier = heads[static_cast<std::size_t>(first - 1)];
    const auto proof = s.log().prove_consistency(first, 270);
    check_consistency(proof, earlier, heads.back());
    auto other = earlier;
    other.root.bytes[0] ^= std::byte{1};
    EXPECT_ERROR(check_consistency(proof, other, heads.back()), Code::corrupt);
  }
  EXPECT_ERROR(s.log().prove_consistency(0, 5), Code::invalid);
  EXPECT_ERROR(s.log().prove_consistency(5, 271), Code::invalid);
}

TEST_P(AuditLogOn, ExportsOneJsonObjectALine) {
  for (int i = 0; i < 5; ++i) add(s, act_of("a", "v", fmt::format("/{}", i)));
  std::vector<std::string> lines;
  s.log().export_jsonl(1, 4, [&](std::string_view line) { lines.emplace_back(line); });
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(record_from_json(parse_json(lines[2])).resource, "/3");
}

INSTANTIATE_TEST_SUITE_P(Engines, AuditLogOn, testing::ValuesIn(sql::engines()),
                         [](const auto& info) { return info.param; });

TEST(AuditRecord, HasTheBytesOfTheFormat) {
  Record r{7, 1'700'000'000'000'000, "user/ada", "model.promote", "/t/acme/m/1", "r1", "ok", {}, "{}"};
  r.effects.push_back({"/t/acme/m/1", Digest{}, crypto::sha256("x")});
  // Never change this line: it would orphan every log that exists.
  EXPECT_EQ(leaf_hash(encode(r)).hex(), "5a63bdbe503451d2190c01b98f1a50cc92ef413c97f1a967384e52126b8fa3f1");
  EXPECT_EQ(encode(record_from_json(to_json(r))), encode(r));
}

TEST(AuditRecord, DistinguishesWhatOnlyDiffersInWhereFieldsEnd) {
  const Record a{0, 0, "ab", "c", "", "", "", {}, ""}, b{0, 0, "a", "bc", "", "", "", {}, ""};
  EXPECT_NE(encode(a), encode(b));
}

// A proof that was given out stays good.
TEST(AuditProof, AcceptsOneOfVersion1) {
  std::ifstream file(FALAJ_TESTDATA "/audit_proof_fuzz/inclusion_v1.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto proved = check_proof(parse_json(text));
  EXPECT_EQ(proved.record.sequence, 3);
  EXPECT_EQ(proved.record.effects.size(), 1u);
  EXPECT_EQ(proved.head.head.size, 5);
  EXPECT_EQ(proved.key, make_test_signer().public_key());
}

TEST(AuditProof, RefusesWhatIsNoProof) {
  for (const char* text : {"{}", "[]", "null", R"({"format":"falaj-audit-inclusion/1"})",
                           R"({"format":"x","record":{},"path":[],"head":{},"public_key":""})"})
    EXPECT_ERROR(check_proof(parse_json(text)), Code::invalid);
}

}  // namespace
}  // namespace falaj::audit
