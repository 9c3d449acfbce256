// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/root_keys.h"

#include <sys/stat.h>

#include "foundation/base/testing.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/sim_files.h"
#include "foundation/sys/testing.h"

namespace falaj::vault {
namespace {

constexpr crypto::PasswordCost kCheap{8192, 1};
const std::string kFile = "root.key";

struct RootKeysFile : testing::Test {
  RootKeys open(std::optional<std::string_view> passphrase = std::nullopt) {
    return RootKeys::open(files, kFile, passphrase, kCheap);
  }
  // What opening the file with these bytes in it throws; nothing when it opens.
  std::optional<Code> code_of(BytesView altered, std::optional<std::string_view> passphrase) {
    files.write_all(kFile, altered);
    try {
      open(passphrase);
      return std::nullopt;
    } catch (const Error& error) {
      return error.code();
    }
  }
  void expect_every_change_found(std::optional<std::string_view> passphrase) {
    const Bytes whole = [&] {
      open(passphrase);
      return files.read_all(kFile, 1 << 16);
    }();
    const auto expect_refused = [&](BytesView altered, const std::string& what) {
      const auto code = code_of(altered, passphrase);
      EXPECT_TRUE(code == Code::corrupt || code == Code::denied) << what << ": " << (code ? name(*code) : "opened");
    };
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const unsigned bit : {0U, 7U}) {
        Bytes altered = whole;
        altered[i] ^= std::byte{1} << bit;
        expect_refused(altered, "bit " + std::to_string(bit) + " of byte " + std::to_string(i));
      }
      expect_refused(BytesView(whole).first(i), "cut to " + std::to_string(i));
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    expect_refused(longer, "one byte more");
    expect_refused(Bytes(1 << 20), "a megabyte of zeros");
  }

  sys::SimClock clock;
  sys::SimFiles files{clock, 1};
};

TEST_F(RootKeysFile, IsMadeOnceAndReadAgain) {
  const auto made = open();
  EXPECT_EQ(made.count(), 1U);
  EXPECT_EQ(open().encode(), made.encode());
}

TEST_F(RootKeysFile, IsOnDiskBeforeItIsUsed) {
  const auto made = open();
  files.crash();
  EXPECT_EQ(open().encode(), made.encode());
}

TEST_F(RootKeysFile, IsLockedByItsPassphrase) {
  const auto made = open("correct horse battery");
  EXPECT_EQ(open("correct horse battery").encode(), made.encode());
  EXPECT_ERROR(open("correct horse batterz"), Code::denied);
  EXPECT_ERROR(open(""), Code::denied);
  EXPECT_ERROR(open(), Code::denied);
  const Bytes text = files.read_all(kFile, 1 << 16);
  EXPECT_EQ(as_text(text).find(as_text(made.nth_newest(0).view())), std::string_view::npos)
      << "the key itself is in it";
}

TEST_F(RootKeysFile, IsLockedWhenAPassphraseIsSetLater) {
  const auto made = open();
  EXPECT_EQ(open("set later").encode(), made.encode());
  EXPECT_ERROR(open(), Code::denied);
  EXPECT_EQ(open("set later").encode(), made.encode());
}

TEST_F(RootKeysFile, FindsEveryChangeWithoutALock) { expect_every_change_found(std::nullopt); }
TEST_F(RootKeysFile, FindsEveryChangeWithALock) { expect_every_change_found("correct horse battery"); }

TEST_F(RootKeysFile, GivesEachPurposeAKeyOfItsOwn) {
  const auto keys = open();
  const auto audit = keys.platform_key(kAuditSignatures), answers = keys.platform_key(kKeptAnswers);
  EXPECT_NE(as_text(audit.view()), as_text(answers.view()));
  EXPECT_EQ(as_text(audit.view()), as_text(open().platform_key(kAuditSignatures).view()));
}

TEST_F(RootKeysFile, KeepsBothRootsWhileTheyAreRotated) {
  auto keys = open();
  const auto old = keys.nth_newest(0).copy();
  EXPECT_EQ(keys.add_root(), 2U);
  keys.save(files, kFile, std::nullopt);
  auto both = open();
  ASSERT_EQ(both.count(), 2U);
  EXPECT_EQ(as_text(both.nth_newest(1).view()), as_text(old.view()));
  both.keep_only(1);
  EXPECT_EQ(both.count(), 1U);
  EXPECT_EQ(as_text(both.nth_newest(0).view()), as_text(old.view()));
}

TEST(RootKeysOnDisk, AreForTheirOwnerOnly) {
  const sys::TempDir dir;
  const auto files = sys::open_files(dir / "data");
  RootKeys::open(*files, kFile, std::nullopt);
  const std::string path = dir / "data" + "/" + kFile;
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
  for (const mode_t mode : {0640U, 0604U, 0660U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    SCOPED_TRACE(mode);
    EXPECT_ERROR(RootKeys::open(*files, kFile, std::nullopt), Code::denied);
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  RootKeys::open(*files, kFile, std::nullopt);
}

TEST(RootKeys, DecodeRefusesWhatEncodeNeverGave) {
  EXPECT_ERROR(RootKeys::decode({}), Code::corrupt);
  ByteWriter none;
  none.u32(0);
  none.raw(Bytes(32));
  EXPECT_ERROR(RootKeys::decode(none.bytes()), Code::corrupt);
  ByteWriter many;
  many.u32(0xFFFFFFFF);
  EXPECT_ERROR(RootKeys::decode(many.bytes()), Code::corrupt);
}

}  // namespace
}  // namespace falaj::vault
