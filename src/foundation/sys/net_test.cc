// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/net.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/sim_net.h"

namespace falaj::sys {
namespace {

TEST(Address, RoundTripsAndRefusesWhatIsNone) {
  for (const auto* text : {"1.2.3.4", "0.0.0.0", "::", "::1", "2001:db8::5", "fe80::1"})
    EXPECT_EQ(Address::parse(text).str(), text);
  EXPECT_EQ(Address::parse("::ffff:1.2.3.4"), Address::parse("1.2.3.4"));
  EXPECT_TRUE(Address::parse("::ffff:1.2.3.4").is_v4());
  EXPECT_FALSE(Address::parse("::1.2.3.4").is_v4());
  for (const auto* bad : {"", "1.2.3", "1.2.3.4.5", "256.1.1.1", "0177.0.0.1", "127.1", "2130706433", "0x7f.1",
                          "fe80::1%eth0", "[::1]", "1.2.3.4 ", "localhost", "1::2::3"}) {
    SCOPED_TRACE(bad);
    EXPECT_ERROR(Address::parse(bad), Code::invalid);
  }
  EXPECT_ERROR(Address::parse(std::string("8.8.8.8\0.evil", 13)), Code::invalid);
}

TEST(Address, KnowsLoopback) {
  for (const auto* text : {"127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(Address::parse(text).is_loopback());
  for (const auto* text : {"128.0.0.1", "::2", "::", "0.0.0.0"}) EXPECT_FALSE(Address::parse(text).is_loopback());
}

// The first and last address of every special range, and their neighbours outside.
TEST(Address, IsGlobalOnlyWhereThePublicInternetIs) {
  for (const auto* text : {"0.0.0.0",
                           "0.255.255.255",
                           "10.0.0.0",
                           "10.255.255.255",
                           "100.64.0.0",
                           "100.127.255.255",
                           "127.0.0.1",
                           "169.254.0.0",
                           "169.254.169.254",
                           "169.254.255.255",
                           "172.16.0.0",
                           "172.31.255.255",
                           "192.0.0.0",
                           "192.0.0.255",
                           "192.0.2.1",
                           "192.88.99.1",
                           "192.168.0.0",
                           "192.168.255.255",
                           "198.18.0.0",
                           "198.19.255.255",
                           "198.51.100.9",
                           "203.0.113.9",
                           "224.0.0.0",
                           "239.255.255.255",
                           "240.0.0.0",
                           "255.255.255.255",
                           "::ffff:10.0.0.1",
                           "::ffff:169.254.169.254",
                           "::",
                           "::1",
                           "::127.0.0.1",
                           "::8.8.8.8",
                           "fc00::",
                           "fdff:ffff::1",
                           "fe80::1",
                           "febf::1",
                           "fec0::1",
                           "ff00::",
                           "ff02::1",
                           "2001:db8::",
                           "2001:db8:ffff::1",
                           "2001::1",
                           "2001:1ff::1",
                           "3fff::1",
                           "3fff:fff::1",
                           "64:ff9b::10.0.0.1",
                           "64:ff9b::127.0.0.1",
                           "64:ff9b::169.254.169.254",
                           "64:ff9b:1::808:808",
                           "2002:a00:1::1",
                           "2002:7f00:1::",
                           "2002:a9fe:a9fe::1",
                           "2002:c0a8:101::",
                           "100::1",
                           "4000::1",
                           "5f00::1",
                           "1fff::1"})
    EXPECT_FALSE(Address::parse(text).is_global()) << text;
  for (const auto* text :
       {"1.0.0.0",         "9.255.255.255",    "11.0.0.0",       "100.63.255.255", "100.128.0.0",     "126.255.255.255",
        "128.0.0.0",       "169.253.255.255",  "169.255.0.0",    "172.15.255.255", "172.32.0.0",      "192.0.1.0",
        "192.167.255.255", "192.169.0.0",      "198.17.255.255", "198.20.0.0",     "223.255.255.255", "8.8.8.8",
        "::ffff:8.8.8.8",  "2001:200::1",      "2001:db7::1",    "2001:db9::1",    "2606:4700::1111", "2a00::1",
        "3ffe::1",         "64:ff9b::8.8.8.8", "2002:808:808::1"})
    EXPECT_TRUE(Address::parse(text).is_global()) << text;
}

TEST(RealResolver, ResolvesLocalNamesAndLiterals) {
  RealResolver resolver;
  const auto local = resolver.resolve("localhost");
  ASSERT_FALSE(local.empty());
  for (const auto& address : local) EXPECT_TRUE(address.is_loopback()) << address.str();
  EXPECT_EQ(resolver.resolve("192.0.2.7"), std::vector{Address::parse("192.0.2.7")});
  // The spellings parse() refuses are still addresses to the resolver: checks belong after it.
  EXPECT_TRUE(resolver.resolve("127.1").at(0).is_loopback());
  EXPECT_ERROR(resolver.resolve(""), Code::not_found);
  EXPECT_ERROR(resolver.resolve(std::string("localhost\0x", 11)), Code::not_found);
  EXPECT_ERROR(resolver.resolve(std::string(254, 'a')), Code::not_found);
}

TEST(SimResolver, KnowsWhatItWasTold) {
  SimResolver resolver;
  EXPECT_ERROR(resolver.resolve("store.example"), Code::not_found);
  resolver.set("store.example", {Address::parse("10.0.0.1")});
  EXPECT_EQ(resolver.resolve("store.example").at(0).str(), "10.0.0.1");
}

}  // namespace
}  // namespace falaj::sys
