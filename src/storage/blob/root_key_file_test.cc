// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/root_key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "foundation/base/testing.h"
#include "foundation/sys/sim_files.h"
#include "foundation/sys/testing.h"

namespace falaj::blob {
namespace {

TEST(RootKeyFile, IsMadeOnceAndOnlyForItsOwner) {
  const sys::TempDir dir;
  const auto files = sys::open_files(dir.path());
  const crypto::Key root = load_or_make_root_key(*files, "root.key");
  EXPECT_EQ(to_hex(load_or_make_root_key(*files, "root.key").view()), to_hex(root.view()));
  struct stat st {};
  ASSERT_EQ(::stat((dir / "root.key").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
}

TEST(RootKeyFile, SurvivesAPowerLossOnceGivenOut) {
  const sys::SimClock clock;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    sys::SimFiles files(clock, seed);
    const crypto::Key root = load_or_make_root_key(files, "root.key");
    files.crash();
    EXPECT_EQ(to_hex(load_or_make_root_key(files, "root.key").view()), to_hex(root.view()));
    const crypto::Key other = crypto::Key::random();
    replace_root_key(files, "root.key", other);
    files.crash();
    EXPECT_EQ(to_hex(load_or_make_root_key(files, "root.key").view()), to_hex(other.view()));
  }
}

TEST(RootKeyFile, LockedOpensOnlyWithThePassphrase) {
  const sys::SimClock clock;
  sys::SimFiles files(clock, 1);
  const crypto::Key root = load_or_make_root_key(files, "root.key", "open sesame");
  EXPECT_EQ(to_hex(load_or_make_root_key(files, "root.key", "open sesame").view()), to_hex(root.view()));
  EXPECT_ERROR(load_or_make_root_key(files, "root.key", "wrong"), Code::denied);
  EXPECT_ERROR(load_or_make_root_key(files, "root.key"), Code::invalid);
}

}  // namespace
}  // namespace falaj::blob
