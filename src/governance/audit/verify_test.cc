// SPDX-License-Identifier: Apache-2.0
// Everything that somebody with the database, but without the key, could do to the log.
#include "governance/audit/verify.h"

#include <atomic>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "governance/audit/tables.h"
#include "governance/audit/testing.h"

namespace falaj::audit {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kRecords = 1300;  // five complete blocks, one kept head, an open block

class Tampering : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::vector<std::thread> threads;  // which share commits
    std::atomic<std::int64_t> next = 0;
    for (int t = 0; t < 26; ++t)
      threads.emplace_back([&] {
        for (auto i = next++; i < kRecords; i = next++)
          s.db().write(
              {"user/ada", "thing.put", fmt::format("/t/acme/{}", i), fmt::format("r{}", i), "ok", R"({"a":1})"},
              [&](sql::Writer& w) {
                w.record({fmt::format("/t/acme/{}", i), {}, Digest{}});
              });
      });
    for (auto& t : threads) t.join();
    for (const char* table : {"audit_record", "audit_node", "audit_head", "audit_tip"})
      s.place().tamper(fmt::format("CREATE TABLE keep_{0} AS SELECT * FROM {0}", table));
    ASSERT_TRUE(check().intact) << check().why;
  }
  Verdict check(std::optional<SignedHead> earlier = {}) { return verify(s.db(), s.log().public_key(), {earlier, {}}); }

  // Does it, verifies, undoes it.
  Verdict after(const std::string& statements, std::optional<SignedHead> earlier = {}) {
    s.place().tamper(statements);
    auto verdict = check(earlier);
    for (const char* table : {"audit_record", "audit_node", "audit_head", "audit_tip"})
      s.place().tamper(fmt::format("DELETE FROM {0}; INSERT INTO {0} SELECT * FROM keep_{0}", table));
    EXPECT_FALSE(verdict.intact) << statements;
    return verdict;
  }
  std::string literal(BytesView bytes) const {
    return GetParam() == "sqlite" ? fmt::format("X'{}'", to_hex(bytes)) : fmt::format("'\\x{}'::bytea", to_hex(bytes));
  }
  Bytes stored(sql::Query query) {
    return *s.db().read([&](sql::Reader& r) {
      return r.first(query, {}, [](const sql::Row& row) { return Bytes(row.bytes(0).begin(), row.bytes(0).end()); });
    });
  }
  // Each byte in turn, in one of its bits.
  void expect_every_byte_guarded(sql::Query query, const std::string& table, const std::string& column,
                                 const std::string& where, std::optional<std::int64_t> record) {
    const auto original = stored(query);
    const std::size_t step = GetParam() == "sqlite" ? 1 : 13;  // all of them on one engine is enough
    for (std::size_t i = 0; i < original.size(); i += step) {
      auto changed = original;
      changed[i] ^= static_cast<std::byte>(1 << (i % 8));
      const auto set = [&](const Bytes& to) {
        s.place().tamper(fmt::format("UPDATE {} SET {} = {} WHERE {}", table, column, literal(to), where));
      };
      set(changed);
      const auto verdict = check();
      set(original);
      ASSERT_FALSE(verdict.intact) << table << "." << column << " byte " << i;
      ASSERT_EQ(verdict.record, record) << verdict.why;
    }
  }
  Record record_at(std::int64_t sequence) {
    return *s.db().read([&](sql::Reader& r) {
      return r.first(
          "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record "
          "WHERE"
          " sequence = ?",
          {sequence}, read_record);
    });
  }
  // Changes a record so that it and its leaf agree, as a careful forger would.
  std::string forge(std::int64_t sequence) {
    auto record = record_at(sequence);
    record.actor = "user/eve";
    return fmt::format("UPDATE audit_record SET actor = 'user/eve', leaf = {} WHERE sequence = {};",
                       literal(leaf_hash(encode(record)).view()), sequence);
  }
  AuditedScratch s{GetParam()};
};

TEST_P(Tampering, WithAnyColumnOfARecordNamesTheRecord) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{700}, kRecords - 1})
    for (const char* change : {"unix_us = unix_us + 1", "unix_us = unix_us - 1", "actor = 'user/eve'", "actor = ''",
                               "verb = verb || 'x'", "resource = substr(resource, 2)", "request_id = 'r'",
                               "outcome = 'denied'", "details = ''", "details = '{\"a\":2}'"}) {
      const auto verdict = after(fmt::format("UPDATE audit_record SET {} WHERE sequence = {}", change, n));
      EXPECT_EQ(verdict.record, n) << change << ": " << verdict.why;
      EXPECT_THAT(verdict.why, HasSubstr("altered"));
    }
}

TEST_P(Tampering, WithAnyByteOfStoredBytesIsSeen) {
  expect_every_byte_guarded("SELECT leaf FROM audit_record WHERE sequence = 300", "audit_record", "leaf",
                            "sequence = 300", 300);
  expect_every_byte_guarded("SELECT effects FROM audit_record WHERE sequence = 300", "audit_record", "effects",
                            "sequence = 300", 300);
  expect_every_byte_guarded("SELECT hash FROM audit_node WHERE level = 1 AND position = 2", "audit_node", "hash",
                            "level = 1 AND position = 2", 512);
  expect_every_byte_guarded("SELECT root FROM audit_head WHERE size = 1000", "audit_head", "root", "size = 1000", {});
  expect_every_byte_guarded("SELECT signature FROM audit_head WHERE size = 1000", "audit_head", "signature",
                            "size = 1000", {});
  expect_every_byte_guarded("SELECT root FROM audit_tip", "audit_tip", "root", "id = 1", {});
  expect_every_byte_guarded("SELECT signature FROM audit_tip", "audit_tip", "signature", "id = 1", {});
  expect_every_byte_guarded("SELECT frontier FROM audit_tip", "audit_tip", "frontier", "id = 1", {});
}

TEST_P(Tampering, WithTheLengthOfStoredBytesIsSeen) {
  for (const char* change :
       {"UPDATE audit_record SET leaf = {} WHERE sequence = 5",
        "UPDATE audit_record SET effects = {} WHERE sequence = 5", "UPDATE audit_node SET hash = {} WHERE position = 1",
        "UPDATE audit_head SET root = {}", "UPDATE audit_head SET signature = {}", "UPDATE audit_tip SET root = {}",
        "UPDATE audit_tip SET signature = {}", "UPDATE audit_tip SET frontier = {}"})
    for (const auto& bytes : {Bytes{}, Bytes(3), Bytes(4096)})
      (void)after(fmt::format(fmt::runtime(change), literal(bytes)));
}

TEST_P(Tampering, WithNumbersOfHeadsIsSeen) {
  for (const char* change :
       {"UPDATE audit_head SET size = 999", "UPDATE audit_head SET size = 1001",
        "UPDATE audit_head SET unix_us = unix_us + 1", "UPDATE audit_tip SET size = size - 1",
        "UPDATE audit_tip SET size = size + 1", "UPDATE audit_tip SET unix_us = unix_us + 1", "DELETE FROM audit_head",
        "DELETE FROM audit_tip", "UPDATE audit_node SET position = 9 WHERE position = 3",
        "UPDATE audit_node SET level = 2 WHERE position = 3", "DELETE FROM audit_node WHERE position = 0",
        "INSERT INTO audit_node SELECT level, position + 100, hash FROM audit_node",
        "INSERT INTO audit_head SELECT size + 5, root, unix_us, signature FROM audit_head"})
    (void)after(change);
}

TEST_P(Tampering, ByDeletingInsertingOrSwappingNamesTheRecord) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{512}, std::int64_t{1100}, kRecords - 1}) {
    const auto verdict = after(fmt::format("DELETE FROM audit_record WHERE sequence = {}", n));
    EXPECT_EQ(verdict.record, n);
    EXPECT_THAT(verdict.why, HasSubstr("missing"));
  }
  const auto insert = [&](std::int64_t n) {
    return after(fmt::format(
        "INSERT INTO audit_record SELECT {}, unix_us, actor, verb, resource, request_id, outcome, effects, details,"
        " leaf FROM audit_record WHERE sequence = 3",
        n));
  };
  EXPECT_EQ(insert(kRecords).record, kRecords);
  EXPECT_EQ(insert(-1).record, -1);
  const auto swapped = after(
      "UPDATE audit_record SET sequence = -7 WHERE sequence = 20; UPDATE audit_record SET sequence = 20 WHERE sequence "
      "= 30;"
      "UPDATE audit_record SET sequence = 30 WHERE sequence = -7");
  EXPECT_EQ(swapped.record, 20);
}

TEST_P(Tampering, ByAForgerWhoAlsoComputesTheLeafIsSeenByTheTree) {
  const auto in_block = after(forge(700));
  EXPECT_EQ(in_block.record, 512) << in_block.why;
  const auto in_open_block = after(forge(1290));
  EXPECT_EQ(in_open_block.record, 1000) << in_open_block.why;  // all after the last genuine head are in doubt
  EXPECT_THAT(in_open_block.why, HasSubstr("signs"));
}

TEST_P(Tampering, ByAForgerWhoAlsoComputesTheNodeIsSeenByTheHead) {
  const auto change = forge(700);
  s.place().tamper(change);
  std::vector<Digest> leaves;
  s.db().read([&](sql::Reader& r) {
    r.query("SELECT leaf FROM audit_record WHERE sequence >= 512 AND sequence < 768 ORDER BY sequence", {},
            [&](const sql::Row& row) { leaves.push_back(row.digest(0)); });
  });
  Frontier block;
  for (const auto& leaf : leaves) block.push(leaf);
  const auto verdict = after(
      fmt::format("UPDATE audit_node SET hash = {} WHERE level = 1 AND position = 2", literal(block.root().view())));
  EXPECT_EQ(verdict.record, 0) << verdict.why;
  EXPECT_THAT(verdict.why, HasSubstr("the head kept at 1000 records"));
}

TEST_P(Tampering, ByCuttingTheTailIsSeenByTheHeadOrByOneKeptElsewhere) {
  EXPECT_EQ(after("DELETE FROM audit_record WHERE sequence >= 1200").record, 1200);
  const auto newest = s.log().head();
  // With an old head put back the log is a genuine, shorter one: only a head kept elsewhere tells.
  const auto old = s.db().read([](sql::Reader& r) {
    return *r.first("SELECT size, root, unix_us, signature FROM audit_head", {}, [](const sql::Row& row) {
      return SignedHead{{row.integer(0), row.digest(1), row.integer(2)}, parse_signature(row.bytes(3))};
    });
  });
  Frontier frontier;
  s.db().read([&](sql::Reader& r) {
    r.query("SELECT leaf FROM audit_record WHERE sequence < 1000 ORDER BY sequence", {},
            [&](const sql::Row& row) { frontier.push(row.digest(0)); });
  });
  Bytes hashes;
  for (const auto& h : frontier.hashes()) hashes.insert(hashes.end(), h.bytes.begin(), h.bytes.end());
  const auto cut = fmt::format(
      "DELETE FROM audit_record WHERE sequence >= 1000; DELETE FROM audit_node WHERE position >= 3;"
      "UPDATE audit_tip SET size = 1000, root = {}, unix_us = {}, signature = {}, frontier = {}",
      literal(old.head.root.view()), old.head.unix_us, literal(old.signature), literal(hashes));
  s.place().tamper(cut);
  EXPECT_TRUE(check().intact) << check().why;
  const auto verdict = check(newest);
  EXPECT_FALSE(verdict.intact);
  EXPECT_EQ(verdict.record, 1000);
  EXPECT_THAT(verdict.why, HasSubstr("the earlier head signs 1300"));
}

TEST_P(Tampering, IsNotSuspectedOfALogThatOnlyGrew) {
  const auto earlier = s.log().head();
  s.db().write({"user/ada", "v", "/x", ""}, [](sql::Writer&) {});
  std::int64_t told = 0;
  const auto verdict = verify(s.db(), s.log().public_key(), {earlier, [&](std::int64_t done, std::int64_t all) {
                                                               EXPECT_EQ(all, kRecords + 1);
                                                               told = done;
                                                             }});
  EXPECT_TRUE(verdict.intact) << verdict.why;
  EXPECT_EQ(told, kRecords + 1);
  EXPECT_EQ(verdict.head->head.size, kRecords + 1);
}

TEST_P(Tampering, WithTheEarlierHeadIsSeen) {
  auto forged = s.log().head();
  forged.head.root.bytes[0] ^= std::byte{1};
  EXPECT_FALSE(check(forged).intact);
  EXPECT_FALSE(check(sign({1100, Digest{}, 0}, make_test_signer(2))).intact);  // another key
  const auto rewritten = check(sign({1100, Digest{}, 0}, make_test_signer(1)));
  EXPECT_FALSE(rewritten.intact);
  EXPECT_THAT(rewritten.why, HasSubstr("the earlier head"));
}

INSTANTIATE_TEST_SUITE_P(Engines, Tampering, testing::ValuesIn(sql::engines()),
                         [](const auto& info) { return info.param; });

TEST(Verify, AcceptsAnEmptyLog) {
  AuditedScratch s("sqlite");
  const auto verdict = verify(s.db(), s.log().public_key(), {s.log().head(), {}});
  EXPECT_TRUE(verdict.intact) << verdict.why;
}

TEST(Verify, SaysWhichRecordHasAColumnOfAnotherType) {
  AuditedScratch s("sqlite");
  for (int i = 0; i < 3; ++i) s.db().write({"a", "v", "/x", ""}, [](sql::Writer&) {});
  s.place().tamper("UPDATE audit_record SET unix_us = 'yesterday' WHERE sequence = 1");
  const auto verdict = verify(s.db(), s.log().public_key());
  EXPECT_EQ(verdict.record, 1);
}

}  // namespace
}  // namespace falaj::audit
