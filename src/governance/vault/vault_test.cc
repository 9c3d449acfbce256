// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/vault.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/testing.h"
#include "governance/vault/testing.h"

namespace falaj::vault {
namespace {

using F = VaultFixture;

struct Vaults : testing::TestWithParam<std::string> {
  F f{GetParam()};

  std::vector<std::string> names(const Where& where, const std::string& prefix = "", const std::string& after = "",
                                 std::size_t limit = 1000) {
    std::vector<std::string> out;
    for (const auto& entry : f.vault->list(where, prefix, after, limit)) out.push_back(entry.name);
    return out;
  }
  struct Usage {
    std::int64_t names = 0, bytes = 0;
    friend bool operator==(const Usage&, const Usage&) = default;
  };
  // What the counters say and what the names add up to.
  std::pair<Usage, Usage> usage(const Where& where) {
    const auto read = [](const sql::Row& row) { return Usage{row.integer(0), row.integer(1)}; };
    return f.database->read([&](sql::Reader& reader) {
      return std::pair{
          reader
              .first("SELECT names, bytes FROM blob_usage WHERE tenant = ? AND project = ?",
                     {where.tenant.str(), where.project.str()}, read)
              .value_or(Usage{}),
          reader
              .first("SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM blob_name WHERE tenant = "
                     "? AND project = ?",
                     {where.tenant.str(), where.project.str()}, read)
              .value()};
    });
  }
  Batch put_many(const Where& where, std::vector<std::pair<std::string, std::string>> files) {
    std::size_t at = 0;
    return f.vault->put_many(
        where, std::nullopt,
        [&]() -> std::optional<NewFile> {
          if (at == files.size()) return std::nullopt;
          const auto& [name, text] = files[at++];
          return NewFile{name, text.size(), blob::source_of(as_bytes(text))};
        },
        F::act("blob.put"));
  }
  void quota(const std::string& scope, std::optional<std::int64_t> bytes, std::optional<std::int64_t> objects) {
    iam::Quota quota;
    quota.name = "limit";
    quota.scope = iam::Scope::parse(scope);
    quota.blob_bytes = bytes;
    quota.blob_objects = objects;
    f.declare(quota);
  }
  void pass_grace() { f.clock.advance(f.options.grace + std::chrono::seconds(1)); }
};
INSTANTIATE_TEST_SUITE_P(Engines, Vaults, testing::ValuesIn(sql::engines()));

TEST_P(Vaults, KeepWhatWasPutOverARestart) {
  const auto entry = f.put(F::kFlights, "a/b.csv", "1,2,3");
  EXPECT_EQ(entry.bytes, 5U);
  EXPECT_GT(entry.new_bytes, 0U);
  EXPECT_EQ(entry.zone, F::kUae);
  f.restart();
  EXPECT_EQ(f.read(F::kFlights, "a/b.csv"), "1,2,3");
  const auto found = f.vault->info(F::kFlights, "a/b.csv");
  EXPECT_EQ(found.created_by, "user/test");
  EXPECT_EQ(found.created_us, f.clock.wall().count());
  EXPECT_EQ(found.content, entry.content);
}

TEST_P(Vaults, ReadPartsAndEmptyBlobs) {
  const auto entry = f.put(F::kFlights, "x", "0123456789");
  EXPECT_EQ(as_text(f.vault->open(F::kFlights, entry, 3, 4)->read_all()), "3456");
  EXPECT_EQ(as_text(f.vault->open(F::kFlights, entry, 8, 100)->read_all()), "89");
  f.put(F::kFlights, "empty", "");
  EXPECT_EQ(f.read(F::kFlights, "empty"), "");
}

TEST_P(Vaults, GiveANameTheNewObjectAndKeepTheOldForItsReader) {
  const auto old = f.put(F::kFlights, "x", "old");
  f.put(F::kFlights, "x", "newer");
  EXPECT_EQ(f.read(F::kFlights, "x"), "newer");
  EXPECT_EQ(as_text(f.vault->open(F::kFlights, old, 0, 3)->read_all()), "old");
  EXPECT_EQ(usage(F::kFlights).first, (Usage{1, 5}));
}

TEST_P(Vaults, ForgetANameThatIsRemoved) {
  f.put(F::kFlights, "x", "1");
  f.vault->remove(F::kFlights, "x", F::act());
  EXPECT_ERROR(f.vault->info(F::kFlights, "x"), Code::not_found);
  EXPECT_ERROR(f.vault->remove(F::kFlights, "x", F::act()), Code::not_found);
  EXPECT_EQ(usage(F::kFlights).first, (Usage{0, 0}));
}

TEST_P(Vaults, RecordEachNameInTheAuditLog) {
  f.put(F::kFlights, "x", "1");
  const auto records = f.database->read([](sql::Reader& reader) {
    return reader.first("SELECT COUNT(*) FROM audit_record", {}, [](const sql::Row& row) { return row.integer(0); });
  });
  f.put(F::kFlights, "x", "2");
  f.vault->remove(F::kFlights, "x", F::act());
  const auto after = f.database->read([](sql::Reader& reader) {
    return reader.first("SELECT COUNT(*) FROM audit_record", {}, [](const sql::Row& row) { return row.integer(0); });
  });
  EXPECT_EQ(*after - *records, 2);
}

TEST_P(Vaults, ListByPrefixWhateverTheCharacters) {
  const std::vector<std::string> all = {
      "%",           "%x",           "A",      "_",          "a",          "a%",
      "a%b",         "a/",           "a/1",    "a/2",        "a_b",        "ab",
      "a\U0010FFFF", "a\U0010FFFFz", "b",      "\u00e9",     "\u00e9x",    "\u0628\u064A\u062A",
      "\uD7FFq",     "\uE000",       "\uFFFF", "\U0001F600", "\U0010FFFF", "\U0010FFFFend"};
  for (const auto& name : all) f.put(F::kFlights, name, name);
  auto sorted = all;
  std::sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](unsigned char x, unsigned char y) { return x < y; });
  });
  std::vector<std::string> prefixes = all;
  prefixes.insert(prefixes.end(), {"", "zzz", "\u07FF", "\u0627", "\uD7FF"});
  for (const auto& prefix : prefixes) {
    std::vector<std::string> wanted;
    for (const auto& name : sorted)
      if (name.starts_with(prefix)) wanted.push_back(name);
    EXPECT_EQ(names(F::kFlights, prefix), wanted) << prefix;
    // Page by page, also from a name that is not there any more or lies before the prefix.
    for (const std::size_t page : {1U, 3U}) {
      std::vector<std::string> paged;
      for (std::string after;;) {
        const auto more = names(F::kFlights, prefix, after, page);
        if (more.empty()) break;
        paged.insert(paged.end(), more.begin(), more.end());
        after = more.back();
      }
      EXPECT_EQ(paged, wanted) << prefix;
    }
    EXPECT_EQ(names(F::kFlights, prefix, "\U0010FFFFzzz").size(), 0U);
  }
}

TEST_P(Vaults, RefuseHostileNames) {
  const std::string nul("a\0b", 3);
  for (const std::string& name :
       {std::string(), std::string(kNameBytesMax + 1, 'x'), std::string("a\nb"), nul, std::string("a\x7f"),
        std::string("\xff\xfe"), std::string("\xc0\x80"), std::string("\xed\xa0\x80")}) {
    EXPECT_ERROR(f.put(F::kFlights, name, "1"), Code::invalid);
    EXPECT_ERROR(put_many(F::kFlights, {{"good", "1"}, {name, "2"}}), Code::invalid);
    EXPECT_ERROR(f.vault->info(F::kFlights, name), Code::not_found);
    EXPECT_ERROR(f.vault->remove(F::kFlights, name, F::act()), Code::not_found);
    EXPECT_ERROR(f.vault->pin(F::kFlights, name, "why", F::act()), Code::not_found);
    EXPECT_TRUE(f.vault->list(F::kFlights, name, "", 10).empty());
  }
  EXPECT_TRUE(names(F::kFlights).empty()) << "nothing of a batch with one bad name";
  f.put(F::kFlights, "x", "1");
  EXPECT_ERROR(f.vault->pin(F::kFlights, "x", nul, F::act()), Code::invalid);
  EXPECT_ERROR(f.vault->pin(F::kFlights, "x", "", F::act()), Code::invalid);
}

TEST_P(Vaults, TakeNamesThatLookLikePathsAndStatements) {
  for (const std::string& name : {std::string(kNameBytesMax, 'x'), std::string("../../etc/passwd"), std::string("/"),
                                  std::string("a//b/"), std::string("'; DROP TABLE blob_name; --"), std::string("?"),
                                  std::string("/t/globex/p/rockets/blob/x"), std::string("\u202Egnp.exe")}) {
    f.put(F::kFlights, name, name);
    EXPECT_EQ(f.read(F::kFlights, name), name);
    EXPECT_EQ(f.vault->info(F::kFlights, name).name, name);
  }
  EXPECT_EQ(usage(F::kFlights).first.names, 8);
  EXPECT_EQ(usage(F::kRockets).second.names, 0);
}

TEST_P(Vaults, HideTheNamesAndBytesOfOtherTenants) {
  const auto secret = f.put(F::kRockets, "plan", "secret");
  f.put(F::kCargo, "plan", "other project");
  EXPECT_ERROR(f.vault->info(F::kFlights, "plan"), Code::not_found);
  EXPECT_TRUE(names(F::kFlights).empty());
  EXPECT_ERROR(f.vault->remove(F::kFlights, "plan", F::act()), Code::not_found);
  EXPECT_ERROR(f.vault->pin(F::kFlights, "plan", "why", F::act()), Code::not_found);
  // Even somebody who knows the address gets nothing for it, and the same bytes have another address elsewhere.
  f.keys->ensure(F::kUae, {"acme"}, F::act());
  EXPECT_ERROR(f.vault->open(F::kFlights, secret, 0, 6)->read_all(), Code::not_found);
  const auto same = f.put(F::kFlights, "mine", "secret");
  EXPECT_NE(same.address, secret.address);
  EXPECT_GT(same.new_bytes, 0U) << "whether another tenant has these bytes must not show";
}

TEST_P(Vaults, WantAProjectThatExists) {
  EXPECT_ERROR(f.put({{"acme"}, {"nothing"}}, "x", "1"), Code::not_found);
  EXPECT_ERROR(f.put({{"nobody"}, {"flights"}}, "x", "1"), Code::not_found);
  EXPECT_ERROR(put_many({{"nobody"}, {"flights"}}, {{"x", "1"}}), Code::not_found);
}

TEST_P(Vaults, KeepATenantOutOfZonesThatAreNotItsOwn) {
  EXPECT_ERROR(f.put(F::kRockets, "x", "1", F::kEu), Code::denied);
  EXPECT_ERROR(f.put(F::kRockets, "x", "1", ZoneName{"mars"}), Code::denied);
  f.put(F::kFlights, "x", "1", F::kEu);
  EXPECT_EQ(f.vault->info(F::kFlights, "x").zone, F::kEu);
}

TEST_P(Vaults, LetBytesLeaveTheirZoneOnlyUnderAGrantAndUntilItExpires) {
  f.put(F::kFlights, "eu/x", "stays", F::kEu);
  f.put(F::kFlights, "other", "stays too", F::kEu);
  EXPECT_ERROR(f.read(F::kFlights, "eu/x"), Code::denied);
  iam::TransferGrant grant;
  grant.name = "g";
  grant.from = F::kEu;
  grant.to = F::kUae;
  grant.scope = F::kFlights.scope();
  grant.resources = "blob/eu/*";
  grant.reason = "contract 7";
  grant.expires_us = (f.clock.wall() + std::chrono::hours(1)).count();
  f.declare(grant);
  EXPECT_EQ(f.read(F::kFlights, "eu/x"), "stays");
  EXPECT_ERROR(f.read(F::kFlights, "other"), Code::denied);
  f.clock.advance(std::chrono::hours(1) - std::chrono::microseconds(1));
  EXPECT_EQ(f.read(F::kFlights, "eu/x"), "stays");
  f.clock.advance(std::chrono::microseconds(1));
  EXPECT_ERROR(f.read(F::kFlights, "eu/x"), Code::denied);
}

TEST_P(Vaults, StopAtAQuotaAndNotBefore) {
  quota("/t/acme/p/flights", 10, 3);
  f.put(F::kFlights, "a", "12345");
  f.put(F::kFlights, "b", "12345");
  EXPECT_ERROR(f.put(F::kFlights, "c", "1"), Code::exhausted);
  f.put(F::kFlights, "c", "");  // the third, and no byte more
  EXPECT_ERROR(f.put(F::kFlights, "d", ""), Code::exhausted);
  EXPECT_ERROR(f.put(F::kFlights, "a", "123456"), Code::exhausted);
  f.put(F::kFlights, "a", "1234");
  f.put(F::kFlights, "b", "123456");
  EXPECT_EQ(usage(F::kFlights).first, (Usage{3, 10}));
  EXPECT_EQ(f.read(F::kFlights, "a"), "1234");
  f.vault->remove(F::kFlights, "c", F::act());
  f.put(F::kFlights, "d", "");
}

TEST_P(Vaults, CountAllProjectsForTheQuotaOfATenant) {
  quota("/t/acme", 10, std::nullopt);
  f.put(F::kFlights, "a", "123456");
  EXPECT_ERROR(f.put(F::kCargo, "b", "12345"), Code::exhausted);
  f.put(F::kCargo, "b", "1234");
  f.put(F::kRockets, "c", "not of acme, so not limited");
  // Lowered below what is used: nothing grows, but what shrinks is let through.
  quota("/t/acme", 5, std::nullopt);
  EXPECT_ERROR(f.put(F::kCargo, "b", "12345"), Code::exhausted);
  f.put(F::kCargo, "b", "1");
  f.vault->remove(F::kFlights, "a", F::act());
  f.put(F::kCargo, "b", "12345");
}

TEST_P(Vaults, PutABatchWholeOrNotAtAll) {
  f.put(F::kFlights, "old", "1");
  quota("/t/acme/p/flights", std::nullopt, 3);
  EXPECT_ERROR(put_many(F::kFlights, {{"a", "1"}, {"b", "2"}, {"c", "3"}}), Code::exhausted);
  EXPECT_EQ(names(F::kFlights), (std::vector<std::string>{"old"}));
  const auto batch = put_many(F::kFlights, {{"a", "1"}, {"old", "22"}, {"a", "333"}});
  EXPECT_EQ(batch.files, 3U);
  EXPECT_EQ(batch.bytes, 6U);
  EXPECT_EQ(f.read(F::kFlights, "a"), "333") << "the last of one name wins";
  EXPECT_EQ(usage(F::kFlights).first, (Usage{2, 5}));
  EXPECT_EQ(put_many(F::kFlights, {}).files, 0U);
}

TEST_P(Vaults, PutNothingOfABatchThatEndsInsideOfAFile) {
  bool asked = false;
  EXPECT_ERROR(f.vault->put_many(
                   F::kFlights, std::nullopt,
                   [&]() -> std::optional<NewFile> {
                     if (std::exchange(asked, true)) return std::nullopt;
                     return NewFile{"x", 10, blob::source_of(as_bytes("12345"))};
                   },
                   F::act()),
               Code::invalid);
  EXPECT_TRUE(names(F::kFlights).empty());
}

TEST_P(Vaults, TakeThousandsOfSmallFilesInOneWrite) {
  constexpr std::size_t kMany = repeats(10'000);
  std::vector<std::pair<std::string, std::string>> files;
  for (std::size_t i = 0; i < kMany; ++i)
    files.emplace_back(fmt::format("dir/{:05}", i), fmt::format("content {}", i % (kMany / 2)));
  const auto batch = put_many(F::kFlights, files);
  EXPECT_EQ(batch.files, kMany);
  EXPECT_EQ(usage(F::kFlights).first, usage(F::kFlights).second);
  EXPECT_EQ(put_many(F::kFlights, files).new_bytes, 0U);
  std::size_t listed = 0;
  for (std::string after;;) {
    const auto page = f.vault->list(F::kFlights, "dir/", after, 1000);
    if (page.empty()) break;
    listed += page.size();
    after = page.back().name;
  }
  EXPECT_EQ(listed, kMany);
  EXPECT_EQ(f.read(F::kFlights, fmt::format("dir/{:05}", kMany / 2 + 77)), "content 77");
}

TEST_P(Vaults, CollectWhatNothingKeepsAfterTheGrace) {
  f.put(F::kFlights, "keep", "kept");
  f.put(F::kFlights, "drop", "dropped");
  const auto pinned = f.put(F::kFlights, "pinned", "pinned");
  f.vault->pin(F::kFlights, "pinned", "model m1", F::act());
  f.vault->pin(F::kFlights, "pinned", "model m1", F::act());  // once is enough
  f.vault->pin(F::kFlights, "pinned", "model m2", F::act());
  EXPECT_EQ(f.vault->info(F::kFlights, "pinned").pins, (std::vector<std::string>{"model m1", "model m2"}));
  f.vault->remove(F::kFlights, "drop", F::act());
  f.vault->remove(F::kFlights, "pinned", F::act());
  EXPECT_EQ(f.vault->collect(F::act()).objects, 0U) << "within the grace nothing goes";
  pass_grace();
  EXPECT_EQ(f.vault->collect(F::act()).objects, 1U);
  EXPECT_EQ(f.read(F::kFlights, "keep"), "kept");
  EXPECT_EQ(as_text(f.vault->open(F::kFlights, pinned, 0, 6)->read_all()), "pinned");
  f.vault->unpin(F::kFlights, pinned.address.hex(), "model m1", F::act());
  EXPECT_ERROR(f.vault->unpin(F::kFlights, pinned.address.hex(), "model m1", F::act()), Code::not_found);
  EXPECT_EQ(f.vault->collect(F::act()).objects, 0U) << "the other reason still holds it";
  f.vault->unpin(F::kFlights, pinned.address.hex(), "model m2", F::act());
  const auto report = f.vault->collect(F::act());
  EXPECT_EQ(report.objects, 1U);
  EXPECT_EQ(report.kept, 1U);
  EXPECT_ERROR(f.vault->open(F::kFlights, pinned, 0, 6)->read_all(), Code::not_found);
}

TEST_P(Vaults, CollectNothingWhileSomebodyHolds) {
  const auto entry = f.put(F::kFlights, "x", "1");
  {
    const Vault::Hold hold(*f.vault);
    f.vault->remove(F::kFlights, "x", F::act());
    pass_grace();
    EXPECT_ERROR(f.vault->collect(F::act()), Code::conflict);
    EXPECT_EQ(as_text(f.vault->open(F::kFlights, entry, 0, 1)->read_all()), "1");
  }
  EXPECT_EQ(f.vault->collect(F::act()).objects, 1U);
}

TEST_P(Vaults, CollectOthersWhenOneTenantCannotBe) {
  f.put(F::kFlights, "drop", "1");
  const auto gone = f.put(F::kRockets, "drop", "2");
  f.vault->remove(F::kFlights, "drop", F::act());
  f.vault->remove(F::kRockets, "drop", F::act());
  pass_grace();
  bool failed = false;
  f.should_fail = [&](blob::BackendCall call, const std::string&) {
    return call == blob::BackendCall::list && !std::exchange(failed, true);
  };
  EXPECT_ERROR(f.vault->collect(F::act()), Code::unavailable);
  f.should_fail = nullptr;
  EXPECT_ERROR(f.vault->open(F::kRockets, gone, 0, 1)->read_all(), Code::not_found);
  EXPECT_EQ(f.vault->collect(F::act()).objects, 1U);
}

TEST_P(Vaults, GoOnCollectingWhenAnEmptiedZoneIsGone) {
  f.put(F::kCargo, "x", "1");
  f.vault->remove(F::kCargo, "x", F::act());
  f.put(F::kFlights, "drop", "1");
  f.vault->remove(F::kFlights, "drop", F::act());
  f.database->write(F::act(), [&](sql::Writer& writer) { f.directory->remove<iam::Zone>(writer, "eu"); });
  pass_grace();
  EXPECT_EQ(f.vault->collect(F::act()).objects, 1U);
}

TEST_P(Vaults, SayWhichNamesLostTheirBytes) {
  const auto entry = f.put(F::kFlights, "x", "1");
  f.vault->store(F::kUae).remove({"acme"}, entry.address);
  EXPECT_EQ(f.vault->collect(F::act()).missing, (std::vector<std::string>{entry.address.hex()}));
}

// Content that is known and unnamed is put again while it is being collected: whoever was told that it is stored can
// read it.
TEST_P(Vaults, NeverCollectWhatIsPutMeanwhile) {
  constexpr int kContents = 4, kRounds = 40;
  // The grace is what protects an object between being stored and being named: only the collector may run in between,
  // not a clock that jumps by more than the grace.
  Mutex time_stands;
  std::atomic<bool> stop{false};
  std::atomic<int> collections{0};
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] {
      for (; !stop; ++collections) f.vault->collect(F::act());
    });
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        for (int round = 0; round < kRounds || collections < 20; ++round) {
          const std::string name = fmt::format("t{}", t), text = fmt::format("content {}", round % kContents);
          Lock lock(time_stands);
          f.put(F::kFlights, name, text);
          ASSERT_EQ(f.read(F::kFlights, name), text);
          f.vault->remove(F::kFlights, name, F::act());
          pass_grace();
        }
        stop = true;
      });
  }
}

TEST_P(Vaults, ScrubFindsDamage) {
  f.put(F::kFlights, "x", "fine");
  f.put(F::kRockets, "y", "damaged");
  EXPECT_TRUE(f.vault->scrub().damaged.empty());
  auto& backend = *f.backends.at(F::kUae);
  for (const auto& info : backend.list("", "", 100)) {
    Bytes bytes = backend.get(info.name, 0, blob::Backend::kToTheEnd);
    bytes[bytes.size() / 2] ^= std::byte{1};
    backend.put(info.name, bytes, blob::Durable::now, blob::Existing::replace);
  }
  const auto report = f.vault->scrub();
  EXPECT_EQ(report.damaged.size(), 2U);
  EXPECT_ERROR(f.read(F::kFlights, "x"), Code::corrupt);
}

// Random operations against a map, which knows what a vault must answer.
TEST_P(Vaults, CountExactlyUnderRandomOperations) {
  sys::SimRandom random(4711);
  std::map<std::pair<int, std::string>, std::string> model;
  const Where places[] = {F::kFlights, F::kCargo, F::kRockets};
  for (int step = 0; step < 400; ++step) {
    const int place = static_cast<int>(random.below(3));
    const std::string name = fmt::format("n{}", random.below(12));
    const std::string text(random.below(2000), static_cast<char>('a' + random.below(26)));
    const auto key = std::pair{place, name};
    switch (random.below(4)) {
      case 0:
      case 1:
        f.put(places[place], name, text);
        model[key] = text;
        break;
      case 2:
        put_many(places[place], {{name, text}, {name + "x", text}});
        model[key] = text;
        model[{place, name + "x"}] = text;
        break;
      default:
        if (model.erase(key))
          f.vault->remove(places[place], name, F::act());
        else
          EXPECT_ERROR(f.vault->remove(places[place], name, F::act()), Code::not_found);
    }
  }
  for (int place = 0; place < 3; ++place) {
    Usage wanted;
    for (const auto& [key, text] : model) {
      if (key.first != place) continue;
      ++wanted.names;
      wanted.bytes += static_cast<std::int64_t>(text.size());
      EXPECT_EQ(f.read(places[place], key.second), text);
    }
    EXPECT_EQ(usage(places[place]).first, wanted);
    EXPECT_EQ(usage(places[place]).second, wanted);
  }
}

TEST_P(Vaults, CountExactlyUnderConcurrentWritersAtAQuota) {
  quota("/t/acme/p/flights", std::nullopt, 50);
  std::atomic<int> taken{0}, refused{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 10; ++i) {
          try {
            f.put(F::kFlights, fmt::format("{}-{}", t, i), std::string(static_cast<std::size_t>(i), 'x'));
            ++taken;
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), Code::exhausted) << error.what();
            ++refused;
          }
        }
      });
  }
  EXPECT_EQ(taken, 50);
  EXPECT_EQ(refused, 30);
  EXPECT_EQ(usage(F::kFlights).first, usage(F::kFlights).second);
  EXPECT_EQ(usage(F::kFlights).first.names, 50);
}

}  // namespace
}  // namespace falaj::vault
