// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <gtest/gtest.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/gate.h"
#include "foundation/base/id.h"
#include "foundation/base/json.h"
#include "foundation/base/metrics.h"
#include "foundation/base/queue.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"

namespace falaj {
namespace {

TEST(Code, NamesRoundTrip) {
  for (const Code c : kCodes) EXPECT_EQ(parse_code(name(c)), c);
  EXPECT_EQ(parse_code("nonsense"), std::nullopt);
}

TEST(Bytes, HexAndBase64RoundTripAndRefuseOtherSpellings) {
  std::mt19937 rng(7);
  for (std::size_t n = 0; n < 70; ++n) {
    Bytes b(n);
    for (auto& x : b) x = static_cast<std::byte>(rng());
    EXPECT_EQ(from_hex(to_hex(b)), b);
    EXPECT_EQ(from_base64(to_base64(b)), b);
    EXPECT_EQ(from_base64url(to_base64url(b)), b);
  }
  EXPECT_EQ(to_base64(as_bytes("any carnal pleas")), "YW55IGNhcm5hbCBwbGVhcw==");
  EXPECT_ERROR(from_hex("abc"), Code::invalid);
  EXPECT_ERROR(from_hex("zz"), Code::invalid);
  EXPECT_ERROR(from_base64("YQ"), Code::invalid);
  EXPECT_ERROR(from_base64url("YR"), Code::invalid);  // same byte as "YQ", other spelling
}

TEST(Bytes, ReaderReadsWhatWriterWroteAndNothingElse) {
  ByteWriter w;
  w.u8(7);
  w.u32(0xDEADBEEF);
  w.u64(0x0123456789ABCDEFULL);
  w.text("falaj");
  ByteReader r(w.bytes());
  EXPECT_EQ(r.u8(), 7);
  EXPECT_EQ(r.u32(), 0xDEADBEEF);
  EXPECT_EQ(r.u64(), 0x0123456789ABCDEFULL);
  EXPECT_EQ(r.text(), "falaj");
  r.expect_end();
  for (std::size_t n = 0; n < w.bytes().size(); ++n) {
    ByteReader cut(BytesView(w.bytes()).first(n));
    EXPECT_ERROR((cut.u8(), cut.u32(), cut.u64(), cut.text()), Code::corrupt);
  }
  ByteReader bounded(w.bytes(), 4);
  bounded.raw(13);
  EXPECT_ERROR(bounded.blob(), Code::corrupt);
}

TEST(Id, TextSortsLikeBitsAndRoundTrips) {
  std::mt19937_64 rng(1);
  std::vector<IdBits> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back({rng(), rng()});
  ids.push_back({0, 0});
  ids.push_back({~0ULL, ~0ULL});
  for (const auto& a : ids) {
    EXPECT_EQ(parse_id(format_id(a)), a);
    EXPECT_EQ(a < ids[0], format_id(a) < format_id(ids[0]));
  }
  EXPECT_ERROR(parse_id("8zzzzzzzzzzzzzzzzzzzzzzzzz"), Code::invalid);  // 130 bits
  EXPECT_ERROR(parse_id("short"), Code::invalid);
}

TEST(Json, RefusesDepthGarbageAndTrailingText) {
  EXPECT_EQ(parse_json(" {\"a\": [1, 2]} ").at("a").as_array().size(), 2U);
  EXPECT_NO_THROW(parse_json(std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']')));
  EXPECT_ERROR(parse_json(std::string(kJsonDepthMax + 1, '[') + std::string(kJsonDepthMax + 1, ']')), Code::invalid);
  EXPECT_EQ(parse_json("[0.00019120458891013384]").at(0).as_double(), 0.00019120458891013384);  // to the last digit
  EXPECT_EQ(parse_json(R"({"a":1,"a":2})").at("a").as_int64(), 2);
  EXPECT_EQ(parse_json("18446744073709551615").as_uint64(), 18446744073709551615U);
  EXPECT_EQ(parse_json("100000000000000000000").as_double(), 1e20);
  EXPECT_ERROR(parse_json("[\"\xff\"]"), Code::invalid);
  EXPECT_ERROR(parse_json("{} {}"), Code::invalid);
  EXPECT_ERROR(parse_json("{\"a\":"), Code::invalid);
  EXPECT_ERROR(parse_json(""), Code::invalid);
  EXPECT_ERROR(parse_json(std::string_view()), Code::invalid);  // text that is nowhere
}

TEST(Json, CanonicalDoesNotDependOnOrder) {
  EXPECT_EQ(canonical(parse_json(R"({"b":1,"a":{"d":[1,{"z":0,"y":1}],"c":null}})")),
            R"({"a":{"c":null,"d":[1,{"y":1,"z":0}]},"b":1})");
}

TEST(Text, SplitsTrimsAndMatches) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(trim("  x y\n"), "x y");
  EXPECT_TRUE(matches_glob("project/*/model", "project/a/b/model"));
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_FALSE(matches_glob("a*b", "ac"));
  EXPECT_TRUE(matches_glob("a*b*c", "aXbbYc"));
  EXPECT_TRUE(is_name("flights-2001.v1"));
  for (const auto* bad : {"", "-a", "a-", "A", "a/b", "a b", "..", "."}) EXPECT_FALSE(is_name(bad)) << bad;
  EXPECT_TRUE(is_name(std::string(63, 'a')));
  EXPECT_FALSE(is_name(std::string(64, 'a')));
}

TEST(Text, KnowsUtf8) {
  for (const auto* good : {"", "abc", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x90\xAA"}) EXPECT_TRUE(is_utf8(good));
  for (const auto* bad : {"\xC3", "\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "a\xE2\x82"})
    EXPECT_FALSE(is_utf8(bad));
}

TEST(Text, ParsesUnitsAndTimes) {
  EXPECT_EQ(parse_bytes("64KiB"), 65536);
  EXPECT_EQ(parse_bytes("10GB"), 10'000'000'000);
  EXPECT_EQ(parse_bytes("9999999999999TiB"), std::nullopt);
  EXPECT_EQ(parse_duration_us("250ms"), 250'000);
  EXPECT_EQ(parse_duration_us("7d"), 604'800'000'000);
  EXPECT_EQ(parse_duration_us("7 weeks"), std::nullopt);
  const auto t = parse_time("2001-07-01T12:34:56.789Z");
  ASSERT_TRUE(t);
  EXPECT_EQ(format_time(*t), "2001-07-01T12:34:56.789Z");
  EXPECT_EQ(parse_time("2001-07-01T16:34:56+04:00"), parse_time("2001-07-01T12:34:56Z"));
  for (const auto* bad : {"", "2001-02-30T00:00:00Z", "2001-07-01", "2001-07-01T12:34:56", "2001-13-01T00:00:00Z"})
    EXPECT_EQ(parse_time(bad), std::nullopt) << bad;
}

TEST(Text, SuggestsTheNearestWord) {
  static constexpr std::string_view kWords[] = {"metadata", "spec", "kind"};
  EXPECT_EQ(nearest("metdata", kWords), "metadata");
  EXPECT_EQ(nearest("completely", kWords), std::nullopt);
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> q(2);
  int a = 1, b = 2, c = 3;
  EXPECT_TRUE(q.try_push(a));
  EXPECT_TRUE(q.try_push(b));
  EXPECT_FALSE(q.try_push(c));
  q.close();
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.pop_many(8), std::vector<int>{2});
  EXPECT_EQ(q.pop(), std::nullopt);
  EXPECT_FALSE(q.try_push(c));
}

TEST(Gate, RefusesAfterClose) {
  Gate gate;
  { EXPECT_TRUE(gate.enter()); }
  gate.close();
  EXPECT_FALSE(gate.enter());
}

TEST(Metrics, RendersWhatWasCounted) {
  Metrics m;
  m.counter("falaj_test_total", "Tests.", {{"kind", "a"}}).Increment(3);
  double depth = 0;
  auto& gauge = m.gauge("falaj_depth", "Depth.");
  m.before_render([&] { gauge.Set(depth); });
  depth = 5;
  const auto text = m.render();
  EXPECT_NE(text.find("falaj_test_total{kind=\"a\"} 3"), std::string::npos) << text;
  EXPECT_NE(text.find("falaj_depth 5"), std::string::npos) << text;
}

}  // namespace
}  // namespace falaj
