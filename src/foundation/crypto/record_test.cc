// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/record.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "foundation/base/testing.h"

namespace falaj::crypto {
namespace {

Key record_key(int n = 1) { return Key::from(Bytes(32, static_cast<std::byte>(n))); }
const Bytes kContext = to_bytes("view 7, entity 42");

Bytes sealed_record(BytesView plain) {
  Bytes out;
  RecordSealer(record_key()).seal_onto(out, kContext, plain);
  return out;
}

std::string opened(RecordOpener& opener, BytesView context, BytesView sealed) {
  Bytes out(sealed.size() < kRecordOverheadBytes ? 0 : sealed.size() - kRecordOverheadBytes);
  opener.open(context, sealed, out.data());
  return std::string(as_text(out));
}

TEST(Record, OpensWhatWasSealedManyTimesWithOneCipher) {
  RecordSealer sealer(record_key());
  RecordOpener opener(record_key());
  for (const std::size_t size : {0UL, 1UL, 15UL, 16UL, 400UL, 70'000UL}) {
    const std::string plain(size, 'p');
    Bytes out = to_bytes("before");
    sealer.seal_onto(out, kContext, as_bytes(plain));
    EXPECT_EQ(out.size(), 6 + size + kRecordOverheadBytes);
    EXPECT_EQ(as_text(BytesView(out).first(6)), "before");
    EXPECT_EQ(opened(opener, kContext, BytesView(out).subspan(6)), plain);
  }
}

// A record made by an independent implementation (Python's cryptography).
TEST(Record, IsPlainAesGcm) {
  RecordOpener opener(record_key());
  EXPECT_EQ(
      opened(opener, as_bytes("context"),
             from_hex("000102030405060708090a0bda86e74957de691fde0c82a5541cbac6dd3f8ce12c8504b483d0b080e59446f2cf")),
      "a row of features");
}

TEST(Record, NoBitMayChangeAndTheOpenerGoesOn) {
  const Bytes sealed = sealed_record(as_bytes("values"));
  RecordOpener opener(record_key());
  for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    Bytes changed = sealed;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_ERROR(opened(opener, kContext, changed), Code::corrupt);
  }
  for (std::size_t size = 0; size < sealed.size(); ++size)
    EXPECT_ERROR(opened(opener, kContext, BytesView(sealed).first(size)), Code::corrupt);
  EXPECT_ERROR(opened(opener, as_bytes("view 7, entity 43"), sealed), Code::corrupt);
  EXPECT_ERROR(opened(opener, {}, sealed), Code::corrupt);
  RecordOpener other(record_key(2));
  EXPECT_ERROR(opened(other, kContext, sealed), Code::corrupt);
  EXPECT_EQ(opened(opener, kContext, sealed), "values");
}

TEST(Record, NoncesCountUpFromAPlaceDrawnForEachSealer) {
  std::set<std::string> nonces, places;
  for (int s = 0; s < 50; ++s) {
    RecordSealer sealer(record_key());
    for (int i = 0; i < 300; ++i) {
      Bytes out;
      sealer.seal_onto(out, {}, {});
      nonces.emplace(as_text(BytesView(out).first(kRecordNonceBytes)));
      places.emplace(as_text(BytesView(out).first(8)));
    }
  }
  EXPECT_EQ(nonces.size(), 50U * 300U);
  EXPECT_EQ(places.size(), 50U);
}

// The reference vectors of SipHash-2-4-128: key 00..0f, input 00..0e.
TEST(RecordName, IsSipHash) {
  Bytes key(32), input(15);
  for (std::size_t i = 0; i < 32; ++i) key[i] = static_cast<std::byte>(i);
  for (std::size_t i = 0; i < 15; ++i) input[i] = static_cast<std::byte>(i);
  EXPECT_EQ(to_hex(record_name(Key::from(key), input)), "5493e99933b0a8117e08ec0f97cfc3d9");
  EXPECT_EQ(to_hex(record_name(Key::from(key), {})), "a3817f04ba25a8e66df67214c7550293");
}

}  // namespace
}  // namespace falaj::crypto
