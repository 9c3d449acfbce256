// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/manifest.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "governance/audit/testing.h"

namespace falaj::models {
namespace {

Manifest example() {
  return {"acme",
          "flights",
          "delay",
          3,
          1'700'000'000'000,
          "0123456789abcdef0123456789abcdef",
          "",
          "runs:/0123456789abcdef0123456789abcdef/model",
          {{"MLmodel", 12, crypto::sha256("a")}, {"data/m.onnx", 1'000'000, crypto::sha256("b")}},
          R"({"inputs":"[]"})"};
}

TEST(Manifests, AreReadBackAsTheyWereSigned) {
  const auto signer = audit::make_test_signer();
  const auto signed_one = sign(example(), signer);
  EXPECT_EQ(verify(signed_one, signer.public_key()), example());
  EXPECT_ERROR(verify(signed_one, audit::make_test_signer(2).public_key()), Code::corrupt);
}

TEST(Manifests, ShowEveryChangedByte) {
  const auto signer = audit::make_test_signer();
  const auto key = signer.public_key();
  const auto signed_one = sign(example(), signer);
  for (std::size_t i = 0; i < signed_one.text.size(); ++i) {
    auto altered = signed_one;
    altered.text[i] = static_cast<char>(altered.text[i] ^ 1);
    SCOPED_TRACE(i);
    EXPECT_ERROR(verify(altered, key), Code::corrupt);
  }
  for (std::size_t i = 0; i < signed_one.signature.size(); ++i) {
    auto altered = signed_one;
    altered.signature[i] ^= std::byte{1};
    EXPECT_ERROR(verify(altered, key), Code::corrupt);
  }
  auto longer = signed_one;
  longer.text += " ";
  EXPECT_ERROR(verify(longer, key), Code::corrupt);
}

TEST(Manifests, HaveOneSpelling) {
  const auto text = to_text(example());
  EXPECT_EQ(parse_manifest(text), example());
  EXPECT_ERROR(parse_manifest(" " + text), Code::corrupt);
  EXPECT_ERROR(parse_manifest(text.substr(0, text.size() - 1) + ",\"more\":1}"), Code::corrupt);
  for (const auto* bad : {"", "1", "{}", "[]", R"({"format":"falaj-model-manifest/2"})"})
    EXPECT_ERROR(parse_manifest(bad), Code::corrupt);
}

TEST(Manifests, NameTheFileThatIsNotWhatItWas) {
  const auto manifest = example();
  const auto why = [&](const std::vector<ManifestFile>& files) -> std::string {
    try {
      check_files(manifest, files);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::corrupt);
      return e.what();
    }
  };
  auto files = manifest.files;
  std::swap(files[0], files[1]);
  EXPECT_EQ(why(files), "") << "in any order";
  auto other = files;
  other[0].content = crypto::sha256("c");
  EXPECT_EQ(why(other), "a file is not what the manifest says: data/m.onnx");
  other = files;
  other[0].bytes += 1;
  EXPECT_EQ(why(other), "a file is not what the manifest says: data/m.onnx");
  other = files;
  other.pop_back();
  EXPECT_EQ(why(other), "a file of the manifest is missing: MLmodel");
  other = files;
  other.push_back({"data/extra.py", 1, crypto::sha256("d")});
  EXPECT_EQ(why(other), "a file is not in the manifest: data/extra.py");
  other = files;
  other.push_back(files[0]);
  EXPECT_EQ(why(other), "a file is there twice: data/m.onnx");
}

// A file of version 1 as it was written on the first day: readers of every later day must read it.
TEST(Manifests, OfTheFirstDayAreStillRead) {
  const auto read = [](const std::string& name) {
    std::ifstream in(std::string(FALAJ_TESTDATA) + "/manifest/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  SignedManifest golden{read("v1.json"), {}};
  const auto signature = from_hex(read("v1.signature"));
  ASSERT_EQ(signature.size(), golden.signature.size());
  std::copy(signature.begin(), signature.end(), golden.signature.begin());
  EXPECT_EQ(verify(golden, audit::make_test_signer().public_key()), example());
}

}  // namespace
}  // namespace falaj::models
