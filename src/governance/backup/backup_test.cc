// SPDX-License-Identifier: Apache-2.0
#include "governance/backup/backup.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "governance/audit/verify.h"
#include "governance/vault/testing.h"
#include "storage/blob/testing.h"

namespace falaj::backup {
namespace {

using vault::VaultFixture;

constexpr std::string_view kPassphrase = "correct horse battery";
constexpr std::string_view kPassword = "a good password";

// Every table as text, to compare whole databases; but for the one that says when migrations were applied.
class Rows final : public sql::TableSink {
 public:
  void table(const sql::Table& table) override { now_ = &tables_[table.name]; }
  void row(std::span<const sql::Value> values) override {
    std::string& text = now_->emplace_back();
    for (const auto& value : values) {
      text += fmt::format("|{}:", value.index());
      if (const auto* v = std::get_if<std::int64_t>(&value)) text += std::to_string(*v);
      if (const auto* v = std::get_if<double>(&value)) text += fmt::format("{}", *v);
      if (const auto* v = std::get_if<std::string>(&value)) text += *v;
      if (const auto* v = std::get_if<Bytes>(&value)) text += to_hex(*v);
    }
  }
  static std::map<std::string, std::vector<std::string>> of(sql::Database& database) {
    Rows rows;
    database.read([&](sql::Reader& reader) { reader.dump(rows); });
    rows.tables_.erase("migration");
    return std::move(rows.tables_);
  }

 private:
  std::map<std::string, std::vector<std::string>> tables_;
  std::vector<std::string>* now_ = nullptr;
};

ArchiveReader::Source source_of(BytesView file) {
  return [file](std::span<std::byte> out) mutable {
    const std::size_t n = std::min(out.size(), file.size());
    std::copy_n(file.begin(), n, out.begin());
    file = file.subspan(n);
    return n;
  };
}

struct Platform : VaultFixture {
  using VaultFixture::VaultFixture;

  // People, credentials, blobs, pins and keys as the seed says.
  void fill(std::uint64_t seed) {
    sys::SimRandom dice(seed);
    declare(iam::User{"", "ada", "Ada \u0639\u0628\u062F", "ada@example.org", false});
    const auto hash = directory->hash_new_password(kPassword);
    token = database->write(act("fill"), [&](sql::Writer& writer) {
      directory->set_password(writer, iam::Principal::parse("user/ada"), hash);
      return directory->issue_token(writer, {iam::Principal::parse("user/ada"), "t", {}, 3600'000'000}).text;
    });
    const vault::Where places[] = {kFlights, kCargo, kRockets};
    for (int i = 0; i < 30; ++i) {
      const auto& where = places[dice.below(3)];
      const std::string name = fmt::format("n{}/\u00e9%{}", dice.below(20), i);
      put(where, name, as_text(blob::random_bytes(dice.below(dice.below(5) == 0 ? 3'000'000 : 5'000), dice.next())));
      if (dice.below(4) == 0) vault->pin(where, name, "model", act());
      if (dice.below(4) == 0) vault->remove(where, name, act());
      if (dice.below(8) == 0) keys->rotate_root(act());
      if (dice.below(8) == 0) keys->rotate_tenant(zone_of(where), where.tenant, act());
    }
  }
  static ZoneName zone_of(const vault::Where& where) { return where.project == kCargo.project ? kEu : kUae; }
  Bytes backup(Blobs blobs = Blobs::copy, const std::function<void()>& meanwhile = {}) {
    Bytes file;
    totals = take(
        *database, *vault, *keys, kPassphrase, blobs, clock.wall().count(),
        [&](BytesView piece) {
          file.insert(file.end(), piece.begin(), piece.end());
          if (meanwhile) meanwhile();
        },
        vault::kCheapPassphrase);
    return file;
  }
  // Into a database that is made now.
  Totals restore(const ArchiveReader::Source& source, std::string_view passphrase = kPassphrase) {
    stop();
    open_database();
    std::optional<vault::RootKeys> roots;
    return backup::restore(passphrase, source,
                           {[&](const vault::RootKeys& restored) {
                              save_roots(restored);
                              roots.emplace(vault::RootKeys::decode(restored.encode()));
                            },
                            *database,
                            [&]() -> vault::Vault& {
                              open_vault(std::move(*roots));
                              return *vault;
                            }},
                           [](std::string_view, std::uint64_t) {});
  }
  bool is_empty() {
    for (const auto& [table, rows] : Rows::of(*database))
      if (!rows.empty()) return false;
    return true;
  }
  std::map<std::string, std::string> blobs(const vault::Where& where) {
    std::map<std::string, std::string> out;
    for (const auto& entry : vault->list(where, "", "", 100'000)) out[entry.name] = read(where, entry.name);
    return out;
  }

  std::string token;
  Totals totals;
};

void expect_same_platform(Platform& was, Platform& is) {
  EXPECT_EQ(Rows::of(*is.database), Rows::of(*was.database));
  for (const auto& where : {Platform::kFlights, Platform::kCargo, Platform::kRockets})
    EXPECT_TRUE(is.blobs(where) == was.blobs(where));
  EXPECT_TRUE(is.vault->scrub().damaged.empty());
  EXPECT_EQ(is.directory->check_password("ada", kPassword).str(), "user/ada");
  EXPECT_EQ(is.directory->authenticate({"Bearer " + was.token, {}, {}}).principal.str(), "user/ada");
  const auto verdict = audit::verify(*is.database, is.signer->public_key());
  EXPECT_TRUE(verdict.intact) << verdict.why;
  is.put(Platform::kFlights, "after the restore", "goes on");
  EXPECT_EQ(is.read(Platform::kFlights, "after the restore"), "goes on");
  EXPECT_TRUE(audit::verify(*is.database, is.signer->public_key()).intact);
}

struct BetweenEngines : testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Engines, BetweenEngines,
                         testing::Combine(testing::ValuesIn(sql::engines()), testing::ValuesIn(sql::engines())));

TEST_P(BetweenEngines, RandomPlatformsAreTheSameAfterwards) {
  for (const std::uint64_t seed : {11U, 12U, 13U}) {
    SCOPED_TRACE(seed);
    Platform from(std::get<0>(GetParam()));
    from.fill(seed);
    const Bytes file = from.backup();
    Platform to(std::get<1>(GetParam()), Platform::Fill::nothing);
    const auto inspected = inspect(kPassphrase, source_of(file));
    const auto restored = to.restore(source_of(file));
    EXPECT_EQ(restored.rows, from.totals.rows);
    EXPECT_EQ(restored.objects, from.totals.objects);
    EXPECT_EQ(inspected.rows, from.totals.rows);
    EXPECT_EQ(inspected.object_bytes, from.totals.object_bytes);
    EXPECT_GT(restored.audit_records, 0);
    to.restart();
    expect_same_platform(from, to);
  }
}

struct Backups : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engines, Backups, testing::ValuesIn(sql::engines()));

TEST_P(Backups, OfAnEmptyPlatformRestore) {
  Platform from(GetParam());
  Platform to(GetParam(), Platform::Fill::nothing);
  EXPECT_EQ(to.restore(source_of(from.backup())).objects, 0U);
  to.restart();
  EXPECT_EQ(Rows::of(*to.database), Rows::of(*from.database));
}

TEST_P(Backups, ByReferenceNeedTheSameStores) {
  Platform from(GetParam());
  from.fill(21);
  const Bytes file = from.backup(Blobs::reference);
  EXPECT_EQ(from.totals.objects, 0U);
  EXPECT_LT(file.size(), 300'000U);
  const auto flights = from.blobs(Platform::kFlights);
  Platform to(GetParam(), Platform::Fill::nothing);
  to.restore(source_of(file));
  from.stop();
  to.backends = std::move(from.backends);
  to.restart();
  EXPECT_TRUE(to.blobs(Platform::kFlights) == flights);
}

TEST_P(Backups, TakenWhileOthersWriteAreOneMoment) {
  Platform from(GetParam());
  from.fill(31);
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  Bytes file;
  {
    std::vector<std::jthread> writers;
    for (int w = 0; w < 8; ++w)
      writers.emplace_back([&, w] {
        for (int i = 0; !stop; ++i, ++written) {
          // Two names in one write: a backup has both or neither.
          int left = 2;
          const std::string text = fmt::format("{} of {}", i, w);
          from.vault->put_many(
              Platform::kFlights, std::nullopt,
              [&]() -> std::optional<vault::NewFile> {
                if (left-- == 0) return std::nullopt;
                return vault::NewFile{fmt::format("w{}/{}-{}", w, i, left), text.size(),
                                      blob::source_of(as_bytes(text))};
              },
              Platform::act("blob.put"));
        }
      });
    while (written < 16) std::this_thread::yield();
    file = from.backup();
    const int then = written;
    while (written < then + 16) std::this_thread::yield();
    stop = true;
  }
  Platform to(GetParam(), Platform::Fill::nothing);
  to.restore(source_of(file));
  to.restart();
  for (int w = 0; w < 8; ++w) {
    std::set<std::string> names;
    for (const auto& entry : to.vault->list(Platform::kFlights, fmt::format("w{}/", w), "", 100'000)) {
      names.insert(entry.name);
      EXPECT_TRUE(to.read(Platform::kFlights, entry.name).ends_with(fmt::format(" of {}", w)));
    }
    for (std::size_t i = 0; i < names.size() / 2; ++i)
      for (int half = 0; half < 2; ++half)
        EXPECT_TRUE(names.contains(fmt::format("w{}/{}-{}", w, i, half))) << "a gap, or half of a write";
    EXPECT_EQ(names.size() % 2, 0U);
  }
  EXPECT_TRUE(audit::verify(*to.database, to.signer->public_key()).intact);
}

TEST_P(Backups, KeepWhatIsRemovedAndCollectedMeanwhile) {
  Platform from(GetParam());
  for (int i = 0; i < 4; ++i)
    from.put(Platform::kFlights, fmt::format("n{}", i), as_text(blob::random_bytes(1'500'000, 40 + i)));
  int calls = 0;
  const Bytes file = from.backup(Blobs::copy, [&] {
    if (++calls != 3) return;  // in the middle of the first objects
    for (int i = 0; i < 4; ++i) from.vault->remove(Platform::kFlights, fmt::format("n{}", i), Platform::act());
    from.clock.advance(from.options.grace * 2);
    EXPECT_ERROR(from.vault->collect(Platform::act()), Code::conflict);
  });
  ASSERT_GE(calls, 3);
  Platform to(GetParam(), Platform::Fill::nothing);
  EXPECT_EQ(to.restore(source_of(file)).objects, 4U);
}

TEST_P(Backups, HoldRowsLargerThanAPart) {
  Platform from(GetParam());
  auto act = Platform::act();
  act.details = '"' + std::string(2 * kPartBytesMax + 5, 'x') + '"';
  from.database->write(act, [](sql::Writer&) {});
  Platform to(GetParam(), Platform::Fill::nothing);
  to.restore(source_of(from.backup()));
  to.restart();
  EXPECT_TRUE(to.log->log({}, std::nullopt, 1).records.at(0).details == act.details);
}

TEST_P(Backups, AreRefusedWithTheWrongPassphrase) {
  Platform from(GetParam());
  const Bytes file = from.backup();
  Platform to(GetParam(), Platform::Fill::nothing);
  EXPECT_ERROR(to.restore(source_of(file), "correct horse batterz"), Code::denied);
  EXPECT_TRUE(to.is_empty());
  EXPECT_FALSE(to.files.stat(std::string(vault::kRootKeyName)));
}

TEST_P(Backups, AreRefusedByAPlatformThatHasSomething) {
  Platform from(GetParam());
  from.fill(51);
  const Bytes file = from.backup();
  Platform to(GetParam());
  const auto before = Rows::of(*to.database);
  EXPECT_ERROR(to.restore(source_of(file)), Code::conflict);
  EXPECT_EQ(Rows::of(*to.database), before);
}

// Cut anywhere: either nothing was loaded, or what was loaded does not start with the keys of a new platform.
TEST_P(Backups, CutShortLeaveNothingThatStarts) {
  Platform from(GetParam());
  from.fill(61);
  const Bytes file = from.backup();
  sys::SimRandom dice(62);
  bool cut_in_tables = false, cut_in_objects = false;
  for (int i = 0; i < 8; ++i) {
    const std::size_t at = i == 0 ? 5'000 : i == 1 ? file.size() - 10 : dice.below(file.size());
    Platform to(GetParam(), Platform::Fill::nothing);
    EXPECT_ANY_THROW(to.restore(source_of(BytesView(file).first(at))));
    if (to.is_empty()) {
      cut_in_tables = true;
      continue;
    }
    cut_in_objects = true;
    to.files.remove(std::string(vault::kRootKeyName));
    EXPECT_ERROR(to.restart(), Code::corrupt);
  }
  EXPECT_TRUE(cut_in_tables && cut_in_objects);
}

// Of a whole small backup every byte changed in turn, every cut, and random damage: none of it gets into a database.
TEST(BackupTampering, IsFoundInEveryByte) {
  Platform from("sqlite");
  from.put(Platform::kFlights, "x", "content");
  const Bytes file = from.backup();
  std::size_t tried = 0, found = 0;
  const auto expect_found = [&](BytesView altered, std::size_t at) {
    ++tried;
    try {
      inspect(kPassphrase, source_of(altered));
      ADD_FAILURE() << "not found: byte " << at;
    } catch (const Error& error) {
      ++found;
      EXPECT_TRUE(error.code() == Code::corrupt || error.code() == Code::denied) << error.what();
      EXPECT_TRUE(std::string_view(error.what()).starts_with("backup: ")) << error.what();
    }
  };
  const std::size_t step = file.size() / repeats(file.size());
  for (std::size_t i = 0; i < file.size(); i += step) {
    Bytes altered = file;
    altered[i] ^= std::byte{1} << (i % 8);
    expect_found(altered, i);
    if (i % 16 == 0) expect_found(BytesView(file).first(i), i);
  }
  EXPECT_GE(tried, file.size() / step);
  EXPECT_EQ(found, tried);
}

TEST(BackupTampering, LeavesTheDatabaseEmpty) {
  Platform from("sqlite");
  from.put(Platform::kFlights, "x", "content");
  const Bytes file = from.backup();
  sys::SimRandom dice(71);
  for (int i = 0; i < 40; ++i) {
    Bytes altered = file;
    altered[dice.below(file.size())] ^= std::byte{1};
    Platform to("sqlite", Platform::Fill::nothing);
    EXPECT_ANY_THROW(to.restore(source_of(altered)));
    EXPECT_TRUE(to.is_empty());
  }
}

// Made by somebody with the passphrase, so the seal is right and the inside is not.
TEST(BackupInside, IsCheckedToo) {
  const auto sealed = [](std::vector<ArchiveReader::Item> items) {
    Bytes file;
    ArchiveWriter writer(
        kPassphrase, [&](BytesView piece) { file.insert(file.end(), piece.begin(), piece.end()); },
        vault::kCheapPassphrase);
    for (const auto& item : items) writer.add(item.part, item.bytes);
    writer.finish();
    return file;
  };
  const auto about = to_bytes(R"({"format":1})");
  Bytes roots(4 + 4 + 32 + 32);
  roots[0] = std::byte{1};
  const auto code_of = [&](std::vector<ArchiveReader::Item> items) -> std::optional<Code> {
    try {
      inspect(kPassphrase, source_of(sealed(std::move(items))));
      return std::nullopt;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}, {Part::end, {}}}), std::nullopt);
  EXPECT_EQ(code_of({}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, to_bytes("[]")}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, to_bytes(R"({"format":2})")}}), Code::invalid);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, {}}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}, {Part::end, {}}, {Part::end, {}}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}, {Part::row, {}}, {Part::end, {}}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}, {Part::table, to_bytes("x")}}), Code::corrupt);
  EXPECT_EQ(code_of({{Part::about, about}, {Part::roots, roots}, {Part::object, to_bytes("x")}}), Code::corrupt);
}

}  // namespace
}  // namespace falaj::backup
