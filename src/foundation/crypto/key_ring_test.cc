// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/key_ring.h"

#include <gtest/gtest.h>

#include <set>

#include "foundation/base/testing.h"

namespace falaj::crypto {
namespace {

const ZoneName kUae{"uae"}, kEu{"eu"};
const TenantName kAcme{"acme"}, kOther{"other"};

std::string hex(const Key& key) { return to_hex(key.view()); }

class KeyRingTest : public testing::Test {
 protected:
  KeyRingTest() {
    keep(ring_.plan_zone(kUae));
    keep(ring_.plan_zone(kEu));
    keep(ring_.plan_tenant(kUae, kAcme));
    keep(ring_.plan_tenant(kUae, kOther));
    keep(ring_.plan_tenant(kEu, kAcme));
  }
  // As a table of a database would.
  void keep(const std::vector<KeyRecord>& plan) {
    for (const auto& record : plan) {
      std::erase_if(stored_, [&](const KeyRecord& old) {
        return old.kind == record.kind && old.zone == record.zone && old.tenant == record.tenant &&
               old.version == record.version;
      });
      stored_.push_back(record);
    }
    ring_.apply(plan);
  }
  KeyRing reopened(const Key& root) { return {root.copy(), stored_}; }

  const Key root_ = Key::random();
  std::vector<KeyRecord> stored_;
  KeyRing ring_{root_.copy(), {}};
};

TEST_F(KeyRingTest, GivesEveryTenantAndZoneKeysOfTheirOwn) {
  std::set<std::string> keys;
  for (const auto& [zone, tenant] : {std::pair{kUae, kAcme}, {kUae, kOther}, {kEu, kAcme}}) {
    keys.insert(hex(ring_.newest(zone, tenant).key));
    keys.insert(hex(ring_.address_key(zone, tenant)));
    EXPECT_EQ(ring_.newest(zone, tenant).version, 1U);
  }
  EXPECT_EQ(keys.size(), 6U);
  EXPECT_ERROR(ring_.newest(kEu, kOther), Code::not_found);
  EXPECT_ERROR(ring_.version(kUae, kAcme, 2), Code::not_found);
  EXPECT_ERROR(ring_.plan_zone(kUae), Code::exists);
  EXPECT_ERROR(ring_.plan_tenant(kUae, kAcme), Code::exists);
  EXPECT_ERROR(ring_.plan_tenant(ZoneName{"nowhere"}, kAcme), Code::not_found);
}

TEST_F(KeyRingTest, IsTheSameWhenOpenedAgain) {
  const KeyRing again = reopened(root_);
  again.verify();
  EXPECT_EQ(hex(again.newest(kUae, kAcme).key), hex(ring_.newest(kUae, kAcme).key));
  EXPECT_ERROR(reopened(Key::random()).newest(kUae, kAcme), Code::corrupt);
  EXPECT_ERROR(reopened(Key::random()).verify(), Code::corrupt);
}

TEST_F(KeyRingTest, APlanChangesNothingUntilApplied) {
  const std::string before = hex(ring_.newest(kUae, kAcme).key);
  (void)ring_.plan_tenant_rotation(kUae, kAcme);
  (void)ring_.plan_shredding(kUae, kAcme);
  EXPECT_EQ(hex(ring_.newest(kUae, kAcme).key), before);
}

TEST_F(KeyRingTest, RotatesATenantAndKeepsOldVersionsAndAddresses) {
  const std::string first = hex(ring_.newest(kUae, kAcme).key), address = hex(ring_.address_key(kUae, kAcme));
  keep(ring_.plan_tenant_rotation(kUae, kAcme));
  EXPECT_EQ(ring_.newest(kUae, kAcme).version, 2U);
  EXPECT_NE(hex(ring_.newest(kUae, kAcme).key), first);
  EXPECT_EQ(hex(ring_.version(kUae, kAcme, 1)), first);
  EXPECT_EQ(hex(ring_.address_key(kUae, kAcme)), address);
  EXPECT_EQ(hex(reopened(root_).version(kUae, kAcme, 1)), first);
  keep(ring_.plan_retirement(kUae, kAcme, 2));
  EXPECT_ERROR(ring_.version(kUae, kAcme, 1), Code::denied);
  EXPECT_EQ(ring_.newest(kUae, kAcme).version, 2U);
}

TEST_F(KeyRingTest, RotatesAZoneWithoutChangingWhatIsBelow) {
  keep(ring_.plan_tenant_rotation(kUae, kAcme));
  const std::string one = hex(ring_.version(kUae, kAcme, 1)), two = hex(ring_.version(kUae, kAcme, 2));
  const std::string other = hex(ring_.newest(kUae, kOther).key), eu = hex(ring_.newest(kEu, kAcme).key);
  const auto before = stored_;
  keep(ring_.plan_zone_rotation(kUae));
  const KeyRing again = reopened(root_);
  for (const KeyRing* ring : {&static_cast<const KeyRing&>(ring_), &again}) {
    EXPECT_EQ(hex(ring->version(kUae, kAcme, 1)), one);
    EXPECT_EQ(hex(ring->version(kUae, kAcme, 2)), two);
    EXPECT_EQ(hex(ring->newest(kUae, kOther).key), other);
    EXPECT_EQ(hex(ring->newest(kEu, kAcme).key), eu);
  }
  reopened(root_).verify();
  // The old zone key is gone: records from before the rotation do not open under the new one.
  KeyRing mixed(root_.copy(), stored_);
  for (const auto& record : before) {
    if (record.kind == KeyKind::tenant && record.zone == kUae && record.tenant == kOther) mixed.apply({&record, 1});
  }
  EXPECT_ERROR(mixed.newest(kUae, kOther), Code::corrupt);
}

TEST_F(KeyRingTest, RotatesTheRoot) {
  const std::string key = hex(ring_.newest(kUae, kAcme).key);
  const Key new_root = Key::random();
  keep(ring_.plan_root_rotation(new_root));
  EXPECT_EQ(hex(reopened(new_root).newest(kUae, kAcme).key), key);
  EXPECT_ERROR(reopened(root_).newest(kUae, kAcme), Code::corrupt);
}

TEST_F(KeyRingTest, ShredsATenantInOneZoneOnly) {
  keep(ring_.plan_shredding(kUae, kAcme));
  EXPECT_ERROR(ring_.newest(kUae, kAcme), Code::denied);
  EXPECT_ERROR(ring_.version(kUae, kAcme, 1), Code::denied);
  EXPECT_ERROR(ring_.address_key(kUae, kAcme), Code::denied);
  EXPECT_ERROR(ring_.plan_tenant_rotation(kUae, kAcme), Code::denied);
  EXPECT_NO_THROW(ring_.newest(kEu, kAcme));
  EXPECT_NO_THROW(ring_.newest(kUae, kOther));
  for (const auto& record : stored_) {
    if (record.zone == kUae && record.tenant == kAcme) {
      EXPECT_TRUE(record.wrapped.empty());
    }
  }
  keep(ring_.plan_zone_rotation(kUae));
  EXPECT_ERROR(ring_.newest(kUae, kAcme), Code::denied);
}

TEST_F(KeyRingTest, RecordsCannotStandInForEachOther) {
  for (const auto& from : stored_) {
    for (auto to : stored_) {
      if (&from == &to || from.wrapped == to.wrapped) continue;
      to.wrapped = from.wrapped;
      KeyRing ring = reopened(root_);
      ring.apply({&to, 1});
      EXPECT_ERROR(ring.verify(), Code::corrupt);
    }
  }
}

}  // namespace
}  // namespace falaj::crypto
