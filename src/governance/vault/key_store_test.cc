// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/key_store.h"

#include <atomic>
#include <set>
#include <thread>

#include "foundation/base/testing.h"
#include "governance/vault/testing.h"

namespace falaj::vault {
namespace {

const ZoneName kUae = VaultFixture::kUae, kEu = VaultFixture::kEu;
const TenantName kAcme{"acme"}, kGlobex{"globex"};

struct Keys : testing::TestWithParam<std::string> {
  VaultFixture f{GetParam()};
  static sql::Act act() { return VaultFixture::act("key.rotate"); }
};
INSTANTIATE_TEST_SUITE_P(Engines, Keys, testing::ValuesIn(sql::engines()));

TEST_P(Keys, AreMadeOnceByManyThreads) {
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) f.keys->ensure(kUae, {"tenant" + std::to_string(i)}, act());
      });
  }
  EXPECT_EQ(f.keys->list().size(), 1U + 2U * 20U);  // the zone's; of each tenant one and its address key
  const auto before = f.keys->of_zone(kUae)->address_key({"tenant7"});
  f.restart();
  EXPECT_EQ(f.keys->list().size(), 41U);
  EXPECT_EQ(as_text(f.keys->of_zone(kUae)->address_key({"tenant7"}).view()), as_text(before.view()));
}

TEST_P(Keys, OfEveryLevelRotateWhileObjectsStayReadable) {
  f.put(VaultFixture::kFlights, "old", "before");
  const auto address = f.put(VaultFixture::kFlights, "same", "content").address;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(f.keys->rotate_tenant(kUae, kAcme, act()).version, static_cast<std::uint32_t>(3 * round + 2));
    EXPECT_EQ(f.keys->rotate_zone(kUae, act()).rewrapped, 2 + 3 * round + 1);
    EXPECT_EQ(f.keys->rotate_root(act()).version, static_cast<std::uint32_t>(round + 2));
    f.keys->rotate_tenant(kUae, kAcme, act());
    f.restart();
    f.keys->rotate_tenant(kUae, kAcme, act());
    EXPECT_EQ(f.read(VaultFixture::kFlights, "old"), "before");
    const auto again = f.put(VaultFixture::kFlights, "same", "content");
    EXPECT_EQ(again.address, address) << "an address does not change with a key";
    EXPECT_EQ(again.new_bytes, 0U);
    f.put(VaultFixture::kFlights, "new" + std::to_string(round), "after");
  }
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(f.read(VaultFixture::kFlights, "new" + std::to_string(round)), "after");
}

TEST_P(Keys, RotateWhileOthersReadAndWrite) {
  f.put(VaultFixture::kFlights, "always", "there");
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; !stop; ++i, ++reads) {
          ASSERT_EQ(f.read(VaultFixture::kFlights, "always"), "there");
          f.put(VaultFixture::kFlights, "w" + std::to_string(t), std::to_string(i));
        }
      });
    while (reads < 3) std::this_thread::yield();
    for (int i = 0; i < 10; ++i) {
      f.keys->rotate_zone(kUae, act());
      f.keys->rotate_tenant(kUae, kAcme, act());
      f.keys->rotate_root(act());
    }
    stop = true;
  }
  f.restart();
  EXPECT_EQ(f.read(VaultFixture::kFlights, "always"), "there");
}

TEST_P(Keys, OfWhatIsNotThereDoNotRotate) {
  EXPECT_ERROR(f.keys->rotate_zone(kEu, act()), Code::not_found);
  f.keys->ensure(kUae, kAcme, act());
  EXPECT_ERROR(f.keys->rotate_tenant(kUae, kGlobex, act()), Code::not_found);
  EXPECT_ERROR(f.keys->rotate_tenant(kEu, kAcme, act()), Code::not_found);
}

TEST_P(Keys, OfAnotherPlatformAreRefusedAtTheStart) {
  f.put(VaultFixture::kFlights, "a", "a");
  f.stop();
  f.open_database();
  auto other = RootKeys::open(f.files, "other.key", std::nullopt);
  EXPECT_ERROR(f.open_vault(std::move(other)), Code::corrupt);
  f.restart();
  EXPECT_EQ(f.read(VaultFixture::kFlights, "a"), "a");
}

// Cuts the rotation of the root short at its n-th step, then starts again with what the file holds.
TEST_P(Keys, SurviveACutAtEveryStepOfARotationOfTheRoot) {
  f.put(VaultFixture::kFlights, "a", "before");
  enum class Cut { before_both_are_saved, after_both_are_saved, before_the_new_is_saved, after_the_new_is_saved };
  for (const auto cut : {Cut::before_both_are_saved, Cut::after_both_are_saved, Cut::before_the_new_is_saved,
                         Cut::after_the_new_is_saved}) {
    SCOPED_TRACE(static_cast<int>(cut));
    int saves = 0;
    auto roots = RootKeys::open(f.files, std::string(kRootKeyName), std::nullopt);
    KeyStore keys(*f.database, std::move(roots), [&](const RootKeys& now) {
      const bool first = ++saves == 1;
      const auto dies = [] { throw Error(Code::unavailable, "cut"); };
      if (cut == Cut::before_both_are_saved || (!first && cut == Cut::before_the_new_is_saved)) dies();
      f.save_roots(now);
      if (cut == Cut::after_both_are_saved || (!first && cut == Cut::after_the_new_is_saved)) dies();
    });
    EXPECT_ERROR(keys.rotate_root(act()), Code::unavailable);
    // The process may also live on, and then make keys that the next start must open.
    keys.ensure(kUae, {"made-after-" + std::to_string(static_cast<int>(cut))}, act());
    if (cut == Cut::before_the_new_is_saved) keys.ensure(kEu, kAcme, act());
    f.restart();
    EXPECT_EQ(f.read(VaultFixture::kFlights, "a"), "before");
    EXPECT_EQ(RootKeys::open(f.files, std::string(kRootKeyName), std::nullopt).count(), 1U);
  }
}

TEST_P(Keys, SurviveADatabaseThatFailsTheRotationOfTheRoot) {
  f.put(VaultFixture::kFlights, "a", "before");
  f.database->stop();
  EXPECT_ERROR(f.keys->rotate_root(act()), Code::cancelled);
  EXPECT_EQ(RootKeys::open(f.files, std::string(kRootKeyName), std::nullopt).count(), 2U);
  f.restart();
  EXPECT_EQ(RootKeys::open(f.files, std::string(kRootKeyName), std::nullopt).count(), 1U);
  EXPECT_EQ(f.read(VaultFixture::kFlights, "a"), "before");
}

TEST_P(Keys, InTheDatabaseAreWrapped) {
  f.keys->ensure(kUae, kAcme, act());
  const std::string address(as_text(f.keys->of_zone(kUae)->address_key(kAcme).view()));
  const auto rows = f.database->read([](sql::Reader& reader) {
    return reader.all("SELECT wrapped FROM vault_key", {},
                      [](const sql::Row& row) { return std::string(as_text(row.bytes(0))); });
  });
  ASSERT_EQ(rows.size(), 3U);
  for (const auto& wrapped : rows) EXPECT_EQ(wrapped.find(address), std::string::npos);
}

TEST_P(Keys, SwappedBetweenTenantsAreRefusedAtTheStart) {
  f.keys->ensure(kUae, kAcme, act());
  f.keys->ensure(kUae, kGlobex, act());
  f.stop();
  f.scratch->tamper(
      "UPDATE vault_key SET tenant = 'x' WHERE tenant = 'acme'; UPDATE vault_key SET tenant = 'acme' WHERE tenant = "
      "'globex'; UPDATE vault_key SET tenant = 'globex' WHERE tenant = 'x'");
  EXPECT_ERROR(f.start(), Code::corrupt);
}

TEST_P(Keys, ForABackupAreThoseOfItsSnapshot) {
  f.keys->ensure(kUae, kAcme, act());
  f.database->read([&](sql::Reader& snapshot) {
    const Bytes roots = f.keys->encode_roots(snapshot);
    f.keys->rotate_root(act());
    EXPECT_ERROR(f.keys->encode_roots(snapshot), Code::conflict);
    EXPECT_NE(f.database->read([&](sql::Reader& later) { return f.keys->encode_roots(later); }), roots);
  });
}

}  // namespace
}  // namespace falaj::vault
