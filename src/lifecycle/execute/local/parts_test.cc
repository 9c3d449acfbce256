// SPDX-License-Identifier: Apache-2.0
// The parts of a keeper that need no process.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/local/cgroups.h"
#include "lifecycle/execute/local/disk_use.h"
#include "lifecycle/execute/local/ending.h"
#include "lifecycle/execute/local/gpus.h"
#include "lifecycle/execute/local/journal.h"
#include "lifecycle/execute/local/launch_check.h"
#include "lifecycle/execute/local/local_executor.h"
#include "lifecycle/execute/local/task_log.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {
namespace {

Order some_order() {
  Order order;
  Launch& launch = order.launch;
  launch.attempt = "job.1";
  launch.command = {"prog", std::string("a\0b", 3), ""};
  launch.environment = {{"A", "1"}, {"B", ""}};
  launch.image = "/images/x";
  launch.work_directory = "/data/work";
  launch.checkpoint_directory = "/data/checkpoint";
  launch.mounts = {{"/data/in", false}, {"/data/out", true}};
  launch.tasks = {{.rank = 0, .node = "n", .cpus = {1, 2}, .gpus = {"g"}},
                  {.rank = 1, .node = "", .cpus = {}, .gpus = {}}};
  launch.limits = {1, 2, 3, 4};
  launch.isolation_min = Isolation::contained;
  launch.network = Network::host;
  launch.time_limit = Micros(7);
  launch.grace = Micros(8);
  launch.spares = 1;
  order.rules = {"n", Isolation::restricted, 99, {"/dev/x"}, {"/data/secret"}};
  return order;
}

Report some_report() {
  Report report;
  report.attempt = "job.1";
  report.phase = Phase::ended;
  report.started = Micros(5);
  report.isolation = Isolation::isolated;
  report.external_id = "x";
  report.ending.emplace();
  report.ending->reason = Reason::out_of_disk;
  report.ending->exit_code = 3;
  report.ending->signal = 9;
  report.ending->rank = 2;
  report.ending->message = "why";
  report.ending->at = Micros(6);
  report.ending->used = {Micros(7), 8};
  return report;
}

TEST(Wire, QuestionsComeBackAsTheyWere) {
  Question question{.ask = Ask::start, .id = 7, .order = some_order()};
  const Bytes bytes = encode(question);
  const auto back = decode_question(BytesView(bytes).subspan(4));
  EXPECT_EQ(back.id, 7U);
  EXPECT_EQ(encode(back), bytes);  // every field is in there
  EXPECT_EQ(back.order.launch.command, question.order.launch.command);
  EXPECT_EQ(back.order.rules.hidden, question.order.rules.hidden);
  question = {.ask = Ask::stop, .id = 8, .attempt = "job.1", .grace = Micros(5)};
  const Bytes stop = encode(question);
  EXPECT_EQ(decode_question(BytesView(stop).subspan(4)).grace, Micros(5));
}

TEST(Wire, StatementsComeBackAsTheyWere) {
  const Bytes bytes = encode(Statement{.told = Told::report, .report = some_report()});
  const auto back = decode_statement(BytesView(bytes).subspan(4));
  EXPECT_EQ(encode(back), bytes);
  EXPECT_EQ(back.report.ending->message, "why");
  Statement refused{.told = Told::answer, .id = 3, .refused = Error(Code::exhausted, "full")};
  const Bytes answer = encode(refused);
  EXPECT_EQ(decode_statement(BytesView(answer).subspan(4)).refused->code(), Code::exhausted);
}

TEST(Wire, WhatWasUsedComesBack) {
  const Bytes use = encode(Question{.ask = Ask::use, .id = 9, .attempt = "job.1"});
  EXPECT_EQ(decode_question(BytesView(use).subspan(4)).attempt, "job.1");
  const Bytes told = encode(Statement{.told = Told::used, .attempt = "job.1", .used = {Micros(5), 7}});
  const auto back = decode_statement(BytesView(told).subspan(4));
  EXPECT_EQ(back.used.cpu, Micros(5));
  EXPECT_EQ(back.used.memory_peak_bytes, 7);
  EXPECT_EQ(encode(back), told);
}

TEST(Wire, EveryTruncationIsCorrupt) {
  auto order = some_order();
  order.launch.spares = 0;  // what only younger ones say comes last, and may be missing
  const Bytes bytes = encode(Question{.ask = Ask::start, .id = 7, .order = order});
  for (std::size_t size = 4; size < bytes.size(); ++size)
    EXPECT_ERROR(decode_question(BytesView(bytes).subspan(4, size - 4)), Code::corrupt);
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_ERROR(decode_question(BytesView(longer).subspan(4)), Code::corrupt);
}

TEST(Wire, FramesComeInAnyPieces) {
  Bytes all;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const Bytes one = encode(Question{.ask = Ask::forget, .id = id, .attempt = std::string(id * 3, 'x')});
    all.insert(all.end(), one.begin(), one.end());
  }
  for (const std::size_t piece : {1U, 3U, 7U, 64U, 100'000U}) {
    Frames frames;
    std::uint64_t last = 0;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      frames.add(BytesView(all).subspan(at, std::min(piece, all.size() - at)));
      while (const auto frame = frames.next()) EXPECT_EQ(decode_question(*frame).id, ++last);
    }
    EXPECT_EQ(last, 20U);
  }
  Frames frames;
  frames.add(Bytes(4, std::byte{0xff}));
  EXPECT_ERROR(frames.next(), Code::corrupt);
}

TEST(Ending, TheFirstThatFailedByItselfDecides) {
  const TaskEnd well{.rank = 0}, failed{.rank = 1, .exit_code = 7}, later{.rank = 2, .exit_code = 8, .told = true};
  EXPECT_EQ(ending_of(std::vector{well, failed, later}, Cause::a_task_failed).exit_code, 7);
  EXPECT_EQ(ending_of(std::vector{well, failed, later}, Cause::a_task_failed).rank, 1);
  EXPECT_EQ(name_of(ending_of(std::vector{well, well}, Cause::none).reason), "finished");
  EXPECT_EQ(ending_of(std::vector{well}, Cause::none).exit_code, 0);
  const TaskEnd segv{.rank = 0, .signal = SIGSEGV};
  EXPECT_EQ(name_of(ending_of(std::vector{segv}, Cause::none).reason), "signalled");
  EXPECT_EQ(ending_of(std::vector{segv}, Cause::none).message, "task 0 was killed by SIGSEGV");
  const TaskEnd memory{.rank = 3, .signal = SIGKILL, .out_of_memory = true};
  EXPECT_EQ(name_of(ending_of(std::vector{memory}, Cause::none).reason), "out_of_memory");
  // It failed before it was told to stop.
  EXPECT_EQ(ending_of(std::vector{failed}, Cause::stop).exit_code, 7);
}

TEST(Ending, SavedHoldsForAllUnlessOneFailed) {
  const TaskEnd saved{.rank = 0, .exit_code = 75}, told{.rank = 1, .signal = SIGTERM, .told = true},
      failed{.rank = 1, .exit_code = 1};
  EXPECT_EQ(name_of(ending_of(std::vector{saved, told}, Cause::a_task_failed).reason), "checkpointed");
  EXPECT_EQ(name_of(ending_of(std::vector{saved}, Cause::stop).reason), "checkpointed");
  EXPECT_EQ(name_of(ending_of(std::vector{told, saved}, Cause::stop).reason), "checkpointed");
  EXPECT_EQ(name_of(ending_of(std::vector{told}, Cause::stop).reason), "stopped");
  EXPECT_EQ(name_of(ending_of(std::vector{saved, failed}, Cause::a_task_failed).reason), "finished");
  EXPECT_EQ(name_of(ending_of(std::vector{saved}, Cause::time_limit).reason), "time_limit");
  EXPECT_EQ(name_of(ending_of(std::vector{told}, Cause::disk).reason), "out_of_disk");
  EXPECT_EQ(name_of(ending_of(std::vector{told}, Cause::keeper_ends).reason), "node_lost");
  EXPECT_EQ(name_of(ending_of({}, Cause::stop).reason), "stopped");
}

TEST(Ending, SparesStandInForWhatWasKilled) {
  const TaskEnd well{.rank = 0}, killed{.rank = 1, .signal = SIGKILL}, again{.rank = 2, .signal = SIGKILL},
      saved{.rank = 3, .exit_code = 75}, failed{.rank = 3, .exit_code = 2}, told{.rank = 3, .signal = 9, .told = true};
  EXPECT_EQ(name_of(ending_of(std::vector{killed, well}, Cause::none, 1).reason), "finished");
  EXPECT_EQ(ending_of(std::vector{killed, well}, Cause::none, 1).signal, 0);
  EXPECT_EQ(name_of(ending_of(std::vector{killed, well}, Cause::none).reason), "signalled");
  EXPECT_EQ(ending_of(std::vector{killed, again, well}, Cause::a_task_failed, 1).rank, 2);
  EXPECT_EQ(name_of(ending_of(std::vector{killed, saved}, Cause::stop, 1).reason), "checkpointed");
  EXPECT_EQ(ending_of(std::vector{killed, failed}, Cause::a_task_failed, 1).exit_code, 2);
  EXPECT_EQ(name_of(ending_of(std::vector{killed, told}, Cause::stop, 1).reason), "stopped");
  EXPECT_EQ(name_of(ending_of(std::vector{killed, again}, Cause::none, 2).reason), "signalled");  // nobody is left
}

TEST(LaunchCheck, PathsAndNames) {
  for (const char* good : {"a", "job.1", "A-b_c.99"}) EXPECT_TRUE(is_attempt_name(good)) << good;
  for (const char* bad : {"", ".", "..", "a/b", "-x", " ", "a b", "\xc3\xa9"})
    EXPECT_FALSE(is_attempt_name(bad)) << bad;
  EXPECT_TRUE(is_attempt_name(std::string(128, 'x')));
  EXPECT_FALSE(is_attempt_name(std::string(129, 'x')));
  for (const char* good : {"/", "/a", "/a/b.c/..d"}) EXPECT_TRUE(is_plain_path(good)) << good;
  for (const char* bad : {"", "a", "/a/", "//a", "/a/./b", "/a/../b", "/.."}) EXPECT_FALSE(is_plain_path(bad)) << bad;
  EXPECT_TRUE(holds("/data", "/data/x"));
  EXPECT_TRUE(holds("/data", "/data"));
  EXPECT_TRUE(holds("/", "/data"));
  EXPECT_FALSE(holds("/dat", "/data"));
  EXPECT_FALSE(holds("/data/x", "/data"));
}

TEST(LaunchCheck, TellsEveryFaultAtOnce) {
  Order order = some_order();
  order.launch.command = {"prog"};
  check(order, "/data/keeper");
  order.launch.attempt = "../x";
  order.launch.command.clear();
  order.launch.mounts[0].path = "/data";  // holds /data/secret
  order.launch.tasks[1].rank = 0;
  order.launch.tasks[0].cpus = {-1};
  order.launch.limits.memory_bytes = -1;
  order.rules.devices = {"/etc/passwd"};
  try {
    check(order, "/data/keeper");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_EQ(error.faults().size(), 8U) << error.what();
  }
}

TEST(LaunchCheck, NothingOfTheKeeperIsShown) {
  for (const char* path : {"/data/keeper", "/data/keeper/logs/other.1", "/data", "/data/secret"})
    for (const bool image : {false, true}) {
      Order order = some_order();
      order.launch.command = {"prog"};
      if (image)
        order.launch.image = path;
      else
        order.launch.mounts = {{path, false}};
      EXPECT_ERROR(check(order, "/data/keeper"), Code::invalid);
    }
}

TEST(TaskLog, DropsTheOldestAndCountsAllBytes) {
  const sys::TempDir directory;
  const std::string place = directory / "log";
  EXPECT_EQ(read_task_log(place, 0, 0, 10).text, "");
  TaskLog log(place, 3, 512 << 10);
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = "line " + std::to_string(i) + " of something longer than a word or two\n";
    log.write(as_bytes(line));
    all += line;
  }
  ASSERT_GT(all.size(), 900U << 10);
  auto page = read_task_log(place, 3, 0, 1000);
  EXPECT_GT(page.first_offset, 0);
  EXPECT_LE(static_cast<std::int64_t>(all.size()) - page.first_offset, 512 << 10);
  EXPECT_GT(static_cast<std::int64_t>(all.size()) - page.first_offset, 400 << 10);
  std::string read;
  const auto first = static_cast<std::size_t>(page.first_offset);
  while (!page.text.empty()) {
    read += page.text;
    page = read_task_log(place, 3, page.next_offset, 77'777);
  }
  EXPECT_EQ(read, all.substr(first));
  EXPECT_EQ(page.next_offset, static_cast<std::int64_t>(all.size()));
  EXPECT_EQ(read_task_log(place, 3, page.next_offset + 1'000'000, 10).text, "");
  EXPECT_EQ(read_task_log(place, 4, 0, 10).text, "");
}

TEST(Journal, RemembersAndForgets) {
  const sys::TempDir directory;
  {
    Journal journal(directory.path());
    journal.put(some_report());
    Report other = some_report();
    other.attempt = "other.1";
    journal.put(other);
    other.ending->exit_code = 44;
    journal.put(other);
    journal.forget("job.1");
    Journal::sync(directory.path());
  }
  Journal again(directory.path());
  ASSERT_EQ(again.reports().size(), 1U);
  EXPECT_EQ(again.reports().at("other.1").ending->exit_code, 44);
}

TEST(Journal, ReadsWhatEarlierVersionsWrote) {
  const sys::TempDir directory;
  std::filesystem::copy_file(FALAJ_TESTDATA "/keeper_journal_1", directory / Journal::kName);
  const Journal journal(directory.path());
  ASSERT_EQ(journal.reports().size(), 1U);
  ByteWriter read, expected;
  write_report(read, journal.reports().at("job.1"));
  write_report(expected, some_report());
  EXPECT_EQ(read.bytes(), expected.bytes());
}

TEST(Journal, CutsATailThatWasNotWrittenWhole) {
  const sys::TempDir directory;
  const std::string path = directory / Journal::kName;
  {
    Journal journal(directory.path());
    journal.put(some_report());
  }
  const auto whole = std::filesystem::file_size(path);
  Report second = some_report();
  second.attempt = "second.1";
  Journal(directory.path()).put(second);
  const auto both = std::filesystem::file_size(path);
  std::string bytes(both, '\0');
  std::ifstream(path).read(bytes.data(), static_cast<std::streamsize>(both));
  for (auto size = whole; size <= both; ++size) {
    std::ofstream(path, std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(size));
    EXPECT_EQ(Journal(directory.path()).reports().size(), size == both ? 2U : 1U);
    EXPECT_EQ(std::filesystem::file_size(path), size == both ? both : whole);
  }
  bytes[whole + 20] ^= 1;  // a bit that turned
  std::ofstream(path, std::ios::trunc) << bytes;
  EXPECT_EQ(Journal(directory.path()).reports().size(), 1U);
  std::ofstream(path, std::ios::trunc) << "something else entirely";
  EXPECT_ERROR(Journal(directory.path()), Code::corrupt);
}

TEST(Journal, ADiskThatIsFullChangesNothing) {
  const sys::TempDir directory;
  Journal journal(directory.path());
  journal.put(some_report());
  const auto whole = std::filesystem::file_size(directory / Journal::kName);
  Report second = some_report();
  second.attempt = "second.1";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{whole + 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_ERROR(journal.put(second), Code::unavailable);
  EXPECT_EQ(journal.reports().size(), 1U);
  EXPECT_EQ(std::filesystem::file_size(directory / Journal::kName), whole);
  journal.note(second);
  EXPECT_EQ(journal.reports().size(), 2U);
  EXPECT_EQ(Journal(directory.path()).reports().size(), 1U);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  journal.put(second);
  EXPECT_EQ(Journal(directory.path()).reports().size(), 2U);
}

TEST(Journal, IsWrittenAnewWhenMostOfItIsForgotten) {
  const sys::TempDir directory;
  Journal journal(directory.path());
  Report kept = some_report();
  kept.attempt = "kept.1";
  journal.put(kept);
  Report report = some_report();
  report.ending->message = std::string(1000, 'x');
  for (int i = 0; i < 10'000; ++i) {
    report.attempt = "job" + std::to_string(i) + ".1";
    journal.put(report);
    journal.forget(report.attempt);
  }
  EXPECT_LT(std::filesystem::file_size(directory / Journal::kName), 5U << 20);
  Journal again(directory.path());
  EXPECT_EQ(again.reports().size(), 1U);
  EXPECT_EQ(again.reports().count("kept.1"), 1U);
}

TEST(DiskUse, CountsEachFileOnceAndThoseWithoutAName) {
  const sys::TempDir directory;
  EXPECT_LT(disk_use(directory.path(), {}, 1 << 30), 64 << 10);
  std::filesystem::create_directories(directory / "a/b/c");
  std::ofstream(directory / "a/b/c/file") << std::string(1 << 20, 'x');
  std::filesystem::create_hard_link(directory / "a/b/c/file", directory / "again");
  std::filesystem::create_symlink("/usr", directory / "link");
  const auto named = disk_use(directory.path(), {}, 1 << 30);
  EXPECT_GE(named, 1 << 20);
  EXPECT_LT(named, (1 << 20) + (64 << 10));
  const sys::Descriptor held(::open(directory.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!held) GTEST_SKIP() << "this file system has no files without a name";
  const std::string much(2 << 20, 'x');
  ASSERT_EQ(::write(held.get(), much.data(), much.size()), static_cast<ssize_t>(much.size()));
  EXPECT_GE(disk_use(directory.path(), {::getpid()}, 1 << 30), 3 << 20);
  EXPECT_GT(disk_use(directory.path(), {}, 1000), 1000);
  std::filesystem::path deep = directory.path();
  std::filesystem::current_path(deep);
  for (int i = 0; i < 100; ++i) {
    const std::string name(200, 'd');
    std::filesystem::create_directory(name);
    std::filesystem::current_path(name);
  }
  EXPECT_GT(disk_use(directory.path(), {}, 100 << 20), 100 << 20);  // too deep to be looked at
  std::filesystem::current_path("/");
}

TEST(Hierarchies, AreFoundAsTheyAreMounted) {
  const char* hybrid =
      "30 23 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755\n"
      "31 30 0:27 / /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory\n"
      "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
      "33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
      "34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const auto v1 = find_hierarchies(hybrid, "4:memory:/user/x\n2:cpu,cpuacct:/\n3:pids:/a:b\n0::/\n");
  EXPECT_EQ(v1.v1.at("memory"), "/sys/fs/cgroup/memory/user/x");
  EXPECT_EQ(v1.v1.at("cpu"), "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(v1.v1.at("cpuacct"), "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(v1.v1.at("pids"), "/sys/fs/cgroup/pids/a:b");
  EXPECT_EQ(v1.v2, "/sys/fs/cgroup/unified");
  const auto v2 = find_hierarchies("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
                                   "0::/system.slice/falaj.service\n");
  EXPECT_TRUE(v2.v1.empty());
  EXPECT_EQ(v2.v2, "/sys/fs/cgroup/system.slice/falaj.service");
  EXPECT_EQ(v2.v2_mount, "/sys/fs/cgroup");
  const auto container = find_hierarchies("31 30 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                                          "4:memory:/docker/abc/inner\n");
  EXPECT_EQ(container.v1.at("memory"), "/sys/fs/cgroup/memory/inner");
  EXPECT_TRUE(find_hierarchies("", "").v1.empty());
}

TEST(Gpus, TypesAreShort) {
  EXPECT_EQ(gpu_type("NVIDIA A100-SXM4-40GB"), "a100");
  EXPECT_EQ(gpu_type("Tesla V100-PCIE-16GB"), "v100");
  EXPECT_EQ(gpu_type("NVIDIA GeForce RTX 3090"), "rtx-3090");
  EXPECT_EQ(gpu_type("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(gpu_type("Tesla T4"), "t4");
}

TEST(DefaultKeeper, IsNeverSomeOtherProgram) { EXPECT_ERROR(default_keeper(), Code::unavailable); }

}  // namespace
}  // namespace falaj::execute::local
