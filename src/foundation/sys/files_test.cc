// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/files.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "foundation/base/testing.h"
#include "foundation/sys/faulty_files.h"
#include "foundation/sys/files_contract.h"
#include "foundation/sys/sim_files.h"
#include "foundation/sys/testing.h"

namespace falaj::sys {
namespace {

using Durable = NewFile::Durable;
using Existing = NewFile::Existing;

std::shared_ptr<Files> make_real() {
  struct Both {
    TempDir root;
    std::unique_ptr<Files> files = open_files(root / "data");
  };
  const auto both = std::make_shared<Both>();
  return {both, both->files.get()};
}
std::shared_ptr<Files> make_sim() {
  struct Both {
    SimClock clock;
    SimFiles files{clock, 1};
  };
  const auto both = std::make_shared<Both>();
  return {both, &both->files};
}
std::shared_ptr<Files> make_never_faulty() {
  struct Both {
    std::shared_ptr<Files> next = make_sim();
    FaultyFiles files{*next, [](FileCall, const std::string&) { return false; }};
  };
  const auto both = std::make_shared<Both>();
  return {both, &both->files};
}

INSTANTIATE_TEST_SUITE_P(All, FilesContract,
                         testing::Values(FilesMaker{"Real", make_real}, FilesMaker{"Sim", make_sim},
                                         FilesMaker{"Faulty", make_never_faulty}),
                         [](const auto& made) { return made.param.name; });

void put(Files& files, const std::string& path, std::string_view text, Durable durable,
         Existing existing = Existing::replace) {
  const auto file = files.create();
  file->write(as_bytes(text));
  file->commit(path, durable, existing);
}
std::string get(Files& files, const std::string& path) { return std::string(as_text(files.read_all(path, 1 << 20))); }

TEST(RealFiles, FollowsNoLink) {
  TempDir dir;
  std::ofstream(dir / "secret") << "outside";
  const auto files = open_files(dir / "data");
  const std::filesystem::path root = dir / "data";
  put(*files, "inside/file", "x", Durable::now);
  std::filesystem::create_symlink(dir / "secret", root / "absolute");
  std::filesystem::create_symlink("../secret", root / "upward");
  std::filesystem::create_symlink("inside", root / "sideways");
  std::filesystem::create_symlink("/proc/self/root", root / "magic");
  for (const auto* path : {"absolute", "upward", "sideways", "sideways/file", "magic/etc/passwd"}) {
    SCOPED_TRACE(path);
    EXPECT_ERROR(files->open(path), Code::invalid);
  }
  EXPECT_ERROR(files->list("sideways"), Code::invalid);
  EXPECT_ERROR(files->remove("sideways/file"), Code::invalid);
  EXPECT_ERROR(files->stat("sideways/file"), Code::invalid);
  EXPECT_ERROR(put(*files, "sideways/new", "x", Durable::now), Code::invalid);
  EXPECT_ERROR(put(*files, "upward", "x", Durable::now, Existing::keep), Code::invalid);
  EXPECT_FALSE(files->stat("upward"));
  ASSERT_EQ(files->list("").size(), 1U);
  put(*files, "upward", "mine", Durable::now);  // replaces the link, does not write through it
  EXPECT_EQ(get(*files, "upward"), "mine");
  std::string outside;
  std::ifstream(dir / "secret") >> outside;
  EXPECT_EQ(outside, "outside");
}

TEST(RealFiles, OnlyReadsWhereItMayOnlyRead) {
  const TempDir root;
  put(*open_files(root / "data"), "d/f", "x", Durable::now);
  const auto files = read_files(root / "data");
  EXPECT_EQ(get(*files, "d/f"), "x");
  EXPECT_EQ(files->list("").size(), 1U);
  EXPECT_ERROR(files->create(), Code::denied);
  EXPECT_ERROR(files->scratch(), Code::denied);
  EXPECT_ERROR(files->remove("d/f"), Code::denied);
  EXPECT_ERROR(files->make_directories("e"), Code::denied);
  EXPECT_ERROR(read_files(root / "nothing"), Code::not_found);
}

TEST(RealFiles, DoesNotWaitForAPipe) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  ASSERT_EQ(::mkfifo((dir / "data/pipe").c_str(), 0600), 0);
  EXPECT_ERROR(files->open("pipe"), Code::invalid);
}

TEST(RealFiles, KeepsEverythingToItsOwner) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  put(*files, "d/f", "x", Durable::now);
  const auto mode = [&](const char* path) {
    return static_cast<int>(std::filesystem::status(dir / path).permissions());
  };
  EXPECT_EQ(mode("data"), 0700);
  EXPECT_EQ(mode("data/d"), 0700);
  EXPECT_EQ(mode("data/d/f"), 0600);
}

TEST(RealFiles, SweepsWhatAKilledProcessLeftOnlyWhenAlone) {
  TempDir dir;
  { open_files(dir / "data"); }
  std::ofstream(dir / "data/.new/0123") << "left by a crash";
  const auto files = open_files(dir / "data");
  EXPECT_TRUE(std::filesystem::is_empty(dir / "data/.new"));
  const auto unfinished = files->create();
  unfinished->write(as_bytes("mine"));
  const auto second = open_files(dir / "data");  // must not take what the first is writing
  unfinished->commit("f", Durable::now, Existing::replace);
  EXPECT_EQ(get(*second, "f"), "mine");
}

TEST(RealFiles, MakesItsRootAndWhatIsAboveIt) {
  TempDir dir;
  open_files(dir / "no/such/parent")->write_all("f", as_bytes(std::string_view("x")));
  EXPECT_EQ(get(*open_files(dir / "no/such/parent"), "f"), "x");
  EXPECT_EQ(std::filesystem::status(dir / "no").permissions(), std::filesystem::perms::owner_all);
  std::ofstream(dir / "file") << "x";
  EXPECT_ERROR(open_files(dir / "file"), Code::invalid);
  EXPECT_ERROR(open_files(dir / "file/below"), Code::invalid);
}

// From here on the kernel answers this call of this process with an I/O error.
void break_call(unsigned number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  CHECK(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no filter without it");
  CHECK(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "the filter is refused");
}

TEST(RealFilesDeathTest, AFailedSyncEndsTheProcess) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  const auto with_broken = [&](unsigned call, const std::function<void()>& act) {
    break_call(call);
    act();
  };
  EXPECT_EXIT(with_broken(SYS_fsync, [&] { files->write_all("f", as_bytes("x")); }), testing::KilledBySignal(SIGABRT),
              "sync_failed");
  EXPECT_EXIT(with_broken(SYS_fsync, [&] { files->make_directories("d"); }), testing::KilledBySignal(SIGABRT),
              "sync_failed");
  EXPECT_EXIT(with_broken(SYS_syncfs, [&] { files->sync(); }), testing::KilledBySignal(SIGABRT), "sync_failed");
}

TEST(RealFilesDeathTest, AnIoErrorIsUnavailable) {
  TempDir dir;
  const auto files = open_files(dir / "data");
  EXPECT_EXIT(
      {
        files->write_all("f", as_bytes("x"));
        break_call(SYS_pread64);
        try {
          files->read_all("f", 10);
        } catch (const Error& error) {
          std::_Exit(error.code() == Code::unavailable ? 7 : 8);
        }
      },
      testing::ExitedWithCode(7), "file_failed");
}

// A power loss at any time: durable things stay, others are as they were, gone, new or torn, and every outcome happens.
TEST(SimFiles, LosesOnlyWhatWasNotDurable) {
  std::set<std::string> fresh, replaced, removed;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimClock clock;
    SimFiles files(clock, seed);
    put(files, "a/durable", "durable", Durable::now);
    put(files, "a/synced", "synced", Durable::at_sync);
    put(files, "a/replaced", "old", Durable::now);
    put(files, "a/removed", "here", Durable::now);
    files.sync();
    put(files, "b/fresh", "fresh bytes", Durable::at_sync, Existing::keep);
    put(files, "a/replaced", "new bytes", Durable::at_sync);
    files.remove("a/removed");
    const auto unfinished = files.create();
    unfinished->write(as_bytes("x"));
    files.crash();
    EXPECT_EQ(get(files, "a/durable"), "durable");
    EXPECT_EQ(get(files, "a/synced"), "synced");
    const auto outcome = [&](const std::string& path) { return files.stat(path) ? get(files, path) : "gone"; };
    fresh.insert(outcome("b/fresh"));
    replaced.insert(outcome("a/replaced"));
    removed.insert(outcome("a/removed"));
    EXPECT_ERROR(unfinished->commit("late", Durable::now, Existing::replace), Code::unavailable);
    files.crash();  // what survived once is on disk
    EXPECT_EQ(get(files, "a/durable"), "durable");
  }
  EXPECT_EQ(replaced, (std::set<std::string>{"old", "new bytes"}));
  EXPECT_EQ(removed, (std::set<std::string>{"here", "gone"}));
  EXPECT_TRUE(fresh.contains("gone") && fresh.contains("fresh bytes") && fresh.contains("fre"));
  EXPECT_TRUE(fresh.contains(std::string("fre") + std::string(8, '\0')));
}

TEST(SimFiles, KeepingADurableCommitMakesTheKeptFileDurable) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimClock clock;
    SimFiles files(clock, seed);
    put(files, "object", "bytes", Durable::at_sync, Existing::keep);
    put(files, "object", "bytes", Durable::now, Existing::keep);
    files.crash();
    EXPECT_EQ(get(files, "object"), "bytes") << "seed " << seed;
  }
}

TEST(SimFiles, TheSameSeedLosesTheSame) {
  const auto run = [](std::uint64_t seed) {
    SimClock clock;
    SimFiles files(clock, seed);
    for (int i = 0; i < 50; ++i) put(files, "f" + std::to_string(i), "some bytes", Durable::at_sync, Existing::keep);
    files.crash();
    std::string out;
    for (const auto& info : files.list("")) out += info.name + "=" + get(files, info.name) + ";";
    return out;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

TEST(FaultyFiles, FailsEachCallInTurnAndLeavesTheRestAlone) {
  std::uint64_t n = 1;
  for (bool failed = true; failed; ++n) {
    const auto next = make_sim();
    FaultyFiles files(*next, FaultyFiles::nth(n));
    try {
      files.make_directories("d");
      put(files, "d/f", "x", Durable::now);
      get(files, "d/f");
      files.list("d");
      files.stat("d/f");
      files.remove("d/f");
      files.sync();
      failed = false;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unavailable);
      EXPECT_EQ(files.failures(), 1U);
      EXPECT_EQ(next->stat("d/f").has_value(), n > 4 && n < 10) << "a failed call had an effect";
    }
  }
  EXPECT_EQ(n, 12U);  // ten calls failed, the eleventh run had none to fail
}

}  // namespace
}  // namespace falaj::sys
