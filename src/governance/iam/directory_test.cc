// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/directory.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "governance/iam/testing.h"

namespace falaj::iam {
namespace {

constexpr std::int64_t kSecond = 1'000'000, kMinute = 60 * kSecond, kHour = 60 * kMinute;
const Scope kFlights = Scope::of_project("acme", "flights");
const Principal kAda = Principal::parse("user/ada");
const Principal kCi = Principal::parse("service/acme/ci");

class DirectoryTest : public testing::TestWithParam<std::string> {
 protected:
  DirectoryFixture f{GetParam()};
  Directory& directory() { return *f.directory; }

  void add_ada() {
    f.write([&](sql::Writer& w) { directory().put(w, User{"", "ada", "Ada", "", false}); });
  }
  Issued token_for(const Principal& who, std::vector<Restriction> restrictions = {}, std::int64_t ttl = kHour) {
    return f.write([&](sql::Writer& w) { return directory().issue_token(w, {who, "test", restrictions, ttl}); });
  }
  Identity with_token(const std::string& text) {
    const auto header = "Bearer " + text;
    return directory().authenticate({header, {}, std::nullopt});
  }
  Identity with_session(const std::string& text) { return directory().authenticate({{}, text, std::nullopt}); }
};
INSTANTIATE_TEST_SUITE_P(Engines, DirectoryTest, testing::ValuesIn(sql::engines()),
                         [](const auto& info) { return info.param; });

TEST_P(DirectoryTest, BootstrapsOnceAndItsTokenMayDoEverything) {
  const auto issued = directory().bootstrap(kHour);
  ASSERT_TRUE(issued);
  const auto who = with_token(issued->text);
  EXPECT_EQ(who.principal.str(), "user/admin");
  EXPECT_TRUE(directory().allows(who, "tenant.create", Scope::of_tenant("acme")));
  EXPECT_FALSE(directory().bootstrap(kHour));
  f.write([&](sql::Writer& w) { directory().remove<User>(w, "admin"); });
  f.restart();
  EXPECT_FALSE(directory().bootstrap(kHour));  // a removed administrator does not come back
  EXPECT_ERROR(with_token(issued->text), Code::unauthenticated);
}

TEST_P(DirectoryTest, EveryBadCredentialGetsTheSameAnswer) {
  add_ada();
  const auto good = token_for(kAda).text;
  auto wrong_secret = *parse_credential(CredentialKind::token, good);
  wrong_secret.secret[0] ^= std::byte{1};
  auto wrong_id = wrong_secret;
  wrong_id.id.bits.low ^= 1;
  const std::string headers[] = {
      "",
      "Bearer",
      "Bearer ",
      "Bearer x",
      "Basic x",
      "Basic eA==",
      "Digest " + good,
      good,
      "Bearer " + good + "x",
      "Bearer " + format_credential(CredentialKind::token, wrong_secret),
      "Bearer " + format_credential(CredentialKind::token, wrong_id),
      "Bearer " + format_credential(CredentialKind::session, *parse_credential(CredentialKind::token, good)),
      "Bearer falajw_AAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
  for (const auto& header : headers) {
    try {
      directory().authenticate({header, {}, std::nullopt});
      ADD_FAILURE() << header;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::unauthenticated);
      EXPECT_STREQ(e.what(), "credentials are missing, wrong, expired or revoked");
    }
  }
  // The first credential decides alone.
  EXPECT_ERROR(directory().authenticate({"Bearer x", good, Digest{}}), Code::unauthenticated);
  EXPECT_EQ(with_token(good).principal.str(), "user/ada");
  EXPECT_EQ(directory().authenticate({"bearer " + good, {}, {}}).principal.str(), "user/ada");
  EXPECT_EQ(directory().authenticate({"Basic " + to_base64(as_bytes("ada:" + good)), {}, {}}).principal.str(),
            "user/ada");
}

TEST_P(DirectoryTest, ATokenEndsWhenItExpiresIsRevokedOrItsPrincipalGoes) {
  add_ada();
  const auto short_lived = token_for(kAda, {}, kMinute);
  const auto revoked = token_for(kAda);
  const auto kept = token_for(kAda);
  EXPECT_NO_THROW(with_token(short_lived.text));
  f.clock.advance(sys::Micros(kMinute - 1));
  EXPECT_NO_THROW(with_token(short_lived.text));
  f.clock.advance(sys::Micros(1));
  EXPECT_ERROR(with_token(short_lived.text), Code::unauthenticated);

  f.write([&](sql::Writer& w) { directory().revoke_token(w, revoked.id); });
  EXPECT_ERROR(with_token(revoked.text), Code::unauthenticated);
  EXPECT_NO_THROW(with_token(kept.text));
  f.restart();
  EXPECT_ERROR(with_token(revoked.text), Code::unauthenticated);
  EXPECT_NO_THROW(with_token(kept.text));

  f.write([&](sql::Writer& w) { directory().put(w, User{"", "ada", "", "", true}); });
  EXPECT_ERROR(with_token(kept.text), Code::unauthenticated);
  f.write([&](sql::Writer& w) { directory().put(w, User{"", "ada", "", "", false}); });
  EXPECT_NO_THROW(with_token(kept.text));
  f.write([&](sql::Writer& w) { directory().remove<User>(w, "ada"); });
  add_ada();
  EXPECT_ERROR(with_token(kept.text), Code::unauthenticated);  // another ada
  EXPECT_ERROR(f.write([&](sql::Writer& w) { directory().revoke_token(w, revoked.id); }), Code::not_found);
}

TEST_P(DirectoryTest, ATokenIsWorthAtMostItsPrincipalAndItsRestrictions) {
  f.write([&](sql::Writer& w) {
    directory().put(w, Service{"acme", "ci", false});
    directory().put(w, Binding{"dev", "developer", {"service/acme/ci"}, kFlights});
  });
  const auto narrow = with_token(token_for(kCi, {{{"blob.read", "user.delete"}, Scope()}}).text);
  EXPECT_TRUE(directory().allows(narrow, "blob.read", kFlights));
  EXPECT_FALSE(directory().allows(narrow, "blob.create", kFlights));  // the role would, the token does not
  EXPECT_FALSE(directory().allows(narrow, "user.delete", kFlights));  // the token would, the role does not
  EXPECT_TRUE(directory().allows(with_token(token_for(kCi).text), "blob.create", kFlights));
  EXPECT_ERROR(directory().require(narrow, "blob.create", kFlights), Code::denied);
  EXPECT_ERROR(directory().require(narrow, "user.delete", kFlights), Code::denied);
  f.restart();
  const auto again = with_token(token_for(kCi, {{{"blob.read"}, kFlights}}).text);
  EXPECT_EQ(again.restrictions.at(0).scope, kFlights);
}

TEST_P(DirectoryTest, ListsTokensWithoutSecrets) {
  add_ada();
  const auto a = token_for(kAda), b = token_for(kAda);
  f.clock.advance(sys::Micros(5 * kSecond));
  with_token(a.text);
  f.write([&](sql::Writer& w) {
    directory().revoke_token(w, b.id);
    EXPECT_EQ(directory().flush_usage(w), 1);
  });
  f.write([&](sql::Writer& w) { EXPECT_EQ(directory().flush_usage(w), 0); });
  const auto list = f.database->read([&](sql::Reader& r) { return directory().tokens(r, kAda); });
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].id, a.id);
  EXPECT_EQ(list[0].used_us, f.clock.wall().count());
  EXPECT_FALSE(list[0].revoked_us);
  EXPECT_EQ(list[1].revoked_us, f.clock.wall().count());
}

TEST_P(DirectoryTest, RefusesTokensForNobodyAndForEver) {
  EXPECT_ERROR(token_for(kAda), Code::not_found);
  add_ada();
  EXPECT_ERROR(token_for(kAda, {}, 0), Code::invalid);
  EXPECT_NO_THROW(token_for(kAda, {}, kTokenLifeMaxUs));
  EXPECT_ERROR(token_for(kAda, {}, kTokenLifeMaxUs + 1), Code::invalid);
  EXPECT_ERROR(token_for(Principal::parse("workload/acme/x")), Code::invalid);
}

TEST_P(DirectoryTest, AFailedWriteLeavesNothingBehind) {
  add_ada();
  Issued lost;
  EXPECT_ERROR(f.write([&](sql::Writer& w) {
    lost = directory().issue_token(w, {kAda, "lost", {}, kHour});
    directory().put(w, Binding{"all", "admin", {"user/ada"}, Scope()});
    throw Error(Code::conflict, "after all not");
  }),
               Code::conflict);
  EXPECT_ERROR(with_token(lost.text), Code::unauthenticated);
  EXPECT_TRUE(directory().snapshot()->all<Binding>().empty());
}

TEST_P(DirectoryTest, ASessionEndsWhenIdleOldOrClosed) {
  add_ada();
  const auto open = [&] { return f.write([&](sql::Writer& w) { return directory().open_session(w, kAda); }); };
  const auto idle = open(), busy = open(), closed = open();
  EXPECT_EQ(with_session(idle.text).principal.str(), "user/ada");
  f.write([&](sql::Writer& w) { directory().close_session(w, closed.id); });
  EXPECT_ERROR(with_session(closed.text), Code::unauthenticated);
  EXPECT_ERROR(with_token(busy.text), Code::unauthenticated);  // a session is not a token
  for (int i = 0; i < 12 * 6 - 1; ++i) {
    f.clock.advance(sys::Micros(10 * kMinute));
    ASSERT_NO_THROW(with_session(busy.text)) << i;
  }
  EXPECT_ERROR(with_session(idle.text), Code::unauthenticated);
  f.clock.advance(sys::Micros(10 * kMinute));
  EXPECT_ERROR(with_session(busy.text), Code::unauthenticated);  // twelve hours are over
  EXPECT_GT(f.write([&](sql::Writer& w) { return directory().purge(w); }), 0);
}

TEST_P(DirectoryTest, PasswordsAreCheckedSlowedDownAndEndSessionsWhenChanged) {
  add_ada();
  const auto set = [&](std::string_view password) {
    const auto hash = directory().hash_new_password(password);
    f.write([&](sql::Writer& w) { directory().set_password(w, kAda, hash); });
  };
  EXPECT_ERROR(directory().hash_new_password("11 charakte"), Code::invalid);
  set("correct horse");
  EXPECT_EQ(directory().check_password("ada", "correct horse"), kAda);
  const auto session = f.write([&](sql::Writer& w) { return directory().open_session(w, kAda); });
  set("battery staple");
  EXPECT_ERROR(with_session(session.text), Code::unauthenticated);
  for (const std::string account : {"ada", "nobody"}) {
    for (int i = 0; i < 5; ++i)
      EXPECT_ERROR(directory().check_password(account, "correct horse"), Code::unauthenticated);
    EXPECT_ERROR(directory().check_password(account, "battery staple"), Code::exhausted);
  }
  f.clock.advance(sys::Micros(kSecond));
  EXPECT_EQ(directory().check_password("ada", "battery staple"), kAda);
  f.restart();
  EXPECT_EQ(directory().check_password("ada", "battery staple"), kAda);
  f.write([&](sql::Writer& w) { directory().put(w, User{"", "ada", "", "", true}); });
  EXPECT_ERROR(directory().check_password("ada", "battery staple"), Code::unauthenticated);
}

TEST_P(DirectoryTest, GroupsGiveRolesAtOnceAndTakeThemAtOnce) {
  add_ada();
  f.write([&](sql::Writer& w) {
    directory().put(w, Group{"acme", "ml", {"user/ada"}});
    directory().put(w, Binding{"ml", "viewer", {"group/acme/ml"}, Scope::of_tenant("acme")});
  });
  const auto text = token_for(kAda).text;
  EXPECT_TRUE(directory().allows(with_token(text), "blob.read", kFlights));
  f.write([&](sql::Writer& w) { directory().put(w, Group{"acme", "ml", {}}); });
  EXPECT_FALSE(directory().allows(with_token(text), "blob.read", kFlights));
}

TEST_P(DirectoryTest, ACertificateStandsForItsPrincipal) {
  add_ada();
  Digest fingerprint;
  fingerprint.bytes[0] = std::byte{7};
  f.write([&](sql::Writer& w) { directory().put(w, Certificate{fingerprint.hex(), "user/ada"}); });
  EXPECT_EQ(directory().authenticate({{}, {}, fingerprint}).principal.str(), "user/ada");
  EXPECT_ERROR(directory().authenticate({{}, {}, Digest{}}), Code::unauthenticated);
  f.write([&](sql::Writer& w) { directory().remove<User>(w, "ada"); });
  add_ada();
  EXPECT_ERROR(directory().authenticate({{}, {}, fingerprint}), Code::unauthenticated);
}

TEST_P(DirectoryTest, AJobMayDoWhatItsTokenSaysWhateverTheRoles) {
  f.write([&](sql::Writer& w) { directory().put(w, Binding{"all", "admin", {"user/train-7"}, Scope()}); });
  const auto input = Scope::parse("/t/acme/p/flights/blob/in");
  const auto token = directory().workload_token({"train-7", 3, "acme", "flights", 0, 0, {input}, {}}, 5 * kMinute);
  const auto job = with_token(token);
  EXPECT_EQ(job.principal.str(), "workload/acme/train-7");
  EXPECT_EQ(job.workload->epoch, 3);
  EXPECT_TRUE(directory().allows(job, "blob.read", input));
  EXPECT_ERROR(directory().require(job, "blob.write", input), Code::denied);
  f.clock.advance(sys::Micros(5 * kMinute));
  EXPECT_ERROR(with_token(token), Code::unauthenticated);
}

TEST_P(DirectoryTest, WhatIsInMemoryIsWhatIsInTheDatabase) {
  constexpr std::uint64_t kSeed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  sys::SimRandom random(kSeed);
  const auto name = [&] { return "n" + std::to_string(random.below(6)); };
  for (int i = 0; i < 60; ++i) {
    try {
      f.write([&](sql::Writer& w) {
        for (int k = 0; k < 3; ++k) {
          switch (random.below(9)) {
            case 0:
              directory().put(w, User{"", name(), "x", "", random.below(2) == 0});
              break;
            case 1:
              directory().put(w, Group{"acme", name(), {"user/" + name()}});
              break;
            case 2:
              directory().put(w, Binding{name(), "viewer", {"user/" + name()}, Scope::of_tenant(name())});
              break;
            case 3:
              directory().put(w, Role{name(), {{Effect::forbid, {"blob.*"}, {"blob.read"}, {"p/*"}}}});
              break;
            case 4:
              directory().put(w, Quota{"", name(), Scope::of_tenant(name()), 5, {}, 7, {}});
              break;
            case 5:
              directory().put(w, Zone{ZoneName::parse(name()), "AE", {"disk"}});
              break;
            case 6:
              directory().remove<User>(w, name());
              break;
            case 7:
              directory().remove<Group>(w, name());
              break;
            case 8:
              directory().put(w, TransferGrant{name(), ZoneName::parse("a"), ZoneName::parse("b"), Scope(), "*", "why",
                                               "user/x", 9});
              break;
          }
        }
      });
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), Code::not_found);  // removing what is not there undoes the whole write
    }
  }
  const auto before = directory().snapshot();
  f.restart();
  const auto after = directory().snapshot();
  EXPECT_GT(before->all<User>().size(), 0U);
  EXPECT_EQ(before->all<User>(), after->all<User>());
  EXPECT_EQ(before->all<Group>(), after->all<Group>());
  EXPECT_EQ(before->all<Binding>(), after->all<Binding>());
  EXPECT_EQ(before->all<Role>(), after->all<Role>());
  EXPECT_EQ(before->all<Quota>(), after->all<Quota>());
  EXPECT_EQ(before->all<Zone>(), after->all<Zone>());
  EXPECT_EQ(before->all<TransferGrant>(), after->all<TransferGrant>());
}

// Readers that ask all the time see a token as good until the call that revokes it returns, and never after.
TEST_P(DirectoryTest, RevocationHoldsForEverybodyWhenItReturns) {
  add_ada();
  std::vector<Issued> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(token_for(kAda));
  std::atomic<std::size_t> revoked{0};
  std::atomic<bool> stop{false}, late{false};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto gone = revoked.load();
        for (std::size_t i = 0; i < gone; ++i) {
          try {
            with_token(tokens[i].text);
            late = true;
          } catch (const Error&) {
          }
        }
        if (gone < tokens.size()) directory().snapshot();
      }
    });
  }
  for (const auto& token : tokens) {
    f.write([&](sql::Writer& w) { directory().revoke_token(w, token.id); });
    ++revoked;
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_FALSE(late);
  for (const auto& token : tokens) EXPECT_ERROR(with_token(token.text), Code::unauthenticated);
}

TEST(Snapshot, FindsTheQuotasOfAScopeAndOfThoseAboveIt) {
  State state;
  std::get<Objects<Quota>>(state) = {{"a", {"", "a", Scope::of_tenant("acme"), 100, {}, {}, {}}},
                                     {"b", {"acme", "b", kFlights, 10, {}, {}, {}}},
                                     {"c", {"", "c", Scope::of_tenant("other"), 1, {}, {}, {}}}};
  const Snapshot snapshot(state);
  EXPECT_EQ(snapshot.quotas(kFlights).size(), 2U);
  EXPECT_EQ(snapshot.quotas(Scope::of_tenant("acme")).size(), 1U);
}

}  // namespace
}  // namespace falaj::iam
