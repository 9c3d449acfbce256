// SPDX-License-Identifier: Apache-2.0
// The S3 backend against a real server that checks signatures.
#include "storage/blob/s3_backend.h"

#include <gtest/gtest.h>

#include <atomic>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "storage/blob/backend_contract.h"
#include "storage/blob/s3_sign.h"
#include "storage/blob/s3_xml.h"
#include "storage/blob/store.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

const sys::RealClock kClock;

// One server for all tests: it takes seconds to start. Each test has a bucket of its own.
SwiftServer* server() {
  static const std::unique_ptr<SwiftServer> running =
      SwiftServer::is_installed() ? std::make_unique<SwiftServer>() : nullptr;
  return running.get();
}

S3Options options_for(const std::string& endpoint) {
  static std::atomic<int> buckets{0};
  S3Options options;
  options.endpoint = endpoint;
  options.region = SwiftServer::kRegion;
  options.bucket = "bucket" + std::to_string(++buckets);
  options.prefix = "falaj/uae/";
  options.access_key = SwiftServer::kAccessKey;
  options.secret_key = SwiftServer::kSecretKey;
  options.pause = [](sys::Micros) {};
  return options;
}

BackendUnderTest s3() {
  if (!server()) return {};
  auto random = std::make_shared<sys::SimRandom>(1);
  auto backend = std::make_unique<S3Backend>(options_for(server()->endpoint()), kClock, *random);
  backend->make_bucket();
  return {random, std::move(backend)};
}

INSTANTIATE_TEST_SUITE_P(S3, BackendContract, testing::Values(MakeBackend{"S3", s3}),
                         [](const auto& info) { return info.param.name; });

class S3Test : public testing::Test {
 protected:
  void SetUp() override {
    if (!server()) GTEST_SKIP() << "swift, the real S3 server of this test, is not installed on this machine";
  }
  sys::SimRandom random_{1};
};

TEST_F(S3Test, PutsLargeOnesInParts) {
  S3Options options = options_for(server()->endpoint());
  options.multipart_bytes = 6U << 20;
  options.part_bytes = 5U << 20;
  S3Backend backend(options, kClock, random_);
  backend.make_bucket();
  const Bytes bytes = random_bytes(12'000'000, 1);
  backend.put("s/c/large", bytes, Durable::now, Existing::replace);
  EXPECT_EQ(backend.get("s/c/large", 0, Backend::kToTheEnd), bytes);
  EXPECT_EQ(backend.stat("s/c/large")->bytes, bytes.size());
}

TEST_F(S3Test, AWrongSecretIsDenied) {
  S3Options options = options_for(server()->endpoint());
  S3Backend(options, kClock, random_).make_bucket();
  options.secret_key = "WRONG";
  S3Backend backend(options, kClock, random_);
  EXPECT_ERROR(backend.put("s/c/abcd", as_bytes("x"), Durable::now, Existing::replace), Code::denied);
  EXPECT_ERROR(backend.get("s/c/abcd", 0, 1), Code::denied);
  EXPECT_ERROR(backend.list("", "", 10), Code::denied);
}

TEST_F(S3Test, AMissingBucketIsNotAMissingBlob) {
  S3Backend backend(options_for(server()->endpoint()), kClock, random_);
  EXPECT_ERROR(backend.get("s/c/abcd", 0, Backend::kToTheEnd), Code::unavailable);
}

TEST_F(S3Test, HoldsAWholeStore) {
  S3Backend backend(options_for(server()->endpoint()), kClock, random_);
  backend.make_bucket();
  FixedKeys keys;
  Metrics metrics;
  const TenantName tenant{"acme"};
  const ZoneName zone{"uae"};
  Store store(zone, backend, keys, kClock, metrics);
  const Bytes bytes = random_bytes(5'000'000, 1);
  const Address address = store.put(tenant, source_of(bytes)).info.address;
  EXPECT_EQ(store.put(tenant, source_of(bytes)).new_bytes, 0U);
  EXPECT_EQ(store.get({tenant, zone}, address)->read_all(), bytes);
  EXPECT_TRUE(store.scrub(tenant).damaged.empty());
  EXPECT_EQ(store.collect(tenant, {}).blocks, 0U);
}

TEST(S3Backend, TriesAgainABoundedNumberOfTimesWithGrowingPauses) {
  // A port that was the kernel's choice and that nobody listens on.
  std::vector<sys::Micros> pauses;
  S3Options options = options_for("http://127.0.0.1:1");
  options.attempts = 4;
  options.backoff = std::chrono::milliseconds(100);
  options.pause = [&](sys::Micros wait) { pauses.push_back(wait); };
  sys::SimRandom random(1);
  S3Backend backend(options, kClock, random);
  EXPECT_ERROR(backend.get("s/c/abcd", 0, 1), Code::unavailable);
  ASSERT_EQ(pauses.size(), 3U);
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    const auto whole = std::chrono::milliseconds(100) * (1 << i);
    EXPECT_GE(pauses[i], whole / 2);
    EXPECT_LE(pauses[i], whole);
  }
}

TEST(S3Backend, RefusesOptionsThatCannotWork) {
  sys::SimRandom random(1);
  S3Options options = options_for("ftp://somewhere");
  EXPECT_ERROR(S3Backend(options, kClock, random), Code::invalid);
  options = options_for("http://127.0.0.1:1");
  options.bucket = "";
  EXPECT_ERROR(S3Backend(options, kClock, random), Code::invalid);
}

// The examples of Amazon's "Signature Calculations for the Authorization Header".
TEST(S3Sign, GivesThePublishedSignatures) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1"};
  const std::string empty = crypto::sha256("").hex();
  EXPECT_EQ(amz_date(1'369'353'600'000'000), "20130524T000000Z");
  std::map<std::string, std::string> headers = {
      {"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-content-sha256", empty}, {"x-amz-date", "20130524T000000Z"}};
  EXPECT_TRUE(sign({"GET", "/", query_string({{"prefix", "J"}, {"max-keys", "2"}}), headers, empty}, credentials)
                  .ends_with("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
  EXPECT_TRUE(sign({"GET", "/", query_string({{"lifecycle", ""}}), headers, empty}, credentials)
                  .ends_with("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  headers["range"] = "bytes=0-9";
  EXPECT_EQ(sign({"GET", "/test.txt", "", headers, empty}, credentials),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(S3Xml, FindsElementsAndReplacesEntities) {
  EXPECT_EQ(element_text("<a><b>x</b><b>y</b></a>", "b"), "x");
  EXPECT_EQ(elements("<b>x</b><b>y</b><b>", "b").size(), 2U);
  EXPECT_EQ(element_text("<e>&quot;&amp;lt;&lt;&unknown;</e>", "e"), "\"&lt;<&unknown;");
  EXPECT_EQ(element_text("<e>", "e"), std::nullopt);
  const S3Listing listing = parse_listing(
      "<ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated><Contents><Key>a/b</Key><Size>7</Size>"
      "<LastModified>2024-05-01T10:00:00.000Z</LastModified></Contents></ListBucketResult>");
  ASSERT_EQ(listing.blobs.size(), 1U);
  EXPECT_EQ(listing.blobs[0].name, "a/b");
  EXPECT_EQ(listing.blobs[0].bytes, 7U);
  EXPECT_TRUE(listing.truncated);
  EXPECT_ERROR(parse_listing("<html>"), Code::unavailable);
  EXPECT_ERROR(parse_listing("<ListBucketResult><Contents><Key>a</Key></Contents>"), Code::unavailable);
}

}  // namespace
}  // namespace falaj::blob
